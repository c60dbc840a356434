/* grads_shared - weight gradients of ranks of cp that share memory and gradients. They see each other's rows, so the
 * chain over tokens is never sent: each rank computes a part of a matrix's gradient over the rows of all, and who
 * has which part changes no bit.
 *
 *     publish   my rows of this product are there      (returns at once)
 *     compute   my parts of what all have published    (when this rank would else wait for others)
 *     fence     all have computed the same parts       (before a rank writes again where others read) */
#ifndef ASH_MODEL_PASS_GRADS_SHARED_H
#define ASH_MODEL_PASS_GRADS_SHARED_H

#include "model/pass/grads.h"
#include "model/pass/step.h"

/* A product whose gradient goes to `sum` (the weight itself, or ASH_TIED_HEAD) and to bias (or ASH_NO_PARAM). io: of
 * this rank's rows, which lie among those of all and stay as they are until ash_shared_grads_fence. */
void ash_shared_grads_publish(const struct ash_pass_step *step, struct ash_grad_sink *sink, int32_t sum, int32_t weight,
                              int32_t bias, const struct ash_linear_io *io);
/* Compute this rank's part of the published products, but for the last `but` products. */
void ash_shared_grads_compute(struct ash_grad_sink *sink, size_t but);
/* Wait until all ranks have computed what this one has. A no-op where ranks share no gradients. */
void ash_shared_grads_fence(struct ash_grad_sink *sink);
/* A barrier of the ranks of cp that share memory; computes (as above) between signalling and waiting. */
void ash_shared_grads_barrier(struct ash_grad_sink *sink, size_t but);
/* All gradients published so far are complete on all ranks. A no-op where ranks share no gradients. */
void ash_shared_grads_finish(struct ash_grad_sink *sink);

#endif
