/* plan_priv - the subcommands of `ashlar plan`, and their shared parts. */
#ifndef ASH_CMD_PLAN_PRIV_H
#define ASH_CMD_PLAN_PRIV_H

#include "cmd/catalog_priv.h"
#include "cmd/cmd.h"
#include "plan/consts.h"

extern const struct ash_cmd ash_cmd_plan_audit;
extern const struct ash_cmd ash_cmd_plan_goodput;
extern const struct ash_cmd ash_cmd_plan_serve;
extern const struct ash_cmd ash_cmd_plan_constants;
extern const struct ash_cmd ash_cmd_plan_machines;
extern const struct ash_cmd ash_cmd_plan_memory;
extern const struct ash_cmd ash_cmd_plan_models;
extern const struct ash_cmd ash_cmd_plan_place;
extern const struct ash_cmd ash_cmd_plan_queue;
extern const struct ash_cmd ash_cmd_plan_rl;
extern const struct ash_cmd ash_cmd_plan_scaling;
extern const struct ash_cmd ash_cmd_plan_train;
extern const struct ash_cmd ash_cmd_plan_validate;

/* --catalog and --set. Bind it with the command's own table: `{&ash_plan_table, &flags.plan}`. */
struct ash_plan_flags {
    struct ash_catalog_flags machines;
    struct ash_opt_list set;
};

extern const struct ash_opt_table ash_plan_table;

/* Rows of the commands' own tables that mean the same in all of them; field: its offset. */
#define ASH_PLAN_OPT_MODEL(field)                                                                                      \
    {                                                                                                                  \
        .name = "model", .type = ASH_OPT_STRING, .offset = (field),                                                    \
        .help = "model folder or well-known name (ashlar plan models)"                                                 \
    }
#define ASH_PLAN_OPT_CLUSTER(field)                                                                                    \
    {                                                                                                                  \
        .name = "cluster", .type = ASH_OPT_STRING, .offset = (field),                                                  \
        .help = "machines or GPUs: 64xp5.48xlarge, 512xH100 (ashlar catalog ls)"                                       \
    }
#define ASH_PLAN_OPT_GLOBAL_BATCH(field, meaning)                                                                      \
    {                                                                                                                  \
        .name = "global-batch", .type = ASH_OPT_INT, .offset = (field), .default_text = "1024", .help = (meaning),     \
        .min = 1, .max = 1e9                                                                                           \
    }
#define ASH_PLAN_OPT_SEQ(field, tokens)                                                                                \
    {                                                                                                                  \
        .name = "seq", .type = ASH_OPT_INT, .offset = (field), .default_text = (tokens),                               \
        .help = "tokens per sequence", .min = 1, .max = 1e8                                                            \
    }
#define ASH_PLAN_OPT_PRECISION(field)                                                                                  \
    {                                                                                                                  \
        .name = "precision", .type = ASH_OPT_CHOICE, .offset = (field), .default_text = "any",                         \
        .help = "precision of matrix products; any is bf16 and fp8", .choices = ash_plan_precisions                    \
    }
#define ASH_PLAN_OPT_JSON(field)                                                                                       \
    {                                                                                                                  \
        .name = "json", .type = ASH_OPT_BOOL, .offset = (field), .help = "print one JSON object"                       \
    }
extern const char *const ash_plan_precisions[]; /* "any", then as enum ash_gpu_precision; NULL-terminated */

/* Inputs of a prediction. */
struct ash_plan_facts {
    struct ash_consts consts;
    struct ash_catalog *catalog;
};

/* Finds and prints an answer; word is the argument that is no flag. 0 or a negative errno with the reason in err. */
typedef int (*ash_plan_answer_fn)(const void *flags, const struct ash_plan_facts *facts, const char *word,
                                  struct ash_err *err);

/* A command that predicts: its flags and its answer. */
struct ash_plan_question {
    const struct ash_cmd_usage *usage;
    const struct ash_opt_table *table; /* of flags */
    void *flags;
    struct ash_plan_flags *plan; /* part of flags */
    /* Check flags that are missing or contradict each other: the exit code, or 0. */
    int (*misused)(const void *flags, const struct ash_opts *opts);
    ash_plan_answer_fn answer;
};

/* Read the flags and answer with the built-in constants and machines, changed by --set and --catalog. Returns the
 * exit code. */
int ash_plan_run(const struct ash_plan_question *question, int argc, char **argv);
/* The same after flags that were read already: facts, the answer, and errors. */
int ash_plan_answer(const struct ash_plan_flags *plan, ash_plan_answer_fn answer, const void *flags, const char *word);

#endif
