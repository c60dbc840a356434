/* attn_bf16 - attention of bf16 models on the GPU, and what it shares with attention of float32. */
#ifndef ASH_COMPUTE_CUDA_ATTN_BF16_H
#define ASH_COMPUTE_CUDA_ATTN_BF16_H

#include "compute/cuda/host/backend_priv.h"

/* ash_attn_ops.forward of a model that rounds. */
void ash_cuda_attn_forward_bf16(struct ash_exec *exec, const struct ash_attn_args *args);
/* ash_attn_ops.backward of one. */
void ash_cuda_attn_backward_bf16(struct ash_exec *exec, const struct ash_attn_args *args);
/* ash_attn_ops.backward_rounded. */
bool ash_cuda_attn_backward_rounded(struct ash_exec *exec, const struct ash_attn_args *args,
                                    const struct ash_rope_args *rope);

/* The documents, with their block tables, on the GPU. */
const struct ash_cuda_attn_seq *ash_cuda_attn_seqs(struct ash_exec *exec, const struct ash_attn_args *args);
/* Every document cut into tiles of `rows` rows, those with the most keys last. Returns how many; *tiles_out is on the
 * GPU. */
size_t ash_cuda_attn_tiles(struct ash_exec *exec, const struct ash_attn_args *args, size_t rows,
                           const struct ash_cuda_attn_tile **tiles_out);

#endif
