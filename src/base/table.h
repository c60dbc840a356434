/* table - rows of cells, printed in columns as wide as their widest cell.
 *
 *   struct ash_table table = {.heads = "machine|>GPUs|>days|layout"};
 *
 *   ash_table_row(&table, "%s|%d|%.1f|%s", name, gpus, days, layout);
 *   ash_table_print(&table, stdout);
 *
 * '|' in heads and formats parts cells; '|' in their arguments does not. '>' before a head aligns its column to the
 * right. Without any head no line of heads is printed. The last cell of a row that has fewer cells than there are
 * columns runs over the rest. On a terminal that is too narrow, a last column that is left-aligned is
 * wrapped. */
#ifndef ASH_BASE_TABLE_H
#define ASH_BASE_TABLE_H

#include <stdio.h>
#include "base/str.h"

#define ASH_TABLE_COLUMNS_MAX 32

/* Zero all members but the first two. */
struct ash_table {
    const char *heads; /* of all columns */
    size_t indent;     /* of all lines */
    struct ash_str text;
};

/* Begin a row and add its first cells. A failure is said by ash_table_print. */
void ash_table_row(struct ash_table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Add more cells to the last row. */
void ash_table_cell(struct ash_table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Print it and free the rows, of which there may be none. Returns 0, or -ENOMEM, which is printed instead. */
int ash_table_print(struct ash_table *table, FILE *out);

#endif
