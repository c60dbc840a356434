/* optimizer - gradient norm, clipping and AdamW or Lion over a state, or over the shard of it that this process keeps.
 * The norm is a sum of integers (compute/squares.h), so it does not depend on the layout. One owner thread. */
#ifndef ASH_TRAIN_STATE_OPTIMIZER_H
#define ASH_TRAIN_STATE_OPTIMIZER_H

#include "ashlar/err.h"
#include "record/meter.h"
#include "train/state/state.h"

/* How gradients change weights: AdamW has two moments; Lion has one, and its second stays zero. */
enum ash_optimizer_kind { ASH_OPTIMIZER_ADAMW, ASH_OPTIMIZER_LION };

enum ash_decay_scope { ASH_DECAY_MATRICES, ASH_DECAY_ALL };

/* Section `optimizer` of a job. */
struct ash_optimizer_opts {
    double lr, beta1, beta2, eps, weight_decay;
    double clip; /* largest gradient norm; 0: no clipping */
    int decay;   /* enum ash_decay_scope */
    int kind;    /* enum ash_optimizer_kind */
};

/* Ranks that a norm is summed over. */
struct ash_optimizer_ranks {
    struct ash_group *group; /* NULL: this process is alone */
    struct ash_meter *meter; /* of the time spent waiting for them */
};

/* Caller's storage. */
struct ash_optimizer {
    const struct ash_optimizer_opts *opts;
    struct ash_state *state;
    bool flat; /* gradients are at the model's offsets, not one part of the shard after the other */
};

/* Borrows opts and state while it is used. */
void ash_optimizer_init(struct ash_optimizer *optimizer, const struct ash_optimizer_opts *opts,
                        struct ash_state *state);

/* The 2-norm over all trained parameters of the job: of count states here, whose shards' gradients are grads, and of
 * those of all other ranks, which call it too. Returns 0 or the group's error. */
int ash_optimizer_norm(struct ash_optimizer *const *optimizers, const float *const *grads, size_t count,
                       const struct ash_optimizer_ranks *ranks, double *norm_out, struct ash_err *err);
/* Clip by norm and apply the update to this process's part of the shard, with gradients grads [shard, or model if
 * flat], into state->next; ash_state_advance makes it current. */
void ash_optimizer_update(struct ash_optimizer *optimizer, const float *grads, double norm, double lr);
/* Elements that are not in a state: a peer replica of another process's part. */
struct ash_optimizer_run {
    size_t count;
    const float *grads;
    float *weights, *m, *v; /* read and written, [count] each */
    uint16_t *bf16;         /* the working copy, written; or NULL */
    bool is_matrix;         /* the parameter that they are of */
};
/* The same for such elements, in place: the update that optimizer's state has not counted yet. */
void ash_optimizer_update_run(const struct ash_optimizer *optimizer, const struct ash_optimizer_run *run, double norm,
                              double lr);

#endif
