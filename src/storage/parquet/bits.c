/* Numbers of Parquet's pages, one at a time: nothing is unpacked ahead, so a page's claimed count costs no memory.
 * Bit-packed values have their lowest bit first. */
#include "storage/parquet/parquet_priv.h"

#include <errno.h>

#include "base/assert.h"

#define WIDTH_MAX 32
#define BLOCK_VALUES_MAX ((uint64_t)1 << 31)

static size_t left_in(const struct ash_parquet_bytes *bytes)
{
    return (size_t)(bytes->end - bytes->at);
}

static int take_varint(struct ash_parquet_bytes *bytes, uint64_t *value_out)
{
    struct ash_thrift thrift = {.at = bytes->at, .end = bytes->end};

    *value_out = ash_thrift_varint(&thrift);
    bytes->at = thrift.at;
    return ash_thrift_ok(&thrift) ? 0 : -EBADMSG;
}

/* The value of width bits that begins at a bit of bytes. */
static int unpack(const struct ash_parquet_bytes *bytes, uint64_t bit, unsigned width, uint32_t *value_out)
{
    size_t byte = (size_t)(bit / 8), count = (size_t)((bit % 8 + width + 7) / 8);
    uint64_t word = 0;

    ash_assert(width <= 32); /* with seven bits before them they fit a word */
    if (byte > left_in(bytes) || count > left_in(bytes) - byte) return -EBADMSG;
    for (size_t i = 0; i < count; i++)
        word |= (uint64_t)bytes->at[byte + i] << 8 * i;
    *value_out = (uint32_t)(word >> bit % 8 & (((uint64_t)1 << width) - 1));
    return 0;
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

void ash_parquet_runs_init(struct ash_parquet_runs *runs, struct ash_parquet_bytes bytes, unsigned width)
{
    ash_assert(width <= WIDTH_MAX && bytes.at <= bytes.end);
    *runs = (struct ash_parquet_runs){.bytes = bytes, .width = width};
}

static int start_packed(struct ash_parquet_runs *runs, uint64_t groups)
{
    uint64_t size_bytes = groups * runs->width; /* eight values of width bits are width bytes */

    if (groups > UINT32_MAX) return -EBADMSG;
    if (size_bytes > left_in(&runs->bytes)) size_bytes = left_in(&runs->bytes); /* some writers cut the last group */
    runs->packed = (struct ash_parquet_bytes){runs->bytes.at, runs->bytes.at + size_bytes};
    runs->bytes.at += size_bytes;
    runs->bit = 0;
    runs->left = groups * 8;
    return 0;
}

static int start_same(struct ash_parquet_runs *runs, uint64_t count)
{
    unsigned value_bytes = (runs->width + 7) / 8;
    int rc = unpack(&runs->bytes, 0, value_bytes * 8, &runs->value);

    if (rc < 0) return rc;
    runs->bytes.at += value_bytes;
    runs->left = count;
    return 0;
}

int ash_parquet_runs_next(struct ash_parquet_runs *runs, uint32_t *value_out)
{
    while (runs->left == 0) {
        uint64_t head = 0;
        int rc = take_varint(&runs->bytes, &head);

        if (rc < 0) return rc;
        runs->is_packed = (head & 1) != 0;
        rc = runs->is_packed ? start_packed(runs, head >> 1) : start_same(runs, head >> 1);
        if (rc < 0) return rc;
    }
    runs->left--;
    if (runs->is_packed) {
        int rc = unpack(&runs->packed, runs->bit, runs->width, value_out);

        runs->bit += runs->width;
        return rc;
    }
    *value_out = runs->value;
    return 0;
}

/* ---- deltas ------------------------------------------------------------------------------------------------------ */

static int take_zigzag(struct ash_parquet_bytes *bytes, uint32_t *value_out)
{
    uint64_t value = 0;
    int rc = take_varint(bytes, &value);

    *value_out = (uint32_t)(value >> 1 ^ (0 - (value & 1))); /* lengths are 32 bits wide, and wrap there */
    return rc;
}

/* The head of a block: the least delta and the width of each miniblock. */
static int start_block(struct ash_parquet_deltas *deltas)
{
    int rc = take_zigzag(&deltas->bytes, &deltas->delta_min);

    if (rc < 0) return rc;
    if (deltas->minis > left_in(&deltas->bytes)) return -EBADMSG;
    deltas->widths = deltas->bytes.at;
    deltas->bytes.at += deltas->minis;
    deltas->mini = 0;
    return 0;
}

static int start_mini(struct ash_parquet_deltas *deltas)
{
    uint64_t size_bytes;
    int rc = 0;

    if (deltas->widths == NULL || deltas->mini == deltas->minis) rc = start_block(deltas);
    if (rc < 0) return rc;
    if (deltas->widths[deltas->mini] > WIDTH_MAX) return -EBADMSG;
    size_bytes = deltas->per_mini / 8 * deltas->widths[deltas->mini];
    if (size_bytes > left_in(&deltas->bytes)) return -EBADMSG;
    deltas->packed = (struct ash_parquet_bytes){deltas->bytes.at, deltas->bytes.at + size_bytes};
    deltas->bytes.at += size_bytes;
    deltas->in_mini = deltas->per_mini;
    deltas->bit = 0;
    deltas->mini++;
    return 0;
}

/* Where the last block ends; the miniblocks that it does not need are not there. */
static int find_end(struct ash_parquet_deltas deltas, const uint8_t **end_out)
{
    uint64_t left = deltas.left > 0 ? deltas.left - 1 : 0;

    while (left > 0) {
        int rc = start_mini(&deltas);

        if (rc < 0) return rc;
        left -= left < deltas.per_mini ? left : deltas.per_mini;
    }
    *end_out = deltas.bytes.at;
    return 0;
}

int ash_parquet_deltas_init(struct ash_parquet_deltas *deltas, struct ash_parquet_bytes bytes, const uint8_t **end_out)
{
    uint64_t block = 0, minis = 0, count = 0;

    *deltas = (struct ash_parquet_deltas){.bytes = bytes};
    if (take_varint(&deltas->bytes, &block) < 0 || take_varint(&deltas->bytes, &minis) < 0 ||
        take_varint(&deltas->bytes, &count) < 0 || take_zigzag(&deltas->bytes, &deltas->value) < 0)
        return -EBADMSG;
    if (minis == 0 || block > BLOCK_VALUES_MAX || block % minis != 0 || block / minis % 8 != 0 || block == 0)
        return -EBADMSG;
    deltas->minis = minis;
    deltas->per_mini = block / minis;
    deltas->left = count;
    return find_end(*deltas, end_out);
}

int ash_parquet_deltas_next(struct ash_parquet_deltas *deltas, uint32_t *value_out)
{
    uint32_t delta = 0;
    unsigned width;
    int rc = 0;

    if (deltas->left == 0) return -EBADMSG;
    deltas->left--;
    if (deltas->has_begun) {
        if (deltas->in_mini == 0) rc = start_mini(deltas);
        if (rc < 0) return rc;
        width = deltas->widths[deltas->mini - 1];
        rc = unpack(&deltas->packed, deltas->bit, width, &delta);
        if (rc < 0) return rc;
        deltas->bit += width;
        deltas->in_mini--;
        deltas->value += deltas->delta_min + delta;
    }
    deltas->has_begun = true;
    *value_out = deltas->value;
    return 0;
}
