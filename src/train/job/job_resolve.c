/* job: checks between settings, numbers where a setting says "choose", and what changed since a checkpoint. */
#include "train/job/job.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/number.h"

#define MICRO_ROWS_MAX 4096 /* rows of a pass that are enough to keep the machine busy */

/* ---- resolving --------------------------------------------------------------------------------------------------- */

static int resolve_length(struct ash_job *job, struct ash_err *err)
{
    struct ash_job_train *train = &job->train;
    int64_t step_tokens;

    if (__builtin_mul_overflow(train->global_batch, job->data.seq_tokens, &step_tokens))
        return ash_err_set(err, -EINVAL, "train.global_batch times data.seq is absurdly large");
    if (train->steps > 0 && train->tokens > 0 && train->steps != (train->tokens - 1) / step_tokens + 1)
        return ash_err_set(err, -EINVAL,
                           "train.steps=%lld and train.tokens=%lld contradict each other: give one of them",
                           (long long)train->steps, (long long)train->tokens);
    if (train->steps == 0 && train->tokens == 0)
        return ash_err_set(err, -EINVAL, "how long to train? give train.steps or train.tokens");
    if (train->steps == 0) train->steps = (train->tokens - 1) / step_tokens + 1;
    return 0;
}

static int resolve_batch(struct ash_job *job, struct ash_err *err)
{
    struct ash_job_train *train = &job->train;

    if (train->grains == 0) {
        train->grains = 8;
        while (train->global_batch % train->grains != 0)
            train->grains /= 2;
    }
    if (train->global_batch % train->grains != 0)
        return ash_err_set(err, -EINVAL, "train.grains=%lld does not divide train.global_batch=%lld",
                           (long long)train->grains, (long long)train->global_batch);
    int64_t grain = train->global_batch / train->grains;
    if (train->micro_batch == 0) {
        train->micro_batch = grain;
        while (grain % train->micro_batch != 0 ||
               (train->micro_batch > 1 && train->micro_batch * job->data.seq_tokens > MICRO_ROWS_MAX))
            train->micro_batch--;
    }
    if (grain % train->micro_batch != 0)
        return ash_err_set(err, -EINVAL,
                           "train.micro_batch=%lld does not divide a grain of %lld sequences (global_batch / grains)",
                           (long long)train->micro_batch, (long long)grain);
    return 0;
}

static int resolve_schedule(struct ash_job *job, struct ash_err *err)
{
    struct ash_job_schedule *schedule = &job->schedule;

    if (schedule->warmup > job->train.steps)
        return ash_err_set(err, -EINVAL,
                           "schedule.warmup=%lld is longer than the run of %lld steps: give a shorter one (0: none)",
                           (long long)schedule->warmup, (long long)job->train.steps);
    if (schedule->kind != ASH_SCHEDULE_WSD) return 0;
    if (schedule->decay_steps == 0) schedule->decay_steps = (int64_t)(schedule->decay_share * (double)job->train.steps);
    if (schedule->decay_steps > job->train.steps - schedule->warmup)
        return ash_err_set(err, -EINVAL, "schedule: %lld steps of warm-up and %lld of decay do not fit into %lld steps",
                           (long long)schedule->warmup, (long long)schedule->decay_steps, (long long)job->train.steps);
    return 0;
}

static int resolve_model(struct ash_job *job, struct ash_err *err)
{
    struct ash_job_model *model = &job->model;

    if (model->from != NULL) return 0;
    bool gpt2 = strcmp(ash_job_model_types[model->type], "gpt2") == 0;
    if (model->kv_heads == 0) model->kv_heads = model->heads;
    if (model->heads % model->kv_heads != 0)
        return ash_err_set(err, -EINVAL, "model.kv_heads=%lld does not divide model.heads=%lld",
                           (long long)model->kv_heads, (long long)model->heads);
    if ((model->head_dim == 0 || gpt2) && model->hidden % model->heads != 0)
        return ash_err_set(err, -EINVAL, "model.heads=%lld does not divide model.hidden=%lld", (long long)model->heads,
                           (long long)model->hidden);
    if (gpt2 &&
        (model->kv_heads != model->heads || (model->head_dim != 0 && model->head_dim != model->hidden / model->heads)))
        return ash_err_set(err, -EINVAL,
                           "gpt2 has neither model.kv_heads nor model.head_dim of its own: leave both out");
    if (model->head_dim == 0) model->head_dim = model->hidden / model->heads;
    if (model->head_dim > ASH_ATTN_HEAD_MAX)
        return ash_err_set(err, -EINVAL, "a head of %lld (model.hidden / model.heads) is wider than %d",
                           (long long)model->head_dim, ASH_ATTN_HEAD_MAX);
    if (model->head_dim % 2 != 0 && !gpt2)
        return ash_err_set(err, -EINVAL, "model.head_dim=%lld must be even for rotary positions",
                           (long long)model->head_dim);
    if (model->ffn == 0) model->ffn = gpt2 ? 4 * model->hidden : (model->hidden * 8 / 3 + 31) / 32 * 32;
    if (model->expert_ffn == 0) model->expert_ffn = model->ffn;
    if (gpt2) model->tied = true;
    if (model->max_positions == 0)
        model->max_positions = gpt2 || job->data.seq_tokens > 2048 ? job->data.seq_tokens : 2048;
    if (model->max_positions < job->data.seq_tokens)
        return ash_err_set(err, -EINVAL, "data.seq=%lld is longer than model.max_positions=%lld",
                           (long long)job->data.seq_tokens, (long long)model->max_positions);
    return 0;
}

