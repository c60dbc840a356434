/* parquet_priv - the parts of the Parquet reader: Thrift's compact protocol, the footer, codecs, encodings. */
#ifndef ASH_STORAGE_PARQUET_PARQUET_PRIV_H
#define ASH_STORAGE_PARQUET_PARQUET_PRIV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "base/str.h"
#include "storage/parquet/parquet.h"

/* ---- Thrift's compact protocol ----------------------------------------------------------------------------------- */

enum ash_thrift_type {
    ASH_THRIFT_STOP,
    ASH_THRIFT_TRUE,
    ASH_THRIFT_FALSE,
    ASH_THRIFT_BYTE,
    ASH_THRIFT_I16,
    ASH_THRIFT_I32,
    ASH_THRIFT_I64,
    ASH_THRIFT_DOUBLE,
    ASH_THRIFT_BINARY,
    ASH_THRIFT_LIST,
    ASH_THRIFT_SET,
    ASH_THRIFT_MAP,
    ASH_THRIFT_STRUCT,
    ASH_THRIFT_UUID,
};

/* A message in memory. Failures stick: after one, every call gives 0 and changes nothing. */
struct ash_thrift {
    const uint8_t *at, *end;
    bool is_torn; /* it ends inside a value */
    bool is_bad;  /* it cannot be */
};

struct ash_thrift_field {
    int64_t id; /* 0 before the first */
    enum ash_thrift_type type;
};

/* Has nothing failed yet? */
bool ash_thrift_ok(const struct ash_thrift *thrift);
/* An unsigned number of up to 64 bits, 7 a byte. */
uint64_t ash_thrift_varint(struct ash_thrift *thrift);
/* A signed one, with its sign in the lowest bit. */
int64_t ash_thrift_zigzag(struct ash_thrift *thrift);
/* The next field of a struct; false at its end and after a failure. */
bool ash_thrift_next(struct ash_thrift *thrift, struct ash_thrift_field *field);
/* The integer (or the truth, as 0 or 1) that a field holds. A field of another type is bad. */
int64_t ash_thrift_int(struct ash_thrift *thrift, const struct ash_thrift_field *field);
/* The bytes that a field holds, borrowed from the message; *size_out is their number. */
const char *ash_thrift_binary(struct ash_thrift *thrift, const struct ash_thrift_field *field, size_t *size_out);
/* Begin a list of structs: how many there are, never more than the message can hold. */
uint64_t ash_thrift_structs(struct ash_thrift *thrift, const struct ash_thrift_field *field);
/* Is the field a struct? If not, the message is bad. */
bool ash_thrift_enter(struct ash_thrift *thrift, const struct ash_thrift_field *field);
/* Skip a field's value. */
void ash_thrift_skip(struct ash_thrift *thrift, const struct ash_thrift_field *field);

/* ---- the footer -------------------------------------------------------------------------------------------------- */

/* The column's part of a row group. */
struct ash_parquet_chunk {
    uint64_t begin, end; /* of its pages in the file */
    uint64_t rows;
    int codec;
};

struct ash_parquet_footer {
    struct ash_parquet_chunk *chunks; /* owned */
    size_t chunk_count;
    uint64_t rows; /* of all chunks */
    bool is_optional;
};

/* Parse FileMetaData. Chunks end within data_bytes, the file before its footer. Returns as ash_parquet_open. */
int ash_parquet_footer_parse(const uint8_t *data, size_t size_bytes, uint64_t data_bytes, const char *column,
                             struct ash_parquet_footer *footer_out, struct ash_err *err);
/* Free what parse made. */
void ash_parquet_footer_fini(struct ash_parquet_footer *footer);

/* ---- codecs ------------------------------------------------------------------------------------------------------ */

#define ASH_PARQUET_UNCOMPRESSED 0

struct ash_parquet_block {
    const uint8_t *in;
    size_t in_bytes;
    uint8_t *out;
    size_t out_bytes; /* it must become exactly this much */
};

/* Does this build read the codec? 0, or -ENOTSUP and err names it. */
int ash_parquet_codec_check(int codec, struct ash_err *err);
/* The most bytes that in_bytes can become: what to check before memory is taken. */
uint64_t ash_parquet_codec_bound(int codec, size_t in_bytes);
/* Unpack. Returns 0, -EBADMSG or -ENOMEM. */
int ash_parquet_codec_run(int codec, const struct ash_parquet_block *block);

/* ---- encodings --------------------------------------------------------------------------------------------------- */

enum ash_parquet_encoding {
    ASH_PARQUET_PLAIN = 0,
    ASH_PARQUET_PLAIN_DICTIONARY = 2,
    ASH_PARQUET_RLE = 3,
    ASH_PARQUET_BIT_PACKED = 4,
    ASH_PARQUET_DELTA_BINARY_PACKED = 5,
    ASH_PARQUET_DELTA_LENGTH = 6,
    ASH_PARQUET_DELTA_BYTES = 7,
    ASH_PARQUET_RLE_DICTIONARY = 8,
    ASH_PARQUET_BYTE_STREAM_SPLIT = 9,
};

