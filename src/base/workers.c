/* Worker threads. One 32-bit word says how many seats a loop offers and how many threads sit in it; a thread takes a
 * seat with one compare-and-swap, so a short loop does not wait for threads that never came. Idle threads spin for a
 * moment, then sleep on the word (a futex). */
#include "base/workers.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/cores.h"
#include "base/math.h"
#include "base/thread.h"

#define SEAT ((uint32_t)1 << 16) /* upper half of the word: seats on offer; lower half: threads seated */
#define STOP ((uint32_t)1 << 31)
#define SEATED(word) ((word) & (SEAT - 1))
#define OFFERED(word) (((word) & ~STOP) / SEAT)

#define SPIN_NS 1000000     /* longer than the gap between two loops of a step, and than the tail of one */
#define SPINS_PER_LOOK 64   /* pauses between two looks at the clock */
#define RANGES_PER_THREAD 4 /* so that a late thread leaves work for the others */
#define RANGES_OF_REST 2 /* a thread, of the remaining units: they get shorter, so that unlike threads end together */

#define PIECES_OF_STRETCH 4 /* a thread takes so much of its stretch, and leaves the rest for others to take */

#define WAKE_WORKERS 1u
#define WAKE_CALLER 2u

struct worker {
    struct ash_workers *workers;
    pthread_t thread;
    int index;
};

/* The rest of a thread's range of units: the first of them in the upper half, the one after the last in the
 * lower. The thread takes from the front, others from the end. */
struct stretch {
    _Alignas(64) _Atomic uint64_t left;
};

typedef bool (*take_fn)(struct ash_workers *workers, int index, size_t *begin_out, size_t *end_out);

struct ash_workers {
    _Alignas(64) _Atomic uint32_t word;
    _Atomic int sleepers; /* workers in (or about to enter) a futex wait */
    _Atomic int caller_sleeps;
    _Alignas(64) _Atomic size_t next; /* first unit that is not taken */
    /* The loop: written by the caller before it offers seats, read by the threads that took one. */
    _Alignas(64) size_t count, min_units;
    size_t max_units; /* of a range */
    take_fn take;
    ash_range_fn body;
    void *ctx;
    bool may_spin; /* there is a core for every thread */
    int thread_count, started;
    struct stretch stretches[ASH_WORKERS_MAX];
    struct worker threads[];
};

static void futex_wait(_Atomic uint32_t *word, uint32_t seen, uint32_t who)
{
    syscall(SYS_futex, word, FUTEX_WAIT_BITSET_PRIVATE, seen, NULL, NULL, who);
}

static void futex_wake(_Atomic uint32_t *word, int count, uint32_t who)
{
    syscall(SYS_futex, word, FUTEX_WAKE_BITSET_PRIVATE, count, NULL, NULL, who);
}

static void pause_core(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb");
#endif
}

static bool has_work(uint32_t word)
{
    return word >= SEAT; /* a seat, or the end */
}

static bool all_left(uint32_t word)
{
    return SEATED(word) == 0;
}

/* Look at the word until ready(word) or the patience ends; returns the last word seen. */
static uint32_t spin_until(struct ash_workers *workers, bool (*ready)(uint32_t))
{
    uint32_t word = atomic_load_explicit(&workers->word, memory_order_acquire);
    uint64_t end_ns;

    if (ready(word) || !workers->may_spin) return word;
    end_ns = ash_clock_ns() + SPIN_NS;
    do {
        for (int i = 0; i < SPINS_PER_LOOK; i++) {
            word = atomic_load_explicit(&workers->word, memory_order_acquire);
            if (ready(word)) return word;
            pause_core();
        }
    } while (ash_clock_ns() < end_ns);
    return word;
}

