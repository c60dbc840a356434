/* norm_forward - rows of norms in registers, each a warp's or a thread block's, for norm_bf16.cu: their sums by blocks,
 * and what they become. */
#ifndef ASH_COMPUTE_CUDA_NORM_FORWARD_CUH
#define ASH_COMPUTE_CUDA_NORM_FORWARD_CUH

#include "compute/cuda/ptx/shared.cuh"
#include "compute/cuda/tile/blocks.cuh"

#define FORWARD_THREADS ASH_CUDA_NORM_FORWARD_THREADS
#define ZERO4 make_float4(0.0f, 0.0f, 0.0f, 0.0f)

/* Where the columns of a unit (row, group) begin. */
static __device__ inline size_t place_of(const struct ash_norm_args &args, size_t stride, size_t unit)
{
    if (args.groups == 1) return unit * stride;
    return unit / args.groups * stride + unit % args.groups * args.cols;
}

/* Wait until all warps of a row have written what the others read. */
template <bool ALONE> static __device__ inline void sync_row(void)
{
    if (ALONE)
        __syncwarp();
    else
        __syncthreads();
}

template <bool LAYER>
static __device__ inline float4 put_forward(float4 v, float mean, float rstd, float4 w, float4 b, bool has_bias)
{
    float4 xhat = LAYER
                      ? make_float4((v.x - mean) * rstd, (v.y - mean) * rstd, (v.z - mean) * rstd, (v.w - mean) * rstd)
                      : make_float4(v.x * rstd, v.y * rstd, v.z * rstd, v.w * rstd);

    if (LAYER && has_bias)
        return make_float4(fmaf(xhat.x, w.x, b.x), fmaf(xhat.y, w.y, b.y), fmaf(xhat.z, w.z, b.z),
                           fmaf(xhat.w, w.w, b.w));
    return make_float4(xhat.x * w.x, xhat.y * w.y, xhat.z * w.z, xhat.w * w.w);
}

/* Where a thread's chunks of a row are: its own from column `first` on, its warp's from begin on. */
struct held_columns {
    unsigned begin, first, cols, lane;
};

/* Leave the sum of each block of a row's values. */
template <int HELD>
static __device__ inline void leave_sums(const struct held_columns &at, const float4 v[HELD], float *blocks)
{
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        if (at.begin + i * CHUNK_COLS >= at.cols) continue; /* for a whole warp */
        float sum = block_sum(four_sum(v[i]));

        if (at.lane % 4 == 0) blocks[(at.first + i * CHUNK_COLS) / ASH_SUM_BLOCK] = sum;
    }
}

/* The same of squares; with LAYER of distances from the mean. */
template <int HELD, bool LAYER>
static __device__ inline void leave_squares(const struct held_columns &at, const float4 v[HELD], float mean,
                                            float *blocks)
{
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        float4 d = v[i];

        if (at.begin + i * CHUNK_COLS >= at.cols) continue;
        if (LAYER)
            d = at.first + i * CHUNK_COLS < at.cols ? make_float4(d.x - mean, d.y - mean, d.z - mean, d.w - mean)
                                                    : ZERO4;
        float sum = block_sum(four_dot(d, d));

        if (at.lane % 4 == 0) blocks[(at.first + i * CHUNK_COLS) / ASH_SUM_BLOCK] = sum;
    }
}

/* Write a row to y from element `to` on. */
template <int HELD, bool LAYER>
static __device__ inline void put_row(const struct ash_norm_args &args, const struct held_columns &at,
                                      const float4 v[HELD], float mean, float rstd, size_t to)
{
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        unsigned c = at.first + i * CHUNK_COLS;

        if (c >= at.cols) continue;
        float4 b = LAYER && args.bias != NULL ? *(const float4 *)(args.bias + c) : ZERO4;
        float4 y = put_forward<LAYER>(v[i], mean, rstd, *(const float4 *)(args.weight + c), b, args.bias != NULL);

        if (args.y_bf16 != NULL)
            *(uint2 *)(args.y_bf16 + to + c) = round_four(y);
        else
            *(float4 *)(args.y + to + c) = y;
    }
}

/* ALONE: a warp has a row; else all warps of the thread block do. */
template <int HELD, bool ALONE, bool LAYER> static __device__ inline void forward_rows(const struct ash_norm_args &args)
{
    constexpr int WARPS = FORWARD_THREADS / WARP, BLOCKS = ALONE ? HELD * CHUNK_BLOCKS : WARP * HELD * CHUNK_BLOCKS;
    __shared__ float sums[ALONE ? WARPS : LAYER ? 2 : 1][BLOCKS];
    unsigned warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, cols = (unsigned)args.cols;
    unsigned begin = ALONE ? 0 : warp * HELD * CHUNK_COLS, count = (cols + ASH_SUM_BLOCK - 1) / ASH_SUM_BLOCK;
    struct held_columns at = {begin, begin + lane * 4, cols, lane};
    size_t unit = ALONE ? (size_t)blockIdx.x * WARPS + warp : blockIdx.x;
    float *blocks = sums[ALONE ? warp : 0], mean = 0.0f, rstd;
    float4 v[HELD];

    if (unit >= args.rows * args.groups) return; /* whole warps, and ALONE only */
    const float *x = args.x + place_of(args, args.x_stride, unit);
    size_t to = place_of(args, args.y_stride, unit);
#pragma unroll
    for (int i = 0; i < HELD; i++)
        v[i] = at.first + i * CHUNK_COLS < cols ? *(const float4 *)(x + at.first + i * CHUNK_COLS) : ZERO4;
    if (LAYER) {
        leave_sums<HELD>(at, v, blocks);
        sync_row<ALONE>();
        mean = sum_blocks(blocks, count) / (float)args.cols;
        if (ALONE)
            __syncwarp();
        else
            blocks = sums[LAYER && !ALONE ? 1 : 0];
    }
    leave_squares<HELD, LAYER>(at, v, mean, blocks);
    sync_row<ALONE>();
    rstd = 1.0f / sqrtf(sum_blocks(blocks, count) / (float)args.cols + args.eps);
    put_row<HELD, LAYER>(args, at, v, mean, rstd, to);
    if (lane != 0 || (!ALONE && warp != 0)) return;
    if (args.rstd != NULL) args.rstd[unit] = rstd;
    if (LAYER && args.mean != NULL) args.mean[unit] = mean;
}

#endif
