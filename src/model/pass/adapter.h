/* adapter - the products of an adapter, added to those of its matrix. */
#ifndef ASH_MODEL_PASS_ADAPTER_H
#define ASH_MODEL_PASS_ADAPTER_H

#include "model/pass/grads.h"
#include "model/pass/step.h"

/* Does weight have an adapter, of the model's own or of a document of the batch? */
bool ash_adapter_applies(const struct ash_pass_step *step, int32_t weight);
/* y += scale * (x A^T) B^T, where weight has an adapter: over io's rows, or those of documents that have one. */
void ash_adapter_forward(const struct ash_pass_step *step, int32_t weight, const struct ash_linear_io *io);
/* dx += scale * (dy B) A, where weight has an adapter. */
void ash_adapter_input_grad(const struct ash_pass_step *step, int32_t weight, const struct ash_linear_io *io);
/* Gradients of A and B over io's rows to sink. */
void ash_adapter_backward(const struct ash_pass_step *step, struct ash_grad_sink *sink, int32_t weight,
                          const struct ash_linear_io *io);

#endif
