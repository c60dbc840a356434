/* moe_exchange - dispatch of pairs to the ranks that have their experts, and of what experts made of them back to
 * their tokens. Along ep ranks have different batches, so rows are exchanged, counts first; no pair is ever left
 * out, the inbox grows instead. Along tp they have the same rows, so each rank takes the pairs of its experts,
 * and results are gathered. */
#ifndef ASH_MODEL_PASS_MOE_EXCHANGE_H
#define ASH_MODEL_PASS_MOE_EXCHANGE_H

#include "model/pass/grads.h"
#include "model/pass/moe_pairs.h"
#include "model/pass/step.h"

/* Memory for all of it; the axes must fit the model's slice. Returns 0, -EINVAL or -ENOMEM; close takes what a failed
 * open left, and a zeroed struct. */
int ash_moe_open(struct ash_moe_exchange *moe, const struct ash_model *model, const struct ash_exec *exec,
                 const struct ash_pass_opts *opts, const struct ash_axes *axes, struct ash_err *err);
/* Free; accepts a zeroed struct and what a failed open left. */
void ash_moe_close(struct ash_moe_exchange *moe);
/* Bytes of the inboxes and what goes with them when each rank gets as many pairs as it has itself. */
size_t ash_moe_exchange_bytes(const struct ash_model *model, const struct ash_pass_opts *opts,
                              const struct ash_axes *axes);
/* Have all batches that experts here compute for a place for their gradients? Returns 0 or -EINVAL. */
int ash_moe_check_grads(const struct ash_model *model, const struct ash_axes *axes, float *const *source_expert_grads,
                        struct ash_err *err);

/* What the experts here compute on. Expert e (of those here) has, of the batch of source s, the rows starts[s * experts
 * + e] to the next start. */
struct ash_expert_work {
    size_t sources, experts;
    const size_t *starts;
    float *x, *y;                    /* [.., C] */
    float *dy;                       /* becomes dx */
    struct ash_ffn_acts acts, dacts; /* [.., expert ffn] */
};

/* Send the rows of x to the experts that they chose (moe.order, route.offsets); then work is ready. */
void ash_moe_dispatch(const struct ash_pass_step *step, size_t layer, const float *x);
/* What the experts here compute on, after a dispatch. */
struct ash_expert_work ash_moe_work(const struct ash_pass_step *step, size_t layer);
/* moe.y of all pairs, from work's y. */
void ash_moe_combine(const struct ash_pass_step *step, size_t layer);
/* Backward: from dy, the gradient of the layer's output, to work's dy; and from there to scratch.dpair, the gradient of
 * all pairs' x. */
void ash_moe_dispatch_grads(const struct ash_pass_step *step, size_t layer, const float *dy);
/* From work's dy to scratch.dpair, the gradient of all pairs' x. */
void ash_moe_combine_grads(const struct ash_pass_step *step, size_t layer);

/* The sink of experts' gradients over the batch of one source (rank of ep). */
struct ash_grad_sink ash_moe_source_sink(const struct ash_pass_step *step, const struct ash_grad_sink *sink,
                                         size_t source);
/* Does a source's batch have rows? Without an ep axis: always. */
bool ash_moe_source_has_rows(const struct ash_pass_step *step, size_t source);
/* ash_grad_carry_experts for all batches that others of the same sums follow. */
void ash_moe_carry_grads(const struct ash_pass_step *step, struct ash_grad_sink *sink);

#endif
