/* attn_qkv - the two kinds of attention's projections, from the normed stream to q, k, v and back: grouped-query
 * (attn_grouped.c, with the per-head norms of qk_norm.c) and latent (attn_latent.c). */
#ifndef ASH_MODEL_PASS_ATTN_QKV_H
#define ASH_MODEL_PASS_ATTN_QKV_H

#include "model/pass/grads.h"
#include "model/pass/rope.h"
#include "model/pass/step.h"

/* x [rows, C] to the layer's q, k, v; norm: the RMS norm that x goes through first, or ASH_NO_PARAM. Where the layer's
 * norm stores rounded rows, those are read instead of x. */
void ash_attn_grouped_forward(const struct ash_pass_step *step, size_t layer, const float *x, int32_t norm);
/* Where the gradients of q, k and v go, rounded, before their projections read them; NULL if those read float32: biases
 * add up float32. */
uint16_t *ash_attn_grouped_rounded(const struct ash_pass_step *step, size_t layer);
/* The heads of q and k in rows of q, k and v. */
struct ash_rope_heads ash_attn_grouped_heads(const struct ash_pass_step *step, size_t layer, uint16_t *rounded);
/* scratch.dnorm becomes the gradient of the normed stream x. */
void ash_attn_grouped_backward(const struct ash_pass_step *step, struct ash_grad_sink *sink, size_t layer,
                               const float *x);
/* The same for latent attention, whose norm is never fused. */
void ash_attn_latent_forward(const struct ash_pass_step *step, size_t layer, const float *x);
/* As ash_attn_grouped_backward. */
void ash_attn_latent_backward(const struct ash_pass_step *step, struct ash_grad_sink *sink, size_t layer,
                              const float *x);

/* Do q and k of this layer have norms? */
bool ash_qk_norm_is_in(const struct ash_model *model, size_t layer);
/* Norms over each head of q and k: from qk_raw to q and k. */
void ash_qk_norm_forward(const struct ash_pass_step *step, size_t layer);
/* From the gradients of q and k to dqk_raw; the norms' gradients go to sink. */
void ash_qk_norm_backward(const struct ash_pass_step *step, struct ash_grad_sink *sink, size_t layer);

#endif
