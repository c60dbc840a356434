/* ffn - one feed-forward of given matrices over rows of x: gated (silu) or plain (gelu). The dense block, the shared
 * experts and each expert are one. */
#ifndef ASH_MODEL_PASS_FFN_H
#define ASH_MODEL_PASS_FFN_H

#include "model/pass/grads.h"
#include "model/pass/step.h"

/* Parameters by index (or ASH_NO_PARAM), and the width F. */
struct ash_ffn_params {
    int32_t gate, gate_bias, up, up_bias, down, down_bias;
    size_t width;
    bool is_expert; /* rows are the tokens that chose it: they end anywhere. Else its columns are split along tp. */
};

/* acts->hidden from rows of x (through norm first, if that is a parameter); fills gate and up where a backward pass
 * follows. */
void ash_ffn_inner(const struct ash_pass_step *step, const struct ash_ffn_params *params, size_t rows, const float *x,
                   int32_t norm, const struct ash_ffn_acts *acts);
/* y from rows of x; unless it is an expert's, y is of own rows. */
void ash_ffn_forward(const struct ash_pass_step *step, const struct ash_ffn_params *params, size_t rows, const float *x,
                     const struct ash_ffn_acts *acts, float *y);
/* Gradients of the matrices to sink, and dx, from dy; dacts: room for the gradients of acts. dx is as y. */
void ash_ffn_backward(const struct ash_pass_step *step, struct ash_grad_sink *sink, const struct ash_ffn_params *params,
                      size_t rows, const float *x, const struct ash_ffn_acts *acts, const struct ash_ffn_acts *dacts,
                      const float *dy, float *dx);
/* hidden from gate and up, count elements, as forward does. */
void ash_ffn_activate(const struct ash_pass_step *step, const struct ash_ffn_acts *acts, size_t count);

#endif
