/* act - SwiGLU and both forms of GELU, element by element. */
#include "compute/cuda/device.cuh"
#include "compute/gelu.h"

/* a: gate, b: up. */
extern "C" __global__ void swiglu_forward(struct ash_cuda_rows op)
{
    EACH(i, op.count)
    op.out[i] = (op.a[i] * ash_sigmoidf(op.a[i])) * op.b[i];
}

/* c: dout; out: dgate, out2: dup, which may be a, b or c. */
extern "C" __global__ void swiglu_backward(struct ash_cuda_rows op)
{
    EACH(i, op.count)
    {
        float gate = op.a[i], up = op.b[i], dout = op.c[i], s = ash_sigmoidf(gate);

        op.out[i] = (dout * up) * (s * fmaf(gate, 1.0f - s, 1.0f));
        op.out2[i] = dout * (gate * s);
    }
}

static __device__ inline float gelu_tanh(float x)
{
    return ash_tanhf(ASH_GELU_SQRT_2_PI * fmaf(ASH_GELU_CUBE * x * x, x, x));
}

/* add: the erf form. */
extern "C" __global__ void gelu_forward(struct ash_cuda_rows op)
{
    EACH(i, op.count)
    {
        float x = op.a[i], t = op.add ? ash_erff(x * ASH_GELU_SQRT_HALF) : gelu_tanh(x);

        op.out[i] = (0.5f * x) * (1.0f + t);
    }
}

static __device__ inline float gelu_slope(bool erf_form, float x)
{
    float t, bend;

    if (!erf_form) {
        t = gelu_tanh(x);
        bend = (0.5f * x) * (1.0f - t * t) * (ASH_GELU_SQRT_2_PI * fmaf(3.0f * ASH_GELU_CUBE * x, x, 1.0f));
    } else {
        t = ash_erff(x * ASH_GELU_SQRT_HALF);
        bend = x * (ASH_GELU_DENSITY * ash_expf(-0.5f * x * x));
    }
    return fmaf(0.5f, 1.0f + t, bend);
}

/* c: dout. */
extern "C" __global__ void gelu_backward(struct ash_cuda_rows op)
{
    EACH(i, op.count)
    op.out[i] = op.c[i] * gelu_slope(op.add, op.a[i]);
}
