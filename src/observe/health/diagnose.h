/* diagnose - which part of a cluster is slow or broken, from scrapes of its nodes' exporters and a job's log.
 * One table of rules (diagnose_list.h) is applied to every series, layer by layer from the GPU up. Answers name the
 * first abnormal layer, the node and part, the counter and its normal range; checks found normal; and checks without a
 * result, and why. */
#ifndef ASH_OBSERVE_HEALTH_DIAGNOSE_H
#define ASH_OBSERVE_HEALTH_DIAGNOSE_H

#include <stdbool.h>
#include <stddef.h>
#include "ashlar/err.h"
#include "observe/health/scrape.h"

/* In the order in which they are looked at. */
enum ash_health_layer {
    ASH_HEALTH_GPU,
    ASH_HEALTH_NVLINK,
    ASH_HEALTH_NETWORK,
    ASH_HEALTH_STORAGE,
    ASH_HEALTH_HOST,
    ASH_HEALTH_STEP, /* data loader and stragglers */
    ASH_HEALTH_SOFTWARE,
    ASH_HEALTH_COUNT,
};

/* From bad to worse. A watched finding makes nothing abnormal. */
enum ash_severity { ASH_WATCH, ASH_SLOW, ASH_BROKEN };

/* How a rule looks at its series. limit is the rule's number. */
enum ash_rule_kind {
    ASH_RULE_MAX,       /* the value, or its share of another metric's, above limit */
    ASH_RULE_MIN,       /* ... below limit; a plain 0 is a part where nothing runs, and not judged */
    ASH_RULE_ZERO,      /* a value of 0 */
    ASH_RULE_BITS,      /* a value that has any of limit's bits */
    ASH_RULE_GROWTH,    /* a counter that grew by more than limit between two scrapes */
    ASH_RULE_SHARE,     /* a counter of time that grew by more than limit per second */
    ASH_RULE_TURNOVER,  /* a counter that grew by more than limit times another metric's value per second */
    ASH_RULE_PEER_LOW,  /* a value far below its peers': by a share of the median of at least limit */
    ASH_RULE_PEER_HIGH, /* ... above */
    ASH_RULE_RATE_LOW,  /* a counter's growth, far below its peers' */
    ASH_RULE_RATE_HIGH, /* ... above */
    ASH_RULE_COUNT,     /* a node with fewer of these series than other nodes or than before */
    ASH_RULE_XID,       /* the last XID of a GPU: harmless codes and old ones are only watched */
    ASH_RULE_XID_COUNT, /* a counter of XIDs, label code: those that grew */
    ASH_RULE_OTHER,     /* judged elsewhere, from ranks' steps and calls or a run's folder */
};

/* Metrics of runs and ranks for steps that wait for storage. */
#define ASH_METRIC_DATA_STEP "data_s by step"
#define ASH_METRIC_DATA_WAIT "data wait by step"
#define ASH_METRIC_SAVE "save_s"

struct ash_rule {
    enum ash_health_layer layer;
    enum ash_rule_kind kind;
    enum ash_severity severity;
    const char *metric;
    const char *per;   /* the metric that it is divided by (same node and labels), NULL: none */
    const char *only;  /* "label=value|value" or "label!start|start" (begins with none): its series; NULL: all */
    const char *used;  /* of few nodes only, where this metric (same node and labels) is above 0; NULL: always */
    const char *peers; /* label: only series with the same value of it are peers; NULL: modelName */
    bool busy;         /* only GPUs that work, and nodes that have one or a rank of a job, where any node has */
    bool is_hint;      /* ignored unless steps wait for data or saves: then it is the reason */
    double limit;
    double floor;       /* peers: a distance that is never too far, in the metric's unit */
    const char *normal; /* the normal range, as text */
    const char *means, *action, *source;
};

struct ash_finding {
    enum ash_health_layer layer;
    enum ash_severity severity;
    const char *metric; /* or "log" */
    const char *normal, *means, *action, *source;
    char where[160]; /* node and part: "ip-10-0-0-7 gpu 3" */
    char value[160]; /* the observed value, as text */
    double excess;   /* how far off, for the order of findings that are equally bad */
};

