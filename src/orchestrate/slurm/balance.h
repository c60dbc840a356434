/* balance - which elastic job gives nodes to a job of a higher class that waits, and which gets idle ones back. From
 * what squeue and sinfo print; no program is run here. */
#ifndef ASH_ORCHESTRATE_SLURM_BALANCE_H
#define ASH_ORCHESTRATE_SLURM_BALANCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"

#define ASH_BALANCE_NAME_BYTES 128
/* squeue's fields, by the break of usage.h: id, state, reason, nodes, partition, QOS, hosts, comment. */
#define ASH_BALANCE_BREAK "\x1f"
#define ASH_BALANCE_FORMAT "%i\x1f%T\x1f%r\x1f%D\x1f%P\x1f%q\x1f%N\x1f%k"
/* The comment of nodes that were added to a job: then its id, a space, and the job's own comment. */
#define ASH_BALANCE_JOINS "ashlar joins="

struct ash_balance_job {
    char id[ASH_BALANCE_NAME_BYTES], partition[ASH_BALANCE_NAME_BYTES], qos[ASH_BALANCE_NAME_BYTES];
    char joins[ASH_BALANCE_NAME_BYTES]; /* it is nodes of that job; "": a job itself */
    char *hosts;                        /* as Slurm writes them; owned */
    char *comment;                      /* owned */
    const char *out;                    /* folder of the run, in the comment; NULL: none */
    bool runs, waits;                   /* waits: for nodes, and for nothing else */
    size_t nodes, least, most;          /* most 0: it is not elastic */
    int64_t rank;                       /* of its class: the higher one is served first */
};

/* A node of a partition that nobody has. */
struct ash_balance_node {
    char name[ASH_BALANCE_NAME_BYTES], partition[ASH_BALANCE_NAME_BYTES];
};

/* Zero-initialise; free with ash_balance_free. */
struct ash_balance {
    struct ash_balance_job *jobs; /* in the order of the queue */
    struct ash_balance_node *idle;
    size_t job_count, job_capacity, idle_count, idle_capacity;
};

enum ash_balance_verb { ASH_BALANCE_NOTHING, ASH_BALANCE_GIVE, ASH_BALANCE_GROW };

/* One change: so many nodes of jobs[job] for jobs[heir], or so many more for it. */
struct ash_balance_change {
    enum ash_balance_verb verb;
    size_t job, heir, nodes;
};

/* May this job change now (budget, hysteresis)? */
typedef bool (*ash_balance_may_fn)(void *ctx, const struct ash_balance_job *job, enum ash_balance_verb verb);

/* Read the lines of squeue and those of sinfo (node|partition|state). Ranks are 0. Returns 0, -ENOMEM, or -EINVAL for a
 * line that is none. */
int ash_balance_read(struct ash_balance *balance, const char *queue, const char *nodes, struct ash_err *err);
/* The nodes that a job has, with those that were added to it. */
size_t ash_balance_all_nodes(const struct ash_balance *balance, const struct ash_balance_job *job);
/* The next change. Nodes are only given where they are enough for the first job that waits, and nothing grows where one
 * waits; may says no for changes too early. any: classes do not matter. */
struct ash_balance_change ash_balance_decide(const struct ash_balance *balance, bool any, ash_balance_may_fn may,
                                             void *ctx);
/* Frees what it holds. */
void ash_balance_free(struct ash_balance *balance);

#endif
