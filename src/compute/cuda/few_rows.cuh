/* few_rows - what the kernels for few rows share: rows of x in shared memory, and the factors of their norm. */
#ifndef ASH_COMPUTE_CUDA_FEW_ROWS_CUH
#define ASH_COMPUTE_CUDA_FEW_ROWS_CUH

#include "compute/cuda/device.cuh"

#define FEW_THREADS (ASH_CUDA_FEW_WARPS * WARP)

/* Four values of row m, from k on. */
template <typename Op> static __device__ inline float4 read_four(const Op &op, unsigned m, unsigned k)
{
    return *(const float4 *)((const float *)op.x + m * op.x_stride + k);
}

/* The norm's factor of each row, in the canonical order of a row sum: half a warp has a row. x lies in `floats`. */
template <typename Op> static __device__ inline void find_rstd(const Op &op, const float *floats, float *rstd)
{
    unsigned m = threadIdx.x / ASH_LANES, row = m < op.M ? m : (unsigned)op.M - 1;
    const float *x = floats + row * op.K;
    float lane = 0.0f, sum;

#pragma unroll 16
    for (unsigned c = threadIdx.x % ASH_LANES; c < op.K; c += ASH_LANES)
        lane = fmaf(x[c], x[c], lane);
    sum = fold_lanes(lane);
    if (m < op.M && threadIdx.x % ASH_LANES == 0) rstd[m] = 1.0f / sqrtf(sum / (float)op.K + op.norm_eps);
}

/* Rows of x to `floats` [M, K], and the factors of their norm. */
template <typename Op> static __device__ inline void stage_rows(const Op &op, float *floats, float *rstd)
{
    unsigned fours = (unsigned)op.K / 4;

#pragma unroll 4
    for (unsigned i = threadIdx.x; i < op.M * fours; i += FEW_THREADS)
        ((float4 *)floats)[i] = read_four(op, i / fours, i % fours * 4);
    __syncthreads();
    find_rstd(op, floats, rstd);
    __syncthreads();
}

/* Four values from k on, as the norm makes them. */
template <typename Op> static __device__ inline float4 normed(const Op &op, float4 x, float rstd, unsigned k)
{
    float4 w = *(const float4 *)(op.norm + k);

    return make_float4((x.x * rstd) * w.x, (x.y * rstd) * w.y, (x.z * rstd) * w.z, (x.w * rstd) * w.w);
}

/* The norm's weights do not depend on the kernel before this one: have them come. */
template <typename Op> static __device__ inline void prefetch_norm(const Op &op)
{
    for (unsigned k = threadIdx.x * 32; op.norm != NULL && k < op.K; k += FEW_THREADS * 32)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(op.norm + k));
}

#endif
