/* stages_priv - between stages.c, stages_run.c, stages_lines.c and stages_hooks.c. */
#ifndef ASH_TRAIN_STAGES_PRIV_H
#define ASH_TRAIN_STAGES_PRIV_H

#include "train/layout/stages.h"

/* stages_lines.c */
int ash_stages_open_channels(struct ash_stages *stages, const struct ash_model_config *config, struct ash_err *err);
void ash_stages_close_channels(struct ash_stages *stages);
/* Put the stream (or its gradient) of a micro-batch where the pass wants it, or send it on. */
int ash_stages_recv_input(struct ash_stages *stages, struct ash_stage_slot *slot, struct ash_err *err);
int ash_stages_send_output(struct ash_stages *stages, struct ash_stage_slot *slot, struct ash_err *err);
int ash_stages_recv_gradient(struct ash_stages *stages, struct ash_stage_slot *slot, struct ash_err *err);
int ash_stages_send_gradient(struct ash_stages *stages, struct ash_stage_slot *slot, struct ash_err *err);
/* A grain is done: what a tied output matrix on another stage summed up joins the embedding's gradient. */
int ash_stages_add_tied(struct ash_stages *stages, struct ash_stage *stage, struct ash_err *err);
/* After an update: that matrix gets the embedding's new values. */
int ash_stages_update_tied(struct ash_stages *stages, struct ash_err *err);

/* stages_hooks.c: what passes tell; memory for sums that set out beside them (before the hooks and the sums are made);
 * and those of the rank's last grain that have not set out yet. */
struct ash_pass_hooks ash_stages_hooks(struct ash_stage *stage);
int ash_stages_open_overlap(const struct ash_stages *stages, struct ash_stage *stage, struct ash_err *err);
int ash_stages_reduce_rest(struct ash_stage *stage, struct ash_err *err);

/* stages.c: sums of all ranks' grains. */
int ash_stages_reduce(struct ash_stages *stages, struct ash_err *err);

#endif
