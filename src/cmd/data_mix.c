/* ashlar data mix: several data folders as one, by weights. */
#include "cmd/data_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/number.h"
#include "train/data/mix.h"

static const struct ash_cmd_usage usage = {
    .synopsis = "ashlar data mix --out DIR FOLDER:WEIGHT FOLDER:WEIGHT...",
    .about = "Writes the documents of several data folders as one, so that tokens have the weights. A source is gone\n"
             "through again if it is too short; its order changes each time. The same seed gives the same data.",
    .examples = "  ashlar data mix --out data/mix --tokens 10g data/web:0.7 data/code:0.2 data/math:0.1",
};

struct settings {
    const char *out;
    int64_t tokens, shard_tokens, seed;
    bool overwrite;
};

static const struct ash_opt opts_list[] = {
    {"out", ASH_OPT_STRING, offsetof(struct settings, out), NULL, "folder for the shards", 0, 0, NULL},
    {"tokens", ASH_OPT_INT, offsetof(struct settings, tokens), "0",
     "tokens to write; 0: until the first source is at its end", 0, 1e15, NULL},
    {"shard_tokens", ASH_OPT_INT, offsetof(struct settings, shard_tokens), "100m", "tokens per shard", 1, 1e12, NULL},
    {"seed", ASH_OPT_INT, offsetof(struct settings, seed), "1", "names the order", 0, 1e18, NULL},
    {"overwrite", ASH_OPT_BOOL, offsetof(struct settings, overwrite), "false", "replace the data that is in the folder",
     0, 0, NULL},
};

/* FOLDER or FOLDER:WEIGHT; text is cut. */
static int parse_source(char *text, struct ash_mix_source *source, struct ash_err *err)
{
    char *colon = strrchr(text, ':');

    source->dir = text;
    source->weight = 1.0;
    if (colon == NULL) return 0;
    if (ash_number_parse(colon + 1, &source->weight) < 0 || !(source->weight > 0))
        return ash_err_set(err, -EINVAL, "'%s' is no weight above 0", colon + 1);
    *colon = '\0';
    return 0;
}

static int mix(const struct settings *settings, const char *const *words, size_t count)
{
    struct ash_mix_opts opts = {.seed = (uint64_t)settings->seed,
                                .tokens = (uint64_t)settings->tokens,
                                .shard_tokens = (size_t)settings->shard_tokens,
                                .overwrite = settings->overwrite};
    struct ash_mix_source sources[ASH_MIX_SOURCES_MAX] = {{0}};
    char *texts[ASH_MIX_SOURCES_MAX] = {NULL};
    struct ash_err err = {0};
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < count; i++) {
        texts[i] = strdup(words[i]);
        rc = texts[i] == NULL ? ash_err_set(&err, -ENOMEM, "out of memory") : parse_source(texts[i], &sources[i], &err);
    }
    if (rc == 0) rc = ash_mix_write(sources, count, &opts, settings->out, &err);
    for (size_t i = 0; rc == 0 && i < count; i++)
        printf("%-30s %llu tokens, %.2f epochs\n", sources[i].dir, (unsigned long long)sources[i].tokens,
               sources[i].epochs);
    for (size_t i = 0; i < count; i++)
        free(texts[i]);
    if (rc < 0) return ash_cmd_fail(&err);
    if (rc == 1) printf("%s: complete already\n", settings->out);
    return ash_cmd_data_describe(settings->out);
}

static int respond(const void *ctx, const struct ash_opts *opts, const char *const *words, size_t count)
{
    const struct settings *settings = ctx;

    (void)opts;
    if (settings->out == NULL) return ash_cmd_misuse("data mix", "--out is missing: name a folder for the shards");
    if (count == 0) return ash_cmd_misuse("data mix", "what to mix? name data folders, each with a weight: FOLDER:0.7");
    if (count > ASH_MIX_SOURCES_MAX)
        return ash_cmd_misuse("data mix", "%zu folders: at most %d can be mixed", count, ASH_MIX_SOURCES_MAX);
    return mix(settings, words, count);
}

static int run(int argc, char **argv)
{
    const struct ash_opt_table table = {"", "flags", opts_list, ASH_COUNT(opts_list)};
    struct settings settings = {0};
    const struct ash_cmd_form form = {
        .usage = &usage, .bindings = {{&table, &settings}}, .respond_words = respond, .flags = &settings};

    return ash_cmd_run(&form, argc, argv);
}

const struct ash_cmd ash_cmd_data_mix = {"mix", "several data folders as one, by weights", run};
