/* bench_priv - the commands of `ashlar bench`. */
#ifndef ASH_CMD_BENCH_PRIV_H
#define ASH_CMD_BENCH_PRIV_H

#include "cmd/cmd.h"

extern const struct ash_cmd ash_cmd_bench_collective;
extern const struct ash_cmd ash_cmd_bench_serve;

#endif
