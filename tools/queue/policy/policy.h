/* policy - which job starts where and when, by rules that Slurm, Kueue, Volcano and KAI have. Events go in (a job
 * comes, ends, a host fails), decisions with reasons come out. No clock, socket or thread: time comes from the events,
 * in seconds, and never runs backwards. One owner thread. */
#ifndef ASH_QUEUE_POLICY_H
#define ASH_QUEUE_POLICY_H

#include "infra/topology/topology.h"
#include "queue/policy/conf.h"

#define ASH_POLICY_HOST_GPUS_MAX 16

struct ash_policy;

/* A host of the cluster. */
struct ash_policy_host {
    int node;                      /* in the topology */
    int gpus;                      /* 0 to ASH_POLICY_HOST_GPUS_MAX */
    int model;                     /* of its GPUs, 0 to 63 */
    int64_t cpu_milli, memory_mib; /* 0: not counted */
};

/* A job's request. Hosts are different ones. */
struct ash_policy_job {
    uint64_t key; /* the caller's, comes back in decisions */
    int queue, class;
    int user;
    int nodes, min_nodes;          /* min_nodes: it can run on fewer; 0: it cannot */
    int spares;                    /* hosts more, idle until one fails */
    int gpus;                      /* of every host */
    int gpu_milli;                 /* of its GPU where gpus is 1; 1000: all of it */
    int64_t cpu_milli, memory_mib; /* of its host; only for jobs of one host */
    uint64_t models;               /* of acceptable GPUs, by bit; 0: any; only for jobs of one host */
    double limit_s;                /* time limit */
    int required, preferred;       /* height of the domain that must, should hold it; 0: any */
    int group;                     /* this many nodes share a domain of the preferred height (or the lowest); 0 */
    double save_s;                 /* between saves; 0: it never saves */
    bool has_peer_copies;          /* a stop or a failure loses no work */
};

enum ash_policy_act {
    ASH_POLICY_START,
    ASH_POLICY_STOP,    /* preempted: goes back to the queue */
    ASH_POLICY_SHRINK,  /* preempted in part: keeps hosts */
    ASH_POLICY_REPLACE, /* a host failed, a spare took over: has hosts */
    ASH_POLICY_REQUEUE, /* a host failed and too few are left */
};

enum ash_policy_reason {
    ASH_POLICY_FITS,          /* in its turn */
    ASH_POLICY_BACKFILLED,    /* before its turn, delaying no other job */
    ASH_POLICY_BY_PREEMPTION, /* after others were stopped for it */
    ASH_POLICY_PRIORITY,      /* stopped by a higher class of the same queue */
    ASH_POLICY_RECLAIMED,     /* stopped because its queue borrowed */
    ASH_POLICY_HOST_FAILED,
    ASH_POLICY_WAITS_HOSTS,  /* too few hosts are free */
    ASH_POLICY_WAITS_DOMAIN, /* enough are free, in no domain that will do */
    ASH_POLICY_WAITS_QUOTA,  /* the queue's quota and borrowing limit are used up */
    ASH_POLICY_WAITS_CAP,    /* a cap of its queue or user */
    ASH_POLICY_WAITS_TURN,   /* others go first */
    ASH_POLICY_REASONS
};

struct ash_policy_decision {
    enum ash_policy_act act;
    enum ash_policy_reason reason;
    uint64_t key, by; /* the job; the one it makes room for */
    const int *hosts; /* it now has, by index of host; borrowed for the call; spares last */
    int host_count;
    double lost_s; /* of work, for STOP, SHRINK, REPLACE and REQUEUE */
};

/* Called for every decision, in order. It must not call back into the policy. */
typedef void (*ash_policy_decide_fn)(void *ctx, const struct ash_policy_decision *decision);

/* conf, topology and hosts (host_count of them, all up) are borrowed until close; conf's queues and classes do not
 * change. On 0 the caller owns *policy_out. */
int ash_policy_open(const struct ash_policy_conf *conf, const struct ash_topology *topology,
                    const struct ash_policy_host *hosts, int host_count, struct ash_policy **policy_out,
                    struct ash_err *err);
/* NULL and half-built ones are fine. */
void ash_policy_close(struct ash_policy *policy);
/* Set the callback. */
void ash_policy_listen(struct ash_policy *policy, ash_policy_decide_fn decide, void *ctx);

/* A job comes. Returns its number, which later calls take until it ends; -EINVAL with the reason in err if it can never
 * start (and possible requests); -ENOMEM. */
int ash_policy_submit(struct ash_policy *policy, const struct ash_policy_job *job, double now_s, struct ash_err *err);
/* A waiting or running job is over; its number may be used again. */
void ash_policy_end(struct ash_policy *policy, int job, double now_s);
/* A running job failed by its own fault and waits again, from its last save. */
void ash_policy_fail(struct ash_policy *policy, int job, double now_s);
/* A host fails (jobs on it take a spare, shrink or wait again), is drained (they continue), or is back. */
void ash_policy_host_down(struct ash_policy *policy, int host, double now_s);
/* No new jobs on it. */
void ash_policy_host_drain(struct ash_policy *policy, int host);
/* It takes jobs again. */
void ash_policy_host_up(struct ash_policy *policy, int host);

/* Decide what starts now. Returns 0 or -ENOMEM. */
int ash_policy_pass(struct ash_policy *policy, double now_s);
/* The same for jobs that came since the last pass, where nothing became free since: others cannot start either. */
int ash_policy_pass_new(struct ash_policy *policy, double now_s);

/* Why a waiting job waits, as the last pass saw it, and when it would start if nothing ends early (< 0: not known). */
struct ash_policy_wait {
    enum ash_policy_reason reason;
    double start_s;
    uint64_t holder; /* the job whose end it waits for; UINT64_MAX: none in particular */
    int missing;     /* hosts, or thousandths of GPUs of quota */
};

/* Look at a waiting job. */
struct ash_policy_wait ash_policy_why(const struct ash_policy *policy, int job);
/* A job's priority and its terms, each factor times its weight, as Slurm's sprio lists them. */
struct ash_policy_priority {
    double sum, class, age, size, fair_share;
};

/* As of the last event. Fair share is that of the last pass. */
struct ash_policy_priority ash_policy_priority_of(const struct ash_policy *policy, int job);

/* A kind of request and how often it is made. */
struct ash_policy_typical {
    struct ash_policy_job job; /* GPUs, share, processors, models */
    double count;
};

/* Set the typical jobs of fragmentation gradient descent; without them nothing counts as a fragment. typical is sorted.
 * Once, before jobs come. Returns 0 or -ENOMEM. */
int ash_policy_set_typical(struct ash_policy *policy, struct ash_policy_typical *typical, int count);

/* ---- looks at the whole ------------------------------------------------------------------------------------------ */

struct ash_policy_state {
    int waiting, running;
    int64_t gpu_milli_total, gpu_milli_used; /* of hosts that are up; held by jobs, spares included */
    int64_t gpu_milli_stranded;              /* free, on hosts where a whole-host job would not fit */
    double reserved_s;                       /* when the first reservation starts; < 0: none */
    uint64_t reserved_key;
};

/* Counts of now. */
struct ash_policy_state ash_policy_look(const struct ash_policy *policy);
/* The height of the domain that holds all hosts of a running job; 0: one host. */
int ash_policy_spread(const struct ash_policy *policy, int job);
/* GPUs (thousandths) that a queue's jobs hold. */
int64_t ash_policy_queue_used(const struct ash_policy *policy, int queue);

#endif
