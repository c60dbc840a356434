/* ranks - runs a function once for each rank, in processes or in threads, and collects the verdicts. What the ranks are
 * is up to those who use it: local_ranks.h (processes with shared memory), group_ranks.h (a group), fabric_ranks.h
 * (endpoints). A verdict of 0 is as it should be. */
#ifndef ASH_TESTS_HARNESS_RANKS_H
#define ASH_TESTS_HARNESS_RANKS_H

#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"

#define RANKS_MAX 256
#define RANKS_PATIENCE_NS 120000000000ull
#define RANK_HANGS_S 150

typedef int (*rank_main_fn)(void *ctx, size_t rank);

/* ---- processes --------------------------------------------------------------------------------------------------- */

/* Zeroed memory that this process and those that it starts share. */
static inline void *ranks_share(size_t size_bytes)
{
    void *data = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    ash_assert(data != MAP_FAILED);
    return data;
}

static inline void ranks_unshare(void *data, size_t size_bytes)
{
    munmap(data, size_bytes);
}

/* A rank that hangs says where, and ends. */
static inline void rank_hangs(int signal_number)
{
    static const char text[] = "a rank hangs here:\n";
    void *frames[64];

    (void)signal_number;
    if (write(STDERR_FILENO, text, sizeof(text) - 1) > 0)
        backtrace_symbols_fd(frames, backtrace(frames, 64), STDERR_FILENO);
    _exit(99);
}

/* This process is a rank: it ends with the test that started it, whatever that one died of, and does not hang. */
static inline void rank_begin(void)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGALRM, rank_hangs);
    alarm(RANK_HANGS_S);
}

/* Start the process of one rank, which ends with the verdict. Leaks are looked for in the parent alone: in each child
 * it would take minutes. Returns its id. */
static inline pid_t rank_start(rank_main_fn main, void *ctx, size_t rank)
{
    pid_t pid;

    fflush(NULL);
    pid = fork();
    ash_assert(pid >= 0);
    if (pid == 0) {
        rank_begin();
        _exit(main(ctx, rank));
    }
    return pid;
}

/* Run main in size processes. Returns how many did not end with 0; kills_out (may be NULL) gets those that SIGKILL
 * ended, which are then not among them. */
static inline int ranks_run(size_t size, rank_main_fn main, void *ctx, int *kills_out)
{
    pid_t pids[RANKS_MAX];
    int failed = 0, kills = 0;

    ash_assert(size <= RANKS_MAX);
    for (size_t r = 0; r < size; r++)
        pids[r] = rank_start(main, ctx, r);
    for (size_t r = 0; r < size; r++) {
        int status = 0;

        waitpid(pids[r], &status, 0);
        if (kills_out != NULL && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
            kills++;
        else if (status != 0)
            failed++;
    }
    if (kills_out != NULL) *kills_out = kills;
    return failed;
}

/* Wait until all ranks are here: *arrived, in shared memory, starts at 0. A minute's half at most. */
static inline void ranks_barrier(_Atomic uint32_t *arrived, size_t size)
{
    uint32_t before = atomic_fetch_add(arrived, 1), target = (uint32_t)((before / size + 1) * size);
    uint64_t limit_ns = ash_clock_ns() + RANKS_PATIENCE_NS;

    while (atomic_load(arrived) < target && ash_clock_ns() < limit_ns)
        usleep(50);
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

struct rank_thread {
    pthread_t thread;
    rank_main_fn main;
    void *ctx;
    size_t rank;
    int verdict;
};

static inline void *rank_thread_main(void *arg)
{
    struct rank_thread *thread = arg;

    thread->verdict = thread->main(thread->ctx, thread->rank);
    return NULL;
}

/* Run main in size threads of this process. Returns how many verdicts are not 0. */
static inline int ranks_run_threads(size_t size, rank_main_fn main, void *ctx)
{
    struct rank_thread threads[RANKS_MAX];
    int failed = 0;

    ash_assert(size <= RANKS_MAX);
    for (size_t r = 0; r < size; r++) {
        threads[r] = (struct rank_thread){.main = main, .ctx = ctx, .rank = r};
        ash_assert(pthread_create(&threads[r].thread, NULL, rank_thread_main, &threads[r]) == 0);
    }
    for (size_t r = 0; r < size; r++) {
        pthread_join(threads[r].thread, NULL);
        failed += threads[r].verdict != 0;
    }
    return failed;
}

#endif
