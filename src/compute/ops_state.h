/* ops_state - the ops of recurrent states (mamba-2): a convolution over the last tokens, and a scan. The contract of
 * ops.h holds here too. Both go token by token, so the bits do not depend on how a document is cut into calls, on the
 * batch, or on threads. Plain C alone: there is no other backend. */
#ifndef ASH_COMPUTE_OPS_STATE_H
#define ASH_COMPUTE_OPS_STATE_H

#include "compute/ops.h"

#define ASH_STATE_ROWS 64 /* rows from one state that forward keeps for backward to the next */
#define ASH_STATE_TAPS_MAX 16

/* Rows that follow each other in a document. Sequences are computed in order: what one writes another may read. */
struct ash_state_seq {
    size_t row, count;
    const float *from; /* the state before the first row; NULL: zeros */
    float *to;         /* gets the state after the last row; may be from. NULL: not wanted */
};

/* out[r, c] = silu(bias[c] + sum over taps k ascending of weight[c, k] * x[r - taps + 1 + k, c]), an fma chain from the
 * bias (or 0) on. Rows before a sequence's first are those of its state [taps - 1, channels], at its beginning. */
struct ash_conv_args {
    size_t channels, taps;
    const struct ash_state_seq *seqs;
    size_t seq_count;
    const float *x;
    size_t x_stride;
    const float *weight; /* [channels, taps] */
    const float *bias;   /* [channels] or NULL */
    float *out;          /* [.., channels] */
    /* backward, of sequences whose states begin with zeros: */
    float *dout; /* [.., channels]; gets the gradients before silu */
    float *dx;   /* rows of dx_stride: a chain over the rows that x went to, ascending */
    size_t dx_stride;
    float *dweight, *dbias; /* += over rows ascending; NULL: not wanted */
};

/* For head h of group g = h / (heads / groups), with d = dims, n = size, row by row:
 *     step = softplus(raw + step_bias[h]) within step_min ... step_max; a = exp(-exp(decay[h]) * step)
 *     state[d, n] = fma(state[d, n], a, (step * x[d]) * B[n])
 *     y[d] = fma(skip[h], x[d], sum over n of state[d, n] * C[n]), a row sum
 * The state [heads, dims, size] is at state_offset in that of a sequence.
 *
 * With beta it is the gated delta rule: B and C are divided by their lengths (C by the root of n, too), the state gives
 * what it has for B, and gets the rest:
 *     state[d, n] = state[d, n] * a;  u = (x[d] - sum over n of state[d, n] * B[n]) * sigmoid(beta[h])
 *     state[d, n] = fma(u, B[n], state[d, n]) */
struct ash_scan_args {
    size_t rows, heads, groups, dims, size;
    const struct ash_state_seq *seqs;
    size_t seq_count, state_offset;
    const float *xbc; /* rows of xbc_stride, with at x_at: x [heads, dims], at b_at: B [groups, size], at c_at: C */
    size_t xbc_stride, x_at, b_at, c_at;
    const float *raw; /* rows of raw_stride: [heads] */
    size_t raw_stride;
    const float *beta;                     /* rows of raw_stride: [heads]; or NULL */
    const float *step_bias, *decay, *skip; /* [heads]; skip may be NULL */
    float step_min, step_max;
    float *y;    /* [rows, heads * dims] */
    float *kept; /* [rows / ASH_STATE_ROWS, rounded up][heads, dims, size]: see there; NULL: no backward follows */
    /* backward, of sequences whose states begin with zeros: */
    const float *dy; /* like y */
    float *dxbc;     /* like xbc, written; those of B and C are sums over the group's heads, ascending */
    float *draw;     /* rows of draw_stride: [heads], written */
    float *dbeta;    /* likewise, with beta */
    size_t draw_stride;
    float *dparams; /* [rows, 2, heads]: of decay and (without beta) of skip, row by row */
    float *work;    /* [rows, 2, heads, size] */
};

struct ash_state_ops {
    /* See ash_conv_args. */
    void (*conv_forward)(struct ash_exec *exec, const struct ash_conv_args *args);
    /* dout, dx, dweight and dbias from x and dout. */
    void (*conv_backward)(struct ash_exec *exec, const struct ash_conv_args *args);
    /* See ash_scan_args. */
    void (*scan_forward)(struct ash_exec *exec, const struct ash_scan_args *args);
    /* dxbc, draw and dparams from what forward read, kept and dy. */
    void (*scan_backward)(struct ash_exec *exec, const struct ash_scan_args *args);
};

#endif
