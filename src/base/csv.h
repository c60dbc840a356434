/* csv - a table of text with a header line (RFC 4180: quoted fields may hold commas, quotes and line breaks), as other
 * people's programs write it: semicolons or tabs instead of commas, any line end, a mark of UTF-8, spaces around. */
#ifndef ASH_BASE_CSV_H
#define ASH_BASE_CSV_H

#include <stdbool.h>
#include <stddef.h>
#include "ashlar/err.h"

#define ASH_CSV_MAX_BYTES ((size_t)256 << 20)

struct ash_csv; /* owns every text that it returns */

/* Read a whole table. name is for messages. Rows shorter than the header are filled up with empty fields; longer ones
 * (unless the extra fields are empty), text after a closing quote and a quote that is never closed are -EINVAL with the
 * line. Empty lines are skipped. */
int ash_csv_parse(const char *text, size_t size_bytes, const char *name, struct ash_csv **csv_out, struct ash_err *err);
/* The same from a file of at most ASH_CSV_MAX_BYTES. */
int ash_csv_load(const char *path, struct ash_csv **csv_out, struct ash_err *err);
/* NULL is a no-op. */
void ash_csv_close(struct ash_csv *csv);

/* Let the column `other`, if there is one, be read as `column`, if there is none. column must outlive the table. */
void ash_csv_alias(struct ash_csv *csv, const char *column, const char *other);

/* Columns of the header. */
size_t ash_csv_columns(const struct ash_csv *csv);
/* The name of one, as the header has it; index < ash_csv_columns. */
const char *ash_csv_column(const struct ash_csv *csv, size_t index);
/* Rows below the header. */
size_t ash_csv_rows(const struct ash_csv *csv);
/* Columns are found whatever their case, spaces and dashes. */
bool ash_csv_has(const struct ash_csv *csv, const char *column);
/* The field of a row (below ash_csv_rows), "" where the table has no such column. */
const char *ash_csv_field(const struct ash_csv *csv, size_t row, const char *column);
/* The same as a number ("1,024", "~9000" and "8K" too); fallback if it is empty or no finite number. */
double ash_csv_number(const struct ash_csv *csv, size_t row, const char *column, double fallback);

#endif
