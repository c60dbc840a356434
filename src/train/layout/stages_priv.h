/* stages_priv - between the files of the stages. */
#ifndef ASH_TRAIN_STAGES_PRIV_H
#define ASH_TRAIN_STAGES_PRIV_H

#include "train/layout/stages.h"

/* ---- stages_channels.c ------------------------------------------------------------------------------------------- */

/* Open the p2p channels to the neighbours in the pipeline. All ranks call it. */
int ash_stages_open_channels(struct ash_stages *stages, const struct ash_model_config *config, struct ash_err *err);
/* Close them; half-open is fine. */
void ash_stages_close_channels(struct ash_stages *stages);
/* Receive the activations of a micro-batch from the stage before; nothing on the first. */
int ash_stages_recv_input(struct ash_stages *stages, struct ash_stage_slot *slot, struct ash_err *err);
/* Send its activations to the stage after; nothing on the last. */
int ash_stages_send_output(struct ash_stages *stages, struct ash_stage_slot *slot, struct ash_err *err);
/* Receive the gradient of those activations from the stage after; nothing on the last. */
int ash_stages_recv_gradient(struct ash_stages *stages, struct ash_stage_slot *slot, struct ash_err *err);
/* Send the gradient of its input to the stage before; nothing on the first. */
int ash_stages_send_gradient(struct ash_stages *stages, struct ash_stage_slot *slot, struct ash_err *err);
/* A grain is done: the gradient of a tied output matrix on the last stage is added to the embedding's on the first. */
int ash_stages_add_tied(struct ash_stages *stages, struct ash_stage *stage, struct ash_err *err);
/* After an update: the tied output matrix gets the embedding's new values. */
int ash_stages_update_tied(struct ash_stages *stages, struct ash_err *err);

/* ---- stages_hooks.c ---------------------------------------------------------------------------------------------- */

/* Hooks of a pass around its layers; empty if there is nothing to do. */
struct ash_pass_hooks ash_stages_hooks(struct ash_stage *stage);
/* Find out whether reductions overlap with the backward pass. Before the hooks and the sums are made. */
int ash_stages_open_overlap(const struct ash_stages *stages, struct ash_stage *stage, struct ash_err *err);
/* A grain's gradients are complete, and not in the tree yet: record them if leaf sums are on. */
void ash_stages_note_grain(struct ash_stage *stage, size_t round);
/* The rank's last grain is done: start the reductions that no layer has started. */
int ash_stages_reduce_rest(struct ash_stage *stage, struct ash_err *err);

/* The rank's grains are all in the tree, and no layer has started a reduction: start them all. */
int ash_stages_start_all(struct ash_stage *stage, struct ash_err *err);

/* ---- stages_run.c ------------------------------------------------------------------------------------------------ */

/* Every loss [count] comes from its reporting rank; the others add zeros. */
int ash_stages_share_losses(const struct ash_stages *stages, double *losses, size_t count, struct ash_err *err);

/* ---- stages_kept.c ----------------------------------------------------------------------------------------------- */

/* A step begins, with all sums reset: take its salvaged sums, if there are any (then true), with its losses. Those of
 * another step are dropped. */
bool ash_stages_begin_kept(struct ash_stages *stages, uint64_t step, double *losses);

/* ---- stages.c ---------------------------------------------------------------------------------------------------- */

/* Close the passes and batches of a stage's micro-batches; those not opened are fine. */
void ash_stage_close_slots(struct ash_stage *stage);

/* ---- stages_update.c --------------------------------------------------------------------------------------------- */

/* Reduce the gradients of all chunks over all ranks' grains. */
int ash_stages_reduce(struct ash_stages *stages, struct ash_err *err);

#endif
