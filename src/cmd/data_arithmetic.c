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
    double mistakes;
    struct ash_arithmetic_opts problems;
};

static const struct ash_opt opts_list[] = {
    {"out", ASH_OPT_STRING, offsetof(struct settings, out), NULL, "folder for the shards", 0, 0, NULL},
    {"count", ASH_OPT_INT, offsetof(struct settings, count), "100k", "number of problems", 1, 1e12, NULL},
    {"shard_tokens", ASH_OPT_INT, offsetof(struct settings, shard_tokens), "100m", "tokens per shard", 1, 1e12, NULL},
    {"mistakes", ASH_OPT_DOUBLE, offsetof(struct settings, mistakes), "0",
     "share of the problems that have a wrong answer: something to unlearn (ashlar rl)", 0, 1, NULL},
    {"overwrite", ASH_OPT_BOOL, offsetof(struct settings, overwrite), "false", "replace the data that is in the folder",
     0, 0, NULL},
};

static int respond(const void *ctx, const struct ash_opts *opts, const char *word)
{
    const struct settings *settings = ctx;
    struct ash_arithmetic arithmetic;
    struct ash_err err = {0};
    int rc;

    (void)opts;
    (void)word;
    if (settings->out == NULL)
        return ash_cmd_misuse("data arithmetic", "--out is missing: name a folder for the shards");
    if (ash_arithmetic_init(&arithmetic, &settings->problems, &err) < 0)
        return ash_cmd_misuse("data arithmetic", "%s", err.text);
    arithmetic.mistakes = settings->mistakes;
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
    const struct ash_cmd_form form = {.usage = &usage,
                                      .bindings = {{&table, &settings}, {&problems_table, &settings.problems}},
                                      .respond = respond,
                                      .flags = &settings};

    return ash_cmd_run(&form, argc, argv);
}

const struct ash_cmd ash_cmd_data_arithmetic = {"arithmetic", "a seeded generator of arithmetic with checkable answers",
                                                run};
