/* chaos: faults in drawn jobs of the program beside it, and in drawn histories. */
#include "chaos/chaos.h"

#include "base/assert.h"

static const struct ash_cmd *const commands[] = {&ash_cmd_chaos_campaign, &ash_cmd_chaos_matrix,
                                                 &ash_cmd_chaos_simulate};

const struct ash_cmd *const *ash_cmd_all(size_t *count_out)
{
    *count_out = ASH_COUNT(commands);
    return commands;
}

int main(int argc, char **argv)
{
    return ash_cmd_dispatch("chaos", commands, ASH_COUNT(commands), argc, argv);
}
