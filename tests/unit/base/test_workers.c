/* workers: every unit is visited exactly once, whatever the threads, counts and range sizes; scratch indexes are never
 * shared. */
#include "base/workers.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/assert.h"
#include "base/cores.h"

#define UNITS_MAX 5000

struct visit {
    unsigned char seen[UNITS_MAX]; /* plain on purpose: a second visitor is a race that TSan reports */
    _Atomic int busy[ASH_WORKERS_MAX];
    size_t count, min_units;
    int threads;
    _Atomic int small_ranges, shared, outside;
};

static void visit_range(void *ctx, size_t begin, size_t end, int worker)
{
    struct visit *visit = ctx;

    if (worker < 0 || worker >= visit->threads || begin >= end || end > visit->count) {
        atomic_fetch_add(&visit->outside, 1);
        return;
    }
    if (atomic_fetch_add(&visit->busy[worker], 1) != 0) atomic_fetch_add(&visit->shared, 1);
    if (end - begin < visit->min_units && end != visit->count) atomic_fetch_add(&visit->small_ranges, 1);
    for (size_t i = begin; i < end; i++)
        visit->seen[i]++;
    atomic_fetch_sub(&visit->busy[worker], 1);
}

typedef void (*loop_fn)(struct ash_workers *workers, size_t count, size_t min_units, ash_range_fn body, void *ctx);

static const loop_fn loops[] = {ash_workers_run, ash_workers_stream};

static void check_run(loop_fn loop, struct ash_workers *workers, struct visit *visit, size_t count, size_t min_units)
{
    memset(visit->seen, 0, sizeof(visit->seen));
    visit->count = count;
    visit->min_units = min_units;
    loop(workers, count, min_units, visit_range, visit);
    for (size_t i = 0; i < UNITS_MAX; i++)
        assert_int_equal(visit->seen[i], i < count ? 1 : 0);
    assert_int_equal(visit->outside, 0);
    assert_int_equal(visit->shared, 0);
    assert_int_equal(visit->small_ranges, 0);
}

static void test_every_unit_once(void **state)
{
    static const int threads[] = {1, 2, 3, 5, 8};
    static const size_t counts[] = {0, 1, 2, 3, 7, 8, 63, 64, 65, 1000, 4999, 5000};
    static const size_t mins[] = {0, 1, 2, 16, 1000, 6000};
    static struct visit visit;
    (void)state;

    for (size_t t = 0; t < ASH_COUNT(threads); t++) {
        struct ash_workers *workers = NULL;
        assert_int_equal(ash_workers_open(threads[t], &workers, NULL), 0);
        assert_int_equal(ash_workers_count(workers), threads[t]);
        visit.threads = threads[t];
        for (size_t c = 0; c < ASH_COUNT(counts); c++)
            for (size_t m = 0; m < ASH_COUNT(mins) * ASH_COUNT(loops); m++)
                check_run(loops[m % ASH_COUNT(loops)], workers, &visit, counts[c], mins[m / ASH_COUNT(loops)]);
        ash_workers_close(workers);
    }
}

struct who {
    pthread_t caller;
    _Atomic int calls, strangers;
};

static void note_thread(void *ctx, size_t begin, size_t end, int worker)
{
    struct who *who = ctx;

    (void)begin, (void)end, (void)worker;
    atomic_fetch_add(&who->calls, 1);
    if (!pthread_equal(pthread_self(), who->caller)) atomic_fetch_add(&who->strangers, 1);
}

static void test_few_units_stay_on_the_caller(void **state)
{
    struct ash_workers *workers = NULL;
    struct who who = {.caller = pthread_self()};
    (void)state;

    assert_int_equal(ash_workers_open(4, &workers, NULL), 0);
    for (int i = 0; i < 100; i++)
        loops[i % 2](workers, 16, 16, note_thread, &who);
    ash_workers_run(NULL, 100, 1, note_thread, &who);
    assert_int_equal(who.calls, 101);
    assert_int_equal(who.strangers, 0);
    ash_workers_close(workers);
}

/* Two ranges that wait for each other end only when two threads run at once. */
static void meet(void *ctx, size_t begin, size_t end, int worker)
{
    _Atomic int *arrived = ctx;

    (void)begin, (void)end, (void)worker;
    atomic_fetch_add(arrived, 1);
    while (atomic_load(arrived) < 2)
        sched_yield();
}

static void test_threads_run_at_once(void **state)
{
    struct ash_workers *workers = NULL;
    (void)state;

    assert_int_equal(ash_workers_open(2, &workers, NULL), 0);
    for (int i = 0; i < 200; i++) {
        _Atomic int arrived = 0;
        loops[i % 2](workers, 2, 1, meet, &arrived);
        assert_int_equal(arrived, 2);
    }
    ash_workers_close(workers);
}

/* The thread with unit 0 waits until all others are done; its own stretch, too, has to be taken over. */
struct slow {
    size_t count;
    _Atomic size_t done;
};

static void stand_still(void *ctx, size_t begin, size_t end, int worker)
{
    struct slow *slow = ctx;

    (void)worker;
    while (begin == 0 && atomic_load(&slow->done) < slow->count - end)
        sched_yield();
    atomic_fetch_add(&slow->done, end - begin);
}

static void test_stretches_are_taken_over(void **state)
{
    struct ash_workers *workers = NULL;
    (void)state;

    for (int threads = 2; threads <= 5; threads++) {
        assert_int_equal(ash_workers_open(threads, &workers, NULL), 0);
        for (int i = 0; i < 50; i++) {
            struct slow slow = {.count = 1000};

            ash_workers_stream(workers, slow.count, 1, stand_still, &slow);
            assert_int_equal(slow.done, 1000);
        }
        ash_workers_close(workers);
    }
}

