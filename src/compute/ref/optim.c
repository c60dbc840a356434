/* AdamW (torch's formula and order) and sums of squares in plain C. */
#include "compute/ref/ref_priv.h"

#include <math.h>
#include "compute/lanes.h"

#define OPTIM_MIN_COUNT 4096

/* Factors that are the same for every element, rounded once. */
struct adamw {
    const struct ash_adamw_args *args;
    float decay, grow1, grow2, step, root2;
};

static void adamw_range(void *ctx, size_t begin, size_t end, int worker)
{
    const struct adamw *op = ctx;
    const struct ash_adamw_args *args = op->args;

    (void)worker;
    for (size_t i = begin; i < end; i++) {
        float grad = args->grad[i] * args->grad_scale;
        float m = fmaf(op->grow1, grad - args->m[i], args->m[i]);
        float v = fmaf(op->grow2 * grad, grad, args->beta2 * args->v[i]);
        float denom = sqrtf(v) / op->root2 + args->eps;
        float param = fmaf(-op->step, m / denom, args->param[i] * op->decay);

        args->m[i] = m;
        args->v[i] = v;
        args->param[i] = param;
        if (args->param_bf16 != NULL) args->param_bf16[i] = ash_f32_to_bf16(param);
    }
}

static void adamw(struct ash_exec *exec, const struct ash_adamw_args *args)
{
    struct adamw op = {
        .args = args,
        .decay = (float)(1.0 - (double)args->lr * (double)args->weight_decay),
        .grow1 = (float)(1.0 - (double)args->beta1),
        .grow2 = (float)(1.0 - (double)args->beta2),
        .step = args->lr / args->correction1,
        .root2 = sqrtf(args->correction2),
    };

    ash_workers_run(exec->workers, args->count, OPTIM_MIN_COUNT, adamw_range, &op);
}

struct squares {
    const float *x;
    size_t count;
    double *block_sums;
};

static void squares_blocks(void *ctx, size_t begin, size_t end, int worker)
{
    const struct squares *op = ctx;

    (void)worker;
    for (size_t block = begin; block < end; block++) {
        const float *x = &op->x[block * ASH_SUMSQ_BLOCK];
        size_t left = op->count - block * ASH_SUMSQ_BLOCK, count = left < ASH_SUMSQ_BLOCK ? left : ASH_SUMSQ_BLOCK;
        double lanes[ASH_LANES] = {0};

        for (size_t i = 0; i < count; i++)
            lanes[i % ASH_LANES] = lanes[i % ASH_LANES] + (double)x[i] * (double)x[i]; /* the product is exact */
        op->block_sums[block] = ash_lanes_fold_f64(lanes);
    }
}

static void sum_squares(struct ash_exec *exec, const float *x, size_t count, double *block_sums)
{
    struct squares op = {.x = x, .count = count, .block_sums = block_sums};

    ash_workers_run(exec->workers, (count + ASH_SUMSQ_BLOCK - 1) / ASH_SUMSQ_BLOCK, 1, squares_blocks, &op);
}

const struct ash_optim_ops ash_ref_optim = {.adamw = adamw, .sum_squares = sum_squares};
