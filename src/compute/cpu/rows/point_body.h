/* point_body - activations and the optimizer of one instruction set. */
#ifndef ASH_COMPUTE_POINT_BODY_H
#define ASH_COMPUTE_POINT_BODY_H

#ifndef ASH_COMPUTE_WIDE_H
#error "include wide.h first"
#endif

#include "base/bf16.h"
#include "compute/gelu.h"
#include "compute/squares.h"

#define ACT_MIN_COUNT 1024
#define OPTIM_MIN_COUNT 4096

/* ---- activations ------------------------------------------------------------------------------------------------- */

struct act_op {
    const float *x, *up, *dout; /* x: the gate of SwiGLU */
    float *out, *dx, *dup;
    size_t cols, stride; /* of SwiGLU's x, up, dx and dup where they lie in rows */
    enum ash_gelu kind;
};

/* Rows that are worth a thread. */
static size_t act_min_rows(size_t cols)
{
    return ash_div_up(ACT_MIN_COUNT, cols);
}

INLINE void swiglu_step(const struct act_op *op, size_t i, size_t count)
{
    struct wide gate = wide_load_n(op->x + i, count), up = wide_load_n(op->up + i, count);

    wide_store_n(op->out + i, wide_mul(wide_mul(gate, wide_sigmoid(gate)), up), count);
}

static void swiglu_forward_range(void *ctx, size_t begin, size_t end, int worker)
{
    const struct act_op op = *(const struct act_op *)ctx;
    size_t i = begin;

    (void)worker;
    for (; i + ASH_LANES <= end; i += ASH_LANES)
        swiglu_step(&op, i, ASH_LANES);
    if (i < end) swiglu_step(&op, i, end - i);
}

static void swiglu_forward_rows(void *ctx, size_t begin, size_t end, int worker)
{
    const struct act_op *op = ctx;

    for (size_t r = begin; r < end; r++) {
        struct act_op row = {.x = op->x + r * op->stride, .up = op->up + r * op->stride, .out = op->out + r * op->cols};

        swiglu_forward_range(&row, 0, op->cols, worker);
    }
}

static void swiglu_forward(struct ash_exec *exec, const struct ash_swiglu_args *args)
{
    struct act_op op = {.x = args->gate, .up = args->up, .out = args->out, .cols = args->cols, .stride = args->stride};

    ash_assert(args->out_bf16 == NULL);
    if (args->cols != 0) {
        ash_workers_run(exec->workers, args->count / args->cols, act_min_rows(args->cols), swiglu_forward_rows, &op);
        return;
    }
    ash_workers_run(exec->workers, args->count, ACT_MIN_COUNT, swiglu_forward_range, &op);
}

INLINE void swiglu_back_step(const struct act_op *op, size_t i, size_t count)
{
    struct wide gate = wide_load_n(op->x + i, count), up = wide_load_n(op->up + i, count),
                dout = wide_load_n(op->dout + i, count);
    struct wide one = wide_set(1.0f), s = wide_sigmoid(gate);

    wide_store_n(op->dx + i, wide_mul(wide_mul(dout, up), wide_mul(s, wide_fma(gate, wide_sub(one, s), one))), count);
    wide_store_n(op->dup + i, wide_mul(dout, wide_mul(gate, s)), count);
}

static void swiglu_backward_range(void *ctx, size_t begin, size_t end, int worker)
{
    const struct act_op op = *(const struct act_op *)ctx;
    size_t i = begin;

    (void)worker;
    for (; i + ASH_LANES <= end; i += ASH_LANES)
        swiglu_back_step(&op, i, ASH_LANES);
    if (i < end) swiglu_back_step(&op, i, end - i);
}

static void swiglu_backward_rows(void *ctx, size_t begin, size_t end, int worker)
{
    const struct act_op *op = ctx;

    for (size_t r = begin; r < end; r++) {
        size_t skip = r * op->stride;
        struct act_op row = {.x = op->x + skip,
                             .up = op->up + skip,
                             .dout = op->dout + r * op->cols,
                             .dx = op->dx + skip,
                             .dup = op->dup + skip};

        swiglu_backward_range(&row, 0, op->cols, worker);
    }
}

static void swiglu_backward(struct ash_exec *exec, const struct ash_swiglu_grad_args *args)
{
    struct act_op op = {.x = args->gate,
                        .up = args->up,
                        .dout = args->dout,
                        .dx = args->dgate,
                        .dup = args->dup,
                        .cols = args->cols,
                        .stride = args->stride};

    if (args->cols != 0) {
        ash_workers_run(exec->workers, args->count / args->cols, act_min_rows(args->cols), swiglu_backward_rows, &op);
        return;
    }
    ash_workers_run(exec->workers, args->count, ACT_MIN_COUNT, swiglu_backward_range, &op);
}

