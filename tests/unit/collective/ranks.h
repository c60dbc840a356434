/* ranks - runs a function in several processes that share a group of boards, and collects their verdicts. */
#ifndef ASH_TESTS_RANKS_H
#define ASH_TESTS_RANKS_H

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "collective/host/local.h"

/* What the processes share before they have boards: a meeting point for keys. */
struct meeting {
    _Atomic size_t ready;
    struct ash_segment_key keys[ASH_LOCAL_RANKS_MAX];
    _Atomic uint64_t word[4]; /* for the test's own use */
};

struct rank_job {
    size_t size;
    uint64_t timeout_ns;
    int (*run)(struct ash_local *local, struct meeting *meeting, const void *arg); /* 0: as it should be */
    const void *arg;
};

static int rank_main(const struct rank_job *job, struct meeting *meeting, size_t rank)
{
    struct ash_local *local = NULL;
    struct ash_err err = {0};
    const struct ash_wait_limits limits = {.timeout_ns = job->timeout_ns};
    int rc = ash_local_open(&limits, &local, &err);

    if (rc == 0) {
        meeting->keys[rank] = ash_local_key(local);
        atomic_fetch_add(&meeting->ready, 1);
        while (atomic_load(&meeting->ready) < job->size)
            usleep(100);
        rc = ash_local_connect(local, rank, job->size, job->size > 2, meeting->keys, NULL, &err);
        atomic_fetch_add(&meeting->ready, 1);
        while (atomic_load(&meeting->ready) < 2 * job->size) /* nobody leaves before all have come */
            usleep(100);
    }
    if (rc == 0) rc = job->run(local, meeting, job->arg);
    if (rc != 0) fprintf(stderr, "rank %zu of %zu: %d (%s)\n", rank, job->size, rc, err.text);
    ash_local_close(local);
    return rc != 0;
}

/* Run job in job->size processes. Returns how many of them failed or were killed; kills_out (may be NULL) counts the
 * killed. */
static inline int run_ranks(const struct rank_job *job, int *kills_out)
{
    struct meeting *meeting = mmap(NULL, sizeof(*meeting), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t pids[ASH_LOCAL_RANKS_MAX];
    int failed = 0, kills = 0;

    fflush(NULL);
    for (size_t r = 0; r < job->size; r++) {
        pids[r] = fork();
        if (pids[r] == 0) _exit(rank_main(job, meeting, r));
    }
    for (size_t r = 0; r < job->size; r++) {
        int status = 0;

        waitpid(pids[r], &status, 0);
        if (WIFSIGNALED(status))
            kills++;
        else if (WEXITSTATUS(status) != 0)
            failed++;
    }
    munmap(meeting, sizeof(*meeting));
    if (kills_out != NULL) *kills_out = kills;
    return failed + (kills_out == NULL ? kills : 0);
}

#endif
