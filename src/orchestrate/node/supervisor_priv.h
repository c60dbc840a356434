/* Shared by the supervisor's files: one start of a node's processes under supervision. */
#ifndef ASH_ORCHESTRATE_NODE_SUPERVISOR_PRIV_H
#define ASH_ORCHESTRATE_NODE_SUPERVISOR_PRIV_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>

#include "orchestrate/node/supervisor.h"

/* One process over its restarts. */
struct ash_life {
    uint64_t start_ns, again_ns; /* when it was started, and when it is to be restarted; 0: not */
    size_t failures;             /* in a row, after a short life */
    bool is_placed;              /* it is a rank of the job */
    bool is_dropped;             /* killed, because it waits in vain */
    bool is_likewise;            /* same exit as the first failure; reported once, at the end */
};

struct ash_node_watch {
    const struct ash_supervisor *supervisor;
    struct ash_process_job job; /* its words are those of this start */
    struct ash_process *processes;
    struct ash_life *lives; /* as processes */
    struct pollfd *polls;
    pid_t *groups; /* of each node: its first process's id */
    size_t node_count, running;
    int code;           /* of the first failure; 0: none */
    size_t failed_rank; /* whose that was */
    bool is_broken;     /* the job could not continue after that failure */
    size_t done;        /* ranks that ended well */
    struct ash_process_said said;
    uint64_t force_ns; /* when to end by force; 0: not yet */
    uint64_t over_ns;  /* next check whether the job is over */
    bool is_interrupted, is_forced, is_over;
    uint64_t look_ns;                     /* next check for a request */
    uint64_t others_ns, alone_ns;         /* next check of ranks elsewhere; since when none answers, 0: one does */
    bool is_hopeless;                     /* it has failed in the same way too often */
    int equal_code;                       /* of the last failure, */
    uint64_t equal_progress, equal_count; /* how far the job was, and how many in a row were like it */
    uint64_t equal_epoch;                 /* in which it was */
};

/* ---- supervisor.c ------------------------------------------------------------------------------------------------ */
/* Is process i known to be one of the ranks? */
bool ash_node_is_placed(const struct ash_node_watch *watch, size_t i);
/* Start process i, as a rank or to join. Returns 0 or a negative errno. */
int ash_node_start_one(struct ash_node_watch *watch, size_t i, bool joins, struct ash_err *err);

/* ---- joiners.c --------------------------------------------------------------------------------------------------- */
/* Start due processes, and end those that wait in vain. */
void ash_node_tend_joiners(struct ash_node_watch *watch);
/* Is a process to come back to ranks elsewhere, even if none runs here? */
bool ash_node_awaits_return(const struct ash_node_watch *watch);

#endif
