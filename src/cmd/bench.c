/* ashlar bench: measurements that concern the machines of a job. */
#include "cmd/bench_priv.h"

#include "base/assert.h"

static const struct ash_cmd *const commands[] = {&ash_cmd_bench_collective};

static int run(int argc, char **argv)
{
    return ash_cmd_dispatch("ashlar bench", commands, ASH_COUNT(commands), argc, argv);
}

const struct ash_cmd ash_cmd_bench = {"bench", "measure what processes and machines do together", run};
