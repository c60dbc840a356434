/* reference: examples through the frozen model, once. */
#include "post/reference.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cores.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/math.h"
#include "model/files/lora_folder.h"
#include "model/files/open.h"
#include "model/lora.h"
#include "model/pass/pass.h"
#include "storage/safetensors/safetensors.h"
#include "train/data/feed.h"
#include "train/job/agree.h"
#include "train/job/gpus.h"

/* ---- computing --------------------------------------------------------------------------------------------------- */

struct frozen {
    struct ash_exec exec;
    struct ash_model *model;
    struct ash_pass *pass;
    struct ash_feed feed;
    struct ash_reference_part *parts; /* [data.seq] */
};

/* Threads and kernels, of which the arithmetic is known then. */
static int start(struct frozen *frozen, const struct ash_reference_opts *opts, struct ash_err *err)
{
    const struct ash_job *job = opts->job;
    size_t ranks_here = ash_group_here(opts->group);
    int64_t threads = job->runtime.threads;
    struct ash_backend_choice choice;
    int rc;

    if (threads == 0 && ranks_here > 1) threads = (int64_t)ash_max((size_t)ash_cores_usable() / ranks_here, 1);
    rc = ash_gpus_choose(job, opts->group, NULL, &choice, err);
    return rc < 0 ? rc : ash_backend_start(&frozen->exec, &choice, (int)threads, err);
}

static int open_frozen(struct frozen *frozen, const struct ash_reference_opts *opts, struct ash_err *err)
{
    const struct ash_job *job = opts->job;
    struct ash_pass_opts pass_opts = {.max_rows = (size_t)job->data.seq_tokens};
    int rc = opts->lora != NULL ? ash_lora_open_base(opts->lora, &frozen->model, err)
                                : ash_model_open(opts->model_dir, &frozen->model, err);

    if (rc < 0) return rc;
    ash_model_round_bf16(frozen->model, job->train.precision != ASH_JOB_FP32);
    ash_model_use_fp8(frozen->model, job->train.precision == ASH_JOB_FP8);
    rc = ash_pass_open(frozen->model, &frozen->exec, &pass_opts, &frozen->pass, err);
    if (rc < 0) return rc;
    frozen->parts = calloc((size_t)job->data.seq_tokens, sizeof(*frozen->parts));
    if (frozen->parts == NULL) return ash_err_set(err, -ENOMEM, "out of memory for the reference");
    return ash_feed_init(&frozen->feed, (size_t)job->data.seq_tokens, 1, err);
}

static void close_frozen(struct frozen *frozen)
{
    ash_feed_fini(&frozen->feed);
    free(frozen->parts);
    ash_pass_close(frozen->pass);
    ash_model_close(frozen->model);
    if (frozen->exec.ops != NULL) ash_exec_fini(&frozen->exec);
}

static double sum_rows(const float *losses, size_t first, size_t count)
{
    double sum = 0.0;

    for (size_t r = first; r < first + count; r++)
        sum -= (double)losses[r];
    return sum;
}

/* The examples of one sequence. */
static int run_sequence(struct frozen *frozen, const struct ash_reference_opts *opts, uint64_t slot, double *logps,
                        struct ash_err *err)
{
    struct ash_feed_slice slice = {
        .source = opts->source, .slots_per_step = opts->source->windows, .first_slot = slot, .count = 1};
    int rc = ash_feed_read(&frozen->feed, &slice, err);
    size_t count;

    if (rc == 0) rc = ash_pass_eval(frozen->pass, &frozen->feed.batch, frozen->feed.losses, err);
    rc = ash_backend_outcome(&frozen->exec, rc, err);
    if (rc < 0) return rc;
    count = opts->list(opts->ctx, slot, frozen->parts);
    for (size_t p = 0; p < count; p++)
        logps[frozen->parts[p].example] = sum_rows(frozen->feed.losses, frozen->parts[p].row, frozen->parts[p].count);
    return 0;
}

