/* post: examples as the source of a run. */
#include <errno.h>

#include "post/post_priv.h"

static const char *kind_name(enum ash_examples_kind kind)
{
    return kind == ASH_EXAMPLES_PAIRS ? "pairs" : "examples";
}

static int open_folder(const struct ash_post *post, const char *dir, uint64_t seed, enum ash_examples_kind kind,
                       struct ash_examples **examples_out, struct ash_packed **packed_out, struct ash_err *err)
{
    const struct ash_job *job = post->job;
    struct ash_packed_opts opts = {.seq_tokens = (size_t)job->data.seq_tokens,
                                   .seed = seed,
                                   .packing = job->sft.packing,
                                   .truncate = (enum ash_truncate)job->sft.truncate,
                                   .learn = (enum ash_learn)job->sft.train_on};
    int rc = ash_examples_open(dir, examples_out, err);

    if (rc < 0) return rc;
    if (ash_examples_get_kind(*examples_out) != kind)
        return ash_err_set(err, -EINVAL, "%s holds %s, but train.method=%s learns from %s", dir,
                           kind_name(ash_examples_get_kind(*examples_out)), ash_job_method_names[job->train.method],
                           kind_name(kind));
    return ash_packed_open(*examples_out, &opts, packed_out, err);
}

int ash_post_open_examples(struct ash_post *post, enum ash_examples_kind kind, struct ash_err *err)
{
    const struct ash_job *job = post->job;
    int rc = open_folder(post, job->data.train, (uint64_t)job->train.seed, kind, &post->train, &post->packed, err);

    if (rc < 0) return ash_err_prefix(err, rc, "data.train");
    post->source = ash_packed_source(post->packed);
    post->parts.train = &post->source;
    if (post->screen != NULL)
        fprintf(post->screen, "examples  %zu %s in %zu sequences, %.1f %% filled; %zu cut, %zu left out as too long\n",
                ash_examples_count(post->train) / (kind == ASH_EXAMPLES_PAIRS ? 2 : 1), kind_name(kind),
                post->source.windows, 100.0 * ash_packed_fill(post->packed), ash_packed_cut(post->packed),
                ash_packed_skipped(post->packed));
    if (job->data.valid == NULL || job->train.valid_every == 0) return 0;
    rc = open_folder(post, job->data.valid, 0, kind, &post->valid, &post->valid_packed, err);
    if (rc < 0) return ash_err_prefix(err, rc, "data.valid");
    post->valid_source = ash_packed_source(post->valid_packed);
    post->parts.valid = &post->valid_source;
    return 0;
}
