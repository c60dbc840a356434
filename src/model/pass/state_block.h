/* state_block - recurrent states: norm, projection, convolution, scan, gate, norm, projection, and the residual. In a
 * cache a page holds the state after the last of its tokens that was computed. */
#ifndef ASH_MODEL_PASS_STATE_BLOCK_H
#define ASH_MODEL_PASS_STATE_BLOCK_H

#include "model/pass/grads.h"
#include "model/pass/step.h"

/* The stream in becomes out (which may be in). The norm of the layer is left for attention. */
void ash_state_block_forward(const struct ash_pass_step *step, size_t layer, const float *in, float *out);
/* scratch.dx goes from the gradient of out to that of in; where the layer attends as well, scratch.dparallel gets the
 * gradient of the norm for it. */
void ash_state_block_backward(const struct ash_pass_step *step, struct ash_grad_sink *sink, size_t layer);

#endif
