/* blocks - sums over rows as compute/blocks.h says: blocks of 16 columns, added by neighbours, in 32 partial sums. */
#ifndef ASH_COMPUTE_CUDA_BLOCKS_CUH
#define ASH_COMPUTE_CUDA_BLOCKS_CUH

#include "compute/blocks.h"
#include "compute/cuda/ptx/mma.cuh"
#include "compute/cuda/tile/device.cuh"

#define EVERY_LANE 0xffffffffu
#define CHUNK_COLS (4 * WARP) /* columns of a warp, four for each thread: eight blocks of a row */
#define CHUNK_BLOCKS (CHUNK_COLS / ASH_SUM_BLOCK)

/* Four columns' part of a block: their sum, or the sum of their products. */
static __device__ inline float four_sum(float4 a)
{
    return (a.x + a.y) + (a.z + a.w);
}

static __device__ inline float four_dot(float4 a, float4 b)
{
    return fmaf(a.y, b.y, a.x * b.x) + fmaf(a.w, b.w, a.z * b.z);
}

/* The block's sum, of which four neighbouring threads have four columns each; all of them get it. */
static __device__ inline float block_sum(float four)
{
    four = four + __shfl_xor_sync(EVERY_LANE, four, 1);
    return four + __shfl_xor_sync(EVERY_LANE, four, 2);
}

/* The row's sum, from a partial sum of each lane of a warp; all of them get it. */
static __device__ inline float fold_warp(float lane)
{
#pragma unroll
    for (int half = ASH_SUM_LANES / 2; half > 0; half /= 2)
        lane = lane + __shfl_xor_sync(EVERY_LANE, lane, half);
    return lane;
}

/* The same from the sums of a row's blocks in shared memory. */
static __device__ inline float sum_blocks(const float *blocks, unsigned count)
{
    float lane = 0.0f;

    for (unsigned b = threadIdx.x % WARP; b < count; b += ASH_SUM_LANES)
        lane = lane + blocks[b];
    return fold_warp(lane);
}

/* The sum of a row's squares; a warp has the row, which is at a 16-byte border and has a multiple of 4 columns. */
static __device__ inline float sum_squares(const float *x, unsigned cols)
{
    float lane = 0.0f;

    for (unsigned first = threadIdx.x % WARP * ASH_SUM_BLOCK; first < cols; first += ASH_SUM_LANES * ASH_SUM_BLOCK) {
        float fours[ASH_SUM_BLOCK / 4];

#pragma unroll
        for (int i = 0; i < ASH_SUM_BLOCK / 4; i++) {
            float4 v =
                first + 4 * i < cols ? *(const float4 *)(x + first + 4 * i) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);

            fours[i] = four_dot(v, v);
        }
        lane = lane + ((fours[0] + fours[1]) + (fours[2] + fours[3]));
    }
    return fold_warp(lane);
}

/* Floats that were rounded to bf16: the first in the low half. */
static __device__ inline float low_bf16(uint32_t pair)
{
    return __uint_as_float(pair << 16);
}

static __device__ inline float high_bf16(uint32_t pair)
{
    return __uint_as_float(pair & 0xffff0000u);
}

/* Four floats as bf16, and back. */
static __device__ inline uint2 round_four(float4 v)
{
    return make_uint2(pack_bf16(v.x, v.y), pack_bf16(v.z, v.w));
}

static __device__ inline float4 widen_four(uint2 v)
{
    return make_float4(low_bf16(v.x), high_bf16(v.x), low_bf16(v.y), high_bf16(v.y));
}

#endif
