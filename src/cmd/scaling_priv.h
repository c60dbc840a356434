/* scaling_priv - the subcommands of `ashlar scaling`. */
#ifndef ASH_CMD_SCALING_PRIV_H
#define ASH_CMD_SCALING_PRIV_H

#include "cmd/cmd.h"

extern const struct ash_cmd ash_cmd_scaling_run, ash_cmd_scaling_fit, ash_cmd_scaling_predict;

#endif
