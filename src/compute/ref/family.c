/* The ops of some families in plain C: gates, sinks, caps. The CPU's tables use these, too. */
#include "compute/ref/ref_priv.h"

#include "compute/gelu.h"
#include "compute/lanes.h"
#include "compute/mathf.h"
#include "compute/ref/cap.h"

#define FAMILY_MIN_COUNT 1024
#define SINK_MIN_UNITS 64
#define GATE_LIMIT 7.0f
#define GATE_SLOPE 1.702f

static float gelu_tanh(float x)
{
    return ash_tanhf(ASH_GELU_SQRT_2_PI * fmaf(ASH_GELU_CUBE * x * x, x, x));
}

/* What a gate gives, and its derivatives by gate and up. */
struct gated {
    float out, by_gate, by_up;
};

static struct gated gelu_gate(float gate, float up)
{
    float t = gelu_tanh(gate), half = 0.5f * gate;
    float bend = half * (1.0f - t * t) * (ASH_GELU_SQRT_2_PI * fmaf(3.0f * ASH_GELU_CUBE * gate, gate, 1.0f));

    return (struct gated){half * (1.0f + t) * up, fmaf(0.5f, 1.0f + t, bend) * up, half * (1.0f + t)};
}

static struct gated clamped_gate(float gate, float up)
{
    bool in_gate = gate <= GATE_LIMIT, in_up = up >= -GATE_LIMIT && up <= GATE_LIMIT;
    float g = in_gate ? gate : GATE_LIMIT, u = in_up ? up : up < 0 ? -GATE_LIMIT : GATE_LIMIT;
    float s = ash_sigmoidf(GATE_SLOPE * g), glu = g * s;

    return (struct gated){(u + 1.0f) * glu, in_gate ? (u + 1.0f) * (s * fmaf(GATE_SLOPE * g, 1.0f - s, 1.0f)) : 0.0f,
                          in_up ? glu : 0.0f};
}

static void gated_rows(void *ctx, size_t begin, size_t end, int worker)
{
    const struct ash_gated_args *args = ctx;

    (void)worker;
    for (size_t i = begin * args->cols; i < end * args->cols; i++) {
        size_t at = i / args->cols * args->stride + i % args->cols * args->step;
        struct gated gated = (args->kind == ASH_GATE_GELU ? gelu_gate : clamped_gate)(args->gate[at], args->up[at]);

        if (args->dout == NULL) {
            args->out[i] = gated.out;
            continue;
        }
        args->dgate[at] = args->dout[i] * gated.by_gate;
        args->dup[at] = args->dout[i] * gated.by_up;
    }
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
        float *out = args->out + row * args->stride + h * args->dim, lse = args->lse[unit], sink = args->sinks[h];
        float top = lse > sink ? lse : sink, all = top + ash_logf(ash_expf(lse - top) + ash_expf(sink - top));
        float share = ash_expf(lse - all);

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
