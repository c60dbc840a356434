/* tune - the cost model of collectives (collective/core/cost.h), measured on the ranks of a group. */
#ifndef ASH_PROBE_TUNE_H
#define ASH_PROBE_TUNE_H

#include "probe/collective.h"

#define ASH_TUNE_BYTES ((size_t)1 << 20) /* of the largest operand that is measured */

struct ash_tune_line {
    const char *where, *call, *algorithm;
    struct ash_cost_line cost;
};

/* A measured line, on the first rank. */
typedef void (*ash_tune_line_fn)(void *ctx, const struct ash_tune_line *line);
/* Measure the algorithms of all collectives that the probe's group can make and write them to the file at path; lines
 * that it cannot measure are taken over from the file if there is one. probe has memory for ASH_TUNE_BYTES. All ranks
 * call it; the first one reports lines and writes. */
int ash_tune_run(const struct ash_collective_probe *probe, const char *path, ash_tune_line_fn take_line, void *ctx,
                 struct ash_err *err);

#endif
