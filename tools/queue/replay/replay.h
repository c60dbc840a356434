/* replay - a trace under a policy, event by event: waiting times, idle GPUs, lost work. */
#ifndef ASH_QUEUE_REPLAY_H
#define ASH_QUEUE_REPLAY_H

#include "infra/topology/topology.h"
#include "queue/policy/policy.h"
#include "queue/replay/trace.h"

#define ASH_REPLAY_SAMPLES 400
#define ASH_REPLAY_SIZES 12
#define ASH_REPLAY_HEIGHTS 17

struct ash_replay_opts {
    const struct ash_policy_conf *conf;
    const struct ash_topology *topology;
    const struct ash_policy_host *hosts;
    int host_count;
    const struct ash_trace *trace;
    /* the policy's number by the trace's */
    const int *queue_of, *class_of;
    double save_s; /* jobs of more than one host save so often; 0: never */
    bool has_peer_copies;
    double host_mtbf_s, repair_s; /* hosts fail so seldom, and are back after; 0: never */
    double comm_share;   /* of a step of a job on several hosts that is communication, inside one lowest domain */
    double uplink_share; /* of the rate below that a host gets across each further layer */
    int required, group; /* of jobs of several hosts: height, nodes */
    int spares;          /* of jobs of at least 16 hosts */
    uint64_t seed;
};

/* Waits of some of the jobs. */
struct ash_replay_waits {
    size_t jobs;
    double mean_s, median_s, p95_s, max_s;
    double slowdown; /* mean of (wait + run) / max(run, 10 s), at least 1 */
    double gpu_hours;
};

struct ash_replay_sample {
    double time_s, used; /* share of all GPUs */
    int waiting;
};

struct ash_replay_report {
    size_t jobs, refused, finished, unfinished;
    char refused_why[512]; /* of the first */
    double span_s;         /* from the first submission to the last end */
    double submit_span_s;  /* to the last submission */
    double used;           /* share of GPU time until the last submission */
    double stranded;       /* share of GPUs that were free on partly used hosts while jobs waited */
    struct ash_replay_waits all, by_size[ASH_REPLAY_SIZES]; /* 1, 2, 4, ... GPUs */
    struct ash_replay_waits *by_queue, *by_class;           /* as the trace numbers them */
    size_t spread[ASH_REPLAY_HEIGHTS]; /* starts of jobs of several hosts, by height of the domain that held them */
    size_t needless;                   /* of these, that would have fitted a lower domain of the empty cluster */
    double spread_hours;               /* GPU hours more that this cost their steps */
    double stopped_hours, failed_hours, restart_hours; /* GPU hours lost to preemption, failures, starting again */
    size_t starts, backfilled, stops, shrinks, replaced, requeued, failures, passes;
    double jain; /* of the queues' mean slowdowns: 1 where all wait alike */
    struct ash_replay_sample samples[ASH_REPLAY_SAMPLES];
    int sample_count;
};

/* Run all of it. Returns 0 or a negative errno with the reason in err; on 0 the caller finis *report_out. */
int ash_replay(const struct ash_replay_opts *opts, struct ash_replay_report *report_out, struct ash_err *err);
/* Free its members. */
void ash_replay_fini(struct ash_replay_report *report);

/* The openb experiment: jobs come one by one, in a drawn order, to hosts in a drawn order, more of them until their
 * requests are limit times the cluster's GPUs; those that do not fit are dropped, none ends. allocated_out: share of
 * all GPUs at each 1 % that arrived, up to limit (steps = 100 * limit + 1 values). Returns 0 or a negative errno. */
int ash_replay_fill(const struct ash_replay_opts *opts, double limit, double *allocated_out, int steps,
                    struct ash_err *err);

#endif
