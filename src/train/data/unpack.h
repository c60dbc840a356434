/* unpack - compressed streams as plain bytes, a piece at a time. One table per format; unpack.c lists them. */
#ifndef ASH_TRAIN_UNPACK_H
#define ASH_TRAIN_UNPACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"

/* Input and output of a step; both advance. */
struct ash_unpack_io {
    const uint8_t *in;
    size_t in_bytes;
    uint8_t *out;
    size_t out_bytes;
};

struct ash_unpack_ops {
    const char *name; /* "gzip" */
    uint8_t magic[4]; /* first bytes of such a file */
    size_t magic_bytes;
    /* Begin a stream; *state_out goes to the others. Returns 0, -ENOMEM, or -ENOTSUP where the build lacks it. */
    int (*open)(void **state_out);
    /* Unpack until io has nothing left to read or to write. *ended_out: a whole stream was read; another may follow it.
     * Returns 0, or -EBADMSG for damaged data. */
    int (*step)(void *state, struct ash_unpack_io *io, bool *ended_out);
    void (*close)(void *state);
};

extern const struct ash_unpack_ops ash_unpack_gzip;
extern const struct ash_unpack_ops ash_unpack_zstd;

/* The format that a file which begins with these bytes has; NULL: it is not compressed. */
const struct ash_unpack_ops *ash_unpack_find(const uint8_t *head, size_t size_bytes);

#endif
