/* batch - products of up to 128 rows with bf16 weights, one launch with epilogue after x was laid out: batch.cu. For
 * what few.h does not take. */
#ifndef ASH_COMPUTE_CUDA_BATCH_H
#define ASH_COMPUTE_CUDA_BATCH_H

#include "compute/cuda/host/backend_priv.h"

/* Enqueue all of it where the kernel takes it. Returns whether it does: not too many rows, and weights that are bf16
 * lines of k at 16-byte borders. */
bool ash_cuda_batch_project(struct ash_exec *exec, const struct ash_project_args *args);
/* The same of one product; a may be float32 or bf16. */
bool ash_cuda_batch_gemm(struct ash_exec *exec, const struct ash_gemm_args *args);

#endif
