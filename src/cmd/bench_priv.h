/* bench_priv - the commands of `ashlar bench`. */
#ifndef ASH_CMD_BENCH_PRIV_H
#define ASH_CMD_BENCH_PRIV_H

#include <stddef.h>
#include "cmd/cmd.h"
#include "collective/group.h"

extern const struct ash_cmd ash_cmd_bench_collective;
extern const struct ash_cmd ash_cmd_bench_serve;

/* Copy size_bytes between 64-byte aligned places, past the caches where the machine has stores for that. */
void ash_bench_copy(void *to, const void *from, size_t size_bytes);

#define ASH_BENCH_TUNE_BYTES ((size_t)1 << 20) /* of the largest operand that is measured */

/* Median seconds of a call of the given bytes (all-gather: of all ranks together). All ranks of group call it. */
typedef int (*ash_bench_measure_fn)(void *ctx, struct ash_group *group, enum ash_cost_collective call, size_t bytes,
                                    double *seconds_out, struct ash_err *err);
/* Measure the algorithms of all collectives that this group can make and write them to the file at path; what it
 * cannot measure is kept from the file if there is one. All ranks call it; the first one prints and writes. */
int ash_bench_tune(struct ash_group *group, const char *path, ash_bench_measure_fn measure, void *ctx,
                   struct ash_err *err);

#endif