static int compute(struct frozen *frozen, const struct ash_reference_opts *opts, double *logps, struct ash_err *err)
{
    struct ash_group *group = opts->group;
    size_t rank = ash_group_rank(group), size = ash_group_size(group);
    int rc = open_frozen(frozen, opts, err);

    for (uint64_t slot = rank; rc == 0 && slot < opts->source->windows; slot += size)
        rc = run_sequence(frozen, opts, slot, logps, err);
    if (rc < 0) return rc;
    return ash_group_all_reduce(group, logps, logps, opts->count, ASH_COLL_F64, ASH_COLL_SUM, err);
}

/* ---- the cache --------------------------------------------------------------------------------------------------- */

/* Named after all that changes a bit: every byte of the model, its format and arithmetic, the examples. */
static int cache_path(const struct frozen *frozen, const struct ash_reference_opts *opts, char path[PATH_MAX],
                      struct ash_err *err)
{
    const struct ash_job *job = opts->job;
    uint64_t settings[] = {opts->hash,
                           (uint64_t)job->train.precision,
                           (uint64_t)job->sft.truncate,
                           (uint64_t)job->sft.train_on,
                           (uint64_t)job->data.seq_tokens,
                           opts->lora != NULL ? (uint64_t)opts->lora->quant : ASH_F32,
                           0};
    uint64_t model = 0;
    char name[ASH_ARITHMETIC_BYTES];
    int rc = ash_agree_hash_model(opts->model_dir, true, &model, err);

    if (rc < 0) return rc;
    ash_agree_name_arithmetic(job, &frozen->exec, name);
    settings[6] = ash_hash_str(name);
    snprintf(name, sizeof(name), "reference-%016" PRIx64 ".safetensors",
             ash_hash_bytes(settings, sizeof(settings), model));
    rc = ash_path_join(path, PATH_MAX, opts->cache_dir, name);
    return rc < 0 ? ash_err_set(err, rc, "'%s' is too long a path", opts->cache_dir) : 0;
}

/* Returns true where the cache had them. */
static bool read_cache(const char *path, size_t count, double *logps)
{
    struct ash_safetensors *file = NULL;
    const struct ash_tensor_view *view;
    bool is_good = false;

    if (!ash_path_exists(path) || ash_safetensors_open(path, &file, NULL) < 0) return false;
    view = ash_safetensors_find(file, "logps");
    if (view != NULL && view->dtype == ASH_F64 && ash_tensor_count(view) == count) {
        memcpy(logps, view->data, count * sizeof(*logps));
        is_good = true;
    }
    ash_safetensors_close(file);
    return is_good;
}

static void write_cache(const char *path, size_t count, const double *logps)
{
    struct ash_tensor_spec spec = {.name = "logps", .dtype = ASH_F64, .dim_count = 1, .dims = {count}, .data = logps};
    struct ash_err err = {0};

    if (ash_safetensors_write(path, &spec, 1, NULL, 0, NULL, NULL, &err) < 0)
        ash_log(ASH_LOG_WARN, "the reference's log-probabilities cannot be kept for the next time: %s", err.text);
}

int ash_reference_logps(const struct ash_reference_opts *opts, double *logps, bool *was_cached_out, struct ash_err *err)
{
    struct ash_group *group = opts->group;
    bool is_first = ash_group_rank(group) == 0;
    size_t count = opts->count;
    struct frozen frozen = {0};
    char path[PATH_MAX];
    int32_t has_it = 0;
    int rc = start(&frozen, opts, err);

    if (rc == 0) rc = cache_path(&frozen, opts, path, err);
    if (rc == 0) has_it = read_cache(path, count, logps);
    if (rc == 0) /* all of them, or none: missing ones are computed together */
        rc = ash_group_all_reduce(group, &has_it, &has_it, 1, ASH_COLL_I32, ASH_COLL_MIN, err);
    if (rc == 0) *was_cached_out = has_it != 0;
    if (rc == 0 && has_it == 0) {
        memset(logps, 0, count * sizeof(*logps));
        rc = compute(&frozen, opts, logps, err);
        if (rc == 0 && is_first) write_cache(path, count, logps);
    }
    close_frozen(&frozen);
    return rc;
}
