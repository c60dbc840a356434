/* adapter_grads - an adapter's sums over ranks of tp, and its gradients. */
#ifndef ASH_MODEL_PASS_ADAPTER_GRADS_H
#define ASH_MODEL_PASS_ADAPTER_GRADS_H

#include "model/pass/grads.h"
#include "model/pass/step.h"

/* As ash_adapter_forward for a weight whose inputs are split along tp: out [own rows, outputs] += ..., x having all
 * rows. */
void ash_adapter_forward_split(const struct ash_pass_step *step, int32_t weight, const float *x, size_t x_stride,
                               float *out);
/* For a weight whose outputs are split along tp: scale * dy B of all rows, summed over the ranks, in slot number slot
 * until it is asked for again. NULL where the weight has no adapter. All ranks of tp call it. */
const float *ash_adapter_reduce_gradient(const struct ash_pass_step *step, int32_t weight, size_t slot, const float *dy,
                                         size_t dy_stride);
/* Gradients of A and B over io's rows to sink. All ranks of tp call it. */
void ash_adapter_backward(const struct ash_pass_step *step, struct ash_grad_sink *sink, int32_t weight,
                          const struct ash_linear_io *io);

#endif
