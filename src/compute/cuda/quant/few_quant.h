/* few_quant - quantised weights packed for the GPU (packed.h), and products with them. */
#ifndef ASH_COMPUTE_CUDA_FEW_QUANT_H
#define ASH_COMPUTE_CUDA_FEW_QUANT_H

#include "compute/cuda/host/backend_priv.h"

/* ash_matrix_ops.packed_bytes and pack. */
size_t ash_cuda_packed_bytes(enum ash_dtype dtype, size_t N, size_t K);
void ash_cuda_pack(struct ash_exec *exec, const struct ash_weight *w, size_t K, size_t first, size_t count,
                   void *packed);
/* ash_matrix_ops.project with packed weights, of any number of rows. */
void ash_cuda_few_quant_project(struct ash_exec *exec, const struct ash_project_args *args);

#endif
