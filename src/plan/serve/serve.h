/* serve - how to serve a model on given machines: which cut of a replica, how many requests together, what first
 * tokens, further tokens and a million tokens cost, and whether prompts deserve machines of their own. */
#ifndef ASH_PLAN_SERVE_H
#define ASH_PLAN_SERVE_H

#include "plan/serve/infer_time.h"

struct ash_serve_job {
    struct ash_shape shape;
    struct ash_cluster cluster;
    enum ash_gpu_precision weights, cache, compute;
    double in_tokens, answer_tokens;
    double thinking_tokens;           /* before each answer, not shown */
    double samples;                   /* answers per request, from one prompt */
    double verify_passes;             /* times that each answer is read through for a score */
    double ttft_limit_s, itl_limit_s; /* 0: none */
    double arrivals_s;                /* requests per second that must be answered; 0: as many as the cluster can */
    double usd_gpu_hour;              /* 0: unknown */
    int tp, pp, ep, attn_dp;          /* 0: search */
};

/* One replica at one batch size. */
struct ash_serve_point {
    struct ash_infer infer;
    double batch;                              /* sequences under way */
    double capacity;                           /* sequences whose cache fits */
    double ttft_s, itl_s;                      /* means; ttft with the queue that this throughput brings; itl 0: answers
                                                * have one token, which the prefill pass gives */
    double stall_s;                            /* the longest gap between tokens: a step and a prompt in between */
    double request_s;                          /* from request to the last answer, verified */
    double tokens_s, tokens_s_gpu, requests_s; /* output tokens, thinking included; whole requests */
    double usd_million;                        /* dollars per million output tokens; 0: price unknown */
    double usd_request;
    bool meets; /* the limits */
};

/* Prompts on replicas of their own, caches sent over the network. */
struct ash_serve_split {
    struct ash_serve_point prompt, decode;   /* one replica of each; their rates are in requests_s */
    double prompt_replicas, decode_replicas; /* that the cluster holds in balance */
    bool prompts_wait;                       /* prompt replicas could do more than the decoding ones take */
    double cache_bytes;                      /* sent per request */
    double transfer_s;                       /* over the network of a prompt replica */
    double ttft_s, itl_s;
    double requests_s, tokens_s, tokens_s_gpu, usd_million; /* of all of them */
    bool meets;
};

/* What to do with the whole cluster: unified replicas, or replicas of two kinds where that gives more tokens/s. */
struct ash_serve_advice {
    bool is_disaggregated;
    double replicas;        /* unified ones, or those that decode */
    double prompt_replicas; /* 0 where replicas are unified */
    double tokens_s, requests_s;
    bool meets;
    double split_gain; /* tokens/s of the disaggregated cluster compared with the unified one; 0: no split */
    double replicas_needed, prompt_replicas_needed, gpus_needed, machines_needed; /* for the arrivals; 0: none given */
};

/* Refuse what cannot be: degrees that do not divide, experts of a dense model, a cluster too small for the weights. The
 * sentence says what would be possible. */
int ash_serve_check(const struct ash_consts *consts, const struct ash_serve_job *job, struct ash_err *err);
/* One replica with batch sequences under way. */
void ash_serve_evaluate(const struct ash_consts *consts, const struct ash_serve_job *job, const struct ash_infer *infer,
                        double batch, struct ash_serve_point *point_out);
/* Bytes of cache of one token over all layers, at the cache's precision. */
double ash_serve_cache_bytes(const struct ash_serve_job *job);
/* The best batch of every cut that fits, those that meet the limits first, then by tokens/s per GPU. Returns how many
 * of at most max were written. */
size_t ash_serve_search(const struct ash_consts *consts, const struct ash_serve_job *job,
                        struct ash_serve_point *points, size_t max);
/* The best split with replicas cut like those of points. Returns false where the cluster is too small for two, or
 * where answers have one token and nothing is decoded. */
bool ash_serve_split_find(const struct ash_consts *consts, const struct ash_serve_job *job,
                          const struct ash_serve_point *points, size_t count, struct ash_serve_split *split_out);
/* The same replicas in other proportions: one for prompts, two, four, ... and the best, with as many for answers as the
 * cluster then holds. Returns how many of at most max were written. */
size_t ash_serve_ratios(const struct ash_consts *consts, const struct ash_serve_job *job,
                        const struct ash_serve_split *best, struct ash_serve_split *splits, size_t max);
/* Choose between the best unified replica and the best split (NULL: there is none) by tokens/s of the whole cluster,
 * within the limits where one of them keeps them. */
void ash_serve_advise(const struct ash_serve_job *job, const struct ash_serve_point *best,
                      const struct ash_serve_split *split, struct ash_serve_advice *advice_out);
/* "tp8", "dp8 ep8", "tp8 pp2" into buf; returns buf. */
const char *ash_serve_cut(const struct ash_infer *infer, char *buf, size_t buf_bytes);

#endif
