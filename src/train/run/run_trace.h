/* run_trace - train.trace: this rank's work in the chosen steps, in DIR/trace: its ops
 * (rank-N.ops.json, Chrome trace events), its steps and its collective calls (rank-N.steps, rank-N.flight: rings). */
#ifndef ASH_TRAIN_RUN_TRACE_H
#define ASH_TRAIN_RUN_TRACE_H

#include "train/run/run_priv.h"

/* Before a step: begin if it is the first of those. A failure is a warning. */
void ash_run_trace_begin(struct ash_run *run);
/* After a step: write and end if it was the last of those. */
void ash_run_trace_end(struct ash_run *run);
/* Write what there is, if a trace is still on. Before the trainer is closed. */
void ash_run_trace_close(struct ash_run *run);

#endif
