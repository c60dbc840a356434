/* A thread that asks the kernel for mapped pages piece by piece. Populating maps them too, so that whoever reads behind
 * takes no faults; a kernel that cannot do that (before 5.14) is told to read ahead. One thread: a second took more of
 * the reader's processors than it gave. */
#include "base/fetch.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PIECE_BYTES ((size_t)4 << 20)

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

struct ash_fetch {
    pthread_t thread;
    atomic_bool stop;
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

    for (size_t i = 0; i < fetch->count; i++)
        fetch_range(fetch, &fetch->ranges[i]);
    return NULL;
}

struct ash_fetch *ash_fetch_start(const struct ash_fetch_range *ranges, size_t count)
{
    struct ash_fetch *fetch = calloc(1, sizeof(*fetch) + count * sizeof(*ranges));
    sigset_t all, before;
    int rc;

    if (fetch == NULL) return NULL;
    fetch->count = count;
    if (count > 0) memcpy(fetch->ranges, ranges, count * sizeof(*ranges));
    sigfillset(&all); /* signals are for the threads of the program */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&fetch->thread, NULL, fetch_main, fetch);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc == 0) return fetch;
    free(fetch);
    return NULL;
}

void ash_fetch_finish(struct ash_fetch *fetch)
{
    if (fetch == NULL) return;
    pthread_join(fetch->thread, NULL);
    free(fetch);
}

void ash_fetch_stop(struct ash_fetch *fetch)
{
    if (fetch == NULL) return;
    atomic_store_explicit(&fetch->stop, true, memory_order_relaxed);
    ash_fetch_finish(fetch);
}
