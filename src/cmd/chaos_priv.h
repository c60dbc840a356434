/* chaos_priv - the commands of `ashlar chaos`. */
#ifndef ASH_CMD_CHAOS_PRIV_H
#define ASH_CMD_CHAOS_PRIV_H

#include "cmd/cmd.h"

extern const struct ash_cmd ash_cmd_chaos_campaign;
extern const struct ash_cmd ash_cmd_chaos_matrix;
extern const struct ash_cmd ash_cmd_chaos_run;
extern const struct ash_cmd ash_cmd_chaos_simulate;

#endif
