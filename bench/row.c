/* row ROWS NAME UNIT PEER GOAL higher|lower OURS... -- THEIRS...: appends the medians of two lists of
 * measurements as a row. GOAL is for the ratio, 0 for none; higher or lower says which is better; no THEIRS
 * leaves the peer's side empty. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/row.h"
#include "lib/team.h"

/* Read numbers up to "--" or the end. Returns how many arguments were taken, or -1. */
static int read_numbers(int argc, char **argv, double *values, size_t *count_out)
{
    int taken = 0;

    *count_out = 0;
    while (taken < argc && strcmp(argv[taken], "--") != 0) {
        char *end;
        if (*count_out == BENCH_ROUNDS_MAX) return -1;
        values[*count_out] = strtod(argv[taken], &end);
        if (end == argv[taken] || *end != '\0') return -1;
        (*count_out)++;
        taken++;
    }
    return taken;
}

int main(int argc, char **argv)
{
    double ours[BENCH_ROUNDS_MAX], theirs[BENCH_ROUNDS_MAX];
    size_t ours_count = 0, theirs_count = 0;
    int taken = argc > 7 ? read_numbers(argc - 7, argv + 7, ours, &ours_count) : -1;

    if (taken < 1 || 7 + taken >= argc || read_numbers(argc - 8 - taken, argv + 8 + taken, theirs, &theirs_count) < 0) {
        fprintf(stderr, "usage: row ROWS NAME UNIT PEER GOAL higher|lower OURS... -- THEIRS...\n");
        return 2;
    }
    return bench_row_add(argv[1], &(struct bench_row){.name = argv[2],
                                                      .unit = argv[3],
                                                      .peer = theirs_count > 0 ? argv[4] : NULL,
                                                      .ours = bench_median(ours, ours_count),
                                                      .peer_value = bench_median(theirs, theirs_count),
                                                      .goal = strtod(argv[5], NULL),
                                                      .lower_is_better = strcmp(argv[6], "lower") == 0}) < 0;
}
