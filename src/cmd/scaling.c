/* ashlar scaling: what larger runs will reach, from smaller ones. */
#include "cmd/scaling_priv.h"

#include "base/assert.h"

static const struct ash_cmd *const commands[] = {&ash_cmd_scaling_run, &ash_cmd_scaling_fit, &ash_cmd_scaling_predict};

static int run(int argc, char **argv)
{
    return ash_cmd_dispatch("ashlar scaling", commands, ASH_COUNT(commands), argc, argv);
}

const struct ash_cmd ash_cmd_scaling = {"scaling", "a law of the loss from small runs, and what larger ones will reach",
                                        run};
