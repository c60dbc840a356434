/* What the files of step share. */
#ifndef ASH_PLAN_STEP_PRIV_H
#define ASH_PLAN_STEP_PRIV_H

#include "plan/train/comm.h"
#include "plan/train/step.h"

/* Parameters on one rank of the fullest stage, after tensor, pipeline and expert parallelism. */
struct ash_step_params {
    double layers, edge, experts; /* dense parts of layers; embedding and output; routed experts */
    double shard, expert_shard;   /* ranks over which state is spread */
    double one_layer;             /* all of one layer */
};

/* Count the parameters of a checked layout. */
void ash_step_params_of(const struct ash_plan_job *job, const struct ash_layout *layout, struct ash_step_params *out);

/* What the parts of one prediction share. */
struct ash_step_context {
    const struct ash_consts *consts;
    const struct ash_plan_job *job;
    const struct ash_layout *layout;
    const struct ash_stack *stack;
    const struct ash_gpu *gpu;
    struct ash_step_params params;
    struct ash_plan_layer layer, head;
};

/* Ranks that hold copies of the same weights; under DualPipe a rank and its mirror image hold the same two stages. */
double ash_step_copies(const struct ash_layout *layout);
/* The all-gather of one layer's weights among the ranks that share them. */
struct ash_comm ash_step_gather_layer(const struct ash_step_context *ctx);
/* Gathers of weights and scatters of gradients in a backward pass of sharded weights. */
double ash_step_backward_gathers(const struct ash_step_context *ctx);
/* Add the data-parallel traffic that compute does not hide to step->time, and its bytes to step->traffic. */
void ash_step_add_parallel(const struct ash_step_context *ctx, int micro_batches, struct ash_plan_step *step);

#endif
