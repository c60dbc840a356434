/* column_sum - ash_matrix_ops.column_sum on the GPU. */
#ifndef ASH_COMPUTE_CUDA_COLUMN_SUM_H
#define ASH_COMPUTE_CUDA_COLUMN_SUM_H

#include "compute/cuda/host/backend_priv.h"

/* See ash_matrix_ops. */
void ash_cuda_column_sum(struct ash_exec *exec, const struct ash_column_sum_args *args);

#endif
