/* Shared by the policy's files: hosts with free capacity, jobs, waiting lists, reservations. */
#ifndef ASH_QUEUE_POLICY_PRIV_H
#define ASH_QUEUE_POLICY_PRIV_H

#include "infra/topology/room.h"
#include "queue/policy/policy.h"
#include "queue/policy/quota.h"
#include "queue/policy/share.h"

#define ASH_POLICY_GPU_MILLI 1000

/* A job's part of one host: a bit per GPU. */
struct ash_policy_grant {
    int host;
    uint32_t gpus;
};

/* A job on a host, with a bit per GPU. A shared one is whole again when all have left it. */
struct ash_policy_tenant {
    int job;
    uint32_t gpus;
};

/* Units of a host that a promise holds for a waiting job. */
struct ash_policy_claim {
    int job, units;
    double start_s, end_s;
};

enum ash_policy_job_state { ASH_POLICY_UNUSED, ASH_POLICY_WAITING, ASH_POLICY_RUNNING };

/* A job that waits or runs. */
struct ash_policy_entry {
    struct ash_policy_job job;
    enum ash_policy_job_state state;
    uint64_t seq; /* order of submission */
    double submit_s, start_s;
    double end_s; /* when its time limit is over */
    int heap_at;  /* in the heap of running jobs */
    int held_at;  /* its promise among the reservations; -1: none */
    int usage;    /* of its user in its queue */
    int failures;
    int nodes; /* it runs on, spares not counted: fewer than requested after a shrink */
    struct ash_policy_grant *grants;
    int grant_count; /* nodes, then spares */
    struct ash_policy_wait wait;
    double priority;
    double preempt_from_s,
        preempt_gap_s; /* after an attempt that came to nothing: not before, twice as long each time */
};

struct ash_policy_host_state {
    int64_t cpu_free, memory_free;
    uint16_t gpu_free[ASH_POLICY_HOST_GPUS_MAX]; /* thousandths */
    int whole;                                   /* GPUs that are free and whole */
    int gpu_milli_free;
    uint32_t version; /* changes with every job that comes or goes */
    bool is_up, is_drained;
    struct ash_policy_tenant *jobs; /* that run on it */
    int job_count, job_capacity;
    struct ash_policy_claim *claims;
    int claim_count, claim_capacity;
};

/* Hosts that are held for a job from start_s on. */
struct ash_policy_reservation {
    int job;
    double start_s, end_s;
    int *hosts;
    int host_count, units;
};

/* A user in a queue. */
struct ash_policy_usage {
    int queue, user;
    int node;              /* in the tree of shares */
    int64_t running_milli; /* GPUs */
    double pending_s;      /* GPU-seconds that the tree does not have yet */
    double marked_s;       /* until when pending counts */
};

/* Jobs of one class in the order of submission; -1 where one has left. */
struct ash_policy_lane {
    int *jobs;
    int first, end, capacity, holes;
};

struct ash_policy {
    const struct ash_policy_conf *conf;
    const struct ash_topology *topology;
    const struct ash_policy_host *hosts;
    int host_count, units_max;
    int *host_of_node;
    struct ash_policy_host_state *states;
    /* units are whole free GPUs: now; less what reservations hold; looking ahead; of the empty cluster */
    struct ash_room *room, *held, *future, *whole;
    int *mask;         /* by host: units that jobs which outlast a reservation may take; ASH_ROOM_UNITS_MAX: all */
    int *future_units; /* by host, while looking ahead */
    int64_t gpu_milli_total, gpu_milli_used;

    struct ash_policy_entry *jobs;
    int job_count, job_capacity;
    int *unused; /* numbers of jobs that ended */
    int unused_count;
    uint64_t next_seq;
    struct ash_policy_lane lanes[ASH_POLICY_CLASSES_MAX]; /* by class */
    int class_order[ASH_POLICY_CLASSES_MAX];              /* classes, highest priority first */
    int waiting, running;
    int *fresh, fresh_count, fresh_capacity; /* came since the last pass */
    int *heap;                               /* running jobs by end_s */
    int heap_count;

