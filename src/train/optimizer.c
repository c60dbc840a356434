/* optimizer: AdamW in the order of the parameters. Powers of the betas come from multiplications, not from libm, so
 * that every machine has the same corrections. */
#include "train/optimizer.h"

#include <math.h>
#include <string.h>

static size_t block_count(size_t count)
{
    return (count + ASH_SUMSQ_BLOCK - 1) / ASH_SUMSQ_BLOCK;
}

int ash_optimizer_init(struct ash_optimizer *optimizer, const struct ash_job_optimizer *opts, struct ash_state *state,
                       struct ash_err *err)
{
    size_t most = 1;
    int rc;

    memset(optimizer, 0, sizeof(*optimizer));
    for (size_t i = 0; i < ash_model_param_count(state->model); i++) {
        size_t blocks = block_count(ash_model_param(state->model, i)->count);
        if (blocks > most) most = blocks;
    }
    if ((rc = ash_buffer_init(&optimizer->block_sums, state->exec->memory, most * sizeof(double), "gradient norm",
                              err)) < 0 ||
        (rc = ash_buffer_init(&optimizer->host_sums, &ash_memory_host, most * sizeof(double), "gradient norm", err)) <
            0) {
        ash_optimizer_fini(optimizer);
        return rc;
    }
    optimizer->opts = opts;
    optimizer->state = state;
    return 0;
}

void ash_optimizer_fini(struct ash_optimizer *optimizer)
{
    ash_buffer_fini(&optimizer->block_sums);
    ash_buffer_fini(&optimizer->host_sums);
    memset(optimizer, 0, sizeof(*optimizer));
}

double ash_optimizer_norm(struct ash_optimizer *optimizer, const float *grads)
{
    struct ash_state *state = optimizer->state;
    struct ash_exec *exec = state->exec;
    const double *sums = optimizer->host_sums.data;
    double total = 0.0;

    for (size_t i = 0; i < ash_model_param_count(state->model); i++) {
        const struct ash_param *param = ash_model_param(state->model, i);
        if (!param->trained) continue;
        size_t blocks = block_count(param->count);
        exec->ops->optim->sum_squares(exec, grads + param->offset, param->count, optimizer->block_sums.data);
        exec->memory->copy(optimizer->host_sums.data, optimizer->block_sums.data, blocks * sizeof(double));
        for (size_t b = 0; b < blocks; b++)
            total += sums[b];
    }
    return sqrt(total);
}

/* base to the power of exponent by squaring. */
static double power(double base, uint64_t exponent)
{
    double result = 1.0;

    for (; exponent != 0; exponent >>= 1, base *= base)
        if (exponent & 1) result *= base;
    return result;
}

void ash_optimizer_update(struct ash_optimizer *optimizer, const float *grads, double norm, double lr)
{
    const struct ash_job_optimizer *opts = optimizer->opts;
    struct ash_state *state = optimizer->state;
    struct ash_exec *exec = state->exec;
    float *values = ash_model_values(state->model), *m = state->m.data, *v = state->v.data;
    uint16_t *bf16 = state->bf16.data;
    struct ash_adamw_args args = {
        .lr = (float)lr, .beta1 = (float)opts->beta1, .beta2 = (float)opts->beta2, .eps = (float)opts->eps};

    state->updates++;
    args.grad_scale = opts->clip > 0.0 && norm > opts->clip ? (float)(opts->clip / norm) : 1.0f;
    args.correction1 = (float)(1.0 - power(opts->beta1, state->updates));
    args.correction2 = (float)(1.0 - power(opts->beta2, state->updates));
    for (size_t i = 0; i < ash_model_param_count(state->model); i++) {
        const struct ash_param *param = ash_model_param(state->model, i);
        if (!param->trained) continue;
        args.count = param->count;
        args.param = values + param->offset;
        args.m = m + param->offset;
        args.v = v + param->offset;
        args.grad = grads + param->offset;
        args.weight_decay = param->matrix || opts->decay == ASH_DECAY_ALL ? (float)opts->weight_decay : 0.0f;
        args.param_bf16 = bf16 != NULL ? bf16 + param->offset : NULL;
        exec->ops->optim->adamw(exec, &args);
    }
    ash_model_refresh(state->model);
}
