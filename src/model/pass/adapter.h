/* adapter - the products of an adapter, added to those of its matrix. */
#ifndef ASH_MODEL_PASS_ADAPTER_H
#define ASH_MODEL_PASS_ADAPTER_H

#include "model/pass/grads.h"
#include "model/pass/step.h"

/* Does weight have an adapter, of the model's own or of a document of the batch? */
bool ash_adapter_applies(const struct ash_pass_step *step, int32_t weight);
/* y += scale * (x A^T) B^T, where weight has an adapter: over io's rows, or those of documents that have one. */
void ash_adapter_forward(const struct ash_pass_step *step, int32_t weight, const struct ash_linear_io *io);
/* The same for a weight whose inputs are split along tp: out [own rows, outputs] += ..., x having all rows. */
void ash_adapter_forward_split(const struct ash_pass_step *step, int32_t weight, const float *x, size_t x_stride,
                               float *out);
/* For a weight whose outputs are split along tp: scale * dy B of all rows, summed over the ranks, in slot number slot
 * until it is asked for again. NULL where the weight has no adapter. All ranks of tp call it. */
const float *ash_adapter_reduce_gradient(const struct ash_pass_step *step, int32_t weight, size_t slot, const float *dy,
                                         size_t dy_stride);
/* dx [rows, inputs] += dlow A, dlow being what ash_adapter_reduce_gradient gave. */
void ash_adapter_input_grad_rows(const struct ash_pass_step *step, int32_t weight, const float *dlow,
                                 struct ash_range rows, float *dx);
/* dx += scale * (dy B) A, where weight has an adapter. Not where its outputs are split along tp. */
void ash_adapter_input_grad(const struct ash_pass_step *step, int32_t weight, const struct ash_linear_io *io);
/* Gradients of A and B over io's rows to sink. All ranks of tp call it. */
void ash_adapter_backward(const struct ash_pass_step *step, struct ash_grad_sink *sink, int32_t weight,
                          const struct ash_linear_io *io);

#endif
