/* loss_fast - cross_entropy_row for runtime.mode=fast: exponentials in one instruction each, and sums by all threads of
 * the block. A thread reads and writes the columns that it copied itself, so the block meets only for its two
 * reductions. */
#include "compute/cuda/ptx/copy.cuh"
#include "compute/cuda/ptx/math.cuh"
#include "compute/cuda/ptx/mma.cuh"
#include "compute/cuda/tile/device.cuh"

#define THREADS ASH_CUDA_LOSS_ROW_THREADS

/* STEP columns of a row in shared memory. */
template <int STEP> struct columns {
    float x[STEP];
};

template <int STEP> static __device__ inline struct columns<STEP> load_columns(const float *from) {
    struct columns<STEP> out;

    if constexpr (STEP == 4)
        *(float4 *)out.x = *(const float4 *)from;
    else
        out.x[0] = from[0];
    return out;
}

template <int STEP>
static __device__ inline void store_columns(float *to, const struct columns<STEP> &from)
{
    if constexpr (STEP == 4)
        *(float4 *)to = *(const float4 *)from.x;
    else
        to[0] = from.x[0];
}

/* Enqueue the copies of this thread's columns first ... end - 1. */
template <int STEP>
static __device__ inline void copy_columns(const float *from, unsigned first, unsigned end, float *to)
{
    unsigned place = shared_address(to);

    for (unsigned v = first + threadIdx.x * STEP; v < end; v += THREADS * STEP) {
        if constexpr (STEP == 4)
            copy_16(place + v * 4, from + v);
        else
            copy_4(place + v * 4, from + v);
    }
    copy_commit();
}

template <int STEP> static __device__ inline float max_columns(const float *x, unsigned first, unsigned end, float top)
{
    for (unsigned v = first + threadIdx.x * STEP; v < end; v += THREADS * STEP) {
        struct columns<STEP> some = load_columns<STEP>(x + v);

#pragma unroll
        for (int i = 0; i < STEP; i++)
            top = fmaxf(top, some.x[i]);
    }
    return top;
}

/* One value of all threads' in every thread, by a fixed tree. places: one for each warp. */
template <typename Join> static __device__ inline float join_block(float value, float *places, Join join)
{
    for (int half = WARP / 2; half > 0; half /= 2)
        value = join(value, __shfl_xor_sync(0xffffffffu, value, half));
    if (threadIdx.x % WARP == 0) places[threadIdx.x / WARP] = value;
    __syncthreads();
    value = places[threadIdx.x % WARP];
    for (int half = WARP / 2; half > 0; half /= 2)
        value = join(value, __shfl_xor_sync(0xffffffffu, value, half));
    return value;
}

/* Logits become powers of two, 2^(x factor + off). Returns what this thread's add up to. */
template <int STEP> static __device__ inline float sum_powers(float *x, unsigned cols, float factor, float off)
{
    float sum[STEP] = {};

#pragma unroll 2
    for (unsigned v = threadIdx.x * STEP; v < cols; v += THREADS * STEP) {
        struct columns<STEP> some = load_columns<STEP>(x + v);

#pragma unroll
        for (int i = 0; i < STEP; i++) {
            some.x[i] = ex2_approx(fmaf(some.x[i], factor, off));
            sum[i] = sum[i] + some.x[i];
        }
        store_columns<STEP>(x + v, some);
    }
    if constexpr (STEP == 4) return (sum[0] + sum[1]) + (sum[2] + sum[3]);
    return sum[0];
}

/* Gradients in place of the logits: as float32, or as bf16 in the first half of the row. */
template <int STEP>
static __device__ inline void put_columns(const struct ash_loss_part &part, const float *x, float each, float scale,
                                          unsigned target, float *row)
{
    uint16_t *rounded = part.grad_bf16 + (row - part.logits) / part.cols * part.grad_stride;

    for (unsigned v = threadIdx.x * STEP; v < (unsigned)part.cols; v += THREADS * STEP) {
        struct columns<STEP> g = load_columns<STEP>(x + v);

#pragma unroll
        for (int i = 0; i < STEP; i++)
            g.x[i] = target == v + i ? fmaf(g.x[i], each, -scale) : g.x[i] * each;
        if (!part.grad_bf16)
            store_columns<STEP>(row + v, g);
        else if constexpr (STEP == 4)
            *(uint2 *)(rounded + v) = make_uint2(pack_bf16(g.x[0], g.x[1]), pack_bf16(g.x[2], g.x[3]));
        else
            rounded[v] = ash_f32_to_bf16(g.x[0]);
    }
}

template <int STEP> static __device__ inline void loss_of_row(const struct ash_loss_part &part, float *row, float *x)
{
    __shared__ float tops[WARP], sums[WARP];
    unsigned cols = (unsigned)part.cols, half = cols / 2 / (THREADS * STEP) * (THREADS * STEP);
    int32_t target = part.targets[blockIdx.x];
    float sharpness = ash_loss_sharpness(&part), at_target = row[target], max, sum, scale;

    static_assert(THREADS / WARP == WARP, "a warp joins what all warps found");
    copy_columns<STEP>(row, 0, half, x);
    copy_columns<STEP>(row, half, cols, x);
    copy_wait<1>();
    max = max_columns<STEP>(x, 0, half, -INFINITY);
    copy_wait<0>();
    max = max_columns<STEP>(x, half, cols, max);
    max = join_block(max, tops, [](float a, float b) { return fmaxf(a, b); }) * sharpness;
    sum = sum_powers<STEP>(x, cols, sharpness * ASH_LOG2E, -max * ASH_LOG2E);
    sum = join_block(sum, sums, [](float a, float b) { return a + b; });
    if (threadIdx.x == 0) part.loss[blockIdx.x] = ash_logf(sum) - (at_target * sharpness - max);
    if (!ash_loss_has_gradient(&part)) return;
    scale = ash_loss_scale(&part, blockIdx.x) * sharpness;
    put_columns<STEP>(part, x, scale / sum, scale, (unsigned)target, row);
}

/* A block per row. */
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    cross_entropy_fast(const __grid_constant__ struct ash_loss_part part)
{
    DYNAMIC_SHARED(float, x, 16);
    float *row = part.logits + blockIdx.x * part.cols;

    if (part.targets[blockIdx.x] < 0) {
        if (threadIdx.x == 0) part.loss[blockIdx.x] = 0.0f;
        for (unsigned v = threadIdx.x; ash_loss_has_gradient(&part) && v < (unsigned)part.cols; v += THREADS)
            row[v] = 0.0f;
    } else if (part.cols % 4 == 0 && (uintptr_t)row % 16 == 0) {
        loss_of_row<4>(part, row, x);
    } else {
        loss_of_row<1>(part, row, x);
    }
}
