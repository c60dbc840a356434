/* The subcommands of `ashlar run`. */
#ifndef ASH_CMD_RUN_PRIV_H
#define ASH_CMD_RUN_PRIV_H

#include "cmd/cmd.h"

extern const struct ash_cmd ash_cmd_run_cost;

#endif
