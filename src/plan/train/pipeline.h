/* pipeline - a pipeline schedule simulated event by event. */
#ifndef ASH_PLAN_PIPELINE_H
#define ASH_PLAN_PIPELINE_H

#include <stdbool.h>
#include <stddef.h>

enum ash_plan_schedule {
    ASH_PLAN_1F1B,     /* one forward, one backward; with chunks: interleaved in Megatron's order */
    ASH_PLAN_ZB_H1,    /* zero bubble: gradients of weights wait until the rank would idle */
    ASH_PLAN_DUALPIPE, /* micro-batches from both ends, a forward and a backward pass side by side */
    ASH_PLAN_SCHEDULES
};

struct ash_plan_pipeline {
    enum ash_plan_schedule schedule;
    int stages, chunks;      /* chunks above 1: 1F1B only (micro_batches a multiple of stages helps) */
    int micro_batches;       /* DualPipe: even, as stages are, and at least twice as many */
    const double *forward_s; /* [chunks * stages]: of virtual stage chunk * stages + stage */
    const double *backward_s;
    const double *weight_s; /* of backward_s: gradients of weights, which no other stage waits for; NULL under 1F1B */
    double saved_s;         /* DualPipe: what a forward and a backward pass save by running side by side */
    double p2p_s;           /* from one stage to the next, not hidden */
};

enum ash_plan_task_kind {
    ASH_PLAN_TASK_FORWARD,
    ASH_PLAN_TASK_BACKWARD, /* whole */
    ASH_PLAN_TASK_INPUT,    /* backward without gradients of weights */
    ASH_PLAN_TASK_WEIGHT,   /* gradients of weights */
};

/* One piece of work of one rank, for timelines. */
struct ash_plan_pipeline_event {
    int stage, chunk, micro_batch; /* chunk: under DualPipe the end that the micro-batch came in at */
    enum ash_plan_task_kind kind;
    bool paired; /* overlaps with the event before or after it */
    double start_s, end_s;
};

/* Why such a pipeline cannot be, as a sentence that says what could, or NULL. */
const char *ash_plan_pipeline_refuses(enum ash_plan_schedule schedule, int stages, int chunks, int micro_batches);
/* How many events a rank has at most. */
size_t ash_plan_pipeline_events(const struct ash_plan_pipeline *pipeline);
/* The time from the first start to the last end, or a negative errno (-ENOMEM; -EINVAL: a size below 1, or what the
 * schedule refuses). Without events_out a long pipeline is simulated until it repeats itself, then continued at that
 * rate. events_out (may be NULL) has room for stages * ash_plan_pipeline_events, filled in the order of ranks; a rank
 * that has fewer leaves the rest of its room zeroed. */
double ash_plan_pipeline_run(const struct ash_plan_pipeline *pipeline, struct ash_plan_pipeline_event *events_out);
/* The same by formula, for searches: the busiest rank's work and the published bubble of the mean rank. Under DualPipe
 * forward passes are taken to overlap with backward passes of the busiest stage. */
double ash_plan_pipeline_estimate(const struct ash_plan_pipeline *pipeline);
/* Seconds that simulating it cannot stay below: a rank's own work, and what must have passed the ranks before it. */
double ash_plan_pipeline_least(const struct ash_plan_pipeline *pipeline);
/* Forward passes of a rank at either end that overlap with a backward pass (DualPipe; 0 under the others). */
int ash_plan_pipeline_pairs(const struct ash_plan_pipeline *pipeline);

#endif
