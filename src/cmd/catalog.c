/* ashlar catalog: facts of machines, and their sources. */
#include "cmd/catalog_priv.h"

#include "base/assert.h"
#include "cmd/cmd.h"

static const struct ash_cmd *const commands[] = {
    &ash_cmd_catalog_ls,
    &ash_cmd_catalog_show,
};

static int run(int argc, char **argv)
{
    return ash_cmd_dispatch("ashlar catalog", commands, ASH_COUNT(commands), argc, argv);
}

const struct ash_cmd ash_cmd_catalog = {"catalog", "GPUs, machines, storage and measured collectives, with sources",
                                        run};
