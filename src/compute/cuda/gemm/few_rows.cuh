/* few_rows - what the kernels for few rows share: rows of x, normed on their way to shared memory. */
#ifndef ASH_COMPUTE_CUDA_FEW_ROWS_CUH
#define ASH_COMPUTE_CUDA_FEW_ROWS_CUH

#include "compute/cuda/ptx/launch.cuh"
#include "compute/cuda/tile/blocks.cuh"

#define FEW_THREADS (ASH_CUDA_FEW_WARPS * WARP)

/* Four values of row m, from k on. */
template <typename Op> static __device__ inline float4 read_four(const Op &op, unsigned m, unsigned k)
{
    return *(const float4 *)((const float *)op.x + m * op.x_stride + k);
}

static __device__ inline float4 scale_four(float4 x, float rstd, float4 w)
{
    return make_float4((x.x * rstd) * w.x, (x.y * rstd) * w.y, (x.z * rstd) * w.z, (x.w * rstd) * w.w);
}

#define NORM_EACH 4 /* chunks of a row that a thread has in registers: all of them up to 4096 columns */

/* This thread's chunks of a row, four values each; zeros after the last. */
struct chunks {
    float4 four[NORM_EACH];
};

static __device__ inline unsigned chunk_at(int j)
{
    return threadIdx.x + j * FEW_THREADS;
}

/* The norm's weights, which do not depend on the kernel before this one. */
template <typename Op> static __device__ inline void read_weights(const Op &op, struct chunks *weights)
{
#pragma unroll
    for (int j = 0; j < NORM_EACH; j++)
        if (op.norm != NULL && chunk_at(j) < op.K / 4) weights->four[j] = ((const float4 *)op.norm)[chunk_at(j)];
}

template <typename Op> static __device__ inline void read_chunks(const Op &op, unsigned m, struct chunks *x)
{
#pragma unroll
    for (int j = 0; j < NORM_EACH; j++)
        x->four[j] = chunk_at(j) < op.K / 4 ? read_four(op, m, chunk_at(j) * 4) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
}

/* Leave the sum of squares of a block of a row, of which four neighbouring threads have a chunk each. */
static __device__ inline void leave_squares(float4 four, unsigned chunk, unsigned chunks, float *sums)
{
    float sum = block_sum(four_dot(four, four));

    if (threadIdx.x % 4 == 0 && chunk < chunks) sums[chunk / 4] = sum;
}

/* Norm rows whose squares are added by blocks: put(m, k, four) gets them. sums: room for the blocks of all rows. The
 * last row stays in registers, the others are read again. */
template <typename Op, typename Put>
static __device__ inline void norm_blocks(const Op &op, const struct chunks &weights, float *sums, Put put)
{
    unsigned fours = (unsigned)op.K / 4, blocks = (fours + 3) / 4;
    struct chunks x;

    for (unsigned m = 0; m < op.M; m++) {
        read_chunks(op, m, &x);
#pragma unroll
        for (int j = 0; j < NORM_EACH; j++)
            leave_squares(x.four[j], chunk_at(j), fours, sums + m * blocks);
        for (unsigned first = NORM_EACH * FEW_THREADS; first < fours; first += FEW_THREADS) {
            unsigned i = first + threadIdx.x;

            leave_squares(i < fours ? read_four(op, m, i * 4) : make_float4(0.0f, 0.0f, 0.0f, 0.0f), i, fours,
                          sums + m * blocks);
        }
    }
    __syncthreads();
    for (unsigned m = (unsigned)op.M; m-- > 0;) {
        float rstd = 1.0f / sqrtf(sum_blocks(sums + m * blocks, blocks) / (float)op.K + op.norm_eps);

        if (m + 1 < op.M) read_chunks(op, m, &x);
#pragma unroll
        for (int j = 0; j < NORM_EACH; j++)
            if (chunk_at(j) < fours) put(m, chunk_at(j) * 4, scale_four(x.four[j], rstd, weights.four[j]));
        for (unsigned i = chunk_at(NORM_EACH); i < fours; i += FEW_THREADS)
            put(m, i * 4, scale_four(read_four(op, m, i * 4), rstd, ((const float4 *)op.norm)[i]));
    }
}

/* Norm rows whose squares are added by lanes, to `floats` [M, K]: half a warp finds a row's factor. */
template <typename Op>
static __device__ inline void norm_lanes(const Op &op, const struct chunks &weights, float *floats)
{
    __shared__ float rstd[ASH_CUDA_FEW_ROWS];
    unsigned fours = (unsigned)op.K / 4, count = (unsigned)op.M * fours;
    unsigned m = threadIdx.x / ASH_LANES, row = m < op.M ? m : (unsigned)op.M - 1;
    const float *x = floats + row * op.K;
    float lane = 0.0f, sum;

#pragma unroll 4
    for (unsigned i = threadIdx.x; i < count; i += FEW_THREADS)
        ((float4 *)floats)[i] = read_four(op, i / fours, i % fours * 4);
    __syncthreads();
#pragma unroll 16
    for (unsigned c = threadIdx.x % ASH_LANES; c < op.K; c += ASH_LANES)
        lane = fmaf(x[c], x[c], lane);
    sum = fold_lanes(lane);
    if (m < op.M && threadIdx.x % ASH_LANES == 0) rstd[m] = 1.0f / sqrtf(sum / (float)op.K + op.norm_eps);
    __syncthreads();
    for (unsigned r = 0; r < op.M; r++) {
        float4 *to = (float4 *)floats + r * fours;

#pragma unroll
        for (int j = 0; j < NORM_EACH; j++)
            if (chunk_at(j) < fours) to[chunk_at(j)] = scale_four(to[chunk_at(j)], rstd[r], weights.four[j]);
        for (unsigned i = chunk_at(NORM_EACH); i < fours; i += FEW_THREADS)
            to[i] = scale_four(to[i], rstd[r], ((const float4 *)op.norm)[i]);
    }
}

#endif
