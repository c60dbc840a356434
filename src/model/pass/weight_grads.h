/* weight_grads - the gradient of a weight to the sink: in order, in pieces, or published for all ranks to compute. */
#ifndef ASH_MODEL_PASS_WEIGHT_GRADS_H
#define ASH_MODEL_PASS_WEIGHT_GRADS_H

#include "model/pass/grads.h"
#include "model/pass/step.h"

/* The weight's gradient alone, into sum (the weight itself, or ASH_TIED_HEAD). */
void ash_linear_weight_backward(const struct ash_pass_step *step, struct ash_grad_sink *sink, int32_t sum,
                                int32_t weight, const struct ash_linear_io *io);
/* Acquire and release the sum of a weight that this rank has no rows for. */
void ash_linear_skip(struct ash_grad_sink *sink, int32_t weight);

#endif
