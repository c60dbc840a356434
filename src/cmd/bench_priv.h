/* bench_priv - the commands of `ashlar bench`. */
#ifndef ASH_CMD_BENCH_PRIV_H
#define ASH_CMD_BENCH_PRIV_H

#include <stddef.h>
#include "cmd/cmd.h"

extern const struct ash_cmd ash_cmd_bench_collective;

/* Copy size_bytes between 64-byte aligned places, past the caches where the machine has stores for that. */
void ash_bench_copy(void *to, const void *from, size_t size_bytes);

#endif
