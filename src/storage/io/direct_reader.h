/* direct_reader - reads ranges of mapped files past the page cache (O_DIRECT), several at a time, and hands each to a
 * function. For bytes that are used once, to make something else of them: the page cache is neither filled nor mapped,
 * and the disk writes to the same few buffers all the time. Built on the I/O queue (io_queue.h). */
#ifndef ASH_STORAGE_IO_DIRECT_READER_H
#define ASH_STORAGE_IO_DIRECT_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/file.h"

struct ash_direct_reader;

/* Bytes of a mapping; map NULL: bytes that are in memory anyway. Those of a remote one (remote_file.h) are read from
 * there. */
struct ash_direct_range {
    const struct ash_map *map;
    const void *data;
    size_t size_bytes;
};

/* Range `index` is at bytes, until the function returns. Called by any of the reader's threads, ranges in any order. */
typedef void (*ash_direct_read_fn)(void *ctx, size_t index, const void *bytes);

/* Start threads that read the ranges (copied) roughly in order and call take for each. cache_if_slower_than_bytes_s: 0
 * leaves the page cache alone. Otherwise the files should end up in the page cache for later opens. A disk
 * that delivers fewer bytes a second than this is read through the cache at once. From a faster one the ranges are
 * read a second time, at idle priority, after all were taken and until close. The mappings must stay until close. The
 * caller owns *reader_out. Returns 0, -ENOMEM or -EAGAIN;
 * on error nothing was started. */
int ash_direct_reader_open(const struct ash_direct_range *ranges, size_t count, uint64_t cache_if_slower_than_bytes_s,
                           ash_direct_read_fn take, void *ctx, struct ash_direct_reader **reader_out,
                           struct ash_err *err);
/* Wait until the first `count` ranges have been taken. A read error, or a minute without a range, stops the reader:
 * this and later calls return it, with the cause in err. Returns 0 for NULL. One thread at a time. */
int ash_direct_reader_wait(struct ash_direct_reader *reader, size_t count, struct ash_err *err);
/* Does it read past the page cache: can it, and is the disk fast enough so far? Any thread. */
bool ash_direct_reader_is_direct(const struct ash_direct_reader *reader);
/* Stop after the ranges that are being taken, and free. NULL is a no-op. */
void ash_direct_reader_close(struct ash_direct_reader *reader);

#endif
