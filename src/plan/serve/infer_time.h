/* infer_time - serving from first principles: what a prefill and a decode pass cost on tp x pp GPUs, how many requests
 * fit, and what throughput follows. `plan serve` and `plan validate` share it. */
#ifndef ASH_PLAN_INFER_TIME_H
#define ASH_PLAN_INFER_TIME_H

#include <stdbool.h>
#include "infra/catalog.h"
#include "plan/consts.h"
#include "plan/shape.h"

/* One replica of a model on GPUs of one kind. */
struct ash_infer {
    struct ash_shape shape;
    struct ash_cluster cluster; /* the machines: how many GPUs the replica takes follows from the degrees below */
    int tp, pp, ep;             /* ep 1: experts are cut like everything else by tp */
    int attn_dp;                /* groups that split requests for attention, cut inside by the rest; 1: none */
    enum ash_gpu_precision weights, cache, compute; /* compute: of matrix products */
};

/* GPUs of the replica: the largest of tp, attn_dp and ep, times pp. */
int ash_infer_gpus(const struct ash_infer *infer);
/* Bytes of weights on one GPU of the replica. */
double ash_infer_weight_bytes(const struct ash_infer *infer);
/* Bytes of a GPU's memory that a plan may fill with weights and caches, as in training: not what fragments, nor what
 * the libraries take. */
double ash_infer_usable_bytes(const struct ash_consts *consts, const struct ash_gpu *gpu);
/* Requests of context_tokens whose cache fits on the replica together with the weights; 0: the weights do not fit. */
double ash_infer_requests(const struct ash_consts *consts, const struct ash_infer *infer, double context_tokens);

struct ash_infer_time {
    double compute, memory, nvlink, network, host; /* seconds of one pass, adding up to total */
    double total;
};

/* One pass over batch sequences of new_tokens each that see context_tokens before them: new_tokens 1 is a decode step,
 * more is prefill. Logits are made for the last token of each. */
void ash_infer_pass(const struct ash_consts *consts, const struct ash_infer *infer, double batch, double new_tokens,
                    double context_tokens, struct ash_infer_time *time_out);

/* Seconds to prefill new_tokens of each request after context_tokens that are cached, in passes of whole chunks. */
double ash_infer_prefill(const struct ash_consts *consts, const struct ash_infer *infer, double requests,
                         double new_tokens, double context_tokens);

struct ash_infer_load {
    double in_tokens, out_tokens;
    double concurrency; /* requests under way; 0: as many as fit into memory, at most requests */
    double requests;    /* in all, there from the start unless they arrive; 0: without end */
    double arrivals_s;  /* requests that come per second by themselves; 0: as many as can be under way */
    bool continuous; /* in-flight batching with chunked prefill; else a batch is prefilled, then decoded to its end */
};

struct ash_infer_rate {
    double concurrency;                    /* that was reached */
    double out_tokens_s, out_tokens_s_gpu; /* of the replica, of one GPU */
    double ttft_s, tpot_s;                 /* mean, without queueing before the first pass */
    double requests_s;
    bool fits;
    bool saturated; /* more comes than can be answered */
};

/* What a replica does under a steady load. */
void ash_infer_predict(const struct ash_consts *consts, const struct ash_infer *infer,
                       const struct ash_infer_load *load, struct ash_infer_rate *rate_out);

#endif