/* The name that the format gives an encoding. */
const char *ash_parquet_encoding_name(int encoding);

struct ash_parquet_bytes {
    const uint8_t *at, *end;
};

/* Levels and dictionary indexes: runs of one value, and bit-packed values (RLE / bit-packing hybrid). */
struct ash_parquet_runs {
    struct ash_parquet_bytes bytes; /* of the runs to come */
    unsigned width;                 /* bits per value, up to 32 */
    uint64_t left;                  /* values of the present run */
    bool is_packed;
    uint32_t value;                  /* of a run of one value */
    struct ash_parquet_bytes packed; /* of a packed run */
    uint64_t bit;                    /* in packed */
};
/* Start at bytes, with values of width bits. */
void ash_parquet_runs_init(struct ash_parquet_runs *runs, struct ash_parquet_bytes bytes, unsigned width);
/* The next value. Returns 0, or -EBADMSG if there is none. */
int ash_parquet_runs_next(struct ash_parquet_runs *runs, uint32_t *value_out);

/* DELTA_BINARY_PACKED lengths. */
struct ash_parquet_deltas {
    struct ash_parquet_bytes bytes; /* of the blocks to come, then of the present one's packed values */
    uint64_t per_mini, minis;       /* values in a miniblock, miniblocks in a block */
    uint64_t left;                  /* values to give */
    bool has_begun;                 /* the first value was given */
    uint32_t value, delta_min;
    const uint8_t *widths; /* of the present block's miniblocks */
    uint64_t mini;         /* the next of them */
    uint64_t in_mini;      /* values of the present miniblock not given yet */
    uint64_t bit;
    struct ash_parquet_bytes packed;
};
/* Start at bytes. *end_out is where the encoded lengths end. Returns 0 or -EBADMSG. */
int ash_parquet_deltas_init(struct ash_parquet_deltas *deltas, struct ash_parquet_bytes bytes, const uint8_t **end_out);
/* The next length. Returns 0 or -EBADMSG. */
int ash_parquet_deltas_next(struct ash_parquet_deltas *deltas, uint32_t *value_out);

struct ash_parquet_text {
    const uint8_t *data;
    size_t size_bytes;
};

/* A dictionary page. Zero-initialise. The texts borrow from its bytes. */
struct ash_parquet_dictionary {
    struct ash_parquet_text *texts;
    size_t count, capacity;
};
/* Find the PLAIN texts in bytes. Returns 0, -EBADMSG or -ENOMEM. */
int ash_parquet_dictionary_fill(struct ash_parquet_dictionary *dictionary, struct ash_parquet_bytes bytes,
                                uint64_t count);

/* The values of a data page. Zero-initialise once; start again with each page. */
struct ash_parquet_values {
    int encoding;
    struct ash_parquet_bytes bytes;
    const struct ash_parquet_dictionary *dictionary;
    struct ash_parquet_runs indexes;
    struct ash_parquet_deltas prefixes, lengths;
    struct ash_str text; /* DELTA_BYTE_ARRAY: the last value; owned */
};
/* Free the memory. */
void ash_parquet_values_fini(struct ash_parquet_values *values);
/* Begin a page's values. Borrows dictionary (may be empty). Returns 0, -EBADMSG, or -ENOTSUP for another encoding. */
int ash_parquet_values_start(struct ash_parquet_values *values, int encoding, struct ash_parquet_bytes bytes,
                             const struct ash_parquet_dictionary *dictionary);
/* The next value, borrowed until the next call. Returns 0, -EBADMSG or -ENOMEM. */
int ash_parquet_values_next(struct ash_parquet_values *values, struct ash_parquet_text *text_out);

/* ---- pages ------------------------------------------------------------------------------------------------------- */

enum ash_parquet_page_type {
    ASH_PARQUET_DATA_PAGE = 0,
    ASH_PARQUET_INDEX_PAGE = 1,
    ASH_PARQUET_DICTIONARY_PAGE = 2,
    ASH_PARQUET_DATA_PAGE_V2 = 3,
};

struct ash_parquet_page_header {
    int64_t type, plain_bytes, packed_bytes;
    int64_t values, encoding, level_encoding;
    int64_t definition_bytes, repetition_bytes; /* of version 2 */
    bool is_compressed;                         /* of version 2 */
    bool has_crc;
    uint32_t crc;
    size_t header_bytes; /* its own */
};

/* Parse a page header. Returns 0, -EBADMSG, or -EAGAIN where bytes end inside it. */
int ash_parquet_page_header_parse(const uint8_t *data, size_t size_bytes, struct ash_parquet_page_header *header_out);

#endif
