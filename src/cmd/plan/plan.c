/* ashlar plan: which machines, which layout, how fast, what breaks. */
#include "cmd/plan/plan_priv.h"

#include <string.h>

#include "base/assert.h"
#include "base/log.h"

static const struct ash_cmd *const commands[] = {
    &ash_cmd_plan_train,  &ash_cmd_plan_machines,  &ash_cmd_plan_scaling, &ash_cmd_plan_serve, &ash_cmd_plan_rl,
    &ash_cmd_plan_audit,  &ash_cmd_plan_goodput,   &ash_cmd_plan_place,   &ash_cmd_plan_queue, &ash_cmd_plan_validate,
    &ash_cmd_plan_memory, &ash_cmd_plan_constants, &ash_cmd_plan_models,
};

/* Commands that once were of `ashlar plan`: they print their present name and work. */
static const struct ash_cmd *const moved[] = {&ash_cmd_xid, &ash_cmd_diagnose};

static int run(int argc, char **argv)
{
    for (size_t i = 0; i < ASH_COUNT(moved) && argc > 1; i++) {
        if (strcmp(argv[1], moved[i]->name) != 0) continue;
        ash_log(ASH_LOG_WARN, "`ashlar plan %s` is now `ashlar %s`", moved[i]->name, moved[i]->name);
        return moved[i]->run(argc - 1, argv + 1);
    }
    return ash_cmd_dispatch("ashlar plan", commands, ASH_COUNT(commands), argc, argv);
}

const struct ash_cmd ash_cmd_plan = {"plan", "predict speed, cost and failures before anything is rented", run};
