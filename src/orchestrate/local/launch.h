/* launch - the processes of a job on this machine, as one or several failure domains ("nodes"). Each gets the variables
 * that torchrun would set (RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT), so any program
 * that knows those can be launched. The first rank has the terminal; what the others print comes line by line, with
 * their rank before it. However it ends, nothing is left running. */
#ifndef ASH_ORCHESTRATE_LAUNCH_H
#define ASH_ORCHESTRATE_LAUNCH_H

#include <stdbool.h>
#include <stddef.h>
#include "ashlar/err.h"

struct ash_launch {
    size_t procs;          /* of all nodes together */
    size_t nodes;          /* procs is a multiple of it */
    bool netns;            /* each node has a network of its own (orchestrate/local/netns.h) */
    const char *link_rate; /* ... and sends at most so much: "1gbit"; NULL: not limited */
    double grace_s;        /* between a failure and the end by force: time for the others to notice and say so */
    const char *program;   /* a path, or a name that is found in PATH */
    char *const *argv;     /* what it is called, and its arguments, NULL-terminated */
};

/* Run until all have ended. Returns the exit code of the process that failed first (128 + signal for one that was
 * killed), 0 if none did, 128 + signal where the launcher itself was told to stop, or a negative errno where they could
 * not be started. Installs ash_interrupt: Ctrl-C, SIGTERM and SIGHUP are passed on to all as SIGTERM. */
int ash_launch_run(const struct ash_launch *launch, struct ash_err *err);

#endif
