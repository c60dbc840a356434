/* ashlar model: look at a model, or write it in another precision. */
#include "cmd/cmd.h"

#include "base/assert.h"
#include "cmd/model_priv.h"

static const struct ash_cmd info = {"info", "what a model folder or GGUF file holds", ash_model_info};
static const struct ash_cmd convert = {"convert", "write a model in another precision", ash_model_convert};
static const struct ash_cmd merge = {"merge", "add adapters to the weights of their base", ash_model_merge};
static const struct ash_cmd *const commands[] = {&info, &convert, &merge};

static int run(int argc, char **argv)
{
    return ash_cmd_dispatch("ashlar model", commands, ASH_COUNT(commands), argc, argv);
}

const struct ash_cmd ash_cmd_model = {"model", "look into models and convert them", run};
