/* few - products of a few rows with bf16 weights, one launch each with prologue and epilogue: few.cu. */
#ifndef ASH_COMPUTE_CUDA_FEW_H
#define ASH_COMPUTE_CUDA_FEW_H

#include "compute/cuda/backend_priv.h"

/* Enqueue all of it where the kernel takes it. Returns whether it does: few rows, bf16 weights as lines of k. */
bool ash_cuda_few_project(struct ash_exec *exec, const struct ash_project_args *args);
/* The same of one product; a may be float32 or bf16. */
bool ash_cuda_few_gemm(struct ash_exec *exec, const struct ash_gemm_args *args);

#endif
