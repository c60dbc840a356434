/* out_gate - factors between 0 and 1 that a model computes for its own outputs: of each output of attention, and of the
 * shared experts' sum for a token. In host memory: families that have them compute on the CPU alone. */
#ifndef ASH_MODEL_PASS_OUT_GATE_H
#define ASH_MODEL_PASS_OUT_GATE_H

#include "model/pass/step.h"

/* Attention's output times the sigmoid of its gates, which lie with the queries: acts' gated from rows.out, q_gate. */
void ash_out_gate_forward(const struct ash_pass_step *step, size_t layer);
/* scratch.dattn.out goes from the gradient of gated to that of rows.out; gates' gradients go to scratch.dq_gate. */
void ash_out_gate_backward(const struct ash_pass_step *step, size_t layer);
/* Queries of rows that have gates in between, to rows of some stride; or (to_gates) back. */
void ash_out_gate_copy_queries(const struct ash_pass_step *step, float *gates, float *queries, size_t stride,
                               bool to_gates);

/* out[r, :] = y[r, :] * sigmoid(gates[r]), y and gates those of a layer's shared experts. */
void ash_shared_gate_forward(const struct ash_pass_step *step, size_t layer, float *out);
/* From dy to the gradients of y and gates: scratch.dshared, scratch.dshared_gate. */
void ash_shared_gate_backward(const struct ash_pass_step *step, size_t layer, const float *dy);

#endif
