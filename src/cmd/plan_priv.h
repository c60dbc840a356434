/* plan_priv - the subcommands of `ashlar plan`. */
#ifndef ASH_CMD_PLAN_PRIV_H
#define ASH_CMD_PLAN_PRIV_H

#include "cmd/cmd.h"

extern const struct ash_cmd ash_cmd_plan_audit;
extern const struct ash_cmd ash_cmd_plan_goodput;
extern const struct ash_cmd ash_cmd_plan_serve;
extern const struct ash_cmd ash_cmd_plan_constants;
extern const struct ash_cmd ash_cmd_plan_memory;
extern const struct ash_cmd ash_cmd_plan_models;
extern const struct ash_cmd ash_cmd_plan_train;
extern const struct ash_cmd ash_cmd_plan_validate;

#endif
