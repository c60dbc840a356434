/* rows_of_x - the input of a product as kernels for bf16 multiply it. */
#ifndef ASH_COMPUTE_CUDA_ROWS_OF_X_H
#define ASH_COMPUTE_CUDA_ROWS_OF_X_H

#include "compute/cuda/host/backend_priv.h"

/* Rows of x: float32 (perhaps to be normed) or bf16. */
struct ash_cuda_rows_of_x {
    const float *x;
    const uint16_t *x_bf16;
    size_t stride;
    const float *norm; /* or NULL */
    float norm_eps;
};

/* M rows of K values as bf16, *stride_out values apart: where they lie, or in scratch memory, for which the work is
 * enqueued. K is a multiple of 8; rows of float32 begin at 16-byte borders. */
const uint16_t *ash_cuda_bf16_rows_of(struct ash_exec *exec, const struct ash_cuda_rows_of_x *rows, size_t M, size_t K,
                                      size_t *stride_out);

#endif
