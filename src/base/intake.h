/* intake - reads parts of mapped files past the page cache, several at a time, and hands each to a function. For bytes
 * that are used once, where they lie in the file, to make something else of them: the cache's memory is neither filled
 * nor mapped on the way, and the buffers that a disk writes to are the same few all the time. */
#ifndef ASH_BASE_INTAKE_H
#define ASH_BASE_INTAKE_H

#include <stddef.h>
#include <stdint.h>
#include "base/file.h"

struct ash_intake;

/* Bytes of a mapping; map NULL: bytes that are in memory anyway. */
struct ash_intake_part {
    const struct ash_map *map;
    const void *data;
    size_t size_bytes;
};

/* Part `index` is at bytes, until it returns. Called by any thread, parts in any order. */
typedef void (*ash_intake_fn)(void *ctx, size_t index, const void *bytes);

/* Start threads that take the parts (copied) about in order. keep_below: 0, or the files are to be in the page cache
 * for whoever opens them next. When all parts are taken, and the processors have nothing else to do, they are read once
 * more for that, until close; where the disk turns out to give fewer bytes a second than keep_below, so that reading
 * them again would take long, they go through the cache at once. The mappings must stay until close. Nothing else may
 * change the flags of their descriptors. -ENOMEM or -EAGAIN: nothing was started. */
int ash_intake_open(const struct ash_intake_part *parts, size_t count, uint64_t keep_below, ash_intake_fn take,
                    void *ctx, struct ash_intake **intake_out, struct ash_err *err);
/* Wait until the first `count` parts have been taken. An error of reading, or no part in a minute, ends the intake:
 * this and later calls return it, with the cause in err. 0 for NULL. */
int ash_intake_wait(struct ash_intake *intake, size_t count, struct ash_err *err);
/* Stop behind the parts that are being taken, and free. NULL is a no-op. */
void ash_intake_close(struct ash_intake *intake);

#endif
