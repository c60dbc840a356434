/* gemm_tma - large products of bf16, whose operands are read where they lie: gemm_tma.cu. */
#ifndef ASH_COMPUTE_CUDA_GEMM_TMA_H
#define ASH_COMPUTE_CUDA_GEMM_TMA_H

#include <stdbool.h>
#include "compute/cuda/host/backend_priv.h"

/* Does the kernel take a product like op, and are there enough tiles of sums for the GPU? Its operands need not be
 * there yet. */
bool ash_cuda_tma_takes(const struct ash_cuda_backend *backend, const struct ash_cuda_gemm_bf16 *op);
/* Enqueue such a product. Where a lies as columns, b does. */
void ash_cuda_tma_gemm(struct ash_exec *exec, const struct ash_cuda_gemm_bf16 *op);
/* Enqueue several products of one x, in one launch after x became bf16, if the kernel takes them. Returns whether it
 * does: more rows than batch.h has kernels for, and weights that are bf16 lines of k at 16-byte borders. */
bool ash_cuda_tma_project(struct ash_exec *exec, const struct ash_project_args *args);

#endif
