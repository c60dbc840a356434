/* prefetcher - brings mapped files into memory in the background, in the order in which they will be read. Page faults,
 * one at a time, get a fraction of what a disk can deliver. */
#ifndef ASH_BASE_PREFETCHER_H
#define ASH_BASE_PREFETCHER_H

#include <stddef.h>

struct ash_prefetcher;

/* A range of a mapping. */
struct ash_prefetch_range {
    const void *base;
    size_t size_bytes;
};

/* Start a thread that reads the ranges (copied) one after the other. The mappings must stay until finish or stop.
 * Returns NULL when there is no memory or no thread for it: nothing is lost but time. */
struct ash_prefetcher *ash_prefetcher_start(const struct ash_prefetch_range *ranges, size_t count);
/* Wait until the range that starts at base is in memory, so that its reader takes neither processors nor the disk from
 * the prefetcher. Returns after a second at the latest (the reader's own faults then wait), at once for NULL and for a
 * base that is no range's start. Any thread. */
void ash_prefetcher_wait(struct ash_prefetcher *prefetcher, const void *base);
/* Wait until all is in memory, and free. NULL is a no-op. */
void ash_prefetcher_finish(struct ash_prefetcher *prefetcher);
/* Stop after the chunk that is being read, and free. NULL is a no-op. */
void ash_prefetcher_stop(struct ash_prefetcher *prefetcher);

#endif
