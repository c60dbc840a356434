/* A thread that asks the kernel for mapped pages piece by piece. Populating maps them too, so that whoever reads behind
 * takes no faults; a kernel that cannot do that (before 5.14) is told to read ahead. One thread: a second took more of
 * the reader's processors than it gave. */
#include "base/fetch.h"
#include "base/thread.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define PIECE_BYTES ((size_t)4 << 20)
#define WAIT_SECONDS 1

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

struct ash_fetch {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t more;
    atomic_bool stop;
    _Atomic size_t done; /* ranges that were walked; changes under mutex */
    size_t count;
    struct ash_fetch_range ranges[];
};

/* The pages of a range, until told to stop. */
static void fetch_range(struct ash_fetch *fetch, const struct ash_fetch_range *range)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), end = (uintptr_t)range->base + range->size_bytes;
    uintptr_t at = (uintptr_t)range->base / page * page;

    while (at < end && range->size_bytes > 0 && !atomic_load_explicit(&fetch->stop, memory_order_relaxed)) {
        size_t bytes = end - at < PIECE_BYTES ? end - at : PIECE_BYTES;

        if (madvise((void *)at, bytes, MADV_POPULATE_READ) != 0) madvise((void *)at, bytes, MADV_WILLNEED);
        at += bytes;
    }
}

static void *fetch_main(void *arg)
{
    struct ash_fetch *fetch = arg;

    for (size_t i = 0; i < fetch->count; i++) {
        fetch_range(fetch, &fetch->ranges[i]);
        pthread_mutex_lock(&fetch->mutex);
        atomic_store(&fetch->done, i + 1);
        pthread_cond_signal(&fetch->more);
        pthread_mutex_unlock(&fetch->mutex);
    }
    return NULL;
}

static void fetch_free(struct ash_fetch *fetch)
{
    pthread_cond_destroy(&fetch->more);
    pthread_mutex_destroy(&fetch->mutex);
    free(fetch);
}

struct ash_fetch *ash_fetch_start(const struct ash_fetch_range *ranges, size_t count)
{
    struct ash_fetch *fetch = calloc(1, sizeof(*fetch) + count * sizeof(*ranges));

    if (fetch == NULL) return NULL;
    fetch->count = count;
    if (count > 0) memcpy(fetch->ranges, ranges, count * sizeof(*ranges));
    if (ash_cond_init(&fetch->more) < 0) {
        free(fetch);
        return NULL;
    }
    pthread_mutex_init(&fetch->mutex, NULL);
    if (ash_thread_start(&fetch->thread, fetch_main, fetch) == 0) return fetch;
    fetch_free(fetch);
    return NULL;
}

void ash_fetch_wait(struct ash_fetch *fetch, const void *base)
{
    struct timespec until;
    size_t i = 0;
    int rc = 0;

    if (fetch == NULL || atomic_load(&fetch->done) == fetch->count) return;
    while (i < fetch->count && fetch->ranges[i].base != base)
        i++;
    if (i == fetch->count || atomic_load(&fetch->done) > i) return;
    until = ash_cond_deadline(WAIT_SECONDS * 1000000000ull);
    pthread_mutex_lock(&fetch->mutex);
    while (atomic_load(&fetch->done) <= i && rc == 0)
        rc = pthread_cond_timedwait(&fetch->more, &fetch->mutex, &until);
    pthread_mutex_unlock(&fetch->mutex);
}

void ash_fetch_finish(struct ash_fetch *fetch)
{
    if (fetch == NULL) return;
    pthread_join(fetch->thread, NULL);
    fetch_free(fetch);
}

void ash_fetch_stop(struct ash_fetch *fetch)
{
    if (fetch == NULL) return;
    atomic_store_explicit(&fetch->stop, true, memory_order_relaxed);
    ash_fetch_finish(fetch);
}
