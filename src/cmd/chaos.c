/* ashlar chaos: fault injection. */
#include "cmd/chaos_priv.h"

#include "base/assert.h"

static const struct ash_cmd *const commands[] = {&ash_cmd_chaos_campaign, &ash_cmd_chaos_matrix, &ash_cmd_chaos_run,
                                                 &ash_cmd_chaos_simulate};

static int run(int argc, char **argv)
{
    return ash_cmd_dispatch("ashlar chaos", commands, ASH_COUNT(commands), argc, argv);
}

const struct ash_cmd ash_cmd_chaos = {"chaos", "make faults happen, and see that jobs survive them", run};
