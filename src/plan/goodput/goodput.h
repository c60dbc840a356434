/* goodput - what failures leave of a training job's time, under four ways to keep its state: checkpoints to shared
 * storage that stop the job, asynchronous ones, tiers (host memory, peers, local NVMe, then shared storage), and no
 * checkpoints at all but a second copy with the peers.
 *
 * All four are one machine with two levels. A level takes a snapshot after so much work, stops the job for its stall,
 * and the snapshot counts after its lag; a failure falls back to the newest snapshot that counts. The fast level covers
 * a share of the failures, the slow level all of them. Failures are Poisson in time; one may strike during a recovery.
 * That machine is solved by formula (goodput_formula.c) and simulated event by event (goodput_sim.c). */
#ifndef ASH_PLAN_GOODPUT_H
#define ASH_PLAN_GOODPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"

enum ash_goodput_kind {
    ASH_GOODPUT_SYNC,
    ASH_GOODPUT_ASYNC,
    ASH_GOODPUT_TIERED,
    ASH_GOODPUT_PEERS, /* checkpointless */
    ASH_GOODPUT_KINDS
};

/* What the job is, in bytes, seconds and shares. Rates are for the whole cluster unless they say otherwise. */
struct ash_goodput_job {
    double gpus, gpus_per_node;
    double params, bytes_per_param; /* 14: bf16 weights, fp32 master weights, two fp32 moments */
    double step_s;
    double failures_per_gpu_hour;
    double write_bytes_s, read_bytes_s;    /* shared storage */
    double stage_bytes_s;                  /* one GPU to host memory */
    double peer_bytes_s;                   /* one node to another, what training leaves of the network */
    double write_slowdown;                 /* share of speed that a background write takes while it lasts */
    double detect_s, restart_s;            /* until a failure is known; until processes are there again */
    double init_s_per_1k_gpus;             /* communicators of a restarted job */
    double peer_detect_s, peer_recover_s;  /* the same with survivors that keep running */
    double peer_overhead;                  /* share of speed that keeping the second copy takes */
    double uncovered;                      /* share of failures that take the copies with the peers too */
    double replace_share, repair_s;        /* share of failures that cost a node, and how long it is away */
    int64_t spares;                        /* nodes; negative: there is always one */
    double node_ram_bytes, gpu_free_bytes; /* left for copies; 0: not known */
    double dollars_per_gpu_hour;           /* 0: not known */
    double interval_s;                     /* work between checkpoints to shared storage; 0: the best */
};

struct ash_goodput_level {
    double work_s;                      /* between snapshots */
    double stall_s;                     /* the job pauses */
    double lag_s;                       /* until the snapshot counts */
    double slowdown;                    /* of the work during the lag */
    double detect_s, restart_s, load_s; /* of a failure that this level answers */
};

/* One way, ready to be solved or simulated. */
struct ash_goodput_way {
    enum ash_goodput_kind kind;
    bool has_fast;
    double cover; /* share of failures that the fast level answers */
    struct ash_goodput_level fast, slow;
    double overhead; /* share of speed, always */
    double mtbf_s;   /* of the whole job */
    double replace_share, repair_s;
    int64_t spares;
};

/* Where the time goes; the parts add up to 1. */
struct ash_goodput_shares {
    double useful, overhead, stall, detect, restart, load, redone, waiting;
};

struct ash_goodput_result {
    struct ash_goodput_shares shares;
    double first_order;     /* goodput by the sum of small losses, as one does on paper */
    double young_s, daly_s; /* the textbook intervals of the slow level; 0 where its stall is none */
};

struct ash_goodput_sim {
    struct ash_goodput_shares shares;
    double error;     /* standard error of shares.useful */
    double low, high; /* 5th and 95th percentile over runs of window_s seconds */
    double window_s;
    uint64_t failures, runs, events; /* events: that it took to simulate */
};

struct ash_goodput_memory {
    double state_bytes;         /* of the whole job */
    double host_bytes_per_node; /* copies in host memory */
    double nvme_bytes_per_node;
    double hbm_bytes_per_gpu; /* the optimizer's second copy */
    bool fits;                /* as far as the job says what there is */
};

/* Two ways are equal at this failure rate; below it the first is better. */
struct ash_goodput_break_even {
    bool exists;
    double failures_per_gpu_hour, mtbf_s, gpus; /* gpus: at the job's own failure rate */
};

/* "sync", "async", "tiered", "checkpointless". */
const char *ash_goodput_name(enum ash_goodput_kind kind);
/* Refuse jobs that cannot be. Returns 0 or -EINVAL with a sentence. */
int ash_goodput_check(const struct ash_goodput_job *job, struct ash_err *err);
/* Describe one way of a checked job, its intervals in whole steps: the best ones, or the job's. */
void ash_goodput_plan(const struct ash_goodput_job *job, enum ash_goodput_kind kind, struct ash_goodput_way *way_out);
/* Solve. Pure arithmetic, exact but for what happens during the slow level's own stalls. */
void ash_goodput_solve(const struct ash_goodput_way *way, struct ash_goodput_result *result_out);
/* Simulate 8 or more (usually 32 or more) runs of about run_s seconds or less, one after the other, until about
 * wanted_failures have happened; fewer if that would take more than about max_events events. The same seed gives the
 * same result. */
void ash_goodput_simulate(const struct ash_goodput_way *way, double run_s, double wanted_failures, double max_events,
                          uint64_t seed, struct ash_goodput_sim *sim_out);
/* Bytes that one way keeps in addition to the state itself, and whether there is room. */
void ash_goodput_memory_of(const struct ash_goodput_job *job, enum ash_goodput_kind kind,
                           struct ash_goodput_memory *memory_out);
/* Where does b overtake a as failures become more frequent? */
void ash_goodput_break_even_of(const struct ash_goodput_job *job, enum ash_goodput_kind a, enum ash_goodput_kind b,
                               struct ash_goodput_break_even *even_out);

#endif
