/* gzip through zlib. A file may be several members one after the other, as `cat a.gz b.gz` writes it. */
#include "train/data/unpack.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <zlib.h>

#include "base/assert.h"
#include "base/math.h"

#define GZIP_ONLY 16 /* added to the window's bits: expect a gzip header */

struct gzip {
    z_stream stream;
    bool is_between; /* a member has ended and none has begun */
};

static int gzip_open(void **state_out)
{
    struct gzip *gzip = calloc(1, sizeof(*gzip));

    if (gzip == NULL) return -ENOMEM;
    if (inflateInit2(&gzip->stream, GZIP_ONLY + MAX_WBITS) != Z_OK) {
        free(gzip);
        return -ENOMEM;
    }
    *state_out = gzip;
    return 0;
}

static void gzip_close(void *state)
{
    struct gzip *gzip = state;

    inflateEnd(&gzip->stream);
    free(gzip);
}

/* One call of inflate; io moves on. */
static int inflate_some(z_stream *stream, struct ash_unpack_io *io)
{
    size_t in_bytes = ash_min(io->in_bytes, UINT_MAX), out_bytes = ash_min(io->out_bytes, UINT_MAX), used, made;
    int rc;

    stream->next_in = (Bytef *)(uintptr_t)io->in; /* zlib does not write there */
    stream->avail_in = (uInt)in_bytes;
    stream->next_out = io->out;
    stream->avail_out = (uInt)out_bytes;
    rc = inflate(stream, Z_NO_FLUSH);
    used = in_bytes - stream->avail_in;
    made = out_bytes - stream->avail_out;
    io->in += used;
    io->in_bytes -= used;
    io->out += made;
    io->out_bytes -= made;
    return rc;
}

static int gzip_step(void *state, struct ash_unpack_io *io, bool *ended_out)
{
    struct gzip *gzip = state;
    int rc = Z_OK;

    ash_assert(io->out_bytes > 0);
    while (io->in_bytes > 0 && io->out_bytes > 0) {
        if (gzip->is_between && io->in[0] == 0) { /* padding up to the end of a block */
            io->in++;
            io->in_bytes--;
            continue;
        }
        if (gzip->is_between && inflateReset(&gzip->stream) != Z_OK) return -EBADMSG;
        rc = inflate_some(&gzip->stream, io);
        gzip->is_between = rc == Z_STREAM_END;
        if (rc == Z_MEM_ERROR) return -ENOMEM;
        if (rc != Z_OK && rc != Z_STREAM_END) return -EBADMSG;
    }
    *ended_out = gzip->is_between;
    return 0;
}

const struct ash_unpack_ops ash_unpack_gzip = {
    .name = "gzip",
    .magic = {0x1f, 0x8b},
    .magic_bytes = 2,
    .open = gzip_open,
    .step = gzip_step,
    .close = gzip_close,
};
