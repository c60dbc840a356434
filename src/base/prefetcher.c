/* A thread that asks the kernel for mapped pages chunk by chunk. Populating maps them too, so that the reader takes no
 * faults; a kernel that cannot do that (before 5.14) is told to read ahead. One thread: a second took more processor
 * time from the reader than it saved. */
#include "base/prefetcher.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/math.h"
#include "base/thread.h"

#define CHUNK_BYTES ((size_t)4 << 20)
#define WAIT_SECONDS 1

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

struct ash_prefetcher {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t more;
    atomic_bool stop;
    _Atomic size_t done; /* ranges that are in memory; changes under mutex */
    size_t count;
    struct ash_prefetch_range ranges[];
};

/* The pages of a range, until told to stop. */
static void prefetch_range(struct ash_prefetcher *prefetcher, const struct ash_prefetch_range *range)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), end = (uintptr_t)range->base + range->size_bytes;
    uintptr_t at = (uintptr_t)range->base / page * page;

    while (at < end && range->size_bytes > 0 && !atomic_load_explicit(&prefetcher->stop, memory_order_relaxed)) {
        size_t bytes = ash_min(end - at, CHUNK_BYTES);

        if (madvise((void *)at, bytes, MADV_POPULATE_READ) != 0) madvise((void *)at, bytes, MADV_WILLNEED);
        at += bytes;
    }
}

static void *prefetcher_main(void *arg)
{
    struct ash_prefetcher *prefetcher = arg;

    for (size_t i = 0; i < prefetcher->count; i++) {
        prefetch_range(prefetcher, &prefetcher->ranges[i]);
        pthread_mutex_lock(&prefetcher->mutex);
        atomic_store(&prefetcher->done, i + 1);
        pthread_cond_signal(&prefetcher->more);
        pthread_mutex_unlock(&prefetcher->mutex);
    }
    return NULL;
}

static void prefetcher_free(struct ash_prefetcher *prefetcher)
{
    pthread_cond_destroy(&prefetcher->more);
    pthread_mutex_destroy(&prefetcher->mutex);
    free(prefetcher);
}

struct ash_prefetcher *ash_prefetcher_start(const struct ash_prefetch_range *ranges, size_t count)
{
    struct ash_prefetcher *prefetcher = calloc(1, sizeof(*prefetcher) + count * sizeof(*ranges));

    ash_assert(count == 0 || ranges != NULL);
    if (prefetcher == NULL) return NULL;
    prefetcher->count = count;
    if (count > 0) memcpy(prefetcher->ranges, ranges, count * sizeof(*ranges));
    if (ash_cond_init(&prefetcher->more) < 0) {
        free(prefetcher);
        return NULL;
    }
    pthread_mutex_init(&prefetcher->mutex, NULL);
    if (ash_thread_start(&prefetcher->thread, prefetcher_main, prefetcher) == 0) return prefetcher;
    prefetcher_free(prefetcher);
    return NULL;
}

void ash_prefetcher_wait(struct ash_prefetcher *prefetcher, const void *base)
{
    struct timespec until;
    size_t i = 0;
    int rc = 0;

    if (prefetcher == NULL || atomic_load(&prefetcher->done) == prefetcher->count) return;
    while (i < prefetcher->count && prefetcher->ranges[i].base != base)
        i++;
    if (i == prefetcher->count || atomic_load(&prefetcher->done) > i) return;
    until = ash_cond_deadline(WAIT_SECONDS * 1000000000ull);
    pthread_mutex_lock(&prefetcher->mutex);
    while (atomic_load(&prefetcher->done) <= i && rc == 0)
        rc = pthread_cond_timedwait(&prefetcher->more, &prefetcher->mutex, &until);
    pthread_mutex_unlock(&prefetcher->mutex);
}

void ash_prefetcher_finish(struct ash_prefetcher *prefetcher)
{
    if (prefetcher == NULL) return;
    pthread_join(prefetcher->thread, NULL);
    prefetcher_free(prefetcher);
}

void ash_prefetcher_stop(struct ash_prefetcher *prefetcher)
{
    if (prefetcher == NULL) return;
    atomic_store_explicit(&prefetcher->stop, true, memory_order_relaxed);
    ash_prefetcher_finish(prefetcher);
}
