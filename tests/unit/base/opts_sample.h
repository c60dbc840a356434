/* opts_sample - a table with every type of option, shared by the tests of options and the fuzz target of job files. */
#ifndef ASH_TESTS_OPTS_SAMPLE_H
#define ASH_TESTS_OPTS_SAMPLE_H

#include <math.h>
#include <stddef.h>
#include "base/opts.h"

struct sample_command {
    const char *out;
    bool resume, stream;
    int64_t metrics_port;
};

struct sample_train {
    int64_t steps, seed, tokens;
    double rate, decay;
    bool clip;
    const char *data;
    int schedule;
    struct ash_opt_list stops, notes;
};

static const char *const sample_schedules[] = {"constant", "cosine", "wsd", NULL};

static const struct ash_opt sample_command_opts[] = {
    {.name = "out",
     .type = ASH_OPT_STRING,
     .offset = offsetof(struct sample_command, out),
     .help = "folder for the result"},
    {.name = "resume",
     .type = ASH_OPT_BOOL,
     .offset = offsetof(struct sample_command, resume),
     .default_text = "false",
     .help = "continue where the last run stopped"},
    {.name = "stream",
     .type = ASH_OPT_BOOL,
     .offset = offsetof(struct sample_command, stream),
     .default_text = "true",
     .help = "print text as it comes"},
    {.name = "metrics_port",
     .type = ASH_OPT_INT,
     .offset = offsetof(struct sample_command, metrics_port),
     .default_text = "0",
     .help = "serve metrics on this port",
     .min = 0,
     .max = 65535},
};

static const struct ash_opt sample_train_opts[] = {
    {.name = "steps",
     .type = ASH_OPT_INT,
     .offset = offsetof(struct sample_train, steps),
     .default_text = "1k",
     .help = "optimizer steps",
     .min = 1,
     .max = 1e9},
    {.name = "seed",
     .type = ASH_OPT_INT,
     .offset = offsetof(struct sample_train, seed),
     .help = "of all random numbers"},
    {.name = "tokens",
     .type = ASH_OPT_INT,
     .offset = offsetof(struct sample_train, tokens),
     .default_text = "4ki",
     .help = "tokens in a batch",
     .min = 1,
     .max = INFINITY},
    {.name = "rate",
     .type = ASH_OPT_DOUBLE,
     .offset = offsetof(struct sample_train, rate),
     .default_text = "3e-4",
     .help = "learning rate at its peak",
     .min = 0,
     .max = 10},
    {.name = "decay",
     .type = ASH_OPT_DOUBLE,
     .offset = offsetof(struct sample_train, decay),
     .default_text = "-0.1",
     .help = "weight decay",
     .min = -INFINITY,
     .max = 1},
    {.name = "clip",
     .type = ASH_OPT_BOOL,
     .offset = offsetof(struct sample_train, clip),
     .default_text = "true",
     .help = "clip gradients"},
    {.name = "data",
     .type = ASH_OPT_STRING,
     .offset = offsetof(struct sample_train, data),
     .default_text = "data",
     .help = "folder of token shards"},
    {.name = "schedule",
     .type = ASH_OPT_CHOICE,
     .offset = offsetof(struct sample_train, schedule),
     .default_text = "cosine",
     .help = "how the rate falls",
     .choices = sample_schedules},
    {.name = "stops",
     .type = ASH_OPT_LIST,
     .offset = offsetof(struct sample_train, stops),
     .default_text = "a,b",
     .help = "strings that end a text"},
    {.name = "notes",
     .type = ASH_OPT_TEXTS,
     .offset = offsetof(struct sample_train, notes),
     .help = "remarks, taken whole"},
};

static const struct ash_opt_table sample_command_table = {.section = "",
                                                          .help = "flags",
                                                          .opts = sample_command_opts,
                                                          .count = sizeof(sample_command_opts) /
                                                                   sizeof(sample_command_opts[0])};
static const struct ash_opt_table sample_train_table = {.section = "train",
                                                        .help = "the optimizer",
                                                        .opts = sample_train_opts,
                                                        .count =
                                                            sizeof(sample_train_opts) / sizeof(sample_train_opts[0])};

struct sample {
    struct sample_command command;
    struct sample_train train;
    struct ash_opts *opts;
};

static inline int sample_open(struct sample *sample, struct ash_err *err)
{
    const struct ash_opt_binding bindings[] = {{&sample_command_table, &sample->command},
                                               {&sample_train_table, &sample->train}};

    return ash_opts_open(bindings, 2, &sample->opts, err);
}

/* A sample of its own for every test. */
static inline int setup(void **state)
{
    struct sample *sample = calloc(1, sizeof(*sample));

    if (sample == NULL || sample_open(sample, NULL) < 0) return -1;
    *state = sample;
    return 0;
}

static inline int teardown(void **state)
{
    struct sample *sample = *state;

    ash_opts_close(sample->opts);
    free(sample);
    return 0;
}

#endif
