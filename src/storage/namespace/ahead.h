/* ahead - ranges of objects that are fetched by a thread before they are read, soonest first. A range is held in
 * memory until it was read, or (is_kept) only brought into the namespace's folder, for ranges that are read bit by bit.
 * Reading waits for a range that is on its way, and reads any other itself. Any thread may want and read. */
#ifndef ASH_STORAGE_NAMESPACE_AHEAD_H
#define ASH_STORAGE_NAMESPACE_AHEAD_H

#include "storage/namespace/settings.h"

struct ash_ahead;

/* A range of object number `object` of those that were opened. */
struct ash_ahead_range {
    size_t object;
    uint64_t offset;
    size_t size_bytes;
};

struct ash_ahead_opts {
    const char *url;
    const char *const *keys; /* [count]: the objects below url */
    size_t count;
    struct ash_namespace_settings *settings; /* borrowed until close */
    size_t memory_bytes;                     /* held at most */
};
/* Open objects for reading, and the thread. The present version of each is read from the server. The caller owns
 * *ahead_out. */
int ash_ahead_open(const struct ash_ahead_opts *opts, struct ash_ahead **ahead_out, struct ash_err *err);
/* Stop the thread and free. NULL is a no-op. */
void ash_ahead_close(struct ash_ahead *ahead);
/* The size of an object. */
uint64_t ash_ahead_size(const struct ash_ahead *ahead, size_t object);
/* Bytes read through it, and the fetched part of them. */
struct ash_ahead_totals {
    uint64_t read_bytes, fetched_bytes;
    uint64_t wanted; /* ranges */
};
/* The totals so far. Not concurrently with reads or wants. */
struct ash_ahead_totals ash_ahead_get_totals(const struct ash_ahead *ahead);
/* A range will be read; those with a smaller order sooner. A repeated want is a no-op; a kept one with another order is
 * fetched again. Without memory, the range wanted latest is forgotten. */
void ash_ahead_want(struct ash_ahead *ahead, const struct ash_ahead_range *range, uint64_t order, bool is_kept);
/* Exactly the bytes of a range. */
int ash_ahead_read(struct ash_ahead *ahead, const struct ash_ahead_range *range, void *data, struct ash_err *err);

#endif
