/* Texts of Parquet's pages, in each encoding that byte arrays have. */
#include "storage/parquet/parquet_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/assert.h"

#define INDEX_BITS_MAX 32
#define LENGTH_BYTES 4

const char *ash_parquet_encoding_name(int encoding)
{
    static const char *const names[] = {
        [ASH_PARQUET_PLAIN] = "PLAIN",
        [ASH_PARQUET_PLAIN_DICTIONARY] = "PLAIN_DICTIONARY",
        [ASH_PARQUET_RLE] = "RLE",
        [ASH_PARQUET_BIT_PACKED] = "BIT_PACKED",
        [ASH_PARQUET_DELTA_BINARY_PACKED] = "DELTA_BINARY_PACKED",
        [ASH_PARQUET_DELTA_LENGTH] = "DELTA_LENGTH_BYTE_ARRAY",
        [ASH_PARQUET_DELTA_BYTES] = "DELTA_BYTE_ARRAY",
        [ASH_PARQUET_RLE_DICTIONARY] = "RLE_DICTIONARY",
        [ASH_PARQUET_BYTE_STREAM_SPLIT] = "BYTE_STREAM_SPLIT",
    };

    if (encoding < 0 || encoding >= (int)ASH_COUNT(names) || names[encoding] == NULL) return "unknown";
    return names[encoding];
}

static int take_text(struct ash_parquet_bytes *bytes, size_t size_bytes, struct ash_parquet_text *text_out)
{
    if (size_bytes > (size_t)(bytes->end - bytes->at)) return -EBADMSG;
    *text_out = (struct ash_parquet_text){bytes->at, size_bytes};
    bytes->at += size_bytes;
    return 0;
}

/* A length, then the bytes. */
static int take_plain(struct ash_parquet_bytes *bytes, struct ash_parquet_text *text_out)
{
    struct ash_parquet_text length;
    int rc = take_text(bytes, LENGTH_BYTES, &length);

    if (rc < 0) return rc;
    return take_text(bytes,
                     (size_t)length.data[0] | (size_t)length.data[1] << 8 | (size_t)length.data[2] << 16 |
                         (size_t)length.data[3] << 24,
                     text_out);
}

int ash_parquet_dictionary_fill(struct ash_parquet_dictionary *dictionary, struct ash_parquet_bytes bytes,
                                uint64_t count)
{
    dictionary->count = 0;
    if (count > (uint64_t)(bytes.end - bytes.at) / LENGTH_BYTES) return -EBADMSG;
    if (ash_array_reserve(&dictionary->texts, &dictionary->capacity, (size_t)count, sizeof(*dictionary->texts)) < 0)
        return -ENOMEM;
    for (uint64_t i = 0; i < count; i++) {
        int rc = take_plain(&bytes, &dictionary->texts[i]);

        if (rc < 0) return rc;
    }
    dictionary->count = (size_t)count;
    return 0;
}

void ash_parquet_values_fini(struct ash_parquet_values *values)
{
    ash_str_fini(&values->text);
}

/* The width of the indexes, then their runs. A page without a value may have neither. */
static int start_indexes(struct ash_parquet_values *values)
{
    struct ash_parquet_bytes bytes = values->bytes;
    unsigned width = 0;

    if (bytes.at < bytes.end) width = *bytes.at++;
    if (width > INDEX_BITS_MAX) return -EBADMSG;
    ash_parquet_runs_init(&values->indexes, bytes, width);
    return 0;
}

/* Lengths of prefixes (not of DELTA_LENGTH_BYTE_ARRAY), lengths of suffixes, bytes. */
static int start_deltas(struct ash_parquet_values *values)
{
    int rc = 0;

    ash_str_clear(&values->text);
    values->prefixes = values->lengths = (struct ash_parquet_deltas){0};
    if (values->bytes.at == values->bytes.end) return 0;
    if (values->encoding == ASH_PARQUET_DELTA_BYTES)
        rc = ash_parquet_deltas_init(&values->prefixes, values->bytes, &values->bytes.at);
    if (rc < 0) return rc;
    return ash_parquet_deltas_init(&values->lengths, values->bytes, &values->bytes.at);
}

int ash_parquet_values_start(struct ash_parquet_values *values, int encoding, struct ash_parquet_bytes bytes,
                             const struct ash_parquet_dictionary *dictionary)
{
    ash_assert(bytes.at <= bytes.end);
    values->encoding = encoding;
    values->bytes = bytes;
    values->dictionary = dictionary;
    switch (encoding) {
    case ASH_PARQUET_PLAIN:
        return 0;
    case ASH_PARQUET_PLAIN_DICTIONARY:
    case ASH_PARQUET_RLE_DICTIONARY:
        return start_indexes(values);
    case ASH_PARQUET_DELTA_LENGTH:
    case ASH_PARQUET_DELTA_BYTES:
        return start_deltas(values);
    default:
        return -ENOTSUP;
    }
}

static int look_up(struct ash_parquet_values *values, struct ash_parquet_text *text_out)
{
    uint32_t index = 0;
    int rc = ash_parquet_runs_next(&values->indexes, &index);

    if (rc < 0) return rc;
    if (index >= values->dictionary->count) return -EBADMSG;
    *text_out = values->dictionary->texts[index];
    return 0;
}

static int take_delta(struct ash_parquet_values *values, struct ash_parquet_text *text_out)
{
    uint32_t length = 0;
    int rc = ash_parquet_deltas_next(&values->lengths, &length);

    return rc < 0 ? rc : take_text(&values->bytes, length, text_out);
}

/* A prefix of the last value, and a suffix. */
static int take_prefixed(struct ash_parquet_values *values, struct ash_parquet_text *text_out)
{
    struct ash_parquet_text suffix;
    uint32_t prefix = 0;
    int rc = ash_parquet_deltas_next(&values->prefixes, &prefix);

    if (rc < 0) return rc;
    rc = take_delta(values, &suffix);
    if (rc < 0) return rc;
    if (prefix > values->text.size_bytes) return -EBADMSG;
    values->text.size_bytes = prefix;
    rc = ash_str_add(&values->text, suffix.data, suffix.size_bytes);
    if (rc < 0) return rc;
    *text_out = (struct ash_parquet_text){(const uint8_t *)values->text.data, values->text.size_bytes};
    return 0;
}

int ash_parquet_values_next(struct ash_parquet_values *values, struct ash_parquet_text *text_out)
{
    switch (values->encoding) {
    case ASH_PARQUET_PLAIN:
        return take_plain(&values->bytes, text_out);
    case ASH_PARQUET_DELTA_LENGTH:
        return take_delta(values, text_out);
    case ASH_PARQUET_DELTA_BYTES:
        return take_prefixed(values, text_out);
    default:
        return look_up(values, text_out);
    }
}
