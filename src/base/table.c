/* Tables. Rows wait as one text: CELL before each cell but the first, ROW before each row. */
#include "base/table.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/math.h"
#include "base/utf8.h"

#define CELL '\x1f'
#define ROW '\x1e'
#define GAP 2             /* spaces between columns */
#define LAST_WIDTH_MIN 24 /* a last column that is narrower does not go on below itself */
#define FORMAT_BYTES_MAX 512

struct column {
    size_t width;
    bool is_right;
};

struct cell {
    const char *text;
    size_t bytes;
};

struct cells {
    struct cell cell[ASH_TABLE_COLUMNS_MAX];
    size_t count;
};

/* ---- rows -------------------------------------------------------------------------------------------------------- */

/* Arguments come from files and users: what would part cells or lines becomes a space. */
static void add_cells(struct ash_table *table, const char *format, va_list args)
{
    char parted[FORMAT_BYTES_MAX];
    size_t bytes = strlen(format);
    char *text = NULL;

    ash_assert(bytes < sizeof(parted));
    for (size_t i = 0; i <= bytes; i++)
        parted[i] = (char)(format[i] == '|' ? CELL : format[i]);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    if (vasprintf(&text, parted, args) < 0) text = NULL;
#pragma GCC diagnostic pop
    if (text == NULL) {
        ash_str_fail(&table->text, -ENOMEM);
        return;
    }
    for (char *byte = text; *byte != '\0'; byte++)
        if ((unsigned char)*byte < ' ' && *byte != CELL) *byte = ' ';
    ash_str_adds(&table->text, text);
    free(text);
}

void ash_table_row(struct ash_table *table, const char *format, ...)
{
    va_list args;

    ash_str_add(&table->text, &(char){ROW}, 1);
    va_start(args, format);
    add_cells(table, format, args);
    va_end(args);
}

void ash_table_cell(struct ash_table *table, const char *format, ...)
{
    va_list args;

    ash_str_add(&table->text, &(char){CELL}, 1);
    va_start(args, format);
    add_cells(table, format, args);
    va_end(args);
}

/* ---- columns ----------------------------------------------------------------------------------------------------- */

/* The cells of text up to `end`, parted by `mark`. Those beyond the columns stay in the last one. */
static struct cells split(const char *text, const char *end, char mark, size_t most)
{
    struct cells row = {0};

    for (;;) {
        const char *next = row.count + 1 < most ? memchr(text, mark, (size_t)(end - text)) : NULL;
        const char *stop = next != NULL ? next : end;

        row.cell[row.count++] = (struct cell){text, (size_t)(stop - text)};
        if (next == NULL) return row;
        text = next + 1;
    }
}

/* The next row after *at, which moves on. Returns false at the end. */
static bool next_row(const struct ash_table *table, const char **at, size_t columns, struct cells *row_out)
{
    const char *begin = *at, *end, *next;

    if (begin == NULL) return false;
    end = table->text.data + table->text.size_bytes;
    if (begin >= end) return false;
    begin++; /* ROW */
    next = memchr(begin, ROW, (size_t)(end - begin));
    *at = next != NULL ? next : end;
    *row_out = split(begin, *at, CELL, columns);
    return true;
}

static void widen(struct column *columns, size_t count, const struct cells *row)
{
    for (size_t i = 0; i < row->count; i++) {
        bool runs_over = i + 1 == row->count && row->count < count;

        if (!runs_over)
            columns[i].width = ash_max(columns[i].width, ash_utf8_width(row->cell[i].text, row->cell[i].bytes));
    }
}

/* ---- printing ---------------------------------------------------------------------------------------------------- */

/* Columns of a terminal; SIZE_MAX where out is none. */
static size_t line_width(FILE *out)
{
    struct winsize size;

    return isatty(fileno(out)) && ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col
                                                                                                : SIZE_MAX;
}

/* Bytes of a text that fit: up to a space if there is one. */
static size_t fitting(struct cell cell, size_t width)
{
    size_t bytes = 0, at_space = 0;

    if (ash_utf8_width(cell.text, cell.bytes) <= width) return cell.bytes;
    while (bytes < cell.bytes && ash_utf8_width(cell.text, bytes) < width) {
        if (cell.text[bytes] == ' ') at_space = bytes;
        do
            bytes++;
        while (bytes < cell.bytes && ((unsigned char)cell.text[bytes] & 0xc0) == 0x80);
    }
    return at_space > 0 ? at_space : bytes;
}

/* The last cell of a line: at column `at`, in lines of `width`. */
static void print_last(struct cell cell, size_t at, size_t width, FILE *out)
{
    for (;;) {
        size_t bytes = at + LAST_WIDTH_MIN <= width ? fitting(cell, width - at) : cell.bytes;

        fprintf(out, "%.*s\n", (int)bytes, cell.text);
        while (bytes < cell.bytes && cell.text[bytes] == ' ')
            bytes++;
        if (bytes == cell.bytes) return;
        cell = (struct cell){cell.text + bytes, cell.bytes - bytes};
        fprintf(out, "%*s", (int)at, "");
    }
}

static void print_row(const struct ash_table *table, const struct column *columns, const struct cells *row,
                      size_t count, FILE *out)
{
    size_t at = table->indent, last = row->count;

    while (last > 1 && row->cell[last - 1].bytes == 0) /* no separators at ends of lines */
        last--;
    fprintf(out, "%*s", (int)at, "");
    for (size_t i = 0; i < last; i++) {
        struct cell cell = row->cell[i];
        size_t width = ash_utf8_width(cell.text, cell.bytes), pad = columns[i].width - ash_min(columns[i].width, width);
        bool is_last = i + 1 == last, runs_over = is_last && row->count < count;

        if (columns[i].is_right && !runs_over) {
            fprintf(out, "%*s", (int)pad, "");
            at += pad;
            pad = 0;
        }
        while (is_last && cell.bytes > 0 && cell.text[cell.bytes - 1] == ' ') /* nor blanks at ends of lines */
            cell.bytes--;
        if (is_last) {
            print_last(cell, at, columns[i].is_right ? SIZE_MAX : line_width(out), out);
            return;
        }
        fprintf(out, "%.*s%*s", (int)cell.bytes, cell.text, (int)(pad + GAP), "");
        at += width + pad + GAP;
    }
}

int ash_table_print(struct ash_table *table, FILE *out)
{
    struct column columns[ASH_TABLE_COLUMNS_MAX] = {0};
    struct cells heads = split(table->heads, table->heads + strlen(table->heads), '|', ASH_TABLE_COLUMNS_MAX), row;
    const char *at = table->text.data;
    bool has_heads = false;
    int rc = table->text.rc;

    for (size_t i = 0; i < heads.count; i++) {
        columns[i].is_right = heads.cell[i].bytes > 0 && heads.cell[i].text[0] == '>';
        heads.cell[i].text += columns[i].is_right;
        heads.cell[i].bytes -= columns[i].is_right;
        has_heads = has_heads || heads.cell[i].bytes > 0;
    }
    widen(columns, heads.count, &heads);
    while (next_row(table, &at, heads.count, &row))
        widen(columns, heads.count, &row);
    if (rc == 0 && has_heads) print_row(table, columns, &heads, heads.count, out);
    for (at = table->text.data; rc == 0 && next_row(table, &at, heads.count, &row);)
        print_row(table, columns, &row, heads.count, out);
    if (rc < 0) fprintf(out, "out of memory for a table\n");
    ash_str_fini(&table->text);
    return rc;
}
