/* rank_steps - each rank's own figures of its steps: metrics by part, and a ring of the last steps that stragglers are
 * found from. */
#ifndef ASH_TRAIN_RUN_RANK_STEPS_H
#define ASH_TRAIN_RUN_RANK_STEPS_H

#include "train/run/run_priv.h"

/* Open the ring where opts->pages names a folder. A failure is a warning. */
void ash_rank_steps_open(struct ash_run *run);
/* A step of this rank ended; it began at start_ns. */
void ash_rank_steps_add(struct ash_run *run, const struct ash_step *step, uint64_t start_ns);
/* Seconds of this rank's work in its last step, which began at start_ns: without waits, and as if all ranks had equally
 * many grains. */
double ash_rank_steps_own(const struct ash_run *run, uint64_t start_ns);
/* keeps: leave the ring for diagnosis. */
void ash_rank_steps_close(struct ash_run *run, bool keeps);

#endif
