/* ashlar plan: which machines, which layout, how fast, what breaks. */
#include "cmd/plan/plan_priv.h"

#include "base/assert.h"

static const struct ash_cmd *const commands[] = {
    &ash_cmd_plan_train,    &ash_cmd_plan_machines,  &ash_cmd_plan_serve,  &ash_cmd_plan_rl,
    &ash_cmd_plan_audit,    &ash_cmd_plan_goodput,   &ash_cmd_plan_place,  &ash_cmd_plan_validate,
    &ash_cmd_plan_memory,   &ash_cmd_plan_constants, &ash_cmd_plan_models, &ash_cmd_plan_xid,
    &ash_cmd_plan_diagnose,
};

static int run(int argc, char **argv)
{
    return ash_cmd_dispatch("ashlar plan", commands, ASH_COUNT(commands), argc, argv);
}

const struct ash_cmd ash_cmd_plan = {"plan", "predict speed, cost and failures before anything is rented", run};
