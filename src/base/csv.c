/* csv: the text is copied once and cut in place, so that fields are plain strings. */
#include "base/csv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/assert.h"
#include "base/file.h"
#include "base/number.h"
#include "base/spelling.h"

#define COLUMNS_MAX 1024
#define NUMBER_MAX 64

struct ash_csv {
    char *text;
    const char **fields; /* [rows + 1][columns]; the first row is the header */
    size_t columns, rows, capacity;
};

struct cursor {
    char *at, *end;
    size_t line;
    char separator;
    const char *name;
};

/* A quoted field: at follows the opening quote. Doubled quotes become one. Leaves at on what follows the closing
 * quote. */
static int read_quoted(struct cursor *cursor, char **field_out, struct ash_err *err)
{
    char *from = cursor->at, *to = cursor->at;
    size_t line = cursor->line;

    *field_out = to;
    while (from < cursor->end) {
        if (*from == '"' && (from + 1 == cursor->end || from[1] != '"')) {
            *to = '\0';
            cursor->at = from + 1;
            return 0;
        }
        if (*from == '"') from++;
        cursor->line += *from == '\n';
        *to++ = *from++;
    }
    return ash_err_set(err, -EINVAL, "%s:%zu: a quote is never closed", cursor->name, line);
}

static bool is_line_end(char c)
{
    return c == '\n' || c == '\r';
}

static void skip_spaces(struct cursor *cursor)
{
    while (cursor->at < cursor->end && *cursor->at == ' ')
        cursor->at++;
}

/* An unquoted field, without the spaces around it. */
static char *read_plain(struct cursor *cursor, char **field_out)
{
    char *stop;

    *field_out = cursor->at;
    while (cursor->at < cursor->end && *cursor->at != cursor->separator && !is_line_end(*cursor->at))
        cursor->at++;
    stop = cursor->at;
    while (stop > *field_out && stop[-1] == ' ')
        stop--;
    return stop;
}

/* One field, and whether it was the last of its line (or of the text). */
static int read_field(struct cursor *cursor, const char **field_out, bool *last_out, struct ash_err *err)
{
    char *field, *stop;
    int rc;

    skip_spaces(cursor);
    if (cursor->at < cursor->end && *cursor->at == '"') {
        cursor->at++;
        rc = read_quoted(cursor, &field, err);
        if (rc < 0) return rc;
        stop = cursor->at;
        skip_spaces(cursor);
    } else {
        stop = read_plain(cursor, &field);
    }
    if (cursor->at < cursor->end && *cursor->at != cursor->separator && !is_line_end(*cursor->at))
        return ash_err_set(err, -EINVAL, "%s:%zu: text between a field and the next comma", cursor->name, cursor->line);
    *last_out = cursor->at >= cursor->end || is_line_end(*cursor->at);
    if (cursor->at + 1 < cursor->end && *cursor->at == '\r' && cursor->at[1] == '\n') cursor->at++;
    if (cursor->at < cursor->end) cursor->at++;
    *stop = '\0'; /* the text has one byte more than its size */
    cursor->line += *last_out;
    *field_out = field;
    return 0;
}

static int add_field(struct ash_csv *csv, size_t index, const char *field)
{
    if (ash_array_reserve(&csv->fields, &csv->capacity, index + 1, sizeof(char *)) < 0) return -ENOMEM;
    ash_assert(index < csv->capacity);
    csv->fields[index] = field;
    return 0;
}

/* One line of fields into row `row`; the header decides how many there are. Empty ones after its last are ignored. */
static int read_row(struct ash_csv *csv, struct cursor *cursor, size_t row, struct ash_err *err)
{
    size_t limit = row == 0 ? COLUMNS_MAX : csv->columns, count = 0, line = cursor->line;
    bool last = false;
    int rc;

    while (!last) {
        const char *field = "";

        rc = read_field(cursor, &field, &last, err);
        if (rc < 0) return rc;
        if (count == limit && field[0] == '\0') continue;
        if (count == limit) return ash_err_set(err, -EINVAL, "%s:%zu: more than %zu fields", cursor->name, line, limit);
        rc = add_field(csv, row * csv->columns + count, field);
        if (rc < 0) return ash_err_set(err, rc, "%s: out of memory", cursor->name);
        count++;
    }
    if (row == 0) csv->columns = count;
    for (; count < csv->columns; count++) {
        rc = add_field(csv, row * csv->columns + count, "");
        if (rc < 0) return ash_err_set(err, rc, "%s: out of memory", cursor->name);
    }
    return 0;
}

static bool skip_empty_line(struct cursor *cursor)
{
    if (cursor->at < cursor->end && *cursor->at == '\r' && cursor->at + 1 < cursor->end && cursor->at[1] == '\n')
        cursor->at++;
    if (cursor->at >= cursor->end || !is_line_end(*cursor->at)) return false;
    cursor->at++;
    cursor->line++;
    return true;
}

