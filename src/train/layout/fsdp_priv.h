/* fsdp_priv - between fsdp.c, fsdp_sums.c and fsdp_leaf.c. */
#ifndef ASH_TRAIN_FSDP_PRIV_H
#define ASH_TRAIN_FSDP_PRIV_H

#include "train/layout/fsdp.h"

/* fsdp_sums.c: do other ranks' grains bring gradients to experts here; is a unit experts'; leaves of a block of grains
 * in the round at hand: the first ranks have one each. */
bool ash_fsdp_serves(const struct ash_fsdp *fsdp);
bool ash_fsdp_is_expert(const struct ash_fsdp *fsdp, const struct ash_shard_unit *unit);
size_t ash_fsdp_leaves(const struct ash_fsdp *fsdp, struct ash_span block);
int ash_fsdp_open_sums(struct ash_fsdp *fsdp, struct ash_err *err);
/* A unit's gradients are complete: to their owners. */
int ash_fsdp_send_unit(struct ash_fsdp *fsdp, const struct ash_shard_unit *unit, struct ash_err *err);

/* fsdp_leaf.c: do a unit's gradients leave as soon as it is done with, so that layers take places in turn? */
bool ash_fsdp_in_turn(const struct ash_fsdp *fsdp, int unit);
/* Memory for the gradients of a grain, where passes add to it from now on. */
int ash_fsdp_open_leaf(struct ash_fsdp *fsdp, struct ash_err *err);
void ash_fsdp_close_leaf(struct ash_fsdp *fsdp);
/* Where a unit's gradients are in it. */
size_t ash_fsdp_place(const struct ash_fsdp *fsdp, const struct ash_shard_unit *unit);
/* Zeros for a layer that streams, and for what does not. */
int ash_fsdp_clear_layer(struct ash_fsdp *fsdp, int layer, struct ash_err *err);
int ash_fsdp_clear_rest(struct ash_fsdp *fsdp, struct ash_err *err);
/* On one node: say that a unit is complete, and add up this rank's parts of all that have been said. */
void ash_fsdp_give(struct ash_fsdp *fsdp, const struct ash_shard_unit *unit);
int ash_fsdp_take(struct ash_fsdp *fsdp, struct ash_err *err);

#endif
