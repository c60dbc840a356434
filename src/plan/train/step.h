/* step - one training step of a job in a layout: memory per GPU by part, time by part, and what bounds it. */
#ifndef ASH_PLAN_STEP_H
#define ASH_PLAN_STEP_H

#include "plan/consts.h"
#include "plan/train/layer_memo.h"
#include "plan/train/layout.h"
#include "plan/train/pipeline.h"

/* Bytes on the fullest GPU. */
struct ash_step_memory {
    double weights, gradients, optimizer, activations, buffers;
    double total, capacity; /* capacity: what may be used of the GPU's memory */
    double host;            /* bytes of host memory per GPU (offload) */
};

/* Seconds of one step, adding up to total. Communication is what compute does not hide. */
struct ash_step_time {
    double compute;   /* matrix products and attention, at the rate of their shapes */
    double memory;    /* element-wise passes, normalisation, quantisation, logits: bound by HBM */
    double host;      /* the GPU waits for kernel launches */
    double nvlink;    /* exposed traffic inside the NVLink domain */
    double network;   /* exposed traffic between domains */
    double bubble;    /* idle in the pipeline */
    double optimizer; /* update, and transfers of offloaded state */
    double data;      /* input and bookkeeping once per step */
    double jitter;    /* waiting for the slowest of many */
    double total;
};

/* Bytes of one step that one GPU of the busiest stage sends to other NVLink domains, by the axis they serve. */
struct ash_step_traffic {
    double tp, cp, dp, ep, pp;
};

struct ash_plan_step {
    enum ash_plan_recompute recompute; /* what ASH_PLAN_RECOMPUTE_FIT came to */
    int micro_batches;                 /* per pipeline and step */
    bool fits;
    struct ash_step_memory memory;
    struct ash_step_time time;
    struct ash_step_traffic traffic;
    double tokens_s, tokens_s_gpu;
    double model_flops; /* per token, forward and backward, causal */
    double mfu;         /* of the datasheet peak of the layout's precision, causal attention, no recomputation */
    /* one layer of one micro-batch, for timelines and audits, in seconds */
    double layer_forward, layer_backward, layer_dispatch, layer_tp;
    double stage_forward, stage_backward, p2p; /* one chunk of the busiest pipeline stage */
    double bubble_least;                       /* that simulating the pipeline leaves at least */
};

/* Predict. layout must have passed ash_layout_check. simulate runs the pipeline event by event; without it a closed
 * formula serves (searches). Never fails: a layout that does not fit says so in fits. */
void ash_step_predict(const struct ash_consts *consts, const struct ash_plan_job *job, const struct ash_layout *layout,
                      bool simulate, struct ash_plan_step *step_out);
/* The same with layers that memo (may be NULL) remembers from other layouts of this job. */
void ash_step_predict_memo(const struct ash_consts *consts, const struct ash_plan_job *job,
                           const struct ash_layout *layout, bool simulate, struct ash_plan_layer_memo *memo,
                           struct ash_plan_step *step_out);
/* Seconds that no prediction of this layout stays below: the work of one stage and the way to it and back, nothing
 * recomputed that need not be. Much cheaper than predicting. */
double ash_step_least(const struct ash_consts *consts, const struct ash_plan_job *job, const struct ash_layout *layout,
                      struct ash_plan_layer_memo *memo);
/* Seconds of the gathers and scatters of one micro-batch where weights are spread over ranks (ZeRO 3), which no overlap
 * makes shorter; 0 where they are not. Depends on neither micro-batch nor schedule. */
double ash_step_gathers(const struct ash_consts *consts, const struct ash_plan_job *job,
                        const struct ash_layout *layout);
/* What ASH_PLAN_RECOMPUTE_FIT comes to: the least that fits, nothing where not even all of it helps. */
enum ash_plan_recompute ash_step_recompute(const struct ash_consts *consts, const struct ash_plan_job *job,
                                           const struct ash_layout *layout);
/* Simulate the pipeline of one step with this many micro-batches: its seconds, 0 where memory is short. events_out has
 * room as for ash_plan_pipeline_run. */
double ash_step_timeline(const struct ash_consts *consts, const struct ash_plan_job *job,
                         const struct ash_layout *layout, int micro_batches,
                         struct ash_plan_pipeline_event *events_out);
/* Only the memory, for recompute as given (not ASH_PLAN_RECOMPUTE_FIT). */
void ash_step_memory_of(const struct ash_consts *consts, const struct ash_plan_job *job,
                        const struct ash_layout *layout, enum ash_plan_recompute recompute,
                        struct ash_step_memory *memory_out);

#endif