/* The tanh of the approximate form, or the erf. */
INLINE struct wide gelu_inner(enum ash_gelu kind, struct wide x)
{
    struct wide cubed;

    if (kind == ASH_GELU_ERF) return wide_erf(wide_mul(x, wide_set(ASH_GELU_SQRT_HALF)));
    cubed = wide_fma(wide_mul(wide_mul(wide_set(ASH_GELU_CUBE), x), x), x, x);
    return wide_tanh(wide_mul(wide_set(ASH_GELU_SQRT_2_PI), cubed));
}

INLINE void gelu_step(const struct act_op *op, size_t i, size_t count)
{
    struct wide x = wide_load_n(op->x + i, count), t = gelu_inner(op->kind, x);

    wide_store_n(op->out + i, wide_mul(wide_mul(wide_set(0.5f), x), wide_add(wide_set(1.0f), t)), count);
}

static void gelu_forward_range(void *ctx, size_t begin, size_t end, int worker)
{
    const struct act_op op = *(const struct act_op *)ctx;
    size_t i = begin;

    (void)worker;
    for (; i + ASH_LANES <= end; i += ASH_LANES)
        gelu_step(&op, i, ASH_LANES);
    if (i < end) gelu_step(&op, i, end - i);
}

static void gelu_forward(struct ash_exec *exec, enum ash_gelu kind, const float *x, size_t count, float *out)
{
    struct act_op op = {.x = x, .out = out, .kind = kind};

    ash_workers_run(exec->workers, count, ACT_MIN_COUNT, gelu_forward_range, &op);
}

INLINE struct wide gelu_slope(enum ash_gelu kind, struct wide x)
{
    struct wide t = gelu_inner(kind, x), half = wide_set(0.5f), one = wide_set(1.0f), bend;

    if (kind == ASH_GELU_TANH) {
        struct wide inner =
            wide_mul(wide_set(ASH_GELU_SQRT_2_PI), wide_fma(wide_mul(wide_set(3.0f * ASH_GELU_CUBE), x), x, one));
        bend = wide_mul(wide_mul(wide_mul(half, x), wide_sub(one, wide_mul(t, t))), inner);
    } else {
        bend = wide_mul(x, wide_mul(wide_set(ASH_GELU_DENSITY), wide_exp(wide_mul(wide_mul(wide_set(-0.5f), x), x))));
    }
    return wide_fma(half, wide_add(one, t), bend);
}

INLINE void gelu_back_step(const struct act_op *op, size_t i, size_t count)
{
    struct wide slope = gelu_slope(op->kind, wide_load_n(op->x + i, count));

    wide_store_n(op->dx + i, wide_mul(wide_load_n(op->dout + i, count), slope), count);
}

static void gelu_backward_range(void *ctx, size_t begin, size_t end, int worker)
{
    const struct act_op op = *(const struct act_op *)ctx;
    size_t i = begin;

    (void)worker;
    for (; i + ASH_LANES <= end; i += ASH_LANES)
        gelu_back_step(&op, i, ASH_LANES);
    if (i < end) gelu_back_step(&op, i, end - i);
}

static void gelu_backward(struct ash_exec *exec, enum ash_gelu kind, const float *x, const float *dout, size_t count,
                          float *dx)
{
    struct act_op op = {.x = x, .dout = dout, .dx = dx, .kind = kind};

    ash_workers_run(exec->workers, count, ACT_MIN_COUNT, gelu_backward_range, &op);
}

static const struct ash_act_ops vec_act = {
    .swiglu_forward = swiglu_forward,
    .swiglu_backward = swiglu_backward,
    .gelu_forward = gelu_forward,
    .gelu_backward = gelu_backward,
};

/* ---- optimizer --------------------------------------------------------------------------------------------------- */

/* Factors that are the same for every element of a range, rounded once. */
struct adamw_op {
    const struct ash_adamw_args *args; /* whose arrays begin at the range */
    float decay, grow1, grow2, step, root2;
};