    struct ash_quota *quota;
    int64_t *queue_used;    /* thousandths of GPUs, with all below */
    int64_t *queue_waiting; /* requested by its waiting jobs */
    double *queue_given;    /* over-quota: its fair share in thousandths */
    bool *is_queue_blocked; /* in this pass */
    int *queue_started;     /* jobs of it, in this pass */
    int64_t class_used[ASH_POLICY_CLASSES_MAX];
    struct ash_policy_usage *usages;
    int usage_count, usage_capacity, *usage_slots;
    size_t usage_slot_count;
    struct ash_share_node *shares; /* root, queues, then users */
    int share_count, share_capacity;
    double shared_s; /* when factors were last set; < 0: never */

    struct ash_policy_reservation *reservations;
    int reservation_count, reservation_capacity;
    double reserved_at_s;    /* when the last one was made */
    double first_reserved_s; /* INFINITY: none */
    int *picked;             /* hosts that a fit found */
    int picked_gpu;          /* to share; -1: the fullest that fits */
    int *order, order_count; /* of this pass */
    int *scratch;            /* as large as the heap */
    struct ash_policy_score *score;
    int futile; /* attempts to preempt in this pass that came to nothing */
    double now_s;
    bool is_out_of_memory;
    bool is_past_reserved; /* in this pass: those that come now may not delay the reservation */
    ash_policy_decide_fn decide;
    void *ctx;
};

/* ---- cluster.c: hosts -------------------------------------------------------------------------------------------- */

/* Build hosts and rooms. Returns 0, -EINVAL or -ENOMEM. */
int ash_policy_cluster_open(struct ash_policy *policy, struct ash_err *err);
/* Free them. */
void ash_policy_cluster_close(struct ash_policy *policy);
/* A host's free units changed: update the rooms. */
void ash_policy_host_refresh(struct ash_policy *policy, int host);
/* Give the job the first count hosts that a fit picked. Returns 0 or -ENOMEM. */
int ash_policy_take(struct ash_policy *policy, int job, int count);
/* Take grants from index `from` on away from the job. */
void ash_policy_give_back(struct ash_policy *policy, int job, int from);
/* Take one grant away, whatever its place. */
void ash_policy_drop_grant(struct ash_policy *policy, int job, int index);
/* Does a job of one host fit on this one now, with its share of a GPU, processors and memory? */
bool ash_policy_host_fits(const struct ash_policy *policy, int host, const struct ash_policy_job *job);

/* ---- fit.c: places ----------------------------------------------------------------------------------------------- */

/* Hosts that job wants. */
int ash_policy_wanted(const struct ash_policy_job *job);
/* Its request of each resource. */
void ash_policy_amount(const struct ash_policy_job *job, int hosts, int64_t amount_out[ASH_POLICY_RESOURCES]);
/* Find hosts for job in room; is_now: room describes the present, so that processors, memory and shares of GPUs count.
 * Returns the number in picked, 0 if it does not fit, -ENOMEM. */
int ash_policy_fit(struct ash_policy *policy, const struct ash_room *room, const struct ash_policy_job *job,
                   bool is_now);

/* ---- score.c: one host by a score -------------------------------------------------------------------------------- */

/* The best host for a job of one host by the policy's placement, and the GPU to share (-1: any). room limits units; -1:
 * none fits. */
int ash_policy_score_host(struct ash_policy *policy, const struct ash_room *room, const struct ash_policy_job *job,
                          int *gpu_out);
/* Free what scores remember. */
void ash_policy_score_close(struct ash_policy *policy);

/* ---- wait.c: waiting jobs ---------------------------------------------------------------------------------------- */

/* Put a job into its lane, by order of submission. Returns 0 or -ENOMEM. */
int ash_policy_lane_add(struct ash_policy *policy, int job);
/* Take it out. */
void ash_policy_lane_remove(struct ash_policy *policy, int job);
/* Fill order with the waiting jobs in the order in which they are looked at, at most depth. Returns 0 or -ENOMEM. */
int ash_policy_sort(struct ash_policy *policy, int depth);
/* Insert into, remove from the heap of running jobs. */
void ash_policy_heap_add(struct ash_policy *policy, int job);
/* Remove it, wherever it is. */
void ash_policy_heap_remove(struct ash_policy *policy, int job);

