/* column_sum - sums of columns on the GPU. */
#ifndef ASH_COMPUTE_CUDA_ROWS_COLUMN_SUM_H
#define ASH_COMPUTE_CUDA_ROWS_COLUMN_SUM_H

#include "compute/cuda/host/backend_priv.h"

/* Enqueue that sums over blocks of rows are added to gradients. */
void ash_cuda_run_add_blocks(struct ash_exec *exec, const struct ash_cuda_add_blocks *op);
/* ash_matrix_ops.column_sum. */
void ash_cuda_column_sum(struct ash_exec *exec, const struct ash_column_sum_args *args);

#endif
