/* state_project - the projections before recurrent states: to rows of a gate, what the convolution reads, steps, and
 * beta. */
#ifndef ASH_MODEL_PASS_STATE_PROJECT_H
#define ASH_MODEL_PASS_STATE_PROJECT_H

#include "model/pass/grads.h"
#include "model/pass/step.h"

/* A layer's state.all from rows of x. */
void ash_state_project_forward(const struct ash_pass_step *step, size_t layer, const float *x);
/* From scratch.dstate.all to dx, and the gradients of the weights. */
void ash_state_project_backward(const struct ash_pass_step *step, struct ash_grad_sink *sink, size_t layer,
                                const float *x, float *dx);

#endif
