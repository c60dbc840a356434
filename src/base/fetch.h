/* fetch - brings mapped files into memory in the background, in the order in which they will be read: one fault at a
 * time a disk gives a fraction of what it can. */
#ifndef ASH_BASE_FETCH_H
#define ASH_BASE_FETCH_H

#include <stddef.h>

struct ash_fetch;

/* Part of a mapping. */
struct ash_fetch_range {
    const void *base;
    size_t size_bytes;
};

/* Start a thread that walks the ranges (copied) one after the other. The mappings must stay until stop. NULL when there
 * is no memory or no thread for it: nothing is lost but time. */
struct ash_fetch *ash_fetch_start(const struct ash_fetch_range *ranges, size_t count);
/* Wait until the range that starts at base is in memory, so that whoever is about to read it does not take processors
 * from the walk, nor compete with it for the disk a page at a time. Returns after a second at the latest (reading then
 * waits for itself), at once for NULL and for what is no range's start. */
void ash_fetch_wait(struct ash_fetch *fetch, const void *base);
/* Wait until all is in memory, and free. NULL is a no-op. */
void ash_fetch_finish(struct ash_fetch *fetch);
/* Stop at the next piece, wherever the walk is, and free. NULL is a no-op. */
void ash_fetch_stop(struct ash_fetch *fetch);

#endif
