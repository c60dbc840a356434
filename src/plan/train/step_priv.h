/* What the files of step share. */
#ifndef ASH_PLAN_STEP_PRIV_H
#define ASH_PLAN_STEP_PRIV_H

#include "plan/train/step.h"

/* Parameters on one rank of the fullest stage, after tensor, pipeline and expert parallelism. */
struct ash_step_params {
    double layers, edge, experts; /* dense parts of layers; embedding and output; routed experts */
    double shard, expert_shard;   /* ranks over which state is spread */
    double one_layer;             /* all of one layer */
};

/* Count the parameters of a checked layout. */
void ash_step_params_of(const struct ash_plan_job *job, const struct ash_layout *layout, struct ash_step_params *out);

#endif
