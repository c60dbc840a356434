/* attn_ulysses - attention over tokens that are split along cp (Ulysses): before attention each rank has its own
 * rows of
 * all heads, for attention it gets all rows of its part of the heads, and the output goes back the same way.
 *
 *          rows of rank 0 | h0 h1 h2 h3 |                              h0 h1 | h2 h3
 *          rows of rank 1 | h0 h1 h2 h3 |   -- scatter heads -->       all rows of the batch
 *                                           <-- gather heads --        rank 0 | rank 1 */
#ifndef ASH_MODEL_PASS_ATTN_ULYSSES_H
#define ASH_MODEL_PASS_ATTN_ULYSSES_H

#include "model/pass/grads.h"
#include "model/pass/step.h"

/* Where rows are exchanged, attention takes its heads in at most this many chunks: the rows of one are in flight
 * while another is computed. */
#define ASH_ULYSSES_CHUNKS 2

/* Exchanges in flight. Open with ash_ulysses_open; close with ash_ulysses_close, which accepts a zeroed struct. */
struct ash_ulysses {
    size_t *to_heads, *to_rows; /* [ASH_ULYSSES_CHUNKS, cp size] floats to and from each rank */
    void *started[ASH_ULYSSES_CHUNKS];
};
/* Returns 0 or -ENOMEM. */
int ash_ulysses_open(struct ash_ulysses *ulysses, const struct ash_axes *axes, struct ash_err *err);
/* Free; accepts a zeroed struct. */
void ash_ulysses_close(struct ash_ulysses *ulysses);

/* What attention runs on: the rows and heads of the pass; along cp all rows of the batch, of this rank's heads. */
struct ash_attn_view {
    size_t rows, heads, kv_heads;
    bool is_one_row; /* q, k and v are columns of one row */
    size_t q_stride, k_stride, v_stride, out_stride;
    float *q, *k, *v, *out, *lse;
    float *dq, *dk, *dv, *dout; /* NULL without a backward pass */
};
/* chunk: of ash_ulysses_chunks. */
struct ash_attn_view ash_ulysses_view(const struct ash_pass_step *step, size_t layer, size_t chunk);
/* Chunks that a layer's heads are exchanged in. */
size_t ash_ulysses_chunks(const struct ash_pass_step *step);

/* Forward: q, k and v set out to the views of all chunks; wait for one chunk's; send back what attention gave for a
 * chunk; wait for all of it. Where ranks share memory nothing moves and these are barriers. */
void ash_ulysses_scatter_heads(const struct ash_pass_step *step, size_t layer);
/* Wait until q, k and v (backward: the gradient of out) of a chunk are here. */
void ash_ulysses_wait(const struct ash_pass_step *step, size_t chunk);
/* Send what attention gave for a chunk back to the ranks that have the rows. */
void ash_ulysses_gather_heads(const struct ash_pass_step *step, size_t layer, size_t chunk);
/* Wait until out is here for all of this rank's rows. */
void ash_ulysses_gather_heads_wait(const struct ash_pass_step *step, size_t layer);

/* Backward: the same of the gradient of out, then of those of q, k and v. First dq, dk and dv of all views become zero.
 * Published weight gradients are computed while ranks wait for each other. */
void ash_ulysses_zero_grads(const struct ash_pass_step *step, size_t layer);
/* Send the gradient of out to the views of all chunks. */
void ash_ulysses_scatter_grads(const struct ash_pass_step *step, struct ash_grad_sink *sink);
/* Send a chunk's dq, dk and dv back to the ranks that have the rows. */
void ash_ulysses_gather_grads(const struct ash_pass_step *step, size_t chunk);
/* Wait until dq, dk and dv are here for all of this rank's rows. */
void ash_ulysses_gather_grads_wait(const struct ash_pass_step *step, struct ash_grad_sink *sink);

#endif
