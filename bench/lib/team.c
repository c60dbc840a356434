/* Times code on pinned threads: a barrier begins it, and the clock runs from the first to begin to the last to end. */
#include "lib/team.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"

#define SETTLE_NS 2000000000ull
#define SETTLE_STEP_NS 20000000ull

struct member {
    pthread_t thread;
    pthread_barrier_t *barrier;
    bench_body_fn body;
    void *ctx;
    int index;
    uint64_t begin_ns, end_ns;
};

/* Pin the calling thread to the index-th core that it may use; where that fails it stays where it is. */
static void pin(int index)
{
    cpu_set_t usable, one;

    if (sched_getaffinity(0, sizeof(usable), &usable) != 0) return;
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &usable) || index-- > 0) continue;
        CPU_SET(cpu, &one);
        sched_setaffinity(0, sizeof(one), &one);
        return;
    }
}

static void *member_main(void *arg)
{
    struct member *member = arg;

    pin(member->index);
    pthread_barrier_wait(member->barrier);
    member->begin_ns = ash_clock_ns();
    member->body(member->ctx, member->index);
    member->end_ns = ash_clock_ns();
    return NULL;
}

double bench_team_run(int thread_count, bench_body_fn body, void *ctx)
{
    struct member *members = calloc((size_t)thread_count, sizeof(*members));
    uint64_t begin = UINT64_MAX, end = 0;
    pthread_barrier_t barrier;

    if (members == NULL) return -ENOMEM;
    if (pthread_barrier_init(&barrier, NULL, (unsigned)thread_count) != 0) {
        free(members);
        return -EAGAIN;
    }
    for (int i = 0; i < thread_count; i++) {
        members[i] = (struct member){.barrier = &barrier, .body = body, .ctx = ctx, .index = i};
        if (pthread_create(&members[i].thread, NULL, member_main, &members[i]) != 0) {
            /* Those that wait at the barrier can only be let go by ending the program, which the caller does. */
            return -EAGAIN;
        }
    }
    for (int i = 0; i < thread_count; i++) {
        pthread_join(members[i].thread, NULL);
        if (members[i].begin_ns < begin) begin = members[i].begin_ns;
        if (members[i].end_ns > end) end = members[i].end_ns;
    }
    pthread_barrier_destroy(&barrier);
    free(members);
    return (double)(end - begin) * 1e-9;
}

static uint64_t busy_ns(void)
{
    struct timespec time = {0};

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (uint64_t)time.tv_sec * 1000000000ull + (uint64_t)time.tv_nsec;
}

void bench_settle(void)
{
    const struct timespec step = {.tv_nsec = SETTLE_STEP_NS};

    for (uint64_t waited = 0; waited < SETTLE_NS; waited += SETTLE_STEP_NS) {
        uint64_t before = busy_ns();
        nanosleep(&step, NULL);
        if (busy_ns() - before < SETTLE_STEP_NS / 20) return;
    }
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double bench_median(double *values, size_t count)
{
    if (count == 0) return 0;
    qsort(values, count, sizeof(*values), by_value);
    return (values[(count - 1) / 2] + values[count / 2]) / 2;
}
