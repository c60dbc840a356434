/* optim - AdamW (torch's formula and order), Lion, and sums of squares that have no order, over ranges of flat arrays.
 * A thread takes four neighbouring elements at a time. */
#include "compute/cuda/tile/device.cuh"

#define FOUR 4

/* The range that has a chunk: the last one that begins at it or before. */
static __device__ inline struct ash_cuda_range range_of(const struct ash_cuda_ranges &ranges, size_t chunk)
{
    size_t low = 0, high = ranges.count;

    while (high - low > 1) {
        size_t middle = (low + high) / 2;

        if (ranges.list[middle].chunk <= chunk)
            low = middle;
        else
            high = middle;
    }
    return ranges.list[low];
}

/* Call f(range, i, count) for all elements of the ranges: element i of a range and those after it, count of them (at
 * most four). */
template <typename F> static __device__ inline void each_four(const struct ash_cuda_ranges &ranges, F f)
{
    for (size_t chunk = blockIdx.x; chunk < ranges.chunks; chunk += gridDim.x) {
        struct ash_cuda_range range = range_of(ranges, chunk);
        size_t first = (chunk - range.chunk) * ASH_CUDA_RANGE_CHUNK;

#pragma unroll 2
        for (int at = threadIdx.x * FOUR; at < ASH_CUDA_RANGE_CHUNK; at += ASH_CUDA_RANGE_THREADS * FOUR) {
            size_t i = first + at;

            if (i < range.count) f(range, i, range.count - i < FOUR ? (int)(range.count - i) : FOUR);
        }
    }
}

/* Zeros where there are fewer than four. */
static __device__ inline float4 read_four(const float *x, bool is_wide, int count)
{
    if (is_wide && count == FOUR) return *(const float4 *)x;
    return make_float4(x[0], count > 1 ? x[1] : 0.0f, count > 2 ? x[2] : 0.0f, count > 3 ? x[3] : 0.0f);
}

static __device__ inline void write_four(float *x, bool is_wide, int count, float4 values)
{
    if (is_wide && count == FOUR) {
        *(float4 *)x = values;
        return;
    }
    x[0] = values.x;
    if (count > 1) x[1] = values.y;
    if (count > 2) x[2] = values.z;
    if (count > 3) x[3] = values.w;
}

static __device__ inline void write_four_bf16(uint16_t *x, bool is_wide, int count, float4 values)
{
    uint16_t rounded[FOUR] = {ash_f32_to_bf16(values.x), ash_f32_to_bf16(values.y), ash_f32_to_bf16(values.z),
                              ash_f32_to_bf16(values.w)};

    if (is_wide && count == FOUR) {
        *(uint2 *)x = make_uint2(rounded[0] | (uint32_t)rounded[1] << 16, rounded[2] | (uint32_t)rounded[3] << 16);
        return;
    }
#pragma unroll
    for (int i = 0; i < FOUR; i++)
        if (i < count) x[i] = rounded[i];
}

/* ---- AdamW ------------------------------------------------------------------------------------------------------- */

static __device__ inline void adamw_step(const struct ash_cuda_adamw &op, float decay, float grad, float &m, float &v,
                                         float &param)
{
    float denom;

    grad = grad * op.args.grad_scale;
    m = fmaf(op.grow1, grad - m, m);
    v = fmaf(op.grow2 * grad, grad, op.args.beta2 * v);
    denom = sqrtf(v) / op.root2 + op.args.eps;
    param = fmaf(-op.step, m / denom, param * decay);
}

extern "C" __global__ void __launch_bounds__(ASH_CUDA_RANGE_THREADS)
    adamw(const __grid_constant__ struct ash_cuda_adamw op)
{
    const struct ash_adamw_args &args = op.args;

    each_four(op.ranges, [&](const struct ash_cuda_range &range, size_t i, int count) {
        size_t at = range.param + i, moment = range.moment + i;
        float4 grad = read_four(args.grad + range.grad + i, range.is_wide, count),
               m = read_four(args.m + moment, range.is_wide, count),
               v = read_four(args.v + moment, range.is_wide, count),
               param = read_four(args.param + at, range.is_wide, count);

        adamw_step(op, range.decay, grad.x, m.x, v.x, param.x);
        adamw_step(op, range.decay, grad.y, m.y, v.y, param.y);
        adamw_step(op, range.decay, grad.z, m.z, v.z, param.z);
        adamw_step(op, range.decay, grad.w, m.w, v.w, param.w);
        write_four(args.m_out + moment, range.is_wide, count, m);
        write_four(args.v_out + moment, range.is_wide, count, v);
        write_four(args.param_out + at, range.is_wide, count, param);
        if (args.param_bf16 != NULL) write_four_bf16(args.param_bf16 + at, range.is_wide, count, param);
    });
}

