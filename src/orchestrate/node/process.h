/* process - one process of a job: started with the variables that torchrun sets, its lines printed with its rank. */
#ifndef ASH_ORCHESTRATE_NODE_PROCESS_H
#define ASH_ORCHESTRATE_NODE_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "ashlar/err.h"

#define ASH_PROCESS_LINE_BYTES 4096

/* One stream of a process, until a line is whole. */
struct ash_process_stream {
    int fd; /* -1: closed */
    int to; /* where its lines go */
    size_t filled;
    char line[ASH_PROCESS_LINE_BYTES];
};

struct ash_process {
    pid_t pid; /* 0: not running */
    size_t rank, node;
    bool joins;                           /* it joins a running job (ASHLAR_JOIN) */
    struct ash_process_stream streams[2]; /* stdout, stderr */
};

/* What all processes of a job have in common. */
struct ash_process_job {
    size_t world, per_node;
    const char *master; /* where the first rank listens */
    int port;
    bool saves_alone;    /* its processes save and end by themselves when the supervisor dies; else they are killed */
    bool has_nodes;      /* several nodes: ranks of different ones reach each other through the network */
    const char *program; /* a path, or a name that is found in PATH */
    char *const *argv;   /* its name and arguments, NULL-terminated */
    int (*enter)(void *ctx, size_t node); /* in the child, before the program; 0 or a negative errno. NULL: nothing */
    void *enter_ctx;
};

/* Errors that ranks have reported, to print each once. Zero-initialise. */
struct ash_process_said {
    uint64_t hashes[64];
    size_t count;
};

/* Start it in process group *group (0: its own, which *group then is). The rank whose output goes to the terminal is 0;
 * the others get pipes. Returns 0, or a negative errno if it cannot be started or the program cannot be run. */
int ash_process_start(struct ash_process *process, const struct ash_process_job *job, pid_t *group,
                      struct ash_err *err);
/* Read a stream's available bytes and print whole lines. */
void ash_process_read(struct ash_process *process, struct ash_process_stream *stream, struct ash_process_said *said);
/* Print the rest of its streams and close them. */
void ash_process_drain(struct ash_process *process, struct ash_process_said *said);

#endif
