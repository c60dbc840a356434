/* layer - one micro-batch through one layer (the mean of a model's layers) and through the output matrix, on one rank
 * of a layout: seconds by what bounds them. */
#ifndef ASH_PLAN_LAYER_H
#define ASH_PLAN_LAYER_H

#include "plan/consts.h"
#include "plan/train/dispatch.h"
#include "plan/train/layout.h"

struct ash_plan_parts {
    double compute, memory, host; /* of the GPU's own work; host: waits for launches */
    double nvlink, network;       /* exposed tensor-, context- and expert-parallel traffic */
    double awaited;               /* of that traffic: what the host waits for before it launches more; not in the sum */
    double tp_bytes, cp_bytes, ep_bytes; /* that one rank sends to other domains; not in the sum */
};

struct ash_plan_layer {
    struct ash_plan_parts forward, backward; /* backward includes what recompute repeats */
    double dispatch_s;                       /* expert traffic of one layer, both ways, both passes, before overlap */
    double tensor_s;                         /* tensor-parallel traffic of one layer, both passes, before overlap */
    double weight_s;                         /* of backward.compute: gradients of weights */
    double core_compute, core_memory;        /* of forward: attention that writes its scores */
};

/* What one part of a layer does in a forward pass; backward follows from it. */
struct ash_plan_layer_part {
    double forward_gemm_s, backward_gemm_s;
    double weight_gemm_s; /* of backward: gradients of weights */
    double attention_s;
    double elements;      /* moved through memory by element-wise ops, forward */
    double scores;        /* of them: of attention that writes its scores */
    double cast_elements; /* quantised before products in fp8 or less */
    double tensor_bytes;  /* gathered and scattered over tensor-parallel ranks, forward */
    double host_layers;   /* launches, in units of one layer's */
};

/* What of a layer and of the output depends on tp, cp, micro-batch and precision alone: the ranks that experts are
 * spread over and the links change nothing of it. */
struct ash_plan_layer_common {
    struct ash_plan_layer_part attention, dense, ssm, shared;
    struct ash_plan_layer head;
};

/* Seconds of the parts that add up. */
double ash_plan_parts_sum(const struct ash_plan_parts *parts);
/* Add more, times over, to into: all of its fields. */
void ash_plan_parts_add(struct ash_plan_parts *into, const struct ash_plan_parts *more, double times);

/* Expert traffic of one sparse layer and one micro-batch, one way there and one back, before anything hides it. */
void ash_plan_layer_dispatch(const struct ash_consts *consts, const struct ash_plan_job *job,
                             const struct ash_layout *layout, struct ash_dispatch_time *time_out);
/* A layer is predicted in three steps, so that searches can keep what several layouts have in common. The first: the
 * common parts. */
void ash_plan_layer_prepare(const struct ash_consts *consts, const struct ash_plan_job *job,
                            const struct ash_layout *layout, struct ash_plan_layer_common *common_out);
/* The second step: a layer from its common parts, its own experts and its traffic. */
void ash_plan_layer_assemble(const struct ash_consts *consts, const struct ash_plan_job *job,
                             const struct ash_layout *layout, const struct ash_plan_layer_common *common,
                             struct ash_plan_layer *layer_out);
/* The last step: what recomputation repeats, and the host time that the GPU waits for. */
void ash_plan_layer_finish(enum ash_plan_recompute recompute, struct ash_plan_layer *layer);
/* All three steps in one. */
void ash_plan_layer_predict(const struct ash_consts *consts, const struct ash_plan_job *job,
                            const struct ash_layout *layout, enum ash_plan_recompute recompute,
                            struct ash_plan_layer *layer_out);
/* The output matrix and the loss: forward and backward. */
void ash_plan_head_predict(const struct ash_consts *consts, const struct ash_plan_job *job,
                           const struct ash_layout *layout, struct ash_plan_layer *head_out);

#endif
