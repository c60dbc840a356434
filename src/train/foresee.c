/* foresee: the stages are opened on a device whose memory is only counted, so that the estimate runs the allocating
 * code; workspaces of ops follow from the largest matrices. */
#include "train/foresee.h"

#include <errno.h>
#include <stdio.h>

#include "base/math.h"
#include "compute/backends/backends.h"

#define HELD_BYTES ((size_t)48 << 20)  /* by an open backend: uploads and the library's room */
#define SPARE_BYTES ((size_t)64 << 20) /* for the driver: blocks in whole pages, kernels that it loads at first use */

/* What computes products. */
struct products {
    const struct ash_exec *exec;
    bool by_library; /* all of them: their operands are rounded alone */
};

/* Are columns laid out as lines for M by N sums? */
static bool lays_out(const struct products *of, size_t M, size_t N)
{
    return !of->by_library && ash_backend_lays_out(of->exec, M, N);
}

/* Bytes that products of a matrix [n, k] take: rows are rounded, and operands laid out for the gradient of the input
 * (the matrix) and of the matrix (the rows of both sides). */
static size_t product_bytes(const struct products *of, const struct ash_param *param, size_t rows)
{
    size_t n = param->dims[0], k = param->dims[1];
    size_t rounded = rows * (param->layer < 0 ? k : ash_max(n, k)),
           of_input = rounded + (lays_out(of, rows, k) ? n * k : 0),
           of_matrix = lays_out(of, n, k) ? rows * (n + k) : 0;

    return ash_max(of_input, of_matrix) * sizeof(uint16_t);
}

/* Bytes of the first product of a shape if a library is tried on random operands: those of the weight's gradient, which
 * our own kernel may lay out, or of the input's. */
static size_t trial_bytes(const struct ash_param *param, size_t rows)
{
    size_t n = param->dims[0], k = param->dims[1];
    size_t of_weight = 2 * rows * (ash_backend_tried(n, rows) + ash_backend_tried(k, rows)),
           of_input = n * (ash_backend_tried(rows, n) + 2 * ash_backend_tried(k, n));

    return ash_max(of_weight, of_input) * sizeof(uint16_t);
}

/* Does a library compute all products? Not the gradients of weights that continue older sums. */
static bool is_by_library(const struct ash_stages *stages, const struct ash_exec *exec)
{
    const struct ash_job *job = stages->job;

    return ash_backend_has_library(exec) && job->train.global_batch <= job->train.grains * (int64_t)stages->micro_batch;
}

static size_t most_trial_bytes(const struct ash_stages *stages, const struct ash_model *model, size_t logit_rows)
{
    size_t rows = stages->micro_batch * (size_t)stages->job->data.seq_tokens, most = 0;

    for (size_t i = 0; i < ash_model_param_count(model); i++) {
        const struct ash_param *param = ash_model_param(model, i);

        if (param->is_matrix) most = ash_max(most, trial_bytes(param, param->layer < 0 ? logit_rows : rows));
    }
    return most;
}

/* What attention takes: copies of q, k, v and the gradient in bf16, and a sum a head. */
static size_t attention_bytes(const struct ash_model_config *config, size_t rows)
{
    size_t heads = 2 * config->heads + 2 * config->kv_heads;

    return rows * (heads * config->head_dim * sizeof(uint16_t) + config->heads * sizeof(float));
}

/* The largest that one op takes beyond its operands. Float32 products take nothing. */
static size_t scratch_bytes(const struct ash_stages *stages, const struct ash_model *model, size_t logit_rows,
                            const struct products *products)
{
    const struct ash_model_config *config = ash_model_get_config(model);
    size_t rows = stages->micro_batch * (size_t)stages->job->data.seq_tokens, most,
           count = ash_model_param_count(model);

    if (stages->job->train.precision == ASH_JOB_FP32) return 0;
    most = attention_bytes(config, rows);
    for (size_t i = 0; i < count; i++) {
        const struct ash_param *param = ash_model_param(model, i);

        if (param->is_matrix)
            most = ash_max(most, product_bytes(products, param, param->layer < 0 ? logit_rows : rows));
    }
    return most;
}

int ash_train_foresee(const struct ash_foresee_opts *opts, struct ash_train_memory *memory_out, struct ash_err *err)
{
    struct ash_exec counted = ash_exec_counted(opts->exec);
    struct ash_stages_source source = {.config = opts->config, .is_blank = true};
    struct ash_stages stages = {0};
    const struct ash_stage *stage;
    struct ash_train_memory memory;
    struct products products;
    size_t counted_bytes, head_rows;
    int rc = ash_stages_open(&stages, opts->job, &counted, opts->mesh, &source, err);

    if (rc < 0) return rc;
    counted_bytes = ash_exec_counted_bytes();
    ash_train_memory_measure(&stages, &memory);
    memory.trials = 0;
    stage = &stages.chunks[0];
    memory.moments = stage->state.m.size_bytes + stage->state.v.size_bytes;
    head_rows = ash_pass_head_rows(stage->slots[0].pass, &memory.logits);
    products = (struct products){opts->exec, is_by_library(&stages, opts->exec)};
    memory.scratch = HELD_BYTES + scratch_bytes(&stages, stage->state.model, head_rows, &products);
    if (opts->job->train.precision != ASH_JOB_FP32 && ash_backend_has_library(opts->exec))
        memory.trials = most_trial_bytes(&stages, stage->state.model, head_rows);
    memory.scratch += memory.trials;
    memory.device = counted_bytes + memory.scratch;
    ash_stages_close(&stages);
    *memory_out = memory;
    return 0;
}

