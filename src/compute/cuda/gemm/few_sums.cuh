/* few_sums - products of a few rows with bf16 weights: which rows of weights a group has, and what becomes of their
 * sums (bias, residual, SwiGLU). */
#ifndef ASH_COMPUTE_CUDA_FEW_SUMS_CUH
#define ASH_COMPUTE_CUDA_FEW_SUMS_CUH

#include "compute/cuda/tile/device.cuh"
#include "compute/cuda/tile/swiglu.cuh"

/* A group of rows of weights: whose, and the first. With swiglu half of them are gate's, the others the same of up. */
struct rows_of_w {
    int out;
    size_t n;
};

/* Groups have `each` rows. */
static __device__ inline struct rows_of_w find_rows(const struct ash_cuda_few &op, unsigned group, unsigned each)
{
    struct rows_of_w rows = {0, 0};

    while (rows.out + 1 < op.out_count && group >= op.outs[rows.out].groups)
        group -= op.outs[rows.out++].groups;
    rows.n = (size_t)group * (op.swiglu ? each / 2 : each);
    return rows;
}

/* Row m, column n of an output. */
static __device__ inline void put_sum(const struct ash_cuda_few &op, const struct ash_cuda_few_out &out, size_t m,
                                      size_t n, float sum)
{
    float *y = out.y + m * out.y_stride + n;

    if (out.bias != NULL) sum = sum + out.bias[n];
    *y = op.residual ? *y + sum : sum;
}

/* The same of SwiGLU's output, from its two products. */
static __device__ inline void put_gated(const struct ash_cuda_few &op, size_t m, size_t n, float gate, float up)
{
    const struct ash_cuda_few_out &out = op.outs[0];

    if (out.bias != NULL) gate = gate + out.bias[n];
    if (op.outs[1].bias != NULL) up = up + op.outs[1].bias[n];
    out.y[m * out.y_stride + n] = swiglu_sums(gate, up);
}

#endif
