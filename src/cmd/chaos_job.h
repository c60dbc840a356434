/* chaos_job - a launched job that faults happen to: `ashlar launch ...` as a child, and the ranks below it. One owner
 * thread. */
#ifndef ASH_CMD_CHAOS_JOB_H
#define ASH_CMD_CHAOS_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "ashlar/err.h"

#define ASH_CHAOS_RANKS_MAX 256

/* Caller's storage. */
struct ash_chaos_job {
    pid_t launcher; /* 0: not running */
    int code;       /* its exit code (128 + signal), once it has ended */
};

/* Start a program with words (argv, NULL-terminated): the one that the first is the path of, or this one if that is a
 * name. out: a file for its output; NULL: this terminal. Returns 0 or a negative errno. */
int ash_chaos_job_start(struct ash_chaos_job *job, char *const *words, const char *out, struct ash_err *err);
/* Has it ended? Then its code is there. */
bool ash_chaos_job_ended(struct ash_chaos_job *job);
/* Wait for its end, at most limit_s; then it is killed. Returns 0 or -ETIMEDOUT. */
int ash_chaos_job_wait(struct ash_chaos_job *job, double limit_s);
/* Its ranks that are running: their processes in pids. Returns how many. */
size_t ash_chaos_job_ranks(const struct ash_chaos_job *job, pid_t pids[ASH_CHAOS_RANKS_MAX]);
/* A pause of this program, in seconds. */
void ash_chaos_pause(double pause_s);

#endif
