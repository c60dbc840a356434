/* pipeline - a pipeline schedule played event by event. */
#ifndef ASH_PLAN_PIPELINE_H
#define ASH_PLAN_PIPELINE_H

#include <stddef.h>

struct ash_pipeline {
    int stages, chunks,
        micro_batches;       /* chunks 1: 1F1B; more: interleaved (micro_batches a multiple of stages helps) */
    const double *forward_s; /* [chunks * stages]: of virtual stage chunk * stages + stage */
    const double *backward_s;
    double p2p_s; /* from one stage to the next, not hidden */
};

/* One piece of work of one rank, for timelines. */
struct ash_pipeline_event {
    int stage, chunk, micro_batch, backward;
    double start_s, end_s;
};

/* The time from the first start to the last end, or a negative errno (-ENOMEM, -EINVAL: a size below 1). Without
 * events_out a long pipeline is played until it repeats itself, then continued at that rate. events_out (may be NULL)
 * has room for 2 * stages * chunks * micro_batches, filled in the order of ranks. */
double ash_pipeline_run(const struct ash_pipeline *pipeline, struct ash_pipeline_event *events_out);

#endif