/* ---- settings that fit ------------------------------------------------------------------------------------------- */

#define FIX_BYTES 128

/* Memory in use is not free any more. */
static bool has_room(const struct ash_train_memory *memory, size_t free_bytes)
{
    return memory->device - memory->trials - HELD_BYTES + SPARE_BYTES <= free_bytes;
}

/* Would the job fit as it is now? */
static bool fits(const struct ash_foresee_opts *opts, const struct ash_job *job, size_t free_bytes)
{
    struct ash_foresee_opts changed = *opts;
    struct ash_train_memory memory;

    changed.job = job;
    return ash_train_foresee(&changed, &memory, NULL) == 0 && has_room(&memory, free_bytes);
}

/* The largest smaller micro-batch that fits, or 0. It divides a grain, as the job's does. */
static int64_t fitting_micro_batch(const struct ash_foresee_opts *opts, const struct ash_job *job, size_t free_bytes)
{
    struct ash_job changed = *job;

    for (int64_t micro = job->train.micro_batch - 1; micro > 0; micro--) {
        if (job->train.micro_batch % micro != 0) continue;
        changed.train.micro_batch = micro;
        if (fits(opts, &changed, free_bytes)) return micro;
    }
    return 0;
}

/* Settings with which it fits, into fix, the least change first: a smaller micro-batch, recomputation, both, and a
 * shorter context (which learns something else). Empty where none of them helps. */
static void find_fix(const struct ash_foresee_opts *opts, size_t free_bytes, char fix[FIX_BYTES])
{
    struct ash_job job = *opts->job;
    int64_t micro;

    fix[0] = '\0';
    if (opts->mesh->world != NULL) return; /* a rank alone cannot open groups of others to try them */
    micro = fitting_micro_batch(opts, &job, free_bytes);
    if (micro > 0) {
        snprintf(fix, FIX_BYTES, "train.micro_batch=%lld", (long long)micro);
        return;
    }
    job.train.recompute = ASH_RECOMPUTE_FULL;
    if (fits(opts, &job, free_bytes)) {
        snprintf(fix, FIX_BYTES, "train.recompute=full");
        return;
    }
    micro = fitting_micro_batch(opts, &job, free_bytes);
    if (micro > 0) {
        snprintf(fix, FIX_BYTES, "train.micro_batch=%lld train.recompute=full", (long long)micro);
        return;
    }
    job.train.micro_batch = 1;
    while (job.data.seq_tokens > 64) {
        job.data.seq_tokens /= 2;
        if (!fits(opts, &job, free_bytes)) continue;
        snprintf(fix, FIX_BYTES, "train.micro_batch=1 train.recompute=full data.seq=%lld",
                 (long long)job.data.seq_tokens);
        return;
    }
}

static const char *say_bytes(size_t bytes, char buf[16])
{
    bool large = bytes >= 10000000000u;

    snprintf(buf, 16, "%.1f %s", (double)bytes * (large ? 1e-9 : 1e-6), large ? "GB" : "MB");
    return buf;
}

int ash_train_foresee_room(const struct ash_foresee_opts *opts, size_t free_bytes, struct ash_train_memory *memory_out,
                           struct ash_err *err)
{
    size_t state, rest;
    char fix[FIX_BYTES], need[16], kept[16], more[16], have[16];
    int rc = ash_train_foresee(opts, memory_out, err);

    if (rc < 0 || has_room(memory_out, free_bytes)) return rc;
    find_fix(opts, free_bytes, fix);
    state = memory_out->state + memory_out->gradients;
    rest = memory_out->device - HELD_BYTES + SPARE_BYTES - state;
    return ash_err_set(
        err, -ENOMEM,
        "this run needs %s of GPU memory (weights, moments and gradients %s, activations and scratch %s), "
        "and %s are free: %s%s",
        say_bytes(state + rest, need), say_bytes(state, kept), say_bytes(rest, more), say_bytes(free_bytes, have),
        fix[0] != '\0'              ? "it fits with "
        : opts->mesh->world != NULL ? "it takes more ranks that shard it (mesh.fsdp, mesh.tp) or larger GPUs"
                                    : "it takes a larger GPU",
        fix);
}
