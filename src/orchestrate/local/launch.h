/* launch - the processes of a job: all of them on this machine, as one or several failure domains ("nodes"), or those
 * of one node of a job that others start on other machines. Each process gets the variables that torchrun would set
 * (RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT), so any program that reads those can be
 * launched. The first rank has the terminal; output of the others is prefixed by their rank, line by line.
 * However it ends, nothing is left running. */
#ifndef ASH_ORCHESTRATE_LAUNCH_H
#define ASH_ORCHESTRATE_LAUNCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"

struct ash_launch {
    size_t procs;          /* of all nodes together */
    size_t nodes;          /* procs is a multiple of it */
    bool is_one_node;      /* the others are started elsewhere */
    size_t node_rank;      /* then: which of them this machine is */
    const char *master;    /* HOST:PORT where the first rank listens; NULL where all nodes are here */
    bool netns;            /* each node has a network namespace (orchestrate/local/netns.h) */
    const char *link_rate; /* ... and sends at most so much: "1gbit"; NULL: not limited */
    double grace_s;        /* between a failure and SIGKILL: time for the others to notice and report it */
    double notice_s;       /* between a stop request and SIGKILL; 0: no limit */
    size_t least;          /* processes that may continue when others are lost; 0: the first failure ends all */
    size_t restarts;       /* equal failures in a row that are answered with another start; see node/supervisor.h */
    double back_off_s;     /* between those starts; see node/supervisor.h */
    const char *job_dir;   /* folder of the job, with its members; NULL: no process can join the job */
    bool joins;            /* the job runs elsewhere already, and what starts here joins it */
    bool (*has_others)(void *ctx);   /* with is_one_node: do ranks elsewhere answer? NULL: unknown */
    bool saves_alone;                /* processes save and end by themselves when this one dies; else they are killed */
    uint64_t (*progress)(void *ctx); /* steps done; NULL: not known */
    bool (*is_over)(void *ctx);      /* has the job ended? See node/supervisor.h; NULL: not known */
    uint64_t (*epoch)(void *ctx);    /* how often ranks have changed; NULL: not known */
    /* newly requested number of processes, while `running` are here; 0: no request */
    size_t (*wanted)(void *ctx, size_t running);
    bool passes_hangups;     /* SIGHUP is handed to all processes unchanged, and does not end them */
    int (*renew)(void *ctx); /* before all are started again; NULL: nothing to do */
    void *ctx;
    const char *program; /* a path, or a name that is found in PATH */
    char *const *argv;   /* its name and arguments, NULL-terminated */
    char *const *again;  /* the same for later starts; NULL: argv */
};

/* Run until all have ended. Returns as ash_supervise. */
int ash_launch_run(const struct ash_launch *launch, struct ash_err *err);
/* The number at the end of this machine's name, as pods of a set have it ("job-node-3"): for node_rank. Returns 0 or
 * -EINVAL. */
int ash_launch_rank_by_name(size_t *rank_out, struct ash_err *err);

#endif