/* Take a seat in the next loop. Returns false when it is time to end. */
static bool take_seat(struct ash_workers *workers)
{
    uint32_t word = spin_until(workers, has_work);

    for (;;) {
        if (word & STOP) return false;
        if (OFFERED(word) > 0) {
            if (atomic_compare_exchange_weak_explicit(&workers->word, &word, word - SEAT + 1, memory_order_acquire,
                                                      memory_order_acquire))
                return true;
            continue;
        }
        atomic_fetch_add(&workers->sleepers, 1);
        futex_wait(&workers->word, word, WAKE_WORKERS); /* returns at once if the word has changed */
        atomic_fetch_sub(&workers->sleepers, 1);
        word = atomic_load_explicit(&workers->word, memory_order_acquire);
    }
}

/* The loop is finished: give the seat back and withdraw the free ones. */
static void leave_seat(struct ash_workers *workers)
{
    uint32_t word = atomic_load_explicit(&workers->word, memory_order_relaxed);

    while (!atomic_compare_exchange_weak(&workers->word, &word, SEATED(word) - 1))
        ;
    if (SEATED(word) == 1 && atomic_load(&workers->caller_sleeps)) futex_wake(&workers->word, 1, WAKE_CALLER);
}

/* Take the next range. Returns false when nothing is left. */
static bool take_range(struct ash_workers *workers, int index, size_t *begin_out, size_t *end_out)
{
    const size_t count = workers->count, parts = (size_t)workers->thread_count * RANGES_OF_REST;
    size_t begin = atomic_load_explicit(&workers->next, memory_order_relaxed), end;

    (void)index;
    do {
        size_t units;

        if (begin >= count) return false;
        units = (count - begin) / parts;
        if (units > workers->max_units) units = workers->max_units;
        if (units < workers->min_units) units = workers->min_units;
        end = count - begin < units ? count : begin + units;
    } while (!atomic_compare_exchange_weak_explicit(&workers->next, &begin, end, memory_order_relaxed,
                                                    memory_order_relaxed));
    *begin_out = begin;
    *end_out = end;
    return true;
}

static uint64_t stretch_of(size_t begin, size_t end)
{
    return (uint64_t)begin << 32 | end;
}

static size_t stretch_begin(uint64_t left)
{
    return (size_t)(left >> 32);
}

static size_t stretch_end(uint64_t left)
{
    return (size_t)(uint32_t)left;
}

static size_t stretch_units(uint64_t left)
{
    return stretch_end(left) - stretch_begin(left);
}

/* One of `parts` shares of the units; or all, where the share or the rest would be smaller than a range may be. */
static size_t some_of(const struct ash_workers *workers, size_t units, size_t parts)
{
    size_t some = ash_max(units / parts, workers->min_units);

    return units < some + workers->min_units ? units : some;
}

/* Take the next piece of the own stretch. Returns false when nothing is left of it. */
static bool take_own(struct ash_workers *workers, int index, size_t *begin_out, size_t *end_out)
{
    _Atomic uint64_t *own = &workers->stretches[index].left;
    uint64_t left = atomic_load_explicit(own, memory_order_relaxed);

    do {
        if (stretch_units(left) == 0) return false;
        *begin_out = stretch_begin(left);
        *end_out = *begin_out + some_of(workers, stretch_units(left), PIECES_OF_STRETCH);
    } while (!atomic_compare_exchange_weak_explicit(own, &left, stretch_of(*end_out, stretch_end(left)),
                                                    memory_order_relaxed, memory_order_relaxed));
    return true;
}

/* Make the last half of the longest stretch one's own. Returns false when nothing is left of any. */
static bool take_over(struct ash_workers *workers, int index)
{
    for (;;) {
        struct stretch *longest = NULL;
        uint64_t most = 0;
        size_t middle;

        for (int i = 0; i < workers->thread_count; i++) {
            uint64_t left = atomic_load_explicit(&workers->stretches[i].left, memory_order_relaxed);

            if (stretch_units(left) <= stretch_units(most)) continue;
            longest = &workers->stretches[i];
            most = left;
        }
        if (longest == NULL) return false;
        middle = stretch_end(most) - some_of(workers, stretch_units(most), 2);
        if (!atomic_compare_exchange_strong_explicit(&longest->left, &most, stretch_of(stretch_begin(most), middle),
                                                     memory_order_relaxed, memory_order_relaxed))
            continue;
        atomic_store_explicit(&workers->stretches[index].left, stretch_of(middle, stretch_end(most)),
                              memory_order_relaxed);
        return true;
    }
}

