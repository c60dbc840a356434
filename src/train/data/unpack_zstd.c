/* Zstandard through libzstd; builds without it have unpack_zstd_none.c. */
#include "train/data/unpack.h"

#include <errno.h>
#include <stdlib.h>
#include <zstd.h>

#include "base/assert.h"

struct zstd {
    ZSTD_DStream *stream;
    bool is_between; /* a frame has ended and none has begun */
};

static int zstd_open(void **state_out)
{
    struct zstd *zstd = calloc(1, sizeof(*zstd));

    if (zstd != NULL) zstd->stream = ZSTD_createDStream();
    if (zstd == NULL || zstd->stream == NULL) {
        free(zstd);
        return -ENOMEM;
    }
    *state_out = zstd;
    return 0;
}

static void zstd_close(void *state)
{
    struct zstd *zstd = state;

    ZSTD_freeDStream(zstd->stream);
    free(zstd);
}

static int zstd_step(void *state, struct ash_unpack_io *io, bool *ended_out)
{
    struct zstd *zstd = state;
    ZSTD_inBuffer in = {io->in, io->in_bytes, 0};
    ZSTD_outBuffer out = {io->out, io->out_bytes, 0};

    ash_assert(io->out_bytes > 0);
    do { /* once without input too: the decoder may still hold some output */
        size_t before = out.pos, rest = ZSTD_decompressStream(zstd->stream, &out, &in);

        if (ZSTD_isError(rest)) return -EBADMSG;
        if (in.pos > 0 || out.pos > before) zstd->is_between = rest == 0;
    } while (in.pos < in.size && out.pos < out.size);
    io->in += in.pos;
    io->in_bytes -= in.pos;
    io->out += out.pos;
    io->out_bytes -= out.pos;
    *ended_out = zstd->is_between;
    return 0;
}

const struct ash_unpack_ops ash_unpack_zstd = {
    .name = "zstd",
    .magic = {0x28, 0xb5, 0x2f, 0xfd},
    .magic_bytes = 4,
    .open = zstd_open,
    .step = zstd_step,
    .close = zstd_close,
};
