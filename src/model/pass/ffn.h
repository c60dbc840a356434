/* ffn - one feed-forward of given matrices over rows of x: gated (silu) or plain (gelu). The dense block, the shared
 * experts and each expert are one. */
#ifndef ASH_MODEL_PASS_FFN_H
#define ASH_MODEL_PASS_FFN_H

#include "model/pass/grads.h"
#include "model/pass/step.h"

/* Parameters by index (or ASH_NO_PARAM), and the width F. */
struct ash_ffn_params {
    int32_t gate_up, gate_up_bias; /* gate and up as one matrix; or ASH_NO_PARAM, and these: */
    int32_t gate, gate_bias, up, up_bias, down, down_bias;
    size_t width;
    bool is_expert; /* rows are the tokens that chose it: they end anywhere. Else its columns are split along tp. */
};

/* Where a feed-forward reads and writes. Unless it is an expert's, y and dx are of own rows. */
struct ash_ffn_io {
    size_t rows;
    const float *x;         /* [rows, C] */
    const uint16_t *x_bf16; /* instead of x, rounded to bf16; or NULL */
    struct ash_ffn_acts acts;
    float *y; /* forward */
    /* backward: */
    struct ash_ffn_acts dacts; /* room for the gradients of acts */
    const float *dy;           /* [rows, C] */
    const uint16_t *dy_bf16;   /* dy, rounded to bf16; or NULL */
    float *dx;
    uint16_t *dx_bf16; /* may get dx instead, rounded to bf16; or NULL */
};

/* io->acts.hidden from rows of x (through norm first, if that is a parameter); fills gate and up where a backward pass
 * follows. */
void ash_ffn_inner(const struct ash_pass_step *step, const struct ash_ffn_params *params, const struct ash_ffn_io *io,
                   int32_t norm);
/* y from rows of x. */
void ash_ffn_forward(const struct ash_pass_step *step, const struct ash_ffn_params *params,
                     const struct ash_ffn_io *io);
/* Gradients of the matrices to sink, and dx, from dy. Returns whether dx went to dx_bf16. */
bool ash_ffn_backward(const struct ash_pass_step *step, struct ash_grad_sink *sink, const struct ash_ffn_params *params,
                      const struct ash_ffn_io *io);
/* hidden [rows, width] from gate and up, as forward does. */
void ash_ffn_activate(const struct ash_pass_step *step, const struct ash_ffn_acts *acts, size_t rows, size_t width);

#endif
