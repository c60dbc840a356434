/* adapter - the products of an adapter, added to those of its matrix. */
#ifndef ASH_MODEL_PASS_ADAPTER_H
#define ASH_MODEL_PASS_ADAPTER_H

#include "model/pass/linear.h"
#include "model/pass/step.h"

/* Does weight have an adapter, of the model's own or of a document of the batch? */
bool ash_adapter_applies(const struct ash_pass_step *step, int32_t weight);
/* y += scale * (x A^T) B^T, where weight has an adapter: over io's rows, or those of documents that have one. */
void ash_adapter_forward(const struct ash_pass_step *step, int32_t weight, const struct ash_linear_io *io);
/* dx [rows, inputs] += dlow A, dlow being what ash_adapter_reduce_gradient gave. */
void ash_adapter_input_grad_rows(const struct ash_pass_step *step, int32_t weight, const float *dlow,
                                 struct ash_range rows, float *dx);
/* dx += scale * (dy B) A, where weight has an adapter. Not where its outputs are split along tp. */
void ash_adapter_input_grad(const struct ash_pass_step *step, int32_t weight, const struct ash_linear_io *io);

#endif