static bool take_piece(struct ash_workers *workers, int index, size_t *begin_out, size_t *end_out)
{
    while (!take_own(workers, index, begin_out, end_out)) /* units taken over may be taken away again */
        if (!take_over(workers, index)) return false;
    return true;
}

static void run_ranges(struct ash_workers *workers, int index)
{
    size_t begin, end;

    while (workers->take(workers, index, &begin, &end))
        workers->body(workers->ctx, begin, end, index);
}

static void *worker_main(void *arg)
{
    struct worker *self = arg;

    while (take_seat(self->workers)) {
        run_ranges(self->workers, self->index);
        leave_seat(self->workers);
    }
    return NULL;
}

static void offer_seats(struct ash_workers *workers, uint32_t seats)
{
    uint32_t before = atomic_exchange(&workers->word, seats * SEAT);

    ash_assert(before == 0); /* else a body called us, or two threads share the workers */
    if (atomic_load(&workers->sleepers) > 0) futex_wake(&workers->word, (int)seats, WAKE_WORKERS);
}

static void wait_all_left(struct ash_workers *workers)
{
    uint32_t word = atomic_load_explicit(&workers->word, memory_order_relaxed);

    while (!atomic_compare_exchange_weak_explicit(&workers->word, &word, SEATED(word), memory_order_acquire,
                                                  memory_order_relaxed)) /* no thread may take a new seat */
        ;
    word = spin_until(workers, all_left);
    if (all_left(word)) return;
    atomic_store(&workers->caller_sleeps, 1);
    for (word = atomic_load(&workers->word); !all_left(word); word = atomic_load(&workers->word))
        futex_wait(&workers->word, word, WAKE_CALLER);
    atomic_store(&workers->caller_sleeps, 0);
}

/* Run what the calling thread had better run alone, or nothing. Returns whether that was it. */
static bool ran_alone(const struct ash_workers *workers, size_t count, size_t min_units, ash_range_fn body, void *ctx)
{
    if (workers != NULL && workers->thread_count > 1 && count > min_units) return false;
    if (count > 0) body(ctx, 0, count, 0);
    return true;
}

/* Run a loop whose ranges, at most `ranges`, take() returns. */
static void run_loop(struct ash_workers *workers, size_t ranges, take_fn take, ash_range_fn body, void *ctx)
{
    size_t threads = (size_t)workers->thread_count;

    workers->take = take;
    workers->body = body;
    workers->ctx = ctx;
    offer_seats(workers, (uint32_t)(ash_min(ranges, threads) - 1));
    run_ranges(workers, 0);
    wait_all_left(workers);
}

void ash_workers_run(struct ash_workers *workers, size_t count, size_t min_units, ash_range_fn body, void *ctx)
{
    size_t units;

    if (min_units == 0) min_units = 1;
    if (ran_alone(workers, count, min_units, body, ctx)) return;
    units = count / ((size_t)workers->thread_count * RANGES_PER_THREAD);
    if (units < min_units) units = min_units;
    workers->count = count;
    workers->min_units = min_units;
    workers->max_units = units;
    atomic_store_explicit(&workers->next, 0, memory_order_relaxed);
    run_loop(workers, (count - 1) / units + 1, take_range, body, ctx);
}

