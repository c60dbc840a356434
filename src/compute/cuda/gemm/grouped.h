/* grouped - products of rows in groups on the GPU. */
#ifndef ASH_COMPUTE_CUDA_GEMM_GROUPED_H
#define ASH_COMPUTE_CUDA_GEMM_GROUPED_H

#include "compute/ops.h"

/* ash_route_ops.grouped. */
void ash_cuda_grouped(struct ash_exec *exec, const struct ash_grouped_args *args);
/* ash_route_ops.grouped_grad. */
void ash_cuda_grouped_grad(struct ash_exec *exec, const struct ash_grouped_grad_args *args);

#endif
