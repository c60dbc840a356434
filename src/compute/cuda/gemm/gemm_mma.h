/* gemm_mma - products of bf16 on GPUs without wgmma: gemm_mma.cu. */
#ifndef ASH_COMPUTE_CUDA_GEMM_MMA_H
#define ASH_COMPUTE_CUDA_GEMM_MMA_H

#include "compute/cuda/host/backend_priv.h"

/* Enqueue a product whose operands are lines. */
void ash_cuda_gemm_mma(struct ash_exec *exec, const struct ash_cuda_gemm_bf16 *args);

#endif