int ash_job_resolve(struct ash_job *job, struct ash_err *err)
{
    int rc;

    if (job->data.train == NULL)
        return ash_err_set(err, -EINVAL,
                           "data.train is missing: a folder of token shards (make one with `ashlar data`)");
    if ((rc = resolve_length(job, err)) < 0) return rc;
    if ((rc = resolve_batch(job, err)) < 0) return rc;
    if ((rc = resolve_schedule(job, err)) < 0) return rc;
    return resolve_model(job, err);
}

struct ash_schedule ash_job_schedule(const struct ash_job *job)
{
    return (struct ash_schedule){.kind = (enum ash_schedule_kind)job->schedule.kind,
                                 .steps = (uint64_t)job->train.steps,
                                 .warmup_steps = (uint64_t)job->schedule.warmup,
                                 .decay_steps = (uint64_t)job->schedule.decay_steps,
                                 .peak_lr = job->optimizer.lr,
                                 .final_share = job->schedule.final_share};
}

struct ash_pass_opts ash_job_pass_opts(const struct ash_job *job)
{
    return (struct ash_pass_opts){.max_rows = (size_t)job->data.seq_tokens * (size_t)job->train.micro_batch,
                                  .backward = true,
                                  .recompute = (enum ash_recompute)job->train.recompute};
}

struct ash_guard_opts ash_job_guard(const struct ash_job *job)
{
    return (struct ash_guard_opts){.nan = (enum ash_guard_nan)job->guard.nan,
                                   .norm_factor = job->guard.spike_norm,
                                   .norm_floor = job->optimizer.clip,
                                   .loss_factor = job->guard.spike_loss,
                                   .warmup_steps = (uint64_t)job->guard.warmup,
                                   .max_skips = (uint64_t)job->guard.max_skips};
}

/* ---- comparing --------------------------------------------------------------------------------------------------- */

/* Settings that may change between two parts of one run: they move work or files around, not bits. Paths are among them
 * because the hashes of what they lead to are compared instead; train.tokens because train.steps is. */
static const char *const free_settings[] = {
    "model.from",           "data.train",        "data.valid",      "data.tokenizer",
    "train.tokens",         "train.micro_batch", "train.recompute", "train.valid_every",
    "train.valid_batches",  "train.save_every",  "train.keep",      "train.hash_every",
    "schedule.decay_share", "runtime.threads",   "runtime.backend", "runtime.log_level",
};

static bool is_free(const char *key)
{
    for (size_t i = 0; i < ASH_COUNT(free_settings); i++)
        if (strcmp(key, free_settings[i]) == 0) return true;
    return strncmp(key, "mesh.", strlen("mesh.")) == 0;
}

/* A value as text. Strings and lists are not compared, so they have none. */
static void format_value(const struct ash_opt *opt, const void *object, char *buf, size_t buf_bytes)
{
    const char *field = (const char *)object + opt->offset;
    char shortest[ASH_NUMBER_BYTES];
    int64_t whole;
    double number;
    int choice;

    switch (opt->type) {
    case ASH_OPT_INT:
        memcpy(&whole, field, sizeof(whole));
        snprintf(buf, buf_bytes, "%lld", (long long)whole);
        return;
    case ASH_OPT_DOUBLE:
        memcpy(&number, field, sizeof(number));
        snprintf(buf, buf_bytes, "%s", ash_number_format(number, shortest));
        return;
    case ASH_OPT_BOOL:
        snprintf(buf, buf_bytes, "%s", *field ? "true" : "false");
        return;
    case ASH_OPT_CHOICE:
        memcpy(&choice, field, sizeof(choice));
        snprintf(buf, buf_bytes, "%s", opt->choices[choice]);
        return;
    case ASH_OPT_STRING:
    case ASH_OPT_LIST:
    case ASH_OPT_TEXTS:
        break;
    }
    buf[0] = '\0';
}

static int compare_table(const struct ash_opt_table *table, const void *before, const void *now, struct ash_err *err)
{
    char key[128], old_value[64], new_value[64];

    for (size_t i = 0; i < table->count; i++) {
        snprintf(key, sizeof(key), "%s.%s", table->section, table->opts[i].name);
        if (is_free(key)) continue;
        format_value(&table->opts[i], before, old_value, sizeof(old_value));
        format_value(&table->opts[i], now, new_value, sizeof(new_value));
        if (strcmp(old_value, new_value) != 0)
            return ash_err_set(err, -EINVAL, "%s was %s when the checkpoint was made and is %s now", key, old_value,
                               new_value);
    }
    return 0;
}

int ash_job_compare(const struct ash_job *before, const struct ash_job *now, struct ash_err *err)
{
    struct ash_job copies[2] = {*before, *now}; /* bindings want writable objects */
    struct ash_opt_binding old_parts[ASH_JOB_SECTIONS], new_parts[ASH_JOB_SECTIONS];

    ash_job_bind(&copies[0], old_parts);
    ash_job_bind(&copies[1], new_parts);
    for (size_t i = 0; i < ASH_JOB_SECTIONS; i++) {
        int rc = compare_table(old_parts[i].table, old_parts[i].object, new_parts[i].object, err);
        if (rc < 0) return rc;
    }
    return 0;
}
