/* AdamW (torch's formula and order) and Lion in plain C. */
#include "compute/ref/ref_priv.h"

#include <math.h>
#include "compute/squares.h"

#define OPTIM_MIN_COUNT 4096

/* Factors that are the same for every element of a range, rounded once. */
struct adamw_factors {
    const struct ash_adamw_args *args;
    const struct ash_adamw_range *range;
    float decay, grow1, grow2, step, root2;
};

static void adamw_range(void *ctx, size_t begin, size_t end, int worker)
{
    const struct adamw_factors *op = ctx;
    const struct ash_adamw_args *args = op->args;

    (void)worker;
    for (size_t i = begin; i < end; i++) {
        size_t at = op->range->param + i, moment = op->range->moment + i;
        float grad = args->grad[op->range->grad + i] * args->grad_scale;
        float m = fmaf(op->grow1, grad - args->m[moment], args->m[moment]);
        float v = fmaf(op->grow2 * grad, grad, args->beta2 * args->v[moment]);
        float denom = sqrtf(v) / op->root2 + args->eps;
        float param = fmaf(-op->step, m / denom, args->param[at] * op->decay);

        args->m_out[moment] = m;
        args->v_out[moment] = v;
        args->param_out[at] = param;
        if (args->param_bf16 != NULL) args->param_bf16[at] = ash_f32_to_bf16(param);
    }
}

static void adamw(struct ash_exec *exec, const struct ash_adamw_args *args)
{
    struct adamw_factors op = {
        .args = args,
        .grow1 = (float)(1.0 - (double)args->beta1),
        .grow2 = (float)(1.0 - (double)args->beta2),
        .step = args->lr / args->correction1,
        .root2 = sqrtf(args->correction2),
    };

    for (size_t r = 0; r < args->range_count; r++) {
        op.range = &args->ranges[r];
        op.decay = (float)(1.0 - (double)args->lr * (double)op.range->weight_decay);
        ash_workers_run(exec->workers, op.range->count, OPTIM_MIN_COUNT, adamw_range, &op);
    }
}

static void lion_range(void *ctx, size_t begin, size_t end, int worker)
{
    const struct adamw_factors *op = ctx;
    const struct ash_adamw_args *args = op->args;

    (void)worker;
    for (size_t i = begin; i < end; i++) {
        size_t at = op->range->param + i, moment = op->range->moment + i;
        float grad = args->grad[op->range->grad + i] * args->grad_scale, m = args->m[moment];
        float mean = fmaf(op->grow1, grad - m, m), sign = mean > 0.0f ? 1.0f : 0.0f > mean ? -1.0f : 0.0f;
        float param = fmaf(-op->step, sign, args->param[at] * op->decay);

        args->m_out[moment] = fmaf(op->grow2, grad - m, m);
        args->param_out[at] = param;
        if (args->param_bf16 != NULL) args->param_bf16[at] = ash_f32_to_bf16(param);
    }
}

static void lion(struct ash_exec *exec, const struct ash_adamw_args *args)
{
    struct adamw_factors op = {
        .args = args,
        .grow1 = (float)(1.0 - (double)args->beta1),
        .grow2 = (float)(1.0 - (double)args->beta2),
        .step = args->lr,
    };

    for (size_t r = 0; r < args->range_count; r++) {
        op.range = &args->ranges[r];
        op.decay = (float)(1.0 - (double)args->lr * (double)op.range->weight_decay);
        ash_workers_run(exec->workers, op.range->count, OPTIM_MIN_COUNT, lion_range, &op);
    }
}

const struct ash_optim_ops ash_ref_optim = {
    .adamw = adamw, .lion = lion, .max_abs = ash_squares_max, .sum_squares = ash_squares_add};
