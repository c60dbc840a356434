/* opts - settings, declared once. A table per module says name, type, default, limits, help and where the value lives;
 * the same table feeds the YAML job file, key=value overrides, --flags, the environment, --help and the man page.
 * The environment is read in opts.c and nowhere else: setting `train.steps` can come from ASHLAR_TRAIN_STEPS. */
#ifndef ASH_BASE_OPTS_H
#define ASH_BASE_OPTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include "ashlar/err.h"

enum ash_opt_type {
    ASH_OPT_INT,    /* int64_t; 1000000, 1_000_000, 1e6, 1m and the like (ash_number_parse_whole) */
    ASH_OPT_DOUBLE, /* double */
    ASH_OPT_BOOL,   /* bool; true/false, yes/no, on/off, 1/0; a bare --flag is true */
    ASH_OPT_STRING, /* const char *, owned by the set; NULL when unset */
    ASH_OPT_CHOICE, /* int: index into choices */
    ASH_OPT_LIST,   /* struct ash_opt_list: a YAML sequence, or comma-separated text; a repeated flag appends */
    ASH_OPT_TEXTS,  /* the same, but text is one item as it is, commas and all; a YAML map gives items "key=value" */
};

struct ash_opt_list {
    const char **items;
    size_t count;
};

struct ash_opt {
    const char *name; /* "steps"; `--global-batch` and `global_batch` name the same setting */
    enum ash_opt_type type;
    size_t offset;              /* of the field in the module's struct */
    const char *default_text;   /* the default; NULL leaves zero */
    const char *help;           /* one line, lower case, with the unit */
    double min, max;            /* for numbers; both 0 means no limit */
    const char *const *choices; /* for ASH_OPT_CHOICE, NULL-terminated */
};

/* One module's settings: `section.name` in a job file. An empty section ("") holds a command's own flags. */
struct ash_opt_table {
    const char *section;
    const char *help;
    const struct ash_opt *opts;
    size_t count;
};

/* The tables of one command, each bound to the struct that it fills. */
struct ash_opt_binding {
    const struct ash_opt_table *table;
    void *object;
};

struct ash_opts; /* a set of bindings, plus the memory of their strings */

/* Bind tables and fill every object with its defaults. Borrows bindings (copied) and the objects until close. */
int ash_opts_open(const struct ash_opt_binding *bindings, size_t count, struct ash_opts **opts_out,
                  struct ash_err *err);
/* Frees the strings too: the objects must not be used afterwards. */
void ash_opts_close(struct ash_opts *opts);

/* Pass over every section that no table has, instead of refusing it: for a command that reads a part of a job file. The
 * section `job`, which says what a job asks of a cluster, is always passed over where no table has it. */
void ash_opts_pass_others(struct ash_opts *opts);

/* Set one value from text. key is "section.name" or, for the empty section, "name". source is for messages
 * ("job.yaml:12"); NULL is the command line. An unknown key is -ENOENT, and the sentence names a near one. */
int ash_opts_set(struct ash_opts *opts, const char *key, const char *value, const char *source, struct ash_err *err);
/* Every ASHLAR_SECTION_NAME that is in the environment. */
int ash_opts_set_env(struct ash_opts *opts, struct ash_err *err);
/* A variable that another program's convention defines (RANK, SLURM_PROCID, ...), or NULL if it is unset or
 * empty. */
const char *ash_env_get(const char *name);
/* A YAML job file: nested maps, or dotted keys. Anchors and aliases are refused; depth and size are bounded. */
int ash_opts_load_yaml(struct ash_opts *opts, const char *path, struct ash_err *err);
/* The same from text in memory; name is for messages. */
int ash_opts_parse_yaml(struct ash_opts *opts, const char *text, size_t size_bytes, const char *name,
                        struct ash_err *err);
/* Command-line words: --name value, --name=value, --no-name for booleans, key=value (any section), `--` ends flags, the
 * rest are positionals (at most max_positionals; more is -E2BIG). -h/--help sets *help_out. Words are borrowed. */
int ash_opts_parse_args(struct ash_opts *opts, int argc, char **argv, const char **positionals, size_t max_positionals,
                        size_t *positional_count_out, bool *help_out, struct ash_err *err);

/* How many settings there are, over all tables. */
size_t ash_opts_count(const struct ash_opts *opts);
/* Setting index, below the count; *table_out (may be NULL) is the table that it is in. Borrowed. */
const struct ash_opt *ash_opts_at(const struct ash_opts *opts, size_t index, const struct ash_opt_table **table_out);

/* Was it set by a file, a flag or the environment? */
bool ash_opts_is_set(const struct ash_opts *opts, const char *key);
/* Print the settings with defaults, limits and help, aligned, section by section: the body of --help. */
void ash_opts_print_help(const struct ash_opts *opts, FILE *out);
/* Every setting as YAML with its present value: a job file that reproduces this run. */
void ash_opts_print_yaml(const struct ash_opts *opts, FILE *out);

#endif
