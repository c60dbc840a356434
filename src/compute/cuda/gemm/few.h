/* few - products of a few rows with bf16 weights, one launch each with prologue and epilogue: few.cu. */
#ifndef ASH_COMPUTE_CUDA_FEW_H
#define ASH_COMPUTE_CUDA_FEW_H

#include "compute/cuda/host/backend_priv.h"

/* Enqueue all of it if the kernel takes it. Returns whether it does: few rows, and weights that are bf16 lines of k at
 * 16-byte borders. */
bool ash_cuda_few_project(struct ash_exec *exec, const struct ash_project_args *args);
/* The same of one product; a may be float32 or bf16. */
bool ash_cuda_few_gemm(struct ash_exec *exec, const struct ash_gemm_args *args);
/* Shared memory that leaves no room for a second thread block: a multiprocessor with two would be the last to end. */
#define ASH_CUDA_FEW_ALONE_BYTES ((size_t)116 << 10)

/* Warps of each multiprocessor, at most warps_max, that share `groups` of rows: most are busy in the last round. */
size_t ash_cuda_few_warps(struct ash_exec *exec, size_t groups, size_t warps_max);
/* Are weights [N, K] bf16 lines of k at 16-byte borders? */
bool ash_cuda_few_takes(const struct ash_mat *w);
/* The outputs of args for a kernel, without their groups. Returns whether all weights are such lines. */
bool ash_cuda_few_outs(const struct ash_project_args *args, struct ash_cuda_few_out *outs);
/* The kernel of op reads `wave` groups of `rows` rows of weights at first. It asks for the next product's weights. */
void ash_cuda_few_ahead(struct ash_exec *exec, struct ash_cuda_few *op, size_t wave, size_t rows);
/* May a thread block write out's y while another still reads x? */
bool ash_cuda_few_overlap(const struct ash_project_args *args, const struct ash_project_out *out);

#endif