/* What became of a rule. */
enum ash_check_state {
    ASH_CHECK_NORMAL,   /* looked at, nothing found */
    ASH_CHECK_FOUND,    /* there are findings */
    ASH_CHECK_ABSENT,   /* no such series in any scrape */
    ASH_CHECK_SECOND,   /* needs a second scrape */
    ASH_CHECK_SECONDS,  /* needs the time between the scrapes */
    ASH_CHECK_PEERS,    /* too few peers to compare with */
    ASH_CHECK_IDLE,     /* nothing works there */
    ASH_CHECK_UNPAIRED, /* its divisor is missing */
    ASH_CHECK_STEPS,    /* needs more steps of the run */
    ASH_CHECK_CAUSED,   /* another finding is the cause */
    ASH_CHECK_STATES,
};

struct ash_check {
    const struct ash_rule *rule;
    enum ash_check_state state;
    size_t series; /* that were judged */
};

struct ash_diagnose; /* owned by one thread */

/* An empty diagnosis. Returns 0 or -ENOMEM; on 0 the caller owns *diagnose_out. */
int ash_diagnose_open(struct ash_diagnose **diagnose_out, struct ash_err *err);
/* Close it and every scrape that was added. NULL is a no-op. */
void ash_diagnose_close(struct ash_diagnose *diagnose);

/* Add a scrape and take it over, on failure too. node names samples that carry neither Hostname nor instance (unless
 * all that do agree: then it is that node); it is copied. before: an earlier scrape, which is only subtracted. */
int ash_diagnose_add(struct ash_diagnose *diagnose, struct ash_scrape *scrape, const char *node, bool before,
                     struct ash_err *err);
/* Look for the traces that broken software leaves in a log (of NCCL with NCCL_DEBUG=INFO, of CUDA, of the kernel). name
 * is for the findings. */
int ash_diagnose_log(struct ash_diagnose *diagnose, const char *text, size_t size_bytes, const char *name,
                     struct ash_err *err);
/* Findings of a kernel log; equal lines are one finding. name: of the node; is_log: any log, in which only lines with a
 * kernel's beginning count, and XIDs are left to ash_diagnose_log. Returns 0 or -ENOMEM. */
int ash_diagnose_kernel(struct ash_diagnose *diagnose, const char *text, size_t size_bytes, const char *name,
                        bool is_log);
/* Add a finding of another source; its texts are made printable. Returns 0 or -ENOMEM. */
int ash_diagnose_report(struct ash_diagnose *diagnose, const struct ash_finding *finding);
/* Record the result of a check that was made elsewhere; rule is static, of kind ASH_RULE_OTHER. Of two with one rule
 * the worse state counts. Beyond 32 rules they are dropped. */
void ash_diagnose_note(struct ash_diagnose *diagnose, const struct ash_rule *rule, enum ash_check_state state,
                       size_t series);
/* Judge everything that was added; call it once. seconds: between the two scrapes; 0: from node_time_seconds, if it is
 * there. Returns 0 or -ENOMEM. */
int ash_diagnose_run(struct ash_diagnose *diagnose, double seconds, struct ash_err *err);

/* After ash_diagnose_run: findings, worst first. */
size_t ash_diagnose_finding_count(const struct ash_diagnose *diagnose);
/* One of them; index is below ash_diagnose_finding_count. Borrowed. */
const struct ash_finding *ash_diagnose_finding(const struct ash_diagnose *diagnose, size_t index);
/* The finding that the verdict rests on: the worst of the first abnormal layer. NULL: nothing is abnormal. */
const struct ash_finding *ash_diagnose_first(const struct ash_diagnose *diagnose);
/* What became of every rule, in the order of the table. */
size_t ash_diagnose_check_count(const struct ash_diagnose *diagnose);
/* One of them; index is below ash_diagnose_check_count. Borrowed. */
const struct ash_check *ash_diagnose_check(const struct ash_diagnose *diagnose, size_t index);
/* How many nodes the present scrapes name. */
size_t ash_diagnose_nodes(const struct ash_diagnose *diagnose);
/* How many series of the present scrapes were read. */
size_t ash_diagnose_series(const struct ash_diagnose *diagnose);
/* How many lines of the scrapes were no samples. */
size_t ash_diagnose_skipped(const struct ash_diagnose *diagnose);
/* How many lines of logs were read. */
size_t ash_diagnose_log_lines(const struct ash_diagnose *diagnose);
/* How many of these lines show that the network is used as it should be. */
size_t ash_diagnose_log_good(const struct ash_diagnose *diagnose);

/* "GPU", "NVLink", "network", ...: static. */
const char *ash_health_layer_name(enum ash_health_layer layer);
/* "watch", "slow" or "broken": static. */
const char *ash_severity_name(enum ash_severity severity);
/* Why a rule was not judged. */
const char *ash_check_state_text(enum ash_check_state state);

#endif
