/* layout - how a training job is cut over GPUs, and the job itself. Plain values. */
#ifndef ASH_PLAN_LAYOUT_H
#define ASH_PLAN_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include "infra/catalog.h"
#include "plan/shape.h"
#include "plan/train/pipeline.h"
#include "plan/train/stack.h"

enum ash_plan_recompute {
    ASH_PLAN_RECOMPUTE_NONE,
    ASH_PLAN_RECOMPUTE_SELECTIVE, /* cheap parts: norms, activations, attention internals */
    ASH_PLAN_RECOMPUTE_FULL,      /* only each layer's input is kept */
    ASH_PLAN_RECOMPUTE_FIT,       /* the least of the above that fits into memory */
};

/* tp * pp * cp * dp = GPUs; experts are spread over ep of the tp * cp * dp ranks of a stage. */
struct ash_layout {
    int dp, tp, pp, cp, ep;
    int etp;    /* tensor-parallel degree inside an expert; 1 unless said */
    int chunks; /* pipeline chunks per rank: 1 is 1F1B, more is interleaved */
    enum ash_plan_schedule schedule;
    int zero;        /* 0 replicas, 1 optimizer, 2 + gradients, 3 + weights are spread over shard ranks */
    int shard;       /* ranks that share one copy of the state; 0: all dp * cp */
    int micro_batch; /* sequences per rank and pass */
    enum ash_plan_recompute recompute;
    enum ash_gpu_precision precision;
    bool offload; /* optimizer state lives in host memory */
};

/* What a placement leaves of the network's rate to the traffic of each axis; 0: all of it. */
struct ash_net_shares {
    double tp, cp, dp, ep, pp;
};

enum ash_tuning { ASH_TUNING_ALL, ASH_TUNING_LORA };

struct ash_plan_job {
    struct ash_shape shape;
    struct ash_cluster cluster;
    double seq_tokens, global_batch; /* sequences */
    double tokens;                   /* to train on in all; 0: unknown */
    enum ash_tuning tuning;
    const struct ash_stack *stack; /* NULL: the fused one */
    bool dedup_dispatch;           /* tokens cross to a node once, whatever the number of experts there */
    bool overlap_dispatch;         /* expert traffic overlaps with another micro-batch's compute */
    bool no_flash;                 /* no kernel fits the heads: scores go through memory, whatever the stack */
    bool fp8_dispatch;             /* tokens travel to their experts in one byte and scales */
    double imbalance;              /* tokens of the fullest rank's experts over the mean; 0: the model's constant */
    bool recompute_some;           /* where all layers need not be recomputed to fit, only as many as must are */
    bool graphs;                   /* kernels are launched by graphs: no host time per layer */
    struct ash_net_shares net;     /* zeroed: a network that is the same everywhere */
};

/* "dp=8,tp=8,pp=4,vpp=5,cp=1,ep=1,zero=1,mbs=1,recompute=full,precision=fp8,schedule=zb-h1,offload" over *layout;
 * or as ash_layout_text writes it: "tp8 pp4x5 cp2 dp8 zero3/64 mbs1 fp8". A degree that is not named stays, dp that is
 * 0 follows from the rest. Unknown words and numbers out of range are -EINVAL. */
int ash_layout_parse(const char *text, struct ash_layout *layout, struct ash_err *err);
/* Can the job run so at all? Divisibility of GPUs, heads, layers, experts and batch; -EINVAL says what would do. Fills
 * dp and etp where they are 0. Memory is not asked here. */
int ash_layout_check(const struct ash_plan_job *job, struct ash_layout *layout, struct ash_err *err);
/* Only what micro-batch, chunks and schedule decide, of a layout whose degrees have passed. */
int ash_layout_check_batch(const struct ash_plan_job *job, const struct ash_layout *layout, struct ash_err *err);
/* "tp8 pp4x5 dp16 zero1 mbs1 full fp8" into buf; returns buf. */
const char *ash_layout_text(const struct ash_layout *layout, char *buf, size_t buf_bytes);
/* "none", "selective", "full" or "fit": static. */
const char *ash_plan_recompute_name(enum ash_plan_recompute recompute);
/* "bf16", "fp8" or "fp4": static. */
const char *ash_plan_precision_name(enum ash_gpu_precision precision);
/* "1f1b", "zb-h1" or "dualpipe": static. */
const char *ash_plan_schedule_name(enum ash_plan_schedule schedule);
/* Does attention never write its scores? */
bool ash_plan_flash(const struct ash_plan_job *job);
/* Is whole a multiple of parts? */
bool ash_divides(double parts, double whole);
/* Micro-batches of one pipeline and step. */
int ash_layout_micro_batches(const struct ash_plan_job *job, const struct ash_layout *layout);

#endif
