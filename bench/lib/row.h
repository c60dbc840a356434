/* row - one line of the table: our figure, compared with the peer's. */
#ifndef BENCH_ROW_H
#define BENCH_ROW_H

#include <stdbool.h>
#include <stddef.h>

#define BENCH_ROUNDS_MAX 101

struct bench_row {
    const char *name; /* group/row */
    const char *unit;
    const char *peer; /* what the peer is, with its version and the instructions it used; NULL: none */
    double ours, peer_value;
    double goal;          /* for the ratio; 0: none */
    bool lower_is_better; /* the ratio is peer_value / ours instead of ours / peer_value */
};

/* Append the row, as JSON, to the file at path. Returns 0 or a negative errno, after a sentence on standard error. */
int bench_row_add(const char *path, const struct bench_row *row);

#endif
