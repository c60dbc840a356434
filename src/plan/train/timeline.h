/* timeline - a training step as one self-contained SVG: its time by part, and the pipeline rank by rank. */
#ifndef ASH_PLAN_TIMELINE_H
#define ASH_PLAN_TIMELINE_H

#include "plan/train/search.h"

/* Draw a step that takes checkpoint_s longer because of checkpoints to path; an older file is replaced atomically. Of a
 * long pipeline only as many micro-batches are simulated as show its shape: 2 * pp + 8, for at most 64 ranks. */
int ash_timeline_write(const struct ash_consts *consts, const struct ash_plan_job *job, const struct ash_plan *plan,
                       double checkpoint_s, const char *path, struct ash_err *err);

#endif