/* The separator of the header: a comma, unless semicolons or tabs are more. */
static char find_separator(const char *text)
{
    size_t commas = 0, semicolons = 0, tabs = 0;

    for (; *text != '\0' && !is_line_end(*text); text++) {
        commas += *text == ',';
        semicolons += *text == ';';
        tabs += *text == '\t';
    }
    if (semicolons > commas && semicolons > tabs) return ';';
    return tabs > commas ? '\t' : ',';
}

int ash_csv_parse(const char *text, size_t size_bytes, const char *name, struct ash_csv **csv_out, struct ash_err *err)
{
    struct ash_csv *csv = calloc(1, sizeof(*csv));
    struct cursor cursor = {.line = 1, .name = name};
    size_t rows = 0;
    int rc = -ENOMEM;

    if (csv == NULL || (csv->text = malloc(size_bytes + 1)) == NULL) {
        ash_err_set(err, rc, "%s: out of memory", name);
        goto fail;
    }
    if (size_bytes > 0) memcpy(csv->text, text, size_bytes);
    csv->text[size_bytes] = '\0';
    cursor.at = csv->text;
    cursor.end = csv->text + size_bytes;
    if (size_bytes >= 3 && memcmp(csv->text, "\xEF\xBB\xBF", 3) == 0) cursor.at += 3; /* a mark of UTF-8 */
    while (cursor.at < cursor.end && is_line_end(*cursor.at))
        cursor.line += *cursor.at++ == '\n';
    cursor.separator = find_separator(cursor.at);
    if (memchr(csv->text, '\0', size_bytes) != NULL) {
        rc = ash_err_set(err, -EINVAL, "%s: not a text file", name);
        goto fail;
    }
    while (cursor.at < cursor.end) {
        if (skip_empty_line(&cursor)) continue;
        rc = read_row(csv, &cursor, rows, err);
        if (rc < 0) goto fail;
        rows++;
    }
    if (rows == 0) {
        rc = ash_err_set(err, -EINVAL, "%s: no header line", name);
        goto fail;
    }
    csv->rows = rows - 1;
    *csv_out = csv;
    return 0;

fail:
    ash_csv_close(csv);
    return rc;
}

int ash_csv_load(const char *path, struct ash_csv **csv_out, struct ash_err *err)
{
    size_t size_bytes = 0;
    char *text = NULL;
    int rc = ash_file_read(path, ASH_CSV_MAX_BYTES, &text, &size_bytes, err);

    if (rc < 0) return rc;
    rc = ash_csv_parse(text, size_bytes, path, csv_out, err);
    free(text);
    return rc;
}

void ash_csv_close(struct ash_csv *csv)
{
    if (csv == NULL) return;
    free(csv->fields);
    free(csv->text);
    free(csv);
}

size_t ash_csv_columns(const struct ash_csv *csv)
{
    return csv->columns;
}

const char *ash_csv_column(const struct ash_csv *csv, size_t index)
{
    ash_assert(index < csv->columns);
    return csv->fields[index];
}

size_t ash_csv_rows(const struct ash_csv *csv)
{
    return csv->rows;
}

static size_t find(const struct ash_csv *csv, const char *column)
{
    size_t i = 0;

    while (i < csv->columns && strcmp(csv->fields[i], column) != 0)
        i++;
    if (i < csv->columns) return i;
    for (i = 0; i < csv->columns && !ash_spelling_same(csv->fields[i], column);)
        i++;
    return i;
}

void ash_csv_alias(struct ash_csv *csv, const char *column, const char *other)
{
    size_t i = find(csv, other);

    if (i < csv->columns && !ash_csv_has(csv, column)) csv->fields[i] = column;
}

bool ash_csv_has(const struct ash_csv *csv, const char *column)
{
    return find(csv, column) < csv->columns;
}

const char *ash_csv_field(const struct ash_csv *csv, size_t row, const char *column)
{
    size_t i = find(csv, column);

    return i < csv->columns ? csv->fields[(row + 1) * csv->columns + i] : "";
}

/* "1,024" and "~9000" as people write them; "8K" is 8192, as lengths of sequences are. */
static int parse_loosely(const char *text, double *value_out)
{
    char plain[NUMBER_MAX];
    size_t used = 0;
    double factor = 1;
    int rc;

    while (*text == '~' || *text == '>' || *text == '<' || *text == ' ')
        text++;
    for (; *text != '\0' && used + 1 < sizeof(plain); text++)
        if (*text != ',' && *text != ' ') plain[used++] = *text;
    if (*text != '\0') return -EINVAL;
    if (used > 1 && (plain[used - 1] == 'K' || plain[used - 1] == 'k')) {
        factor = 1024;
        used--;
    }
    plain[used] = '\0';
    rc = ash_number_parse(plain, value_out);
    if (rc == 0) *value_out *= factor;
    return rc;
}

double ash_csv_number(const struct ash_csv *csv, size_t row, const char *column, double fallback)
{
    const char *text = ash_csv_field(csv, row, column);
    double value;

    if (ash_number_parse(text, &value) == 0) return value;
    return parse_loosely(text, &value) == 0 ? value : fallback;
}
