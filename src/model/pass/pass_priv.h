/* pass_priv - the inside of a pass: its parts, each with its own header, and the current batch. */
#ifndef ASH_MODEL_PASS_PASS_PRIV_H
#define ASH_MODEL_PASS_PASS_PRIV_H

#include "model/pass/acts.h"
#include "model/pass/attn_ulysses.h"
#include "model/pass/axes.h"
#include "model/pass/embed.h"
#include "model/pass/grads.h"
#include "model/pass/moe_exchange.h"
#include "model/pass/rope.h"
#include "model/pass/step.h"

struct ash_pass {
    struct ash_model *model;
    struct ash_exec *exec;
    struct ash_pass_opts opts;
    struct ash_axes axes;
    struct ash_acts acts;
    struct ash_rope rope;
    struct ash_ulysses ulysses;
    struct ash_embed_plan embed;
    struct ash_moe_exchange moe;
    struct ash_grad_order order;
    struct ash_attn_seq *seqs;        /* [max_rows], host */
    struct ash_state_seq *state_seqs; /* [max_rows], host */
    int32_t *positions;               /* [2 * max_rows], host: of the batch's rows; then their segments */
    struct ash_kept *few_kept;        /* [max_rows], host */
    float *kept_row;                  /* [vocab], host; NULL: the host can touch the device's */
    struct ash_pass_step step;        /* the current batch; points at the above */
};

/* pass_batch.c: check the batch, copy it to the device, and make it the current one. cache may be NULL. Returns 0,
 * -EINVAL, -EOVERFLOW or -ENOMEM. */
int ash_pass_begin(struct ash_pass *pass, const struct ash_batch *batch, struct ash_cache *cache, struct ash_err *err);

/* pass_run.c: the embedding and the layers of the stage, in both directions; the head, with losses alone or
 * with the gradient of scale * their sum. Failures of hooks and exchanges are kept in axes. */
void ash_pass_run_forward(const struct ash_pass_step *step);
/* The head, for losses (and entropies) alone. */
void ash_pass_run_losses(const struct ash_pass_step *step, bool has_entropies);
/* The head with the gradient of scale (or the batch's scales) * the sum of losses, then layers and embedding
 * backward. */
void ash_pass_run_backward(const struct ash_pass_step *step, struct ash_grad_sink *sink, float scale);
/* pass_replay.c: ash_pass_run_forward, or the recorded work of a batch of that shape. */
void ash_pass_replay_forward(struct ash_pass *pass);
/* ash_pass_run_backward, likewise. */
void ash_pass_replay_backward(struct ash_pass *pass, struct ash_grad_sink *sink, float scale);
/* count rows [count, C] of the stream after the last layer, normed; valid until the next call. */
const float *ash_pass_run_states(const struct ash_pass_step *step, const float *rows, size_t count);
/* logits_out [count, vocab] of count rows [count, C] of the stream after the last layer; NULL on ranks of outs that do
 * not want them. */
void ash_pass_run_logits(const struct ash_pass_step *step, const float *rows, size_t count, float *logits_out);

/* pass_check.c: can the axes of opts split this model? Returns 0, -EINVAL or -ENOTSUP. */
int ash_pass_check_axes(const struct ash_model *model, const struct ash_pass_opts *opts, struct ash_err *err);
/* pass_check.c: does the model give logits, and has it keys and values to keep? Returns 0 or -ENOTSUP. */
int ash_pass_check_logits(const struct ash_model *model, struct ash_err *err);
/* pass_check.c: has the backend the ops that only some families need? Returns 0 or -ENOTSUP. */
int ash_pass_check_ops(const struct ash_model *model, const struct ash_exec *exec, struct ash_err *err);

#endif
