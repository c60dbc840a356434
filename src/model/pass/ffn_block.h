/* ffn_block - the feed-forward block: norm, a dense feed-forward or a layer of experts, residual. */
#ifndef ASH_MODEL_PASS_FFN_BLOCK_H
#define ASH_MODEL_PASS_FFN_BLOCK_H

#include "model/pass/grads.h"
#include "model/pass/step.h"

/* out = mid + feed-forward(norm(mid)), both [own rows, C]; may be the same rows where no backward pass follows. A block
 * that is parallel to attention reads the stream before the layer instead of mid. */
void ash_ffn_block_forward(const struct ash_pass_step *step, size_t layer, const float *mid, float *out);
/* scratch.dx from the gradient after the block to that before it; the parameters' gradients go to sink. Of a
 * parallel block the norm is left out. */
void ash_ffn_block_backward(const struct ash_pass_step *step, struct ash_grad_sink *sink, size_t layer);
/* That norm, when scratch.dnorm has attention's gradient: it joins that where the blocks share their norm, else
 * scratch.dx. */
void ash_ffn_block_backward_norm(const struct ash_pass_step *step, struct ash_grad_sink *sink, size_t layer);

#endif