INLINE void adamw_step(const struct adamw_op *op, const struct ash_adamw_args *args, size_t i, size_t count)
{
    struct wide grad = wide_mul(wide_load_n(args->grad + i, count), wide_set(args->grad_scale)), denom;
    struct wide m = wide_load_n(args->m + i, count), v = wide_load_n(args->v + i, count);
    struct wide param = wide_load_n(args->param + i, count);

    m = wide_fma(wide_set(op->grow1), wide_sub(grad, m), m);
    v = wide_fma(wide_mul(wide_set(op->grow2), grad), grad, wide_mul(wide_set(args->beta2), v));
    denom = wide_add(wide_div(wide_sqrt(v), wide_set(op->root2)), wide_set(args->eps));
    param = wide_fma(wide_set(-op->step), wide_div(m, denom), wide_mul(param, wide_set(op->decay)));
    wide_store_n(args->m_out + i, m, count);
    wide_store_n(args->v_out + i, v, count);
    wide_store_n(args->param_out + i, param, count);
    if (args->param_bf16 != NULL) wide_store_bf16(args->param_bf16 + i, wide_round_bf16(param), count);
}

static void adamw_range(void *ctx, size_t begin, size_t end, int worker)
{
    const struct adamw_op op = *(const struct adamw_op *)ctx;
    const struct ash_adamw_args args = *op.args;
    size_t i = begin;

    (void)worker;
    for (; i + ASH_LANES <= end; i += ASH_LANES)
        adamw_step(&op, &args, i, ASH_LANES);
    if (i < end) adamw_step(&op, &args, i, end - i);
}

/* The same arrays from where a range begins. */
static struct ash_adamw_args adamw_part(const struct ash_adamw_args *args, const struct ash_adamw_range *range)
{
    struct ash_adamw_args part = *args;

    part.param += range->param;
    part.param_out += range->param;
    part.m += range->moment;
    part.v += range->moment;
    part.m_out += range->moment;
    part.v_out += range->moment;
    part.grad += range->grad;
    if (args->param_bf16 != NULL) part.param_bf16 += range->param;
    return part;
}

/* Run body over all ranges with op, whose other factors are set. */
static void run_ranges(struct ash_exec *exec, const struct ash_adamw_args *args, struct adamw_op *op, ash_range_fn body)
{
    op->grow1 = (float)(1.0 - (double)args->beta1);
    op->grow2 = (float)(1.0 - (double)args->beta2);
    for (size_t r = 0; r < args->range_count; r++) {
        const struct ash_adamw_range *range = &args->ranges[r];
        struct ash_adamw_args part = adamw_part(args, range);

        op->args = &part;
        op->decay = (float)(1.0 - (double)args->lr * (double)range->weight_decay);
        ash_workers_run(exec->workers, range->count, OPTIM_MIN_COUNT, body, op);
    }
}

static void adamw(struct ash_exec *exec, const struct ash_adamw_args *args)
{
    struct adamw_op op = {.step = args->lr / args->correction1, .root2 = sqrtf(args->correction2)};

    ash_assert(args->correction1 > 0.0f && args->correction2 > 0.0f); /* divisors */
    run_ranges(exec, args, &op, adamw_range);
}

INLINE void lion_step(const struct adamw_op *op, const struct ash_adamw_args *args, size_t i, size_t count)
{
    struct wide grad = wide_mul(wide_load_n(args->grad + i, count), wide_set(args->grad_scale));
    struct wide m = wide_load_n(args->m + i, count), param = wide_load_n(args->param + i, count);
    struct wide rise = wide_sub(grad, m), mean = wide_fma(wide_set(op->grow1), rise, m), zero = wide_set(0.0f);
    struct wide sign = wide_pick_gt(mean, zero, wide_set(1.0f), wide_pick_gt(zero, mean, wide_set(-1.0f), zero));

    param = wide_fma(wide_set(-op->step), sign, wide_mul(param, wide_set(op->decay)));
    wide_store_n(args->m_out + i, wide_fma(wide_set(op->grow2), rise, m), count);
    wide_store_n(args->param_out + i, param, count);
    if (args->param_bf16 != NULL) wide_store_bf16(args->param_bf16 + i, wide_round_bf16(param), count);
}

static void lion_range(void *ctx, size_t begin, size_t end, int worker)
{
    const struct adamw_op op = *(const struct adamw_op *)ctx;
    const struct ash_adamw_args args = *op.args;
    size_t i = begin;

    (void)worker;
    for (; i + ASH_LANES <= end; i += ASH_LANES)
        lion_step(&op, &args, i, ASH_LANES);
    if (i < end) lion_step(&op, &args, i, end - i);
}

static void lion(struct ash_exec *exec, const struct ash_adamw_args *args)
{
    struct adamw_op op = {.step = args->lr};

    run_ranges(exec, args, &op, lion_range);
}

static const struct ash_optim_ops vec_optim = {
    .adamw = adamw, .lion = lion, .max_abs = ash_squares_max, .sum_squares = ash_squares_add};

#endif
