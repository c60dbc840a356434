/* moe - a layer of experts: each token goes to the few experts that its router chooses, and to the shared ones. */
#ifndef ASH_MODEL_PASS_MOE_H
#define ASH_MODEL_PASS_MOE_H

#include "model/pass/grads.h"
#include "model/pass/step.h"

/* y from x: x has all rows, y own ones. With an empty batch this serves the other ranks of ep; nothing is read of x,
 * nothing written to y. */
void ash_moe_forward(const struct ash_pass_step *step, size_t layer, const float *x, float *y);
/* dx of own rows from dy of all rows; the parameters' gradients go to sink, those of experts by source. Likewise
 * with an empty batch. */
void ash_moe_backward(const struct ash_pass_step *step, struct ash_grad_sink *sink, size_t layer, const float *x,
                      const float *dy, float *dx);

#endif
