/* grains_priv - between grains.c, grains_stack.c and grains_kept.c. */
#ifndef ASH_TRAIN_GRAINS_PRIV_H
#define ASH_TRAIN_GRAINS_PRIV_H

#include "train/layout/grains.h"

/* ---- grains_stack.c ---------------------------------------------------------------------------------------------- */

/* The grain with which a strand's stack continues. */
size_t ash_grains_next(const struct ash_grains_strand *strand, const struct ash_grains_stack *stack);
/* Put a subtree, which begins there, on top. */
void ash_grains_push(struct ash_grains_stack *stack, struct ash_range span);
/* Are the two on top the halves of a subtree? Then they become one. */
bool ash_grains_merge(struct ash_grains_stack *stack, size_t total);
/* Buffers that a strand's partial sums need; more than the limit if it has too many grains. Leaves that come from
 * elsewhere, add_count at a time (0: they are computed here), need none while they are added. */
size_t ash_grains_buffers_for(size_t total, struct ash_range strand, size_t add_count);

/* ---- grains.c ---------------------------------------------------------------------------------------------------- */

/* Grains of a strand of rank `rank`. */
struct ash_range ash_grains_strand_of(const struct ash_grains_opts *opts, size_t rank, size_t strand);
/* Which partial sums each rank ends with, and how they are reduced. parts: each rank's grains; NULL: as in opts. */
int ash_grains_plan_shares(struct ash_shares *shares, const struct ash_grains_opts *opts, const struct ash_range *parts,
                           struct ash_err *err);
/* Memory for strand->buffer_count partial sums, if missing; in windows most of them, the same on all
 * ranks. */
int ash_grains_open_strand(struct ash_grains *grains, struct ash_grains_strand *strand, size_t most,
                           struct ash_err *err);
/* A subtree was put on top: add elements `run` of the larger ones that it completes. */
void ash_grains_add_on_top(const struct ash_grains *grains, const struct ash_grains_strand *strand,
                           struct ash_grains_stack *stack, struct ash_range run);

/* ---- grains_kept.c ----------------------------------------------------------------------------------------------- */

/* Put kept sums whose turn has come into the tree. */
void ash_grains_take_kept(struct ash_grains *grains);
/* No salvaged sums any more, and ranks have the grains of opts. */
void ash_grains_forget_kept(struct ash_grains *grains);

#endif
