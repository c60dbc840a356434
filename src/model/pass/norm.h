/* norm - the norm before or after a block, over own rows of the stream. */
#ifndef ASH_MODEL_PASS_NORM_H
#define ASH_MODEL_PASS_NORM_H

#include "model/pass/grads.h"
#include "model/pass/step.h"

/* A norm's parameters; bias ASH_NO_PARAM for an RMS norm. Without a weight there is no norm: rows stay as they are. */
struct ash_norm_params {
    int32_t weight, bias;
};

/* acts->out = norm(x), x [own rows, C]; keeps rstd and mean for backward. */
void ash_norm_forward(const struct ash_pass_step *step, struct ash_norm_params params, const float *x,
                      const struct ash_norm_acts *acts);
/* x = norm(x), x [own rows, C]; without a weight nothing is done. Forward passes alone; uses scratch.residual. */
void ash_norm_in_place(const struct ash_pass_step *step, struct ash_norm_params params, float *x);
/* scratch.dx += (add) or = the gradient of x, from scratch.dnorm; the parameters' gradients go to sink. */
void ash_norm_backward(const struct ash_pass_step *step, struct ash_grad_sink *sink, struct ash_norm_params params,
                       const float *x, const struct ash_norm_acts *acts, bool add);
/* Does the backward pass recompute the normed rows? */
bool ash_norm_is_recomputed(const struct ash_pass_step *step, const struct ash_norm_acts *acts);
/* dx [own rows, C] = the gradient of x, from dy, which may be the same memory; the parameters' gradients go to sink. */
void ash_norm_backward_to(const struct ash_pass_step *step, struct ash_grad_sink *sink, struct ash_norm_params params,
                          const float *x, const struct ash_norm_acts *acts, const float *dy, float *dx);
/* Does the product after a norm do the norm too? Then the normed rows exist nowhere. */
bool ash_norm_is_fused(const struct ash_pass_step *step);

#endif
