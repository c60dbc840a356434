/* few_quant - packed weights on the GPU: their layout (packed.h), and products with them. */
#ifndef ASH_COMPUTE_CUDA_QUANT_FEW_QUANT_H
#define ASH_COMPUTE_CUDA_QUANT_FEW_QUANT_H

#include "compute/ops.h"

/* ash_matrix_ops.packed_bytes. */
size_t ash_cuda_packed_bytes(enum ash_dtype dtype, size_t N, size_t K);
/* ash_matrix_ops.pack. */
void ash_cuda_pack(struct ash_exec *exec, const struct ash_weight *w, size_t K, size_t first, size_t count,
                   void *packed);
/* ash_matrix_ops.project with packed weights, of any number of rows. */
void ash_cuda_project_packed(struct ash_exec *exec, const struct ash_project_args *args);

#endif
