/* act - SwiGLU and both forms of GELU, element by element. */
#include "compute/cuda/ptx/mma.cuh"
#include "compute/cuda/tile/device.cuh"
#include "compute/gelu.h"

/* Elements 2 i and 2 i + 1, if there is one. */
static __device__ inline float2 read_pair(const float *from, size_t i, size_t count)
{
    if (2 * i + 1 < count && (uintptr_t)from % 8 == 0) return ((const float2 *)from)[i];
    return make_float2(from[2 * i], 2 * i + 1 < count ? from[2 * i + 1] : 0.0f);
}

static __device__ inline void put_pair(float *plain, uint16_t *rounded, size_t i, size_t count, float2 value)
{
    bool both = 2 * i + 1 < count;

    if (rounded != NULL && both && (uintptr_t)rounded % 4 == 0) {
        ((uint32_t *)rounded)[i] = pack_bf16(value.x, value.y);
    } else if (rounded != NULL) {
        rounded[2 * i] = ash_f32_to_bf16(value.x);
        if (both) rounded[2 * i + 1] = ash_f32_to_bf16(value.y);
    } else if (both && (uintptr_t)plain % 8 == 0) {
        ((float2 *)plain)[i] = value;
    } else {
        plain[2 * i] = value.x;
        if (both) plain[2 * i + 1] = value.y;
    }
}

static __device__ inline float swiglu(float gate, float up)
{
    return (gate * ash_sigmoidf(gate)) * up;
}

/* a: gate, b: up; two elements at a time. */
extern "C" __global__ void swiglu_forward(struct ash_cuda_rows op)
{
    EACH(i, (op.count + 1) / 2)
    {
        float2 gate = read_pair(op.a, i, op.count), up = read_pair(op.b, i, op.count);

        put_pair(op.out, op.out_bf16, i, op.count, make_float2(swiglu(gate.x, up.x), swiglu(gate.y, up.y)));
    }
}

/* x: of the gate, y: of up. */
static __device__ inline float2 swiglu_gradients(float gate, float up, float dout)
{
    float s = ash_sigmoidf(gate);

    return make_float2((dout * up) * (s * fmaf(gate, 1.0f - s, 1.0f)), dout * (gate * s));
}

/* c: dout; out: dgate, out2: dup, which may be a, b or c. */
extern "C" __global__ void swiglu_backward(struct ash_cuda_rows op)
{
    EACH(i, (op.count + 1) / 2)
    {
        float2 gate = read_pair(op.a, i, op.count), up = read_pair(op.b, i, op.count),
               dout = read_pair(op.c, i, op.count), first = swiglu_gradients(gate.x, up.x, dout.x),
               second = swiglu_gradients(gate.y, up.y, dout.y);

        put_pair(op.out, op.out_bf16, i, op.count, make_float2(first.x, second.x));
        put_pair(op.out2, op.out2_bf16, i, op.count, make_float2(first.y, second.y));
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
