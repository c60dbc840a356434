/* moe_grouped - experts' products as one op each, with the counts of tokens per expert on the device: the host never
 * waits for them. */
#ifndef ASH_MODEL_PASS_MOE_GROUPED_H
#define ASH_MODEL_PASS_MOE_GROUPED_H

#include "model/pass/grads.h"
#include "model/pass/step.h"

/* Are this layer's experts computed so? Where the host sees the memory it reads the offsets, and has packed weights. */
bool ash_moe_is_grouped(const struct ash_pass_step *step, size_t layer);
/* From x to the pairs' y, once they are sorted: what dispatch, the experts and combine do together. */
void ash_moe_grouped_forward(const struct ash_pass_step *step, size_t layer, const float *x);
/* From dy to the gradients of the experts' matrices and of the pairs' x, which come into scratch.dpair. x is what the
 * forward pass had. */
void ash_moe_grouped_backward(const struct ash_pass_step *step, struct ash_grad_sink *sink, size_t layer,
                              const float *x, const float *dy);

#endif
