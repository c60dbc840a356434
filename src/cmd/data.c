/* ashlar data: make token shards and look into them. */
#include "cmd/data_priv.h"

#include "base/assert.h"

static const struct ash_cmd *const commands[] = {
    &ash_cmd_data_tokenize, &ash_cmd_data_arithmetic, &ash_cmd_data_info, &ash_cmd_data_chat,
    &ash_cmd_data_show,     &ash_cmd_data_dedup,      &ash_cmd_data_mix,  &ash_cmd_data_train_tokenizer,
};

static int run(int argc, char **argv)
{
    return ash_cmd_dispatch("ashlar data", commands, ASH_COUNT(commands), argc, argv);
}

const struct ash_cmd ash_cmd_data = {"data", "make token shards from text or from a generator, and look into them",
                                     run};
