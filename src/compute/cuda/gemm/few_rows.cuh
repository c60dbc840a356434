/* few_rows - what the kernels for few rows share: rows of x in shared memory, and the factors of their norm. */
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

/* Are rows added by blocks? Those of bf16 models are. */
static __device__ inline bool adds_blocks(const struct ash_cuda_few &op)
{
    return true;
}

static __device__ inline bool adds_blocks(const struct ash_cuda_few_quant &op)
{
    return op.round_bf16 != 0;
}

/* The norm's factor of each row, in the order of a row sum: a warp has a row, or half a one. x lies in `floats`. */
template <typename Op> static __device__ inline void find_rstd(const Op &op, const float *floats, float *rstd)
{
    if (adds_blocks(op)) {
        for (unsigned m = threadIdx.x / WARP; m < op.M; m += FEW_THREADS / WARP) {
            float squares = sum_squares(floats + m * op.K, (unsigned)op.K);

            if (threadIdx.x % WARP == 0) rstd[m] = 1.0f / sqrtf(squares / (float)op.K + op.norm_eps);
        }
        return;
    }
    unsigned m = threadIdx.x / ASH_LANES, row = m < op.M ? m : (unsigned)op.M - 1;
    const float *x = floats + row * op.K;
    float lane = 0.0f, sum;

#pragma unroll 16
    for (unsigned c = threadIdx.x % ASH_LANES; c < op.K; c += ASH_LANES)
        lane = fmaf(x[c], x[c], lane);
    sum = fold_lanes(lane);
    if (m < op.M && threadIdx.x % ASH_LANES == 0) rstd[m] = 1.0f / sqrtf(sum / (float)op.K + op.norm_eps);
}

static __device__ inline void scale_four(float4 *x, float rstd, float4 w)
{
    *x = make_float4((x->x * rstd) * w.x, (x->y * rstd) * w.y, (x->z * rstd) * w.z, (x->w * rstd) * w.w);
}

#define NORM_EACH 4 /* chunks of the norm's weights that a thread has in registers: all of them up to 4096 */

/* Wait for the kernel before this one. Then, where there is a norm, rows of x to `floats` [M, K] as it makes them. Its
 * weights do not depend on that kernel, so they come meanwhile. */
template <typename Op> static __device__ inline void norm_rows(const Op &op, float *floats)
{
    __shared__ float rstd[ASH_CUDA_FEW_ROWS];
    unsigned fours = (unsigned)op.K / 4, count = (unsigned)op.M * fours;
    float4 weight[NORM_EACH];

#pragma unroll
    for (int j = 0; j < NORM_EACH; j++) {
        unsigned k = threadIdx.x + j * FEW_THREADS;

        if (op.norm != NULL && k < fours) weight[j] = ((const float4 *)op.norm)[k];
    }
    early_wait();
    if (op.norm == NULL) return;
#pragma unroll 4
    for (unsigned i = threadIdx.x; i < count; i += FEW_THREADS)
        ((float4 *)floats)[i] = read_four(op, i / fours, i % fours * 4);
    __syncthreads();
    find_rstd(op, floats, rstd);
    __syncthreads();
    for (unsigned m = 0; m < op.M; m++)
#pragma unroll
        for (int j = 0; j < NORM_EACH; j++) {
            unsigned k = threadIdx.x + j * FEW_THREADS;

            if (k < fours) scale_four((float4 *)floats + m * fours + k, rstd[m], weight[j]);
        }
    for (unsigned i = threadIdx.x; fours > NORM_EACH * FEW_THREADS && i < count; i += FEW_THREADS)
        if (i % fours >= NORM_EACH * FEW_THREADS)
            scale_four((float4 *)floats + i, rstd[i / fours], ((const float4 *)op.norm)[i % fours]);
    __syncthreads();
}

#endif
