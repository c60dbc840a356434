/* post: the parts of a job, by its method. */
#include "post/post_priv.h"

#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"
#include "model/files/lora_folder.h"
#include "storage/namespace/attach.h"
#include "storage/tier/tier.h"

/* The folder of the base: of a bucket's the one that its files come to. */
static int bring_base(const char *from, struct ash_str *here, struct ash_err *err)
{
    int rc;

    if (!ash_tier_is_url(from)) return ash_str_adds(here, from) < 0 ? ash_err_set(err, -ENOMEM, "out of memory") : 0;
    rc = ash_attach_url(from, NULL, here, err);
    return rc < 0 ? ash_err_prefix(err, rc, "model.from") : 0;
}

/* The adapters that a job describes, over a base that is to be named. */
static struct ash_lora_opts describe_lora(const struct ash_job *job)
{
    static const enum ash_dtype quants[] = {ASH_F32, ASH_Q8_0, ASH_Q4_0, ASH_Q8_W}; /* by enum ash_job_quant */
    const struct ash_job_lora *lora = &job->lora;

    return (struct ash_lora_opts){.rank = (size_t)lora->rank,
                                  .alpha = lora->alpha,
                                  .rslora = lora->rslora,
                                  .targets = (const char *const *)lora->targets.items,
                                  .target_count = lora->targets.count,
                                  .rank_pattern = (const char *const *)lora->rank_pattern.items,
                                  .rank_pattern_count = lora->rank_pattern.count,
                                  .saved = (const char *const *)lora->modules_to_save.items,
                                  .saved_count = lora->modules_to_save.count,
                                  .bias = (enum ash_lora_bias)lora->bias,
                                  .quant = quants[job->model.quant],
                                  .dropout = lora->dropout};
}

/* Open adapters, if the job sets them: as it describes them, or as a PEFT folder does. */
static int open_lora(struct ash_post *post, struct ash_err *err)
{
    static const char *const biases[] = {"", "; their biases are trained, too", "; all biases are trained, too"};
    const struct ash_job *job = post->job;
    const struct ash_job_lora *lora = &job->lora;
    struct ash_lora_opts opts = describe_lora(job);
    struct ash_str base = {0};
    int rc;

    if (lora->rank == 0 && lora->adapter == NULL)
        return job->model.quant == ASH_JOB_QUANT_NONE
                   ? 0
                   : ash_err_set(err, -EINVAL, "model.quant: only a frozen model is held quantised: give lora.rank");
    if (job->model.from == NULL) return ash_err_set(err, -EINVAL, "lora: adapters of what? give model.from");
    if (lora->dropout > 0 && job->train.method == ASH_METHOD_RL)
        return ash_err_set(err, -EINVAL, "lora.dropout: the policy that samples is the one that learns: set it to 0");
    rc = bring_base(job->model.from, &base, err);
    opts.base_dir = base.data;
    if (rc == 0)
        rc = lora->adapter != NULL ? ash_lora_load(lora->adapter, base.data, &post->lora, err)
                                   : ash_lora_open(&opts, &post->lora, err);
    ash_str_fini(&base);
    if (rc < 0) return ash_err_prefix(err, rc, "lora");
    if (lora->adapter == NULL) /* not the cache's folder */
        json_object_set_new(post->lora->config, "base_model_name_or_path", json_string(job->model.from));
    post->lora->quant = opts.quant;
    post->lora->dropout = opts.dropout;
    post->parts.lora = post->lora;
    if (post->screen != NULL)
        fprintf(post->screen, "adapters  of %zu modules of %s%s\n", post->lora->count, job->model.from,
                biases[post->lora->bias]);
    return 0;
}

static int open_rl(struct ash_post *post, struct ash_err *err)
{
    const struct ash_lora *lora = post->parts.lora;
    int rc = ash_rl_open(post->job, post->group, post->dir, post->screen, &post->rl, err);

    if (rc < 0) return rc;
    post->parts = ash_rl_parts(post->rl);
    post->parts.lora = lora;
    return 0;
}

static int open_method(struct ash_post *post, struct ash_err *err)
{
    switch ((enum ash_job_method)post->job->train.method) {
    case ASH_METHOD_PRETRAIN:
        break;
    case ASH_METHOD_SFT:
        return ash_post_open_examples(post, ASH_EXAMPLES_SINGLE, err);
    case ASH_METHOD_DPO:
        return ash_post_open_dpo(post, err);
    case ASH_METHOD_REWARD:
        return ash_post_open_reward(post, err);
    case ASH_METHOD_DISTILL:
        return ash_post_open_distill(post, err);
    case ASH_METHOD_RL:
        return open_rl(post, err);
    }
    return 0;
}

int ash_post_open(const struct ash_job *job, struct ash_group *group, const char *dir, FILE *screen,
                  struct ash_post **post_out, struct ash_err *err)
{
    struct ash_post *post = calloc(1, sizeof(*post));
    int rc;

    if (post == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    post->job = job;
    post->group = group;
    post->dir = dir;
    post->screen = ash_group_rank(group) == 0 ? screen : NULL;
    post->weighed_step = UINT64_MAX;
    rc = open_lora(post, err);
    if (rc == 0) rc = open_method(post, err);
    if (rc < 0) {
        ash_post_close(post);
        return rc;
    }
    *post_out = post;
    return 0;
}

int ash_post_sample(struct ash_post *post, const struct ash_worker_opts *opts, struct ash_err *err)
{
    ash_assert(post->rl != NULL);
    return ash_rl_work(post->rl, post->parts.lora, opts, err);
}

static void free_set(struct ash_pair_set *set)
{
    free(set->reference);
    free(set->units);
}

void ash_post_close(struct ash_post *post)
{
    if (post == NULL) return;
    ash_packed_close(post->packed);
    ash_packed_close(post->valid_packed);
    ash_examples_close(post->train);
    ash_examples_close(post->valid);
    free(post->targets);
    free_set(&post->pairs);
    free_set(&post->valid_pairs);
    ash_kto_close(post->kto);
    ash_distill_close(post->distill);
    ash_rl_close(post->rl);
    ash_lora_close(post->lora);
    free(post);
}

const struct ash_trainer_parts *ash_post_parts(const struct ash_post *post)
{
    const struct ash_trainer_parts *parts = &post->parts;

    return parts->train != NULL || parts->lora != NULL || parts->teacher != NULL ? parts : NULL;
}
