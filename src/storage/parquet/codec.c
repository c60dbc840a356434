/* The codecs of Parquet's pages, each through its library. gzip is always there; a build may lack the others. */
#include "storage/parquet/parquet_priv.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <zlib.h>
#ifdef ASH_WITH_SNAPPY
#include <snappy-c.h>
#endif
#ifdef ASH_WITH_ZSTD
#include <zstd.h>
#endif
#ifdef ASH_WITH_LZ4
#include <lz4.h>
#endif
#ifdef ASH_WITH_BROTLI
#include <brotli/decode.h>
#endif

#include "base/assert.h"

#define GZIP_OR_ZLIB 32 /* added to the window's bits: take either header */
#define SLACK_BYTES 64  /* of headers, in the bound */

static int copy_bytes(const struct ash_parquet_block *block)
{
    if (block->in_bytes != block->out_bytes) return -EBADMSG;
    memcpy(block->out, block->in, block->in_bytes);
    return 0;
}

/* A page may be several members one after the other. */
static int unpack_gzip(const struct ash_parquet_block *block)
{
    z_stream stream = {.next_in = (Bytef *)(uintptr_t)block->in, /* zlib does not write there */
                       .avail_in = (uInt)block->in_bytes,
                       .next_out = block->out,
                       .avail_out = (uInt)block->out_bytes};
    int rc;

    ash_assert(block->in_bytes <= UINT_MAX && block->out_bytes <= UINT_MAX);
    if (inflateInit2(&stream, GZIP_OR_ZLIB + MAX_WBITS) != Z_OK) return -ENOMEM;
    do
        rc = inflate(&stream, Z_FINISH);
    while (rc == Z_STREAM_END && stream.avail_in > 0 && inflateReset(&stream) == Z_OK);
    inflateEnd(&stream);
    if (rc == Z_MEM_ERROR) return -ENOMEM;
    return rc == Z_STREAM_END && stream.avail_out == 0 ? 0 : -EBADMSG;
}

#ifdef ASH_WITH_SNAPPY
static int unpack_snappy(const struct ash_parquet_block *block)
{
    size_t size_bytes = block->out_bytes;
    snappy_status rc = snappy_uncompress((const char *)block->in, block->in_bytes, (char *)block->out, &size_bytes);

    return rc == SNAPPY_OK && size_bytes == block->out_bytes ? 0 : -EBADMSG;
}
#else
#define unpack_snappy NULL
#endif

#ifdef ASH_WITH_ZSTD
static int unpack_zstd(const struct ash_parquet_block *block)
{
    size_t size_bytes = ZSTD_decompress(block->out, block->out_bytes, block->in, block->in_bytes);

    return !ZSTD_isError(size_bytes) && size_bytes == block->out_bytes ? 0 : -EBADMSG;
}
#else
#define unpack_zstd NULL
#endif

#ifdef ASH_WITH_LZ4
static int unpack_lz4(const struct ash_parquet_block *block)
{
    int size_bytes;

    ash_assert(block->in_bytes <= INT_MAX && block->out_bytes <= INT_MAX);
    size_bytes =
        LZ4_decompress_safe((const char *)block->in, (char *)block->out, (int)block->in_bytes, (int)block->out_bytes);
    return size_bytes >= 0 && (size_t)size_bytes == block->out_bytes ? 0 : -EBADMSG;
}
#else
#define unpack_lz4 NULL
#endif

#ifdef ASH_WITH_BROTLI
static int unpack_brotli(const struct ash_parquet_block *block)
{
    size_t size_bytes = block->out_bytes;
    BrotliDecoderResult rc = BrotliDecoderDecompress(block->in_bytes, block->in, &size_bytes, block->out);

    return rc == BROTLI_DECODER_RESULT_SUCCESS && size_bytes == block->out_bytes ? 0 : -EBADMSG;
}
#else
#define unpack_brotli NULL
#endif

/* By the format's numbers. growth: the most bytes that one byte can become. */
static const struct {
    const char *name;
    int (*unpack)(const struct ash_parquet_block *block); /* NULL: this build lacks it */
    unsigned growth;
    const char *library; /* NULL: no build has it */
} codecs[] = {
    {"UNCOMPRESSED", copy_bytes, 1, ""},
    {"SNAPPY", unpack_snappy, 32, "libsnappy"}, /* 3 bytes copy 64 */
    {"GZIP", unpack_gzip, 1100, ""},            /* DEFLATE: 1032 */
    {"LZO", NULL, 0, NULL},
    {"BROTLI", unpack_brotli, 1u << 22, "libbrotlidec"}, /* a few bytes copy 2^24 */
    {"LZ4", NULL, 0, NULL},
    {"ZSTD", unpack_zstd, 1u << 16, "libzstd"}, /* 4 bytes repeat one 2^17 times */
    {"LZ4_RAW", unpack_lz4, 256, "liblz4"},     /* a byte lengthens a match by 255 */
};

int ash_parquet_codec_check(int codec, struct ash_err *err)
{
    if (codec < 0 || codec >= (int)ASH_COUNT(codecs))
        return ash_err_set(err, -ENOTSUP, "its codec, number %d, is not known", codec);
    if (codecs[codec].unpack != NULL) return 0;
    if (codecs[codec].library != NULL)
        return ash_err_set(err, -ENOTSUP, "it is compressed with %s, which this build lacks; build again with %s",
                           codecs[codec].name, codecs[codec].library);
    return ash_err_set(err, -ENOTSUP,
                       "it is compressed with %s, which is not read; SNAPPY, GZIP, ZSTD, LZ4_RAW and BROTLI are",
                       codecs[codec].name);
}

uint64_t ash_parquet_codec_bound(int codec, size_t in_bytes)
{
    ash_assert(codec >= 0 && codec < (int)ASH_COUNT(codecs));
    if (codec == ASH_PARQUET_UNCOMPRESSED) return in_bytes;
    return (uint64_t)codecs[codec].growth * in_bytes + SLACK_BYTES;
}

int ash_parquet_codec_run(int codec, const struct ash_parquet_block *block)
{
    ash_assert(codec >= 0 && codec < (int)ASH_COUNT(codecs) && codecs[codec].unpack != NULL);
    return codecs[codec].unpack(block);
}
