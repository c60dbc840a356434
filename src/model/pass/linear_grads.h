/* linear_grads - the backward pass of a linear layer on this rank: gradients of weight and bias to the sink, in order
 * or published, and that of its input. */
#ifndef ASH_MODEL_PASS_LINEAR_GRADS_H
#define ASH_MODEL_PASS_LINEAR_GRADS_H

#include "model/pass/grads.h"
#include "model/pass/step.h"

/* dx from dy, and the gradients of weight and bias (or ASH_NO_PARAM) over io's rows. dx is neither x nor dy. */
void ash_linear_backward(const struct ash_pass_step *step, struct ash_grad_sink *sink, int32_t weight, int32_t bias,
                         const struct ash_linear_io *io);

#endif
