/* head - the output matrix and the loss, a few rows at a time: logits of all tokens never exist at once. */
#ifndef ASH_MODEL_PASS_HEAD_H
#define ASH_MODEL_PASS_HEAD_H

#include "model/pass/grads.h"
#include "model/pass/step.h"

/* acts->losses of this rank's rows, from acts->final_norm; acts->entropies too, if they are wanted. Many rows without
 * a target cost no product. */
void ash_head_losses(const struct ash_pass_step *step, bool has_entropies);
/* The same, and the gradient of scale (or the batch's scales) * their sum: of the normed stream to scratch.dnorm, of
 * the output matrix to sink. */
void ash_head_backward(const struct ash_pass_step *step, struct ash_grad_sink *sink, float scale);
/* Are rows of the batch without a target left out? Then copies are made while it runs. */
bool ash_head_skips_rows(const struct ash_pass_step *step);
/* logits_out [count, vocab] of rows x [count, C]. norm: the RMS norm that x goes through first, or ASH_NO_PARAM. */
void ash_head_logits(const struct ash_pass_step *step, const float *x, int32_t norm, size_t count, float *logits_out);

#endif
