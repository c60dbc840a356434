/* SwiGLU as ref-wgmma computes it for bf16 models: gate, up and the gradient of their product are rounded as they are
 * read, and the sigmoid is made of the GPU's power of two (ref/ex2.h). Other activations are the reference's. */
#include "compute/ref/ref_priv.h"

#include "compute/mathf.h"
#include "compute/ref/ex2.h"

#define ACT_MIN_COUNT 1024

/* Where element i of what may lie in rows of cols elements, stride apart, is. */
static size_t place_of(size_t cols, size_t stride, size_t i)
{
    return cols == 0 ? i : i / cols * stride + i % cols;
}

/* An element as bf16: rounded already, or as it is read. */
static float read(const float *plain, const uint16_t *rounded, size_t index)
{
    return rounded != NULL ? ash_bf16_to_f32(rounded[index]) : ash_bf16_round(plain[index]);
}

static float sigmoid(float x)
{
    return 1.0f / (1.0f + ash_ex2(-(x * ASH_LOG2E)));
}

static void forward_range(void *ctx, size_t begin, size_t end, int worker)
{
    const struct ash_swiglu_args *args = ctx;

    (void)worker;
    for (size_t i = begin; i < end; i++) {
        size_t at = place_of(args->cols, args->stride, i);
        float gate = read(args->gate, args->gate_bf16, at), up = read(args->up, args->up_bf16, at);

        ash_ref_put(args->out, args->out_bf16, i, (gate * sigmoid(gate)) * up);
    }
}

static void backward_range(void *ctx, size_t begin, size_t end, int worker)
{
    const struct ash_swiglu_grad_args *args = ctx;

    (void)worker;
    for (size_t i = begin; i < end; i++) {
        size_t at = place_of(args->cols, args->stride, i);
        float gate = read(args->gate, args->gate_bf16, at), up = read(args->up, args->up_bf16, at);
        float dout = read(args->dout, args->dout_bf16, i), s = sigmoid(gate);

        ash_ref_put(args->dgate, args->dgate_bf16, at, (dout * up) * (s * fmaf(gate, 1.0f - s, 1.0f)));
        ash_ref_put(args->dup, args->dup_bf16, at, dout * (gate * s));
        if (args->hidden_bf16 != NULL) args->hidden_bf16[i] = ash_f32_to_bf16((gate * s) * up);
    }
}

static void swiglu_forward(struct ash_exec *exec, const struct ash_swiglu_args *args)
{
    if (args->round_bf16)
        ash_workers_run(exec->workers, args->count, ACT_MIN_COUNT, forward_range, (void *)args);
    else
        ash_ref_act.swiglu_forward(exec, args);
}

static void swiglu_backward(struct ash_exec *exec, const struct ash_swiglu_grad_args *args)
{
    if (args->round_bf16)
        ash_workers_run(exec->workers, args->count, ACT_MIN_COUNT, backward_range, (void *)args);
    else
        ash_ref_act.swiglu_backward(exec, args);
}

static void gelu_forward(struct ash_exec *exec, enum ash_gelu kind, const float *x, size_t count, float *out)
{
    ash_ref_act.gelu_forward(exec, kind, x, count, out);
}

static void gelu_backward(struct ash_exec *exec, enum ash_gelu kind, const float *x, const float *dout, size_t count,
                          float *dx)
{
    ash_ref_act.gelu_backward(exec, kind, x, dout, count, dx);
}

const struct ash_act_ops ash_ref_act_wgmma = {.swiglu_forward = swiglu_forward,
                                              .swiglu_backward = swiglu_backward,
                                              .gelu_forward = gelu_forward,
                                              .gelu_backward = gelu_backward};
