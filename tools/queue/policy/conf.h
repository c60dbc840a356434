/* conf - a scheduling policy's configuration: classes, queues with quotas, weights, backfill, preemption, placement.
 * Read from YAML or taken by name; plain data, no behaviour. */
#ifndef ASH_QUEUE_POLICY_CONF_H
#define ASH_QUEUE_POLICY_CONF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"

#define ASH_POLICY_NAME_BYTES 64
#define ASH_POLICY_CLASSES_MAX 32
#define ASH_POLICY_QUEUES_MAX 8192
#define ASH_POLICY_LEVELS_MAX 16
#define ASH_POLICY_UNLIMITED INT64_MAX

/* Counted resources. GPUs and processors in thousandths, memory in MiB. */
enum ash_policy_resource { ASH_POLICY_GPU, ASH_POLICY_CPU, ASH_POLICY_MEMORY, ASH_POLICY_RESOURCES };

enum ash_policy_backfill {
    ASH_POLICY_BACKFILL_NONE,         /* the first job that does not fit holds up all after it */
    ASH_POLICY_BACKFILL_GREEDY,       /* whatever fits starts; a large job may wait for ever */
    ASH_POLICY_BACKFILL_EASY,         /* the first that does not fit gets a reservation that no later job delays */
    ASH_POLICY_BACKFILL_CONSERVATIVE, /* all within depth are promised a start, which only moves forward */
    ASH_POLICY_BACKFILL_REPLAN,       /* the same, replanned in every pass: Slurm's */
};

enum ash_policy_fair {
    ASH_POLICY_FAIR_NONE,
    ASH_POLICY_FAIR_MULTIFACTOR, /* Slurm's classic factor: 2^-(usage / shares) */
    ASH_POLICY_FAIR_TREE,        /* Slurm's fair tree: rank by level */
    ASH_POLICY_FAIR_DOMINANT,    /* Kueue: borrowed over lendable of the dominant resource, over weight */
    ASH_POLICY_FAIR_OVER_QUOTA,  /* KAI: deserved first, the rest by over-quota weight */
};

enum ash_policy_placement {
    ASH_POLICY_PLACE_PACK,   /* fewest GPUs left over, fullest domain; whole hosts close together */
    ASH_POLICY_PLACE_RANDOM, /* the next six: one host by a score, as the openb experiment has them */
    ASH_POLICY_PLACE_DOT_PRODUCT,
    ASH_POLICY_PLACE_CLUSTERING,
    ASH_POLICY_PLACE_GPU_PACKING,
    ASH_POLICY_PLACE_BEST_FIT,
    ASH_POLICY_PLACE_FGD,     /* fragmentation gradient descent, in scores of 0 to 100 */
    ASH_POLICY_PLACE_FGD_FIT, /* the same in half as many steps, and of equals the fullest host */
};

/* Whose running jobs a waiting one may stop. */
enum ash_policy_reclaim { ASH_POLICY_RECLAIM_NEVER, ASH_POLICY_RECLAIM_LOWER, ASH_POLICY_RECLAIM_ANY };

enum ash_policy_victims {
    ASH_POLICY_VICTIMS_ORDER,    /* borrowers, then lowest priority, then newest */
    ASH_POLICY_VICTIMS_CHEAPEST, /* borrowers, then lowest priority, then least work lost */
};

struct ash_policy_class {
    char name[ASH_POLICY_NAME_BYTES];
    double priority;
    bool is_preemptible, may_preempt;
};

/* A queue, account or cohort: one tree. Jobs go to leaves. Amounts by resource; ASH_POLICY_UNLIMITED: no limit. */
struct ash_policy_queue {
    char name[ASH_POLICY_NAME_BYTES];
    int parent;    /* index of an earlier queue; -1: none above */
    double shares; /* Slurm's shares among siblings */
    double weight; /* fair sharing (Kueue), over quota (KAI) */
    int64_t nominal[ASH_POLICY_RESOURCES], borrow[ASH_POLICY_RESOURCES], lend[ASH_POLICY_RESOURCES];
    int64_t gpus_max, user_gpus_max, job_gpus_max; /* thousandths: of all its jobs, of one user, of one job */
    bool has_quota;                                /* nominal means something */
    bool is_strict;                                /* its jobs start in order, or not yet */
};

struct ash_policy_conf {
    char name[ASH_POLICY_NAME_BYTES];
    struct ash_policy_class classes[ASH_POLICY_CLASSES_MAX];
    int class_count; /* at least 1 */
    struct ash_policy_queue *queues;
    int queue_count; /* at least 1 */
    /* priority = class · its priority over the highest + age · … + size · … + fair share · … */
    double class_weight, age_weight, size_weight, fair_weight;
    double age_max_s;   /* age counts up to this */
    double half_life_s; /* of usage; 0: usage is never forgotten */
    bool favors_small;
    enum ash_policy_fair fair;
    enum ash_policy_backfill backfill;
    int depth;         /* waiting jobs that one pass looks at */
    double interval_s; /* between passes when many wait */
    int queue_starts;  /* of a queue in one pass, which then come by the interval alone, as Kueue's cycles; 0: any */
    enum ash_policy_placement placement;
    bool is_topology_blind;                 /* hosts are taken in order, wherever they are */
    enum ash_policy_reclaim within, cohort; /* stop jobs of one's own queue; of others that borrow */
    enum ash_policy_victims victims;
    double protect_s;    /* a job that ran less than this is not stopped */
    double run_max_s;    /* the longest time limit; 0: any */
    int failures_max;    /* a job that failed so often stops no other */
    double turnaround_s; /* from a job's end to the next start on its hosts: epilog, prolog, the scheduler's own time */
    double restart_s;    /* from being stopped or failing to computing again, after its next start */
    char levels[ASH_POLICY_LEVELS_MAX][ASH_POLICY_NAME_BYTES]; /* names of domains from the lowest up */
    int level_count;
    uint64_t seed; /* of draws among equals */
};

/* A named policy: fifo, greedy, easy, conservative, slurm, kueue, kai, ashlar. One class, one queue. -ENOENT names them
 * all. On 0 the caller owns conf_out's queues (fini). */
int ash_policy_conf_preset(const char *name, struct ash_policy_conf *conf_out, struct ash_err *err);
/* Read YAML: `preset:` first, then what differs. -EINVAL names the wrong key and its values. The same. */
int ash_policy_conf_parse(const char *text, size_t size_bytes, const char *name, struct ash_policy_conf *conf_out,
                          struct ash_err *err);
/* A preset by name, else the same from a file (one that is called like a preset: ./easy). */
int ash_policy_conf_open(const char *path, struct ash_policy_conf *conf_out, struct ash_err *err);
/* Free its members. A zeroed conf is fine. */
void ash_policy_conf_fini(struct ash_policy_conf *conf);
/* The queue of that name, -1: none. */
int ash_policy_conf_queue(const struct ash_policy_conf *conf, const char *name);
/* The class of that name, -1: none. */
int ash_policy_conf_class(const struct ash_policy_conf *conf, const char *name);
/* Append a queue below parent with no limits, 1 share and weight 1. Its index, -EINVAL (name taken, too many) or
 * -ENOMEM. */
int ash_policy_conf_add_queue(struct ash_policy_conf *conf, const char *name, int parent, struct ash_err *err);
/* Names of the enums above, NULL-terminated, in their order. */
extern const char *const ash_policy_backfill_names[],
    *const ash_policy_fair_names[], *const ash_policy_place_names[], *const ash_policy_reclaim_names[],
                                                                         *const ash_policy_victims_names[],
                                                                             *const ash_policy_preset_names[];

#endif
