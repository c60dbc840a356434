/* ashlar data arithmetic: a corpus of problems with checkable answers. */
#include "cmd/data_priv.h"

#include <stdio.h>

#include "base/assert.h"
#include "train/data/arithmetic.h"

static const struct ash_cmd_usage usage = {
    .synopsis = "ashlar data arithmetic --out DIR --count N",
    .about = "Writes a folder of token shards with N problems, each a document such as 37+58=95, and the tokenizer\n"
             "that reads them, a token per character. Problem i is a pure function of the seed and i. Problems of\n"
             "--split valid never occur in --split train; those of two single digits are never held out.",
    .examples =
        "  ashlar data arithmetic --out data/train --count 1m\n"
        "  ashlar data arithmetic --out data/valid --count 2k --split valid --seed 2\n"
        "  ashlar data arithmetic --out data/hard --count 1m --ops add,sub,mul,mul --max-digits 3 --mul-digits 2",
};

struct settings {
    const char *out;
    int64_t count, shard_tokens;
    bool overwrite;
};

static const struct ash_opt opts_list[] = {
    {"out", ASH_OPT_STRING, offsetof(struct settings, out), NULL, "folder for the shards", 0, 0, NULL},
    {"count", ASH_OPT_INT, offsetof(struct settings, count), "100k", "number of problems", 1, 1e12, NULL},
    {"shard_tokens", ASH_OPT_INT, offsetof(struct settings, shard_tokens), "100m", "tokens per shard", 1, 1e12, NULL},
    {"overwrite", ASH_OPT_BOOL, offsetof(struct settings, overwrite), "false", "replace the data that is in the folder",
     0, 0, NULL},
};

static int generate(const struct settings *settings, const struct ash_arithmetic_opts *problems)
{
    struct ash_arithmetic arithmetic;
    struct ash_err err = {0};
    int rc = ash_arithmetic_init(&arithmetic, problems, &err);

    if (rc < 0) return ash_cmd_misuse("data arithmetic", "%s", err.text);
    rc = ash_arithmetic_write(&arithmetic, settings->out, (uint64_t)settings->count, (size_t)settings->shard_tokens,
                              settings->overwrite, &err);
    if (rc < 0) return ash_cmd_fail(&err);
    if (rc == 1) printf("%s: complete already\n", settings->out);
    return ash_cmd_data_describe(settings->out);
}

static int run(int argc, char **argv)
{
    const struct ash_opt_table table = {"", "the folder", opts_list, ASH_COUNT(opts_list)};
    const struct ash_opt_table problems_table = {"", "the problems", ash_arithmetic_table.opts,
                                                 ash_arithmetic_table.count};
    struct settings settings = {0};
    struct ash_arithmetic_opts problems = {0};
    const struct ash_opt_binding bindings[] = {{&table, &settings}, {&problems_table, &problems}};
    struct ash_opts *opts = NULL;
    struct ash_err err = {0};
    size_t count = 0;
    int code;

    if (ash_opts_open(bindings, ASH_COUNT(bindings), &opts, &err) < 0) return ash_cmd_fail(&err);
    code = ash_cmd_parse(&usage, opts, argc, argv, NULL, 0, &count);
    if (code == ASH_CMD_GO)
        code = settings.out != NULL
                   ? generate(&settings, &problems)
                   : ash_cmd_misuse("data arithmetic", "--out is missing: name a folder for the shards");
    ash_opts_close(opts);
    return code;
}

const struct ash_cmd ash_cmd_data_arithmetic = {"arithmetic", "a seeded generator of arithmetic with checkable answers",
                                                run};
