/* audit - is the NVLink domain the right size for a mixture-of-experts model? Its report: the share of expert traffic
 * that leaves the domain, its cost, what would change it, and at which network the answer flips. */
#ifndef ASH_PLAN_AUDIT_H
#define ASH_PLAN_AUDIT_H

#include "plan/train/dispatch.h"
#include "plan/train/step.h"

#define ASH_AUDIT_DEGREES_MAX 16
#define ASH_AUDIT_CHANGES_MAX 8
#define ASH_AUDIT_SHARES 3 /* 10, 30 and 50 % */

struct ash_audit_job {
    struct ash_plan_job job;
    struct ash_layout layout;     /* checked; ep is the degree in question */
    bool fp8_dispatch, two_level; /* as things are today */
    const double *counts;         /* of tokens per expert, measured; NULL: even */
    struct ash_cluster rack;      /* an UltraServer cluster with as many GPUs; rack.gpus 0: none */
    double fits_share;            /* exposed share of the step up to which it "fits"; 0.1 */
};

/* One EP degree, or one change. */
struct ash_audit_row {
    char name[48];
    struct ash_layout layout;
    struct ash_dispatch_time layer; /* one layer, one way there and back */
    double inner_s, outer_s;        /* of a whole step, before overlap */
    double exposed_s, share;        /* what the step waits for, and its share of the step */
    double step_s, tokens_s_gpu;
    double memory_bytes, capacity_bytes;
    enum ash_plan_recompute recompute;
    bool possible, fits; /* possible: divides; fits: into memory */
};

struct ash_audit {
    struct ash_audit_row now;
    struct ash_audit_row degrees[ASH_AUDIT_DEGREES_MAX]; /* ascending ep */
    size_t degree_count;
    struct ash_audit_row changes[ASH_AUDIT_CHANGES_MAX];
    size_t change_count;
    int passes_at[ASH_AUDIT_SHARES]; /* the first ep whose share is above 10, 30, 50 %; 0: none */
    int fastest;                     /* ep of the shortest step that fits into memory; 0: none fits */
    double fastest_s;                /* its step */
    double flip_bandwidth;           /* bytes/s per GPU at which the share is fits_share; 0: no network does it */
    double bandwidth;                /* bytes/s per GPU today */
};

/* Tokens that chose each expert, as counted: numbers with anything between them, as many as there are experts, into
 * counts. name is for messages. -EINVAL names the text found. */
int ash_audit_routing(const char *text, const char *name, size_t experts, double *counts, struct ash_err *err);
/* Complete a job whose layout is given, with batch sequences per step (0: 16 micro-batches per replica). Returns 0 or
 * -EINVAL; err says what would do. */
int ash_audit_given(struct ash_audit_job *job, double batch, struct ash_err *err);
/* The same with the fastest tp and pp that fit around layout.ep; where nothing fits, with those that need the least
 * memory. */
int ash_audit_choose(const struct ash_consts *consts, struct ash_audit_job *job, double batch, struct ash_err *err);

/* Audit a checked job. -EINVAL for models without experts. */
int ash_audit_run(const struct ash_consts *consts, const struct ash_audit_job *job, struct ash_audit *audit_out,
                  struct ash_err *err);
/* The verdict, which the step time decides, in one line into buf; returns buf. */
const char *ash_audit_verdict(const struct ash_audit_job *job, const struct ash_audit *audit, char *buf,
                              size_t buf_bytes);
/* The i-th limit that this job meets or comes near, or NULL after the last. */
const char *ash_audit_limit(const struct ash_audit_job *job, const struct ash_audit *audit, size_t index);
/* Which dispatcher to try first: a guess from published measurements. */
const char *ash_audit_dispatcher(const struct ash_audit_job *job);

#endif
