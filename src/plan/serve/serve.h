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

/* Replicas that a split may be made of: those that no smaller one replaces. */
#define ASH_SERVE_KINDS_MAX 24
struct ash_serve_kinds {
    struct ash_serve_point prompts[ASH_SERVE_KINDS_MAX], decodes[ASH_SERVE_KINDS_MAX];
    size_t prompt_count, decode_count;
};

/* Replicas of one cut, or a split: replicas of two kinds. */
struct ash_serve_part {
    bool is_split;
    struct ash_serve_point point; /* if unified: one of `replicas` */
    double replicas;
    struct ash_serve_split split; /* else */
    double gpus, requests_s;      /* of all of it */
};

/* What some GPUs run: parts next to each other. */
#define ASH_SERVE_PARTS_MAX 16
struct ash_serve_plan {
    struct ash_serve_part parts[ASH_SERVE_PARTS_MAX];
    size_t count;
    double gpus, machines;        /* in use; rented */
    double tokens_s, requests_s;  /* of all of them */
    double usd_hour, usd_million; /* of the rented machines; needed: at the rate of the arrivals; 0: price unknown */
    bool meets;                   /* the limits */
};

struct ash_serve_advice {
    struct ash_serve_plan whole;  /* the most tokens/s that the cluster gives */
    struct ash_serve_plan needed; /* the fewest machines that answer the arrivals; count 0: none are given */
    double split_gain; /* tokens/s of the best split of the cluster compared with the best unified replicas; 0: none */
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
/* The replicas of points that a split may be made of; none where answers have one token and nothing is decoded. */
void ash_serve_kinds_find(const struct ash_consts *consts, const struct ash_serve_job *job,
                          const struct ash_serve_point *points, size_t count, struct ash_serve_kinds *kinds_out);
/* The split with the most tokens/s on this many GPUs, within the limits if there is one. Returns false if they are too
 * few. */
bool ash_serve_split_find(const struct ash_consts *consts, const struct ash_serve_job *job,
                          const struct ash_serve_kinds *kinds, double gpus, struct ash_serve_split *split_out);
/* The same replicas in other proportions: one for prompts, two, four, ... and the best, with as many for answers as the
 * cluster then holds. Returns how many of at most max were written. */
size_t ash_serve_ratios(const struct ash_consts *consts, const struct ash_serve_job *job,
                        const struct ash_serve_split *best, struct ash_serve_split *splits, size_t max);
/* The best plan over all sums of unified replicas and splits: for the whole cluster, and with the fewest GPUs for the
 * arrivals. More machines never give less than copies of the plan for fewer. points are the cuts of ash_serve_search,
 * split the one of the whole cluster (NULL: none). Returns 0 or -ENOMEM. */
int ash_serve_advise(const struct ash_consts *consts, const struct ash_serve_job *job,
                     const struct ash_serve_point *points, size_t count, const struct ash_serve_kinds *kinds,
                     struct ash_serve_advice *advice_out);
/* "tp8", "dp8 ep8", "tp8 pp2" into buf; returns buf. */
const char *ash_serve_cut(const struct ash_infer *infer, char *buf, size_t buf_bytes);

#endif
