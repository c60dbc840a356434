/* cmd - the subcommands. Each is one file that composes the floors below and decides nothing.
 * Shared helpers are here: finding a (sub)command by name, reading flags, and one-line errors. */
#ifndef ASH_CMD_CMD_H
#define ASH_CMD_CMD_H

#include <stddef.h>
#include <stdio.h>
#include "ashlar/err.h"
#include "base/json.h"
#include "base/opts.h"
#include "base/str.h"

#define ASH_CMD_HOSTS_HELP                                                                                             \
    "names that clients may call it by (Host), next to those of this machine; asked for on 127.0.0.1 without keys; "   \
    "*: any"

struct ash_cmd {
    const char *name;
    const char *summary; /* one line for `ashlar --help` */
    /* argv[0] is the command's name. Returns the exit code: 0, 1 for a failure that was reported, 2 for wrong usage. */
    int (*run)(int argc, char **argv);
};

extern const struct ash_cmd ash_cmd_agent;
extern const struct ash_cmd ash_cmd_bench;
extern const struct ash_cmd ash_cmd_catalog;
extern const struct ash_cmd ash_cmd_chaos;
extern const struct ash_cmd ash_cmd_policy;
extern const struct ash_cmd ash_cmd_route;
extern const struct ash_cmd ash_cmd_runs;
extern const struct ash_cmd ash_cmd_checkpoint;
extern const struct ash_cmd ash_cmd_check;
extern const struct ash_cmd ash_cmd_completion;
extern const struct ash_cmd ash_cmd_dash;
extern const struct ash_cmd ash_cmd_data;
extern const struct ash_cmd ash_cmd_eval;
extern const struct ash_cmd ash_cmd_flight;
extern const struct ash_cmd ash_cmd_generate;
extern const struct ash_cmd ash_cmd_jobs;
extern const struct ash_cmd ash_cmd_launch;
extern const struct ash_cmd ash_cmd_model;
extern const struct ash_cmd ash_cmd_plan;
extern const struct ash_cmd ash_cmd_scaling;
extern const struct ash_cmd ash_cmd_serve;
extern const struct ash_cmd ash_cmd_diagnose;
extern const struct ash_cmd ash_cmd_xid;
extern const struct ash_cmd ash_cmd_store;
extern const struct ash_cmd ash_cmd_submit;
extern const struct ash_cmd ash_cmd_trace;
extern const struct ash_cmd ash_cmd_train;
extern const struct ash_cmd ash_cmd_sft;
extern const struct ash_cmd ash_cmd_dpo;
extern const struct ash_cmd ash_cmd_reward;
extern const struct ash_cmd ash_cmd_distill;
extern const struct ash_cmd ash_cmd_rl;
extern const struct ash_cmd ash_cmd_version;

/* Run the one of commands that argv[1] names, or print their list (--help, -h, help: exit code 0; nothing: 2; `help
 * NAME` is `NAME --help`). An unknown name gets the nearest one as a suggestion and exit code 2. prefix is the text
 * before the name ("ashlar", "ashlar model"). */
int ash_cmd_dispatch(const char *prefix, const struct ash_cmd *const *commands, size_t count, int argc, char **argv);

/* All commands of the program, in the order of `ashlar --help`. */
const struct ash_cmd *const *ash_cmd_all(size_t *count_out);

/* Receives commands and their settings, without running any: what shells complete is made of it. Everything is borrowed
 * for the call. A path has the words after "ashlar": "" for the program itself, "model info". */
struct ash_cmd_visitor {
    void (*group)(void *ctx, const char *path, const struct ash_cmd *const *commands, size_t count);
    void (*settings)(void *ctx, const char *path, const struct ash_opts *opts);
    void *ctx;
};

/* Call visitor for all these commands (ash_cmd_all) and their subcommands. One thread at a time. */
void ash_cmd_visit(const struct ash_cmd *const *commands, size_t count, const struct ash_cmd_visitor *visitor);

/* Texts of --help around the flags. Several lines are separated by '\n'; about and examples may be NULL. */
struct ash_cmd_usage {
    const char *synopsis; /* "ashlar eval --model DIR --data DIR" */
    const char *about;    /* its purpose, in plain words */
    const char *examples; /* command lines that work */
};

#define ASH_CMD_GO (-1)

/* Read the environment and then the words of a command into opts. Returns ASH_CMD_GO when the command may begin; else
 * the exit code: 0 after --help was printed, 2 after wrong usage was reported. positionals and positional_count_out as
 * in ash_opts_parse_args. */
int ash_cmd_parse(const struct ash_cmd_usage *usage, struct ash_opts *opts, int argc, char **argv,
                  const char **positionals, size_t max_positionals, size_t *positional_count_out);

/* The body of a command, after its settings are read into flags; opts has which ones were set, word is NULL if there
 * was none. Returns the exit code. */
typedef int (*ash_cmd_respond_fn)(const void *flags, const struct ash_opts *opts, const char *word);

#define ASH_CMD_BINDINGS_MAX 4

/* The same with the words of the command line. */
typedef int (*ash_cmd_respond_words_fn)(const void *flags, const struct ash_opts *opts, const char *const *words,
                                        size_t count);

/* A command of the usual form: settings, perhaps words, then an answer. */
struct ash_cmd_form {
    const struct ash_cmd_usage *usage;
    struct ash_opt_binding bindings[ASH_CMD_BINDINGS_MAX]; /* up to the first without a table */
    bool takes_word;
    const char *missing_word; /* printed if the word is missing ("which file?"); NULL: it is optional */
    ash_cmd_respond_fn respond;
    ash_cmd_respond_words_fn respond_words; /* instead, with any number of words */
    const void *flags;                      /* filled by the bindings, for respond */
};

/* Read a command's settings and words, respond, and free them. Returns the exit code. */
int ash_cmd_run(const struct ash_cmd_form *form, int argc, char **argv);

#define ASH_CMD_TEXT_MAX_BYTES ((size_t)64 << 20)

/* Append a file or pipe (path "-": standard input) of at most ASH_CMD_TEXT_MAX_BYTES to text, whose data is never NULL
 * afterwards. what names it in errors ("the prompt"). Returns 0 or a negative errno. */
int ash_cmd_read_text(const char *path, const char *what, struct ash_str *text, struct ash_err *err);

/* A secret that begins with @ becomes the first line of that file, so that no command line shows it; others, and NULL,
 * stay. The copy lives until the program ends. -EINVAL for an empty file. */
int ash_cmd_read_secret(const char **secret, struct ash_err *err);

/* Print json on one object's lines and drop the reference to it; NULL is memory that ran out. Returns 0 or -ENOMEM. */
int ash_cmd_print_json(json_t *json, struct ash_err *err);

/* The process ends: if it is a rank of `ashlar launch`, it holds the job's temporary folder no more. The last one
 * removes it, if the launcher was killed. */
void ash_cmd_leave_launch(void);

#define ASH_CMD_EXIT_SIGNAL 128 /* plus a signal's number: what shells and schedulers expect */
/* The exit code of a command that ends early on a stop request: ASH_CMD_EXIT_SIGNAL plus the signal, or plus SIGTERM if
 * another process of the job got it. */
int ash_cmd_stopped(void);
/* Print "ashlar: error: SENTENCE" on standard error; returns the exit code 1. */
int ash_cmd_fail(const struct ash_err *err);
/* Print "ashlar: error: SENTENCE" and where help is found; returns the exit code 2. command is "generate", "model
 * info", ... */
int ash_cmd_misuse(const char *command, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