/* Two threads, of which the second waits in its first range until the first has finished its half. */
struct walk {
    size_t half;
    _Atomic size_t at; /* where the first one's last range ended */
    int jumps;
};

static void walk(void *ctx, size_t begin, size_t end, int worker)
{
    struct walk *walk = ctx;

    while (worker == 1 && atomic_load(&walk->at) < walk->half)
        sched_yield();
    if (worker == 1 || begin >= walk->half) return;
    if (begin != atomic_load(&walk->at)) walk->jumps++;
    atomic_store(&walk->at, end);
}

static void test_a_thread_walks_its_stretch(void **state)
{
    struct ash_workers *workers = NULL;
    (void)state;

    assert_int_equal(ash_workers_open(2, &workers, NULL), 0);
    for (int i = 0; i < 200; i++) {
        struct walk all = {.half = 500};

        ash_workers_stream(workers, 2 * all.half, 1, walk, &all);
        assert_true(all.at == all.half && all.jumps == 0);
    }
    ash_workers_close(workers);
}

static void add_range(void *ctx, size_t begin, size_t end, int worker)
{
    uint64_t *sums = ctx;

    for (size_t i = begin; i < end; i++)
        sums[worker * 8] += i;
}

/* Many short loops in a row: seats offered and withdrawn while threads are on their way to sleep. */
static void test_many_short_loops(void **state)
{
    struct ash_workers *workers = NULL;
    static uint64_t sums[5 * 8];
    uint64_t total = 0;
    (void)state;

    assert_int_equal(ash_workers_open(5, &workers, NULL), 0);
    for (int i = 0; i < 5000; i++)
        loops[i % 2](workers, 10, 1, add_range, sums);
    for (int w = 0; w < 5; w++)
        total += sums[w * 8];
    assert_int_equal(total, 5000 * 45);
    ash_workers_close(workers);
}

static void test_open_errors(void **state)
{
    struct ash_workers *workers = (void *)state;
    struct ash_err err = {0};

    assert_int_equal(ash_workers_open(-1, &workers, &err), -EINVAL);
    assert_int_equal(ash_workers_open(ASH_WORKERS_MAX + 1, &workers, &err), -EINVAL);
    assert_non_null(strstr(err.text, "257 threads"));
    assert_ptr_equal(workers, state);
    ash_workers_close(NULL);
}

static void test_zero_means_all_cores(void **state)
{
    struct ash_workers *workers = NULL;
    cpu_set_t before, one;
    (void)state;

    assert_int_equal(ash_workers_open(0, &workers, NULL), 0);
    assert_int_equal(ash_workers_count(workers), ash_cores_usable());
    ash_workers_close(workers);
    /* A narrower affinity mask is respected. */
    assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &before)) continue;
        CPU_SET(cpu, &one);
        break;
    }
    assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
    assert_int_equal(ash_cores_usable(), 1);
    assert_int_equal(sched_setaffinity(0, sizeof(before), &before), 0);
}

/* Which cores each thread of a loop may run on. */
struct seen {
    int cpus[ASH_WORKERS_MAX]; /* how many; 0: this thread had no unit */
};

static void count_cpus(void *ctx, size_t begin, size_t end, int worker)
{
    struct seen *seen = ctx;
    cpu_set_t set;

    (void)begin, (void)end;
    if (sched_getaffinity(0, sizeof(set), &set) == 0) seen->cpus[worker] = CPU_COUNT(&set);
    usleep(1000); /* so that others get a unit too */
}

static void test_pinning(void **state)
{
    int cores = ash_cores_usable(), all;
    struct ash_workers *workers = NULL;
    struct ash_err err = {0};
    struct seen seen = {{0}}, free_threads = {{0}};
    cpu_set_t set;
    (void)state;

    assert_int_equal(sched_getaffinity(0, sizeof(set), &set), 0);
    all = CPU_COUNT(&set);
    assert_int_equal(ash_workers_open(cores, &workers, NULL), 0);
    assert_int_equal(ash_workers_pin(workers, ASH_PIN_OFF, &err), 0);
    ash_workers_run(workers, 40, 1, count_cpus, &free_threads);
    assert_int_equal(ash_workers_pin(workers, ASH_PIN_ON, &err), 0);
    ash_workers_run(workers, 40, 1, count_cpus, &seen);
    assert_true(seen.cpus[0] == 0 || seen.cpus[0] == all); /* the caller's thread is the caller's */
    for (int i = 1; i < cores; i++) {
        assert_true(free_threads.cpus[i] == 0 || free_threads.cpus[i] == all);
        assert_true(seen.cpus[i] == 0 || seen.cpus[i] == 1);
    }
    ash_workers_close(workers);
    if (all >= ASH_WORKERS_MAX) return;
    assert_int_equal(ash_workers_open(all + 1, &workers, NULL), 0);
    assert_int_equal(ash_workers_pin(workers, ASH_PIN_AUTO, &err), 0);
    assert_int_equal(ash_workers_pin(workers, ASH_PIN_ON, &err), -EINVAL);
    assert_non_null(strstr(err.text, "cannot be pinned"));
    ash_workers_close(workers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_unit_once),
        cmocka_unit_test(test_few_units_stay_on_the_caller),
        cmocka_unit_test(test_threads_run_at_once),
        cmocka_unit_test(test_stretches_are_taken_over),
        cmocka_unit_test(test_a_thread_walks_its_stretch),
        cmocka_unit_test(test_many_short_loops),
        cmocka_unit_test(test_open_errors),
        cmocka_unit_test(test_zero_means_all_cores),
        cmocka_unit_test(test_pinning),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
