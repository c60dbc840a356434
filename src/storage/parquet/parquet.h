/* parquet - one column of texts out of a Parquet file, a row at a time. Memory is that of a page, its dictionary and
 * the footer, whatever the file's size. Read are flat columns of byte arrays (strings), required or optional, of any
 * number of row groups; data pages of both versions; the encodings PLAIN, dictionary, DELTA_LENGTH_BYTE_ARRAY and
 * DELTA_BYTE_ARRAY. */
#ifndef ASH_STORAGE_PARQUET_PARQUET_H
#define ASH_STORAGE_PARQUET_PARQUET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"

struct ash_parquet; /* one owner thread */

/* A row of the column. */
struct ash_parquet_value {
    const char *data; /* any bytes; borrowed until the next call */
    size_t size_bytes;
    bool is_null;
};

/* Does the file begin as a Parquet file does? 1 or 0; a path that cannot be read is 0. */
int ash_parquet_detect(const char *path);

/* Open a regular file and find the column by its name at the top of the schema. Copies both strings. Damage is
 * -EBADMSG; a column that is missing or is no flat text is -EINVAL; a feature or codec that this build does not read is
 * -ENOTSUP. err names the file's own. */
int ash_parquet_open(const char *path, const char *column, struct ash_parquet **file_out, struct ash_err *err);
/* NULL is a no-op. */
void ash_parquet_close(struct ash_parquet *file);
/* Rows of all row groups. */
uint64_t ash_parquet_rows(const struct ash_parquet *file);
/* Go to a row, from 0; the number of rows is the end. Pages before it are not unpacked. Beyond it is -EINVAL. */
int ash_parquet_seek(struct ash_parquet *file, uint64_t row, struct ash_err *err);
/* The next row. Returns 1, 0 at the end, or an error as ash_parquet_open; then close is all that may be called. */
int ash_parquet_next(struct ash_parquet *file, struct ash_parquet_value *value_out, struct ash_err *err);

#endif
