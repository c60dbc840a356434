/* Activations in plain C: SwiGLU and both forms of GELU, element by element. */
#include "compute/ref/ref_priv.h"

#include "compute/gelu.h"
#include "compute/mathf.h"

#define ACT_MIN_COUNT 1024

struct act {
    const float *x, *up, *dout; /* x: the gate of SwiGLU */
    float *out, *dx, *dup;
    uint16_t *out_bf16, *dx_bf16, *dup_bf16; /* instead of these, or NULL */
    size_t cols, stride;                     /* of x, up and their gradients; 0: adjacent */
    enum ash_gelu kind;
};

/* Where element i of what may lie in rows is. */
static size_t place_of(const struct act *op, size_t i)
{
    return op->cols == 0 ? i : i / op->cols * op->stride + i % op->cols;
}

static void swiglu_forward_range(void *ctx, size_t begin, size_t end, int worker)
{
    const struct act *op = ctx;

    (void)worker;
    for (size_t i = begin; i < end; i++) {
        float gate = op->x[place_of(op, i)], up = op->up[place_of(op, i)];

        ash_ref_put(op->out, op->out_bf16, i, (gate * ash_sigmoidf(gate)) * up);
    }
}

static void swiglu_forward(struct ash_exec *exec, const struct ash_swiglu_args *args)
{
    struct act op = {.x = args->gate,
                     .up = args->up,
                     .out = args->out,
                     .out_bf16 = args->out_bf16,
                     .cols = args->cols,
                     .stride = args->stride};

    ash_workers_run(exec->workers, args->count, ACT_MIN_COUNT, swiglu_forward_range, &op);
}

static void swiglu_backward_range(void *ctx, size_t begin, size_t end, int worker)
{
    const struct act *op = ctx;

    (void)worker;
    for (size_t i = begin; i < end; i++) {
        size_t at = place_of(op, i);
        float gate = op->x[at], up = op->up[at], dout = op->dout[i], s = ash_sigmoidf(gate);

        ash_ref_put(op->dx, op->dx_bf16, at, (dout * up) * (s * fmaf(gate, 1.0f - s, 1.0f)));
        ash_ref_put(op->dup, op->dup_bf16, at, dout * (gate * s));
    }
}

static void swiglu_backward(struct ash_exec *exec, const struct ash_swiglu_grad_args *args)
{
    struct act op = {.x = args->gate,
                     .up = args->up,
                     .dout = args->dout,
                     .dx = args->dgate,
                     .dup = args->dup,
                     .dx_bf16 = args->dgate_bf16,
                     .dup_bf16 = args->dup_bf16,
                     .cols = args->cols,
                     .stride = args->stride};

    ash_workers_run(exec->workers, args->count, ACT_MIN_COUNT, swiglu_backward_range, &op);
}

/* The tanh of the approximate form. */
static float gelu_tanh(float x)
{
    return ash_tanhf(ASH_GELU_SQRT_2_PI * fmaf(ASH_GELU_CUBE * x * x, x, x));
}

static void gelu_forward_range(void *ctx, size_t begin, size_t end, int worker)
{
    const struct act *op = ctx;

    (void)worker;
    for (size_t i = begin; i < end; i++) {
        float x = op->x[i], t = op->kind == ASH_GELU_TANH ? gelu_tanh(x) : ash_erff(x * ASH_GELU_SQRT_HALF);

        op->out[i] = (0.5f * x) * (1.0f + t);
    }
}

static void gelu_forward(struct ash_exec *exec, enum ash_gelu kind, const float *x, size_t count, float *out)
{
    struct act op = {.x = x, .out = out, .kind = kind};

    ash_workers_run(exec->workers, count, ACT_MIN_COUNT, gelu_forward_range, &op);
}

/* d/dx 0.5 x (1 + t(x)) = 0.5 (1 + t) + 0.5 x t'. */
static float gelu_slope(enum ash_gelu kind, float x)
{
    float t, bend;

    if (kind == ASH_GELU_TANH) {
        t = gelu_tanh(x);
        bend = (0.5f * x) * (1.0f - t * t) * (ASH_GELU_SQRT_2_PI * fmaf(3.0f * ASH_GELU_CUBE * x, x, 1.0f));
    } else {
        t = ash_erff(x * ASH_GELU_SQRT_HALF);
        bend = x * (ASH_GELU_DENSITY * ash_expf(-0.5f * x * x));
    }
    return fmaf(0.5f, 1.0f + t, bend);
}

static void gelu_backward_range(void *ctx, size_t begin, size_t end, int worker)
{
    const struct act *op = ctx;

    (void)worker;
    for (size_t i = begin; i < end; i++)
        op->dx[i] = op->dout[i] * gelu_slope(op->kind, op->x[i]);
}

static void gelu_backward(struct ash_exec *exec, enum ash_gelu kind, const float *x, const float *dout, size_t count,
                          float *dx)
{
    struct act op = {.x = x, .dout = dout, .dx = dx, .kind = kind};

    ash_workers_run(exec->workers, count, ACT_MIN_COUNT, gelu_backward_range, &op);
}

const struct ash_act_ops ash_ref_act = {
    .swiglu_forward = swiglu_forward,
    .swiglu_backward = swiglu_backward,
    .gelu_forward = gelu_forward,
    .gelu_backward = gelu_backward,
};
