/* fsdp_priv - between fsdp.c, fsdp_prefetch.c, fsdp_sums.c, fsdp_send.c and fsdp_grads.c. */
#ifndef ASH_TRAIN_FSDP_PRIV_H
#define ASH_TRAIN_FSDP_PRIV_H

#include "train/layout/fsdp.h"

/* ---- fsdp.c ------------------------------------------------------------------------------------------------------ */

/* Do the ranks keep one working copy in shared memory, so that nothing has to be gathered? */
bool ash_fsdp_is_node_shared(const struct ash_fsdp *fsdp);
/* The working copy [model size], as far as it is here. */
char *ash_fsdp_weights(const struct ash_fsdp *fsdp);
/* Start to all-gather a unit into a slot. */
int ash_fsdp_gather(struct ash_fsdp *fsdp, struct ash_fsdp_slot *slot, const struct ash_shard_unit *unit,
                    struct ash_err *err);
/* Wait for a call (metered), and set it to NULL. */
int ash_fsdp_wait(struct ash_fsdp *fsdp, struct ash_call **call, struct ash_err *err);
/* Have passes read a unit's parameters at data. */
void ash_fsdp_bind(struct ash_fsdp *fsdp, const struct ash_shard_unit *unit, const char *data);

/* ---- fsdp_prefetch.c: zero 1 and 2 across nodes ------------------------------------------------------------------ */

/* Does each rank have room for all weights, which are gathered after an update? */
bool ash_fsdp_prefetches(const struct ash_fsdp *fsdp);
/* Allocate the lists of units. Returns 0 or -ENOMEM. */
int ash_fsdp_open_prefetch(struct ash_fsdp *fsdp, struct ash_err *err);
/* Wait for requests in flight and drop them. */
void ash_fsdp_drop_prefetch(struct ash_fsdp *fsdp);
/* The same, and free. */
void ash_fsdp_close_prefetch(struct ash_fsdp *fsdp);
/* Start to gather all units, in the order in which passes use them. */
int ash_fsdp_prefetch(struct ash_fsdp *fsdp, struct ash_err *err);
/* Wait until a unit, and all before it in that order, are here. */
int ash_fsdp_wait_unit(struct ash_fsdp *fsdp, int unit, struct ash_err *err);

/* ---- fsdp_sums.c ------------------------------------------------------------------------------------------------- */

/* Do experts here get gradients from other ranks' grains? */
bool ash_fsdp_serves_experts(const struct ash_fsdp *fsdp);
/* Is it a unit of experts? */
bool ash_fsdp_is_expert(const struct ash_fsdp *fsdp, const struct ash_shard_unit *unit);
/* How many ranks have a grain of a block of grains in the present round: the first ones have one each. */
size_t ash_fsdp_round_grains(const struct ash_fsdp *fsdp, struct ash_range block);
/* Allocate sums and buffers of gradients, where they are sharded. */
int ash_fsdp_open_sums(struct ash_fsdp *fsdp, struct ash_err *err);
/* A unit's gradients are complete: publish them (one node) or send them to their owners. */
int ash_fsdp_send_unit(struct ash_fsdp *fsdp, const struct ash_shard_unit *unit, struct ash_err *err);
/* Add the first `count` of fsdp->grad_parts to the sums that `to` names. */
int ash_fsdp_reduce_parts(struct ash_fsdp *fsdp, const struct ash_fsdp_delivery *to, size_t count, struct ash_err *err);

/* ---- fsdp_send.c: across nodes ----------------------------------------------------------------------------------- */

/* Allocate the requests' inboxes. */
int ash_fsdp_open_requests(struct ash_fsdp *fsdp, struct ash_err *err);
/* Wait for requests in flight and free. */
void ash_fsdp_close_requests(struct ash_fsdp *fsdp);
/* Bytes of the inboxes. */
size_t ash_fsdp_request_bytes(const struct ash_fsdp *fsdp);
/* Start to send a unit's gradients to their owners, and to receive this rank's part. */
int ash_fsdp_send(struct ash_fsdp *fsdp, const struct ash_fsdp_delivery *to, struct ash_err *err);
/* Wait for all that is in flight and add it to the sums. */
int ash_fsdp_receive(struct ash_fsdp *fsdp, struct ash_err *err);
/* Wait for all that is in flight and drop it. */
void ash_fsdp_drop_requests(struct ash_fsdp *fsdp);

/* ---- fsdp_grads.c ------------------------------------------------------------------------------------------------ */

/* Do a unit's gradients leave as soon as it is done, so that they are in the ring? */
bool ash_fsdp_in_ring(const struct ash_fsdp *fsdp, int unit);
/* Allocate the gradients of a grain, and have passes add there. */
int ash_fsdp_open_grad_buffer(struct ash_fsdp *fsdp, struct ash_err *err);
/* Free them; a half-open one is fine. */
void ash_fsdp_close_grad_buffer(struct ash_fsdp *fsdp);
/* The element of grad_buffer at which a unit's gradients begin. */
size_t ash_fsdp_grad_offset(const struct ash_fsdp *fsdp, const struct ash_shard_unit *unit);
/* Clear a layer's slot of the ring, once all ranks have read it. */
int ash_fsdp_clear_layer(struct ash_fsdp *fsdp, int layer, struct ash_err *err);
/* The same for units outside the ring. */
int ash_fsdp_clear_rest(struct ash_fsdp *fsdp, struct ash_err *err);
/* On one node: signal that a unit's gradients are complete. */
void ash_fsdp_publish(struct ash_fsdp *fsdp, const struct ash_shard_unit *unit);
/* On one node: wait for all ranks' gradients of the published units and add this rank's parts to its sums. */
int ash_fsdp_reduce_published(struct ash_fsdp *fsdp, struct ash_err *err);

#endif
