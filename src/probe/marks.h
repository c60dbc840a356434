/* marks - rates that a GPU of a known kind should reach, from the catalog, with published ones next to them. */
#ifndef ASH_PROBE_MARKS_H
#define ASH_PROBE_MARKS_H

#include <stdbool.h>

/* In bytes per second; 0: not known. */
struct ash_gpu_marks {
    double memory;                      /* copies within its memory, reads and writes together */
    double host;                        /* to or from the host's memory, one direction */
    double pair;                        /* to another GPU of the machine, one direction */
    bool is_certain;                    /* the machine is known to join its GPUs as `pair` assumes */
    char pair_text[96], rates_text[96]; /* the marks in words, with published ones next to them */
};

/* Of a GPU by the driver's name for it, in a machine of the catalog (NULL: unknown). GPUs outside the catalog have no
 * marks. */
void ash_gpu_marks_find(const char *gpu, const char *machine, struct ash_gpu_marks *marks_out);

#endif
