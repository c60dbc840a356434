/* post: examples as the source of a run. */
#include <errno.h>

#include "post/post_priv.h"

static const char *kind_name(enum ash_examples_kind kind)
{
    return kind == ASH_EXAMPLES_PAIRS ? "pairs" : "examples";
}

/* The examples of a folder, which must be of a kind. */
static int open_folder(const struct ash_job *job, const char *dir, enum ash_examples_kind kind,
                       struct ash_examples **examples_out, struct ash_err *err)
{
    int rc = ash_examples_open(dir, examples_out, err);

    if (rc < 0) return rc;
    if (ash_examples_get_kind(*examples_out) != kind)
        return ash_err_set(err, -EINVAL, "%s holds %s, but train.method=%s learns from %s", dir,
                           kind_name(ash_examples_get_kind(*examples_out)), ash_job_method_names[job->train.method],
                           kind_name(kind));
    return 0;
}

/* Examples as sequences, as the job wants them. */
static int open_packed(const struct ash_job *job, const struct ash_examples *examples, uint64_t seed,
                       struct ash_packed **packed_out, struct ash_err *err)
{
    struct ash_packed_opts opts = {.seq_tokens = (size_t)job->data.seq_tokens,
                                   .seed = seed,
                                   .packing = job->sft.packing,
                                   .truncate = (enum ash_truncate)job->sft.truncate,
                                   .learn = (enum ash_learn)job->sft.train_on};

    return ash_packed_open(examples, &opts, packed_out, err);
}

int ash_post_open_examples(struct ash_post *post, enum ash_examples_kind kind, struct ash_err *err)
{
    const struct ash_job *job = post->job;
    int rc = open_folder(job, job->data.train, kind, &post->train, err);

    if (rc == 0) rc = open_packed(job, post->train, (uint64_t)job->train.seed, &post->packed, err);
    if (rc < 0) return ash_err_prefix(err, rc, "data.train");
    post->source = ash_packed_source(post->packed);
    post->parts.train = &post->source;
    if (post->screen != NULL)
        fprintf(post->screen, "examples  %zu %s in %zu sequences, %.1f %% filled; %zu cut, %zu left out as too long\n",
                ash_examples_count(post->train) / (kind == ASH_EXAMPLES_PAIRS ? 2 : 1), kind_name(kind),
                post->source.windows, 100.0 * ash_packed_fill(post->packed), ash_packed_cut(post->packed),
                ash_packed_skipped(post->packed));
    if (job->data.valid == NULL || job->train.valid_every == 0) return 0;
    rc = open_folder(job, job->data.valid, kind, &post->valid, err);
    if (rc == 0) rc = open_packed(job, post->valid, 0, &post->valid_packed, err);
    if (rc < 0) return ash_err_prefix(err, rc, "data.valid");
    post->valid_source = ash_packed_source(post->valid_packed);
    post->parts.valid = &post->valid_source;
    return 0;
}
