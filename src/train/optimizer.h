/* optimizer - gradient norm, clipping and AdamW over all parameters of a state. Every sum has one order: squares in
 * blocks of ASH_SUMSQ_BLOCK, blocks ascending, parameters ascending, in float64. One owner thread. */
#ifndef ASH_TRAIN_OPTIMIZER_H
#define ASH_TRAIN_OPTIMIZER_H

#include "ashlar/err.h"
#include "train/job.h"
#include "train/state.h"

/* Caller's storage. */
struct ash_optimizer {
    const struct ash_job_optimizer *opts;
    struct ash_state *state;
    struct ash_buffer block_sums; /* where the backend puts sums of squares */
    struct ash_buffer host_sums;  /* and where the host adds them up */
};

/* Borrows opts and state until fini. */
int ash_optimizer_init(struct ash_optimizer *optimizer, const struct ash_job_optimizer *opts, struct ash_state *state,
                       struct ash_err *err);
void ash_optimizer_fini(struct ash_optimizer *optimizer);

/* The 2-norm of grads over all trained parameters (ash_model_size floats at the parameters' offsets). */
double ash_optimizer_norm(struct ash_optimizer *optimizer, const float *grads);
/* One update: clip by norm, AdamW, refresh the working copies, count the update. */
void ash_optimizer_update(struct ash_optimizer *optimizer, const float *grads, double norm, double lr);

#endif
