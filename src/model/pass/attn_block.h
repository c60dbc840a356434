/* attn_block - the attention block: norm, q k v of either kind, attention over documents or cache, output projection,
 * residual. */
#ifndef ASH_MODEL_PASS_ATTN_BLOCK_H
#define ASH_MODEL_PASS_ATTN_BLOCK_H

#include "model/pass/grads.h"
#include "model/pass/step.h"

/* mid = in + attention(norm(in)), both [own rows, C]; may be the same rows where no backward pass follows. */
void ash_attn_block_forward(const struct ash_pass_step *step, size_t layer, const float *in, float *mid);
/* scratch.dx from the gradient after the block to that before it; the parameters' gradients go to sink. */
void ash_attn_block_backward(const struct ash_pass_step *step, struct ash_grad_sink *sink, size_t layer);

#endif
