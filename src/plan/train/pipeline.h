/* pipeline - a pipeline schedule played event by event. */
#ifndef ASH_PLAN_PIPELINE_H
#define ASH_PLAN_PIPELINE_H

#include <stdbool.h>
#include <stddef.h>

enum ash_schedule {
    ASH_SCHEDULE_1F1B,     /* one forward, one backward; with chunks: interleaved in Megatron's order */
    ASH_SCHEDULE_ZB_H1,    /* zero bubble: gradients of weights wait until the rank would idle */
    ASH_SCHEDULE_DUALPIPE, /* micro-batches from both ends, a forward and a backward pass side by side */
    ASH_SCHEDULE_COUNT
};

struct ash_pipeline {
    enum ash_schedule schedule;
    int stages, chunks;      /* chunks above 1: 1F1B only (micro_batches a multiple of stages helps) */
    int micro_batches;       /* DualPipe: even, as stages are, and at least twice as many */
    const double *forward_s; /* [chunks * stages]: of virtual stage chunk * stages + stage */
    const double *backward_s;
    const double *weight_s; /* of backward_s: gradients of weights, which no other stage waits for; NULL under 1F1B */
    double saved_s;         /* DualPipe: what a forward and a backward pass save by running side by side */
    double p2p_s;           /* from one stage to the next, not hidden */
};

enum ash_pipeline_kind {
    ASH_PIPELINE_FORWARD,
    ASH_PIPELINE_BACKWARD, /* whole */
    ASH_PIPELINE_INPUT,    /* backward without gradients of weights */
    ASH_PIPELINE_WEIGHT,   /* gradients of weights */
};

/* One piece of work of one rank, for timelines. */
struct ash_pipeline_event {
    int stage, chunk, micro_batch; /* chunk: under DualPipe the end that the micro-batch came in at */
    enum ash_pipeline_kind kind;
    bool paired; /* runs beside the event before or behind it, in the same seconds */
    double start_s, end_s;
};

/* Why such a pipeline cannot be, in words that say what could, or NULL. */
const char *ash_pipeline_refuses(enum ash_schedule schedule, int stages, int chunks, int micro_batches);
/* How many events a rank has at most. */
size_t ash_pipeline_events(const struct ash_pipeline *pipeline);
/* The time from the first start to the last end, or a negative errno (-ENOMEM; -EINVAL: a size below 1, or what the
 * schedule refuses). Without events_out a long pipeline is played until it repeats itself, then continued at that rate.
 * events_out (may be NULL) has room for stages * ash_pipeline_events, filled in the order of ranks; a rank that has
 * fewer leaves the rest of its room zeroed. */
double ash_pipeline_run(const struct ash_pipeline *pipeline, struct ash_pipeline_event *events_out);
/* The same by formula, for searches: the busiest rank's work and the published bubble of the mean rank. Under DualPipe
 * forwards beside backwards of the busiest stage are taken to be the rule. */
double ash_pipeline_estimate(const struct ash_pipeline *pipeline);
/* Seconds that playing it cannot stay below: a rank's own work, and what must have passed the ranks before it. */
double ash_pipeline_least(const struct ash_pipeline *pipeline);
/* Forward passes of a rank at either end that run beside a backward pass (DualPipe; 0 under the others). */
int ash_pipeline_pairs(const struct ash_pipeline *pipeline);

#endif
