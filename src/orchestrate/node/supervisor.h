/* supervisor - the processes of one node of a job, from their start to their end, however they end. It is independent
 * of its starter: this machine, Slurm and Kubernetes start it once per node. */
#ifndef ASH_ORCHESTRATE_NODE_SUPERVISOR_H
#define ASH_ORCHESTRATE_NODE_SUPERVISOR_H

#include <stdbool.h>
#include <stddef.h>
#include "ashlar/err.h"
#include "orchestrate/node/process.h"

struct ash_supervisor {
    struct ash_process_job job;
    size_t first_rank, count; /* the ranks that are started here */
    double grace_s;           /* between a failure and the end by force */
    double notice_s;          /* between a stop request and SIGKILL; 0: no limit */
    size_t
        least; /* processes here that may continue by themselves when others are lost; 0: the first failure ends all */
    /* A process that fails is started again and joins the others (below); where none is left, all are. So many equal
     * failures in a row, without progress in between, and it is not tried again. 0: never. All are started again only
     * where count is the world. */
    size_t restarts;
    double back_off_s;  /* before the second start in a row; then twice as long each time, up to a minute. 0: none */
    char *const *again; /* words of starts after all have failed; NULL: job.argv */
    /* The job's folder (collective/member/membership.h): `contacts` is in it once the ranks have met, and a file by
     * ash_supervisor_placed_name once a process that joins has a rank. NULL: no process can join. */
    const char *job_dir;
    bool joins; /* ranks elsewhere run already: all processes start to join them */
    /* Do ranks elsewhere answer? Where none has for alone_s seconds, processes here that wait for a place end. NULL:
     * all ranks are here. May take a second. */
    bool (*has_others)(void *ctx);
    double alone_s;
    /* Has the job ended, by the ranks' state? Remaining processes are then killed after grace_s: a stopped one, or one
     * that hangs, would never end. Called once one has ended; NULL: unknown. */
    bool (*is_over)(void *ctx);
    uint64_t (*progress)(void *ctx); /* finished steps of the job; NULL: unknown */
    /* How often ranks have changed: processes that are lost between two changes, as all of a node, are one failure.
     * NULL: each is one. */
    uint64_t (*epoch)(void *ctx);
    /* newly requested number of processes, while `running` are here; 0: no request */
    size_t (*wanted)(void *ctx, size_t running);
    bool passes_hangups;     /* SIGHUP is forwarded as it is, and ends nothing: a server reads its files again */
    int (*renew)(void *ctx); /* before all are started again; 0 or a negative errno. NULL: nothing to do */
    void *ctx;
};

#define ASH_PLACED_NAME_BYTES 96

/* The name of the file by which a process of this machine signals that it has joined the job. */
void ash_supervisor_placed_name(pid_t pid, char name[ASH_PLACED_NAME_BYTES]);
/* Run until all have ended. Returns the exit code: 0 if the remaining ones ended well, and could continue without the
 * failed ones (`least`; with job_dir: once the ranks had formed a group); else that of the process that failed first
 * (128 + signal for one that was killed); 128 + signal if the supervisor itself was stopped and they did not exit
 * otherwise (75: saved and stopped); or a negative errno if they could not be started. Installs ash_interrupt: Ctrl-C,
 * SIGTERM and (but for passes_hangups) SIGHUP are forwarded to all as SIGTERM. */
int ash_supervise(const struct ash_supervisor *supervisor, struct ash_err *err);

#endif
