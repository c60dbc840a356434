/* rl_run - ashlar plan rl --run. */
#ifndef ASH_CMD_PLAN_RL_RUN_H
#define ASH_CMD_PLAN_RL_RUN_H

#include "cmd/plan/plan_priv.h"

/* Print how the processes of the run in dir should be divided, from its measured seconds. procs: how many there are to
 * be; 0: as many as now. Returns 0 or an error. */
int ash_plan_rl_run(const char *dir, int64_t procs, bool is_json, struct ash_err *err);

#endif
