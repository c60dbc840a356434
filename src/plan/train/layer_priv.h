/* layer_priv - what layer.c and layer_traffic.c share: the context of a layer, and its traffic. */
#ifndef ASH_PLAN_LAYER_PRIV_H
#define ASH_PLAN_LAYER_PRIV_H

#include "plan/train/layer.h"

#define ASH_PLAN_ACTIVATION_BYTES 2.0

/* Where a layer is predicted. */
struct ash_plan_layer_context {
    const struct ash_consts *consts;
    const struct ash_plan_job *job;
    const struct ash_layout *layout;
    const struct ash_stack *stack;
    const struct ash_gpu *gpu;
    double tokens;     /* of one micro-batch on one rank, before tensor parallelism splits widths */
    double norm_split; /* ranks that share norms and residuals */
};

/* Rows of the fullest rank's experts, compared with the mean. */
static inline double ash_plan_imbalance(const struct ash_consts *consts, const struct ash_plan_job *job)
{
    return job->imbalance > 0 ? job->imbalance : consts->moe_imbalance;
}

/* layer_traffic.c: add the tensor-parallel traffic of a part that `share` of the model's layers have. */
void ash_plan_layer_add_tensor_traffic(const struct ash_plan_layer_context *ctx, const struct ash_plan_layer_part *part,
                                       double share, struct ash_plan_layer *layer);
/* The same for context parallelism: keys and values travel around the ring of ranks while attention computes. */
void ash_plan_layer_add_context_traffic(const struct ash_plan_layer_context *ctx,
                                        const struct ash_plan_layer_part *part, double share,
                                        struct ash_plan_layer *layer);
/* The same for experts: tokens are dispatched and combined in the forward pass, and again in the backward pass. */
void ash_plan_layer_add_expert_traffic(const struct ash_plan_layer_context *ctx, double share,
                                       struct ash_plan_layer *layer);

#endif