/* ---- Lion -------------------------------------------------------------------------------------------------------- */

static __device__ inline void lion_step(const struct ash_cuda_adamw &op, float decay, float grad, float &m,
                                        float &param)
{
    float rise = grad * op.args.grad_scale - m, mean = fmaf(op.grow1, rise, m);

    param = fmaf(-op.step, mean > 0.0f ? 1.0f : 0.0f > mean ? -1.0f : 0.0f, param * decay);
    m = fmaf(op.grow2, rise, m);
}

extern "C" __global__ void __launch_bounds__(ASH_CUDA_RANGE_THREADS)
    lion(const __grid_constant__ struct ash_cuda_adamw op)
{
    const struct ash_adamw_args &args = op.args;

    each_four(op.ranges, [&](const struct ash_cuda_range &range, size_t i, int count) {
        size_t at = range.param + i, moment = range.moment + i;
        float4 grad = read_four(args.grad + range.grad + i, range.is_wide, count),
               m = read_four(args.m + moment, range.is_wide, count),
               param = read_four(args.param + at, range.is_wide, count);

        lion_step(op, range.decay, grad.x, m.x, param.x);
        lion_step(op, range.decay, grad.y, m.y, param.y);
        lion_step(op, range.decay, grad.z, m.z, param.z);
        lion_step(op, range.decay, grad.w, m.w, param.w);
        write_four(args.m_out + moment, range.is_wide, count, m);
        write_four(args.param_out + at, range.is_wide, count, param);
        if (args.param_bf16 != NULL) write_four_bf16(args.param_bf16 + at, range.is_wide, count, param);
    });
}

/* ---- sums of squares --------------------------------------------------------------------------------------------- */

static __device__ inline uint32_t bits_of(float x)
{
    return ash_f32_bits(x) & ~ASH_F32_SIGN_BIT;
}

/* The bits of |x| order like |x|, and a NaN's are above all others. */
extern "C" __global__ void __launch_bounds__(ASH_CUDA_RANGE_THREADS)
    squares_max(const __grid_constant__ struct ash_cuda_squares op)
{
    __shared__ uint32_t all;
    uint32_t max = 0;

    if (threadIdx.x == 0) all = 0;
    __syncthreads();
    each_four(op.ranges, [&](const struct ash_cuda_range &range, size_t i, int count) {
        float4 x = read_four(op.x + range.grad + i, range.is_wide, count);

        max = ::max(max, ::max(::max(bits_of(x.x), bits_of(x.y)), ::max(bits_of(x.z), bits_of(x.w))));
    });
    max = __reduce_max_sync(0xffffffffu, max);
    if (threadIdx.x % WARP == 0) atomicMax(&all, max);
    __syncthreads();
    if (threadIdx.x == 0) atomicMax(&op.sum->max, all);
}

static __device__ inline void add_square(float x, double scale, unsigned long long &high, unsigned long long &low)
{
    double y = (double)x * scale;
    uint64_t units = (uint64_t)(int64_t)(y * y * 0x1p62);

    high += units >> 32;
    low += units & 0xffffffff;
}

/* compute/squares.h: integers add up without rounding, so the order is free. */
extern "C" __global__ void __launch_bounds__(ASH_CUDA_RANGE_THREADS)
    squares_sum(const __grid_constant__ struct ash_cuda_squares op)
{
    __shared__ unsigned long long all[2];
    unsigned long long high = 0, low = 0;
    double scale = ldexp(1.0, -ash_f32_exponent(op.sum->max));

    if (!ash_f32_is_finite(op.sum->max)) return;
    if (threadIdx.x < 2) all[threadIdx.x] = 0;
    __syncthreads();
    each_four(op.ranges, [&](const struct ash_cuda_range &range, size_t i, int count) {
        float4 x = read_four(op.x + range.grad + i, range.is_wide, count);

        add_square(x.x, scale, high, low);
        add_square(x.y, scale, high, low);
        add_square(x.z, scale, high, low);
        add_square(x.w, scale, high, low);
    });
    for (int half = WARP / 2; half > 0; half /= 2) {
        high += __shfl_down_sync(0xffffffffu, high, half);
        low += __shfl_down_sync(0xffffffffu, low, half);
    }
    if (threadIdx.x % WARP == 0) {
        atomicAdd(&all[0], high);
        atomicAdd(&all[1], low);
    }
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd((unsigned long long *)&op.sum->high, all[0]);
    if (threadIdx.x == 1) atomicAdd((unsigned long long *)&op.sum->low, all[1]);
}