/* ---- usage.c: usage by user -------------------------------------------------------------------------------------- */

/* The record of a user in a queue, made if there is none. Its index or -ENOMEM. */
int ash_policy_usage_of(struct ash_policy *policy, int queue, int user);
/* A job's GPUs come (1) or go (-1). */
void ash_policy_account(struct ash_policy *policy, int job, int64_t milli, int sign);
/* Bring usage and factors up to now; at most every few minutes, as Slurm does. Returns 0 or -ENOMEM. */
int ash_policy_settle_usage(struct ash_policy *policy);

/* ---- reserve.c --------------------------------------------------------------------------------------------------- */

/* Hold hosts for a job that does not fit: the earliest time that the ends of running jobs allow. There is no other
 * reservation. Returns 1, 0 where no time is known, -ENOMEM. */
int ash_policy_reserve(struct ash_policy *policy, int job);
/* Forget all reservations. */
void ash_policy_release_reservations(struct ash_policy *policy);

/* Make room for one reservation more in the list. Returns 0 or -ENOMEM. */
int ash_policy_reservation_room(struct ash_policy *policy);
/* Of count hosts that were picked in the look ahead: where any will do, those that are busy now come first. */
void ash_policy_prefer_busy(struct ash_policy *policy, const struct ash_policy_job *job, int count);

/* ---- promise.c: conservative backfill ---------------------------------------------------------------------------- */

/* Hosts on which a waiting job can start now with all promises of others kept, in picked. Its own promise ends if there
 * are some. Their number, 0 or -ENOMEM. */
int ash_policy_fit_promised(struct ash_policy *policy, int job);
/* Promise a start to a job that cannot start now: the earliest one, never later than the one that it was promised.
 * Returns 1, 0 where no time is known, -ENOMEM. */
int ash_policy_promise(struct ash_policy *policy, int job);
/* Forget a job's promise, if it has one. */
void ash_policy_break_promise(struct ash_policy *policy, int job);
/* The most units of a host that promises to others hold at one time while job would run, from now on. */
int ash_policy_claimed(const struct ash_policy *policy, int host, int job);
/* After a pass: find the first promised start again. */
void ash_policy_count_promises(struct ash_policy *policy);

/* ---- preempt.c --------------------------------------------------------------------------------------------------- */

/* Stop other jobs until this one fits, and start it. Returns 1, 0 where the rules or the topology do not allow it,
 * -ENOMEM. */
int ash_policy_preempt(struct ash_policy *policy, int job);

/* ---- submit.c ---------------------------------------------------------------------------------------------------- */

/* Could this job ever start? -EINVAL with the reason if not. */
int ash_policy_check(const struct ash_policy *policy, const struct ash_policy_job *job, struct ash_err *err);

/* ---- policy.c ---------------------------------------------------------------------------------------------------- */

/* Start a waiting job on the first count hosts that a fit picked. Returns 0 or -ENOMEM. */
int ash_policy_start(struct ash_policy *policy, int job, int count, enum ash_policy_reason reason);
/* Stop a running job, which waits again. Returns 0 or -ENOMEM. */
int ash_policy_stop(struct ash_policy *policy, int job, uint64_t by, enum ash_policy_act act,
                    enum ash_policy_reason reason);
/* Take hosts beyond keep away from a running job. */
void ash_policy_shrink(struct ash_policy *policy, int job, int keep, uint64_t by);
/* Work that a job loses if it is stopped now, in seconds. */
double ash_policy_lost(const struct ash_policy *policy, const struct ash_policy_entry *entry);

/* Does it give every waiting job a start, on claimed hosts? */
static inline bool ash_policy_promises(const struct ash_policy *policy)
{
    return policy->conf->backfill == ASH_POLICY_BACKFILL_CONSERVATIVE ||
           policy->conf->backfill == ASH_POLICY_BACKFILL_REPLAN;
}

#endif