void ash_workers_stream(struct ash_workers *workers, size_t count, size_t min_units, ash_range_fn body, void *ctx)
{
    size_t threads, stretches;

    if (min_units == 0) min_units = 1;
    if (ran_alone(workers, count, min_units, body, ctx)) return;
    ash_assert(count <= UINT32_MAX);
    threads = (size_t)workers->thread_count;
    stretches = ash_min(count / min_units, threads);
    workers->min_units = min_units;
    for (size_t i = 0; i < threads; i++) {
        uint64_t left = i < stretches ? stretch_of(count * i / stretches, count * (i + 1) / stretches) : 0;

        atomic_store_explicit(&workers->stretches[i].left, left, memory_order_relaxed);
    }
    run_loop(workers, stretches, take_piece, body, ctx);
}

static int start_threads(struct ash_workers *workers)
{
    int rc = 0;

    for (int i = 1; i < workers->thread_count && rc == 0; i++) {
        workers->threads[i] = (struct worker){.workers = workers, .index = i};
        rc = ash_thread_start(&workers->threads[i].thread, worker_main, &workers->threads[i]);
        if (rc == 0) workers->started++;
    }
    return rc;
}

int ash_workers_open(int thread_count, struct ash_workers **workers_out, struct ash_err *err)
{
    struct ash_workers *workers = NULL;
    int cores = ash_cores_usable(), rc;
    size_t size_bytes;

    if (thread_count == 0) thread_count = cores < ASH_WORKERS_MAX ? cores : ASH_WORKERS_MAX;
    if (thread_count < 0 || thread_count > ASH_WORKERS_MAX)
        return ash_err_set(err, -EINVAL, "%d threads cannot be started: choose from 1 to %d, or 0 for one per core",
                           thread_count, ASH_WORKERS_MAX);
    size_bytes = sizeof(*workers) + (size_t)thread_count * sizeof(workers->threads[0]);
    size_bytes = (size_bytes + 63) / 64 * 64;
    workers = aligned_alloc(64, size_bytes);
    if (workers == NULL) return ash_err_set(err, -ENOMEM, "out of memory for %d threads", thread_count);
    memset(workers, 0, size_bytes);
    workers->thread_count = thread_count;
    workers->may_spin = thread_count <= cores;
    rc = start_threads(workers);
    if (rc < 0) goto fail;
    *workers_out = workers;
    return 0;

fail:
    ash_err_set(err, rc, "thread %d of %d cannot be started: %s", workers->started + 2, thread_count, strerror(-rc));
    ash_workers_close(workers);
    return rc;
}

void ash_workers_close(struct ash_workers *workers)
{
    if (workers == NULL) return;
    atomic_store(&workers->word, STOP);
    futex_wake(&workers->word, INT_MAX, WAKE_WORKERS);
    for (int i = 1; i <= workers->started; i++)
        pthread_join(workers->threads[i].thread, NULL);
    free(workers);
}

int ash_workers_pin(struct ash_workers *workers, enum ash_pin pin, struct ash_err *err)
{
    int cpus[ASH_WORKERS_MAX], count = ash_cores_list(cpus, ASH_WORKERS_MAX);
    bool whole =
        count == workers->thread_count && count == ash_cores_usable() && (long)count == sysconf(_SC_NPROCESSORS_ONLN);

    if (pin == ASH_PIN_OFF || (pin == ASH_PIN_AUTO && !whole)) return 0;
    if (workers->thread_count > count)
        return ash_err_set(err, -EINVAL, "%d threads cannot be pinned to %d cores: use fewer, or do not pin",
                           workers->thread_count, count);
    for (int i = 1; i <= workers->started; i++) {
        int rc = ash_cores_pin(workers->threads[i].thread, cpus[i]);

        if (rc < 0) return ash_err_set(err, rc, "thread %d cannot be pinned to core %d: %s", i, cpus[i], strerror(-rc));
    }
    return 0;
}

int ash_workers_count(const struct ash_workers *workers)
{
    return workers != NULL ? workers->thread_count : 1;
}
