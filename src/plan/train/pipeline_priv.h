/* The order in which the ranks of a pipeline work, between what lists it and what simulates it. */
#ifndef ASH_PLAN_PIPELINE_PRIV_H
#define ASH_PLAN_PIPELINE_PRIV_H

#include "plan/train/pipeline.h"

struct ash_plan_task {
    enum ash_plan_task_kind kind;
    bool joined; /* with the next piece: both begin and end together */
    int line;    /* chunk, or the end that the micro-batch came in at */
    int micro;
};

/* Everything that rank `stage` does, in its order; room for ash_plan_pipeline_events pieces. Returns how many. The
 * pipeline is one that ash_plan_pipeline_refuses nothing of. */
int ash_plan_pipeline_order(const struct ash_plan_pipeline *pipeline, int stage, struct ash_plan_task *pieces_out);

#endif
