/* fsdp_priv - between fsdp.c, fsdp_bring.c, fsdp_sums.c, fsdp_send.c and fsdp_leaf.c. */
#ifndef ASH_TRAIN_FSDP_PRIV_H
#define ASH_TRAIN_FSDP_PRIV_H

#include "train/layout/fsdp.h"

/* fsdp.c: do the ranks keep one working copy together, so that everything is where passes read it? */
bool ash_fsdp_is_node_shared(const struct ash_fsdp *fsdp);
/* The working copy, as far as it is here. */
char *ash_fsdp_weights(const struct ash_fsdp *fsdp);
/* Begin to put a unit together in a slot; wait for a call, on the clock, and forget it; have the passes read a unit's
 * parameters at data. */
int ash_fsdp_gather(struct ash_fsdp *fsdp, struct ash_fsdp_slot *slot, const struct ash_shard_unit *unit,
                    struct ash_err *err);
int ash_fsdp_wait(struct ash_fsdp *fsdp, struct ash_call **call, struct ash_err *err);
void ash_fsdp_bind(struct ash_fsdp *fsdp, const struct ash_shard_unit *unit, const char *data);

/* fsdp_bring.c: does each rank have all weights, which come from the others after an update? Then they set out, and a
 * pass takes those of a unit. */
bool ash_fsdp_prefetches(const struct ash_fsdp *fsdp);
int ash_fsdp_open_prefetch(struct ash_fsdp *fsdp, struct ash_err *err);
void ash_fsdp_close_prefetch(struct ash_fsdp *fsdp);
int ash_fsdp_prefetch(struct ash_fsdp *fsdp, struct ash_err *err);
int ash_fsdp_wait_unit(struct ash_fsdp *fsdp, int unit, struct ash_err *err);

/* fsdp_sums.c: do other ranks' grains bring gradients to experts here; is a unit experts'; leaves of a block of grains
 * in the round at hand: the first ranks have one each. */
bool ash_fsdp_serves_experts(const struct ash_fsdp *fsdp);
bool ash_fsdp_is_expert(const struct ash_fsdp *fsdp, const struct ash_shard_unit *unit);
size_t ash_fsdp_round_grains(const struct ash_fsdp *fsdp, struct ash_range block);
int ash_fsdp_open_sums(struct ash_fsdp *fsdp, struct ash_err *err);
/* A unit's gradients are complete: to their owners. */
int ash_fsdp_send_unit(struct ash_fsdp *fsdp, const struct ash_shard_unit *unit, struct ash_err *err);

/* The first `count` of fsdp->grad_parts are everyone's gradients of a part of this rank's: into the sums. */
int ash_fsdp_reduce_parts(struct ash_fsdp *fsdp, const struct ash_fsdp_delivery *to, size_t count, struct ash_err *err);

/* fsdp_send.c: across nodes. Begin to send a unit; add up all that is under way; wait for it and forget it. */
int ash_fsdp_open_requests(struct ash_fsdp *fsdp, struct ash_err *err);
void ash_fsdp_close_requests(struct ash_fsdp *fsdp);
size_t ash_fsdp_request_bytes(const struct ash_fsdp *fsdp);
int ash_fsdp_send(struct ash_fsdp *fsdp, const struct ash_fsdp_delivery *to, struct ash_err *err);
int ash_fsdp_receive(struct ash_fsdp *fsdp, struct ash_err *err);
void ash_fsdp_drop_requests(struct ash_fsdp *fsdp);

/* fsdp_leaf.c: do a unit's gradients leave as soon as it is done with, so that layers take places in turn? */
bool ash_fsdp_in_ring(const struct ash_fsdp *fsdp, int unit);
/* Memory for the gradients of a grain, where passes add to it from now on. */
int ash_fsdp_open_grad_buffer(struct ash_fsdp *fsdp, struct ash_err *err);
void ash_fsdp_close_grad_buffer(struct ash_fsdp *fsdp);
/* Where a unit's gradients are in it. */
size_t ash_fsdp_grad_offset(const struct ash_fsdp *fsdp, const struct ash_shard_unit *unit);
/* Zeros for a layer that streams, and for what does not. */
int ash_fsdp_clear_layer(struct ash_fsdp *fsdp, int layer, struct ash_err *err);
int ash_fsdp_clear_rest(struct ash_fsdp *fsdp, struct ash_err *err);
/* On one node: say that a unit is complete, and add up this rank's parts of all that have been said. */
void ash_fsdp_publish(struct ash_fsdp *fsdp, const struct ash_shard_unit *unit);
int ash_fsdp_reduce_published(struct ash_fsdp *fsdp, struct ash_err *err);

#endif
