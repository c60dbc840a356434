/* The ops of some families in plain C: gates, sinks, caps. The CPU's tables use these, too. */
#include "compute/ref/ref_priv.h"

#include "compute/family_math.h"
#include "compute/lanes.h"

#define FAMILY_MIN_COUNT 1024
#define SINK_MIN_UNITS 64

static void gated_rows(void *ctx, size_t begin, size_t end, int worker)
{
    const struct ash_gated_args *args = ctx;

    (void)worker;
    for (size_t i = begin * args->cols; i < end * args->cols; i++)
        ash_gate_element(args, i);
}

static void run_gated(struct ash_exec *exec, const struct ash_gated_args *args)
{
    ash_workers_run(exec->workers, args->rows, FAMILY_MIN_COUNT / (args->cols + 1) + 1, gated_rows,
                    (void *)(uintptr_t)args);
}

/* ---- sinks ------------------------------------------------------------------------------------------------------- */

static void sink_rows(void *ctx, size_t begin, size_t end, int worker)
{
    const struct ash_sink_args *args = ctx;

    (void)worker;
    for (size_t unit = begin; unit < end; unit++) {
        size_t row = unit / args->heads, h = unit % args->heads;
        float *out = args->out + row * args->stride + h * args->dim, lse = args->lse[unit];
        float all = ash_sink_lse(lse, args->sinks[h]), share = ash_expf(lse - all);

        for (size_t d = 0; d < args->dim; d++)
            out[d] = out[d] * share;
        args->lse[unit] = all;
    }
}

static void sink_forward(struct ash_exec *exec, const struct ash_sink_args *args)
{
    ash_workers_run(exec->workers, args->rows * args->heads, SINK_MIN_UNITS, sink_rows, (void *)(uintptr_t)args);
}

static void sink_heads(void *ctx, size_t begin, size_t end, int worker)
{
    const struct ash_sink_args *args = ctx;

    (void)worker;
    for (size_t h = begin; h < end; h++)
        for (size_t row = 0; row < args->rows; row++) {
            size_t at = row * args->stride + h * args->dim;
            float lanes[ASH_LANES] = {0}, p = ash_expf(args->sinks[h] - args->lse[row * args->heads + h]);

            for (size_t d = 0; d < args->dim; d++)
                lanes[d % ASH_LANES] = fmaf(args->dout[at + d], args->out[at + d], lanes[d % ASH_LANES]);
            args->dsinks[h] = fmaf(-p, ash_lanes_fold(lanes), args->dsinks[h]);
        }
}

static void sink_backward(struct ash_exec *exec, const struct ash_sink_args *args)
{
    ash_workers_run(exec->workers, args->heads, 1, sink_heads, (void *)(uintptr_t)args);
}

/* ---- caps -------------------------------------------------------------------------------------------------------- */

struct cap_op {
    const float *y;
    float *x, cap;
};

static void cap_forward_range(void *ctx, size_t begin, size_t end, int worker)
{
    const struct cap_op *op = ctx;

    (void)worker;
    for (size_t i = begin; i < end; i++)
        op->x[i] = ash_cap(op->x[i], op->cap);
}

static void cap_forward(struct ash_exec *exec, float *x, float cap, size_t count)
{
    struct cap_op op = {.x = x, .cap = cap};

    ash_workers_run(exec->workers, count, FAMILY_MIN_COUNT, cap_forward_range, &op);
}

static void cap_backward_range(void *ctx, size_t begin, size_t end, int worker)
{
    const struct cap_op *op = ctx;

    (void)worker;
    for (size_t i = begin; i < end; i++)
        op->x[i] = op->x[i] * ash_cap_slope(op->y[i], op->cap);
}

static void cap_backward(struct ash_exec *exec, const float *y, float cap, size_t count, float *dx)
{
    struct cap_op op = {.y = y, .x = dx, .cap = cap};

    ash_workers_run(exec->workers, count, FAMILY_MIN_COUNT, cap_backward_range, &op);
}

const struct ash_family_ops ash_ref_family = {.gated_forward = run_gated,
                                              .gated_backward = run_gated,
                                              .sink_forward = sink_forward,
                                              .sink_backward = sink_backward,
                                              .cap_forward = cap_forward,
                                              .cap_backward = cap_backward};
