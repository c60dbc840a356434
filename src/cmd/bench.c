/* ashlar bench: measurements of the machines of a job, and of servers. */
#include "cmd/bench_priv.h"

#include "base/assert.h"

static const struct ash_cmd *const commands[] = {&ash_cmd_bench_collective, &ash_cmd_bench_serve};

static int run(int argc, char **argv)
{
    return ash_cmd_dispatch("ashlar bench", commands, ASH_COUNT(commands), argc, argv);
}

const struct ash_cmd ash_cmd_bench = {"bench", "measure what processes do together, and what servers do under load",
                                      run};
