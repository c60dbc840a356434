/* act - SwiGLU and both forms of GELU, element by element. */
#include "compute/cuda/ptx/mma.cuh"
#include "compute/cuda/tile/device.cuh"
#include "compute/gelu.h"

/* Where two neighbours are, and whether the second one is. */
struct pair {
    size_t first, second;
    bool both;
};

/* Elements 2 i and 2 i + 1 of what is adjacent. */
static __device__ inline pair pair_at(size_t i, size_t count)
{
    return {2 * i, 2 * i + 1, 2 * i + 1 < count};
}

/* The same elements where rows of cols lie `stride` (op.slots) apart. */
static __device__ inline size_t place_of(const struct ash_cuda_rows &op, size_t i)
{
    size_t row = i <= UINT32_MAX ? (uint32_t)i / (uint32_t)op.cols : i / op.cols;

    return row * op.slots + (i - row * op.cols);
}

static __device__ inline pair pair_in_rows(const struct ash_cuda_rows &op, size_t i)
{
    pair at = pair_at(i, op.count);

    if (op.cols == 0) return at;
    at.first = place_of(op, at.first);
    at.second = op.cols % 2 == 0 ? at.first + 1 : place_of(op, at.second);
    return at;
}

static __device__ inline bool is_whole(const void *base, pair at, size_t element_bytes)
{
    return at.both && at.second == at.first + 1 &&
           ((uintptr_t)base + at.first * element_bytes) % (2 * element_bytes) == 0;
}

static __device__ inline float2 read_pair(const float *from, pair at)
{
    if (is_whole(from, at, sizeof(float))) return *(const float2 *)(from + at.first);
    return make_float2(from[at.first], at.both ? from[at.second] : 0.0f);
}

static __device__ inline void put_pair(float *plain, uint16_t *rounded, pair at, float2 value)
{
    if (rounded != NULL && is_whole(rounded, at, sizeof(uint16_t))) {
        *(uint32_t *)(rounded + at.first) = pack_bf16(value.x, value.y);
    } else if (rounded != NULL) {
        rounded[at.first] = ash_f32_to_bf16(value.x);
        if (at.both) rounded[at.second] = ash_f32_to_bf16(value.y);
    } else if (is_whole(plain, at, sizeof(float))) {
        *(float2 *)(plain + at.first) = value;
    } else {
        plain[at.first] = value.x;
        if (at.both) plain[at.second] = value.y;
    }
}

static __device__ inline float swiglu(float gate, float up)
{
    return (gate * ash_sigmoidf(gate)) * up;
}

/* a: gate, b: up, in rows of cols that lie `slots` apart (cols 0: adjacent); two elements at a time. */
extern "C" __global__ void swiglu_forward(struct ash_cuda_rows op)
{
    EACH(i, (op.count + 1) / 2)
    {
        pair at = pair_in_rows(op, i);
        float2 gate = read_pair(op.a, at), up = read_pair(op.b, at);

        put_pair(op.out, op.out_bf16, pair_at(i, op.count), make_float2(swiglu(gate.x, up.x), swiglu(gate.y, up.y)));
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
        pair at = pair_in_rows(op, i);
        float2 gate = read_pair(op.a, at), up = read_pair(op.b, at), dout = read_pair(op.c, pair_at(i, op.count)),
               first = swiglu_gradients(gate.x, up.x, dout.x), second = swiglu_gradients(gate.y, up.y, dout.y);

        put_pair(op.out, op.out_bf16, at, make_float2(first.x, second.x));
        put_pair(op.out2, op.out2_bf16, at, make_float2(first.y, second.y));
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
