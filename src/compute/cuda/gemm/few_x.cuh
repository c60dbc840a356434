/* few_x - rows of x as products of a few rows multiply them: bf16, normed if the op norms. All threads of a thread
 * block make them, in shared memory (few.cu) or for other kernels (few_rows.cu). */
#ifndef ASH_COMPUTE_CUDA_FEW_X_CUH
#define ASH_COMPUTE_CUDA_FEW_X_CUH

#include "compute/cuda/ptx/launch.cuh"
#include "compute/cuda/tile/blocks.cuh"

#define HELD 4  /* chunks of four values of x that a thread keeps between the two passes of a norm: a row of 4096 */
#define AHEAD 8 /* chunks that it reads before it writes the first */

/* Rows of x: [M, pitch] of bf16; the sums of their blocks of squares, and factors, in shared memory. */
struct rows_of_x {
    uint16_t *values;
    float *blocks, *rstd;
    unsigned pitch, fours; /* fours: chunks of a row */
};

/* Chunk i of all rows: its row, and k. */
template <typename Op> static __device__ inline uint2 place_of(const Op &op, const struct rows_of_x &x, unsigned i)
{
    unsigned m = op.M == 1 ? 0 : i / x.fours;

    return make_uint2(m, (i - m * x.fours) * 4);
}

template <typename Op> static __device__ inline float4 read_floats(const Op &op, uint2 at)
{
    return *(const float4 *)((const float *)op.x + at.x * op.x_stride + at.y);
}

/* Rows of x as they are, after the kernel before this one. */
template <int THREADS, typename Op> static __device__ inline void put_plain(const Op &op, const struct rows_of_x &x)
{
    unsigned count = (unsigned)op.M * x.fours;

    early_wait();
#pragma unroll 1
    for (unsigned first = threadIdx.x; first < count; first += AHEAD * THREADS) {
        uint2 values[AHEAD];

#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            unsigned i = first + j * THREADS;
            uint2 at = place_of(op, x, i < count ? i : first);

            values[j] = op.x_is_bf16 ? *(const uint2 *)((const uint16_t *)op.x + at.x * op.x_stride + at.y)
                                     : round_four(read_floats(op, at));
        }
#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            unsigned i = first + j * THREADS;
            uint2 at = place_of(op, x, i);

            if (i < count) *(uint2 *)(x.values + at.x * x.pitch + at.y) = values[j];
        }
    }
}

/* The sum of squares of a block, of which four neighbouring threads have four columns each. */
static __device__ inline void put_block(const struct rows_of_x &x, unsigned i, unsigned count, float4 four)
{
    float sum = block_sum(four_dot(four, four));

    if (i < count && i % 4 == 0) x.blocks[i / 4] = sum;
}

static __device__ inline void put_scaled(const struct rows_of_x &x, uint2 at, float4 four, float4 w)
{
    float rstd = x.rstd[at.x];

    *(uint2 *)(x.values + at.x * x.pitch + at.y) = round_four(
        make_float4((four.x * rstd) * w.x, (four.y * rstd) * w.y, (four.z * rstd) * w.z, (four.w * rstd) * w.w));
}

/* Rows of x normed, after the kernel before this one. Whole warps walk together: four threads add a block. */
template <int THREADS, typename Op> static __device__ inline void put_normed(const Op &op, const struct rows_of_x &x)
{
    unsigned count = (unsigned)op.M * x.fours, warp = threadIdx.x / WARP, blocks = (x.fours + 3) / 4;
    float4 zeros = make_float4(0.0f, 0.0f, 0.0f, 0.0f), four[HELD], w[HELD];

#pragma unroll
    for (int j = 0; j < HELD; j++) {
        unsigned i = threadIdx.x + j * THREADS;

        w[j] = i < count ? *(const float4 *)(op.norm + place_of(op, x, i).y) : zeros;
    }
    early_wait();
#pragma unroll
    for (int j = 0; j < HELD; j++) {
        unsigned i = threadIdx.x + j * THREADS;

        four[j] = i < count ? read_floats(op, place_of(op, x, i)) : zeros;
    }
#pragma unroll
    for (int j = 0; j < HELD; j++)
        put_block(x, threadIdx.x + j * THREADS, count, four[j]);
#pragma unroll 4
    for (unsigned first = HELD * THREADS; first < count; first += THREADS) {
        unsigned i = first + threadIdx.x;

        put_block(x, i, count, i < count ? read_floats(op, place_of(op, x, i)) : zeros);
    }
    __syncthreads();
    for (unsigned m = warp; m < op.M; m += THREADS / WARP) {
        float squares = sum_blocks(x.blocks + m * blocks, blocks);

        if (threadIdx.x % WARP == 0) x.rstd[m] = 1.0f / sqrtf(squares / (float)op.K + op.norm_eps);
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < HELD; j++) {
        unsigned i = threadIdx.x + j * THREADS;

        if (i < count) put_scaled(x, place_of(op, x, i), four[j], w[j]);
    }
#pragma unroll 4
    for (unsigned i = HELD * THREADS + threadIdx.x; i < count; i += THREADS) {
        uint2 at = place_of(op, x, i);

        put_scaled(x, at, read_floats(op, at), *(const float4 *)(op.norm + at.y));
    }
}

/* Either. */
template <int THREADS, typename Op> static __device__ inline void put_x(const Op &op, const struct rows_of_x &x)
{
    if (op.norm != NULL)
        put_normed<THREADS>(op, x);
    else
        put_plain<THREADS>(op, x);
}

#endif
