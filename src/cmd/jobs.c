/* ashlar jobs: state of submitted jobs, alike on every back end. */
#include "cmd/cmd.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/table.h"
#include "cmd/jobs_priv.h"

struct jobs_flags {
    const char *to, *space;
    bool json, follow, all;
};

#define FIELD(name) offsetof(struct jobs_flags, name)
#define TO_OPT                                                                                                         \
    {                                                                                                                  \
        "to", ASH_OPT_STRING, FIELD(to), NULL,                                                                         \
            "local, slurm or kubernetes; default: Slurm or Kubernetes where one is known, else local", 0, 0, NULL      \
    }
#define SPACE_OPT                                                                                                      \
    {                                                                                                                  \
        "namespace", ASH_OPT_STRING, FIELD(space), NULL, "of Kubernetes; default: the context's", 0, 0, NULL           \
    }
static const struct ash_opt plain_opts[] = {TO_OPT, SPACE_OPT};
static const struct ash_opt ls_opts[] = {
    TO_OPT,
    SPACE_OPT,
    {"all", ASH_OPT_BOOL, FIELD(all), NULL, "those that have ended, too", 0, 0, NULL},
    {"json", ASH_OPT_BOOL, FIELD(json), NULL, "as JSON", 0, 0, NULL},
};
static const struct ash_opt log_opts[] = {
    TO_OPT, SPACE_OPT, {"follow", ASH_OPT_BOOL, FIELD(follow), NULL, "keep printing until the job ends", 0, 0, NULL}};
static const struct ash_opt_table plain_table = {"", "flags", plain_opts, ASH_COUNT(plain_opts)};
static const struct ash_opt_table ls_table = {"", "flags", ls_opts, ASH_COUNT(ls_opts)};
static const struct ash_opt_table log_table = {"", "flags", log_opts, ASH_COUNT(log_opts)};

/* The back end that the flags name, or that is here. */
static int choose(const struct jobs_flags *flags, const struct ash_jobs_ops **ops_out, struct ash_err *err)
{
    int rc = ash_jobs_choose(flags->to, ops_out, err);

    return rc == 0 ? ash_jobs_use_namespace(*ops_out, flags->space, err) : rc;
}

/* ---- ls ---------------------------------------------------------------------------------------------------------- */

static json_t *entry_json(const struct ash_jobs_entry *entry)
{
    json_t *json = json_pack("{ss ss ss ss sI sf}", "id", entry->id, "name", entry->name, "state",
                             ash_jobs_phase_name(entry->phase), "reason", entry->reason, "nodes",
                             (json_int_t)entry->nodes, "age_seconds", entry->age_s);

    if (json != NULL && entry->code >= 0) json_object_set_new(json, "code", json_integer(entry->code));
    return json;
}

static int print_json(const struct ash_jobs_list *list, bool all, struct ash_err *err)
{
    json_t *json = json_array();

    for (size_t i = 0; i < list->count && json != NULL; i++)
        if (all || !ash_jobs_has_ended(list->entries[i].phase))
            json_array_append_new(json, entry_json(&list->entries[i]));
    return ash_cmd_print_json(json, err);
}

static void print_table(const struct ash_jobs_list *list, bool all, const char *where)
{
    struct ash_table table = {.heads = "id|name|state|>nodes|>age|reason"};
    size_t shown = 0;

    for (size_t i = 0; i < list->count; i++) {
        const struct ash_jobs_entry *entry = &list->entries[i];
        char age[32] = "?";

        if (!all && ash_jobs_has_ended(entry->phase)) continue;
        shown++;
        if (entry->age_s >= 0) ash_clock_format(entry->age_s, age, sizeof(age));
        ash_table_row(&table, "%s|%s|%s|%zu|%s|%s", entry->id, entry->name, ash_jobs_phase_name(entry->phase),
                      entry->nodes, age, entry->reason);
    }
    if (shown > 0)
        ash_table_print(&table, stdout);
    else
        printf("no jobs of yours %s on %s\n", all ? "are known" : "wait or run (--all: those that have ended)", where);
}

static int respond_ls(const void *flags_in, const struct ash_opts *opts, const char *word)
{
    const struct jobs_flags *flags = flags_in;
    const struct ash_jobs_ops *ops = NULL;
    struct ash_jobs_list list = {0};
    struct ash_err err = {0};
    int rc = choose(flags, &ops, &err);
    (void)opts, (void)word;

    if (rc == 0) rc = ops->list(NULL, &list, &err);
    if (rc == 0 && flags->json)
        rc = print_json(&list, flags->all, &err);
    else if (rc == 0)
        print_table(&list, flags->all, ops->name);
    ash_jobs_free(&list);
    return rc < 0 ? ash_cmd_fail(&err) : 0;
}

/* ---- one job ----------------------------------------------------------------------------------------------------- */

static int print_text(int (*ask)(const char *, struct ash_str *, struct ash_err *), const char *id)
{
    struct ash_str text = {0};
    struct ash_err err = {0};
    int rc = ask(id, &text, &err);

    if (rc == 0 && text.data != NULL) fputs(text.data, stdout);
    ash_str_fini(&text);
    return rc < 0 ? ash_cmd_fail(&err) : 0;
}

static int respond_show(const void *flags, const struct ash_opts *opts, const char *id)
{
    const struct ash_jobs_ops *ops = NULL;
    struct ash_err err = {0};
    (void)opts;

    if (choose(flags, &ops, &err) < 0) return ash_cmd_fail(&err);
    return print_text(ops->show, id);
}

static int respond_why(const void *flags, const struct ash_opts *opts, const char *id)
{
    const struct ash_jobs_ops *ops = NULL;
    struct ash_err err = {0};
    (void)opts;

    if (choose(flags, &ops, &err) < 0) return ash_cmd_fail(&err);
    return print_text(ops->why, id);
}

/* stop, hold, release: call the back end, print the result. */
static int tell(const struct jobs_flags *flags, const char *id, const char *verb)
{
    const struct ash_jobs_ops *ops = NULL;
    struct ash_err err = {0};
    int (*call)(const char *, struct ash_err *) = NULL;
    int rc = choose(flags, &ops, &err);

    if (rc < 0) return ash_cmd_fail(&err);
    call = strcmp(verb, "stop") == 0 ? ops->stop : strcmp(verb, "hold") == 0 ? ops->hold : ops->release;
    rc = call == NULL
             ? ash_err_set(&err, -ENOTSUP, "%s: jobs on %s start at once, there is nothing to hold", verb, ops->name)
             : call(id, &err);
    if (rc < 0) return ash_cmd_fail(&err);
    printf("%s: %s\n", id,
           strcmp(verb, "stop") == 0   ? "told to save and end"
           : strcmp(verb, "hold") == 0 ? "held"
                                       : "released");
    return 0;
}

static int respond_stop(const void *flags, const struct ash_opts *opts, const char *id)
{
    (void)opts;
    return tell(flags, id, "stop");
}

static int respond_hold(const void *flags, const struct ash_opts *opts, const char *id)
{
    (void)opts;
    return tell(flags, id, "hold");
}

static int respond_release(const void *flags, const struct ash_opts *opts, const char *id)
{
    (void)opts;
    return tell(flags, id, "release");
}

static int respond_wait(const void *flags, const struct ash_opts *opts, const char *id)
{
    const struct ash_jobs_ops *ops = NULL;
    struct ash_err err = {0};
    int rc = choose(flags, &ops, &err);
    (void)opts;

    if (rc == 0) rc = ash_cmd_await_job(ops, id, false, &err);
    return rc < 0 ? ash_cmd_fail(&err) : rc;
}

static int copy_file(const char *path, struct ash_err *err)
{
    char piece[65536];
    size_t got;
    FILE *file = fopen(path, "r");

    if (file == NULL) return ash_err_set(err, -errno, "%s: %s", path, strerror(errno));
    while ((got = fread(piece, 1, sizeof(piece), file)) > 0)
        fwrite(piece, 1, got, stdout);
    fclose(file);
    return 0;
}

static int respond_log(const void *flags_in, const struct ash_opts *opts, const char *id)
{
    const struct jobs_flags *flags = flags_in;
    const struct ash_jobs_ops *ops = NULL;
    struct ash_jobs_list list = {0};
    struct ash_err err = {0};
    int rc = choose(flags, &ops, &err);
    (void)opts;

    if (rc == 0 && flags->follow) {
        rc = ash_cmd_await_job(ops, id, true, &err);
    } else if (rc == 0 && ops->output != NULL) {
        return print_text(ops->output, id);
    } else if (rc == 0) {
        rc = ops->list(id, &list, &err);
        if (rc == 0 && list.entries[0].log[0] == '\0')
            rc = ash_err_set(&err, -ENOENT, "job %s has no output that this machine sees", id);
        if (rc == 0) rc = copy_file(list.entries[0].log, &err);
    }
    ash_jobs_free(&list);
    return rc < 0 ? ash_cmd_fail(&err) : rc;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

#define JOBS_COMMAND(VERB, SUMMARY, SYNOPSIS, ABOUT, TABLE, WORD, MISSING)                                             \
    static int run_##VERB(int argc, char **argv)                                                                       \
    {                                                                                                                  \
        static const struct ash_cmd_usage usage = {.synopsis = SYNOPSIS, .about = ABOUT};                              \
        struct jobs_flags flags = {0};                                                                                 \
        struct ash_cmd_form form = {.usage = &usage,                                                                   \
                                    .bindings = {{TABLE, &flags}},                                                     \
                                    .takes_word = WORD,                                                                \
                                    .missing_word = MISSING,                                                           \
                                    .respond = respond_##VERB,                                                         \
                                    .flags = &flags};                                                                  \
                                                                                                                       \
        return ash_cmd_run(&form, argc, argv);                                                                         \
    }                                                                                                                  \
    static const struct ash_cmd jobs_##VERB = {#VERB, SUMMARY, run_##VERB};

#define WHICH "which job? give its id (ashlar jobs ls)"
JOBS_COMMAND(ls, "your jobs: state, age, why they wait", "ashlar jobs ls [--all] [--json]",
             "Lists the jobs of this user that wait or run.", &ls_table, false, NULL)
JOBS_COMMAND(show, "all that is known of a job", "ashlar jobs show ID", "Prints what the back end says of a job.",
             &plain_table, true, WHICH)
JOBS_COMMAND(log, "what a job prints", "ashlar jobs log ID [--follow]", "Prints the output of a job.", &log_table, true,
             WHICH)
JOBS_COMMAND(why, "why a job waits", "ashlar jobs why ID",
             "Says what a job waits for, who holds it, when it would start and what would make that sooner.",
             &plain_table, true, WHICH)
JOBS_COMMAND(wait, "wait for the end of a job", "ashlar jobs wait ID", "Waits; the exit code is the job's.",
             &plain_table, true, WHICH)
JOBS_COMMAND(stop, "let a job save and end", "ashlar jobs stop ID", "Tells a job to save and end.", &plain_table, true,
             WHICH)
JOBS_COMMAND(hold, "keep a job from starting", "ashlar jobs hold ID", "Keeps a waiting job from starting.",
             &plain_table, true, WHICH)
JOBS_COMMAND(release, "let a held job start", "ashlar jobs release ID", "Lets a held job start.", &plain_table, true,
             WHICH)

static const struct ash_cmd *const commands[] = {
    &jobs_ls,   &jobs_show, &jobs_log,     &jobs_why,           &jobs_wait,
    &jobs_stop, &jobs_hold, &jobs_release, &ash_cmd_jobs_usage, &ash_cmd_jobs_balance};

static int run_jobs(int argc, char **argv)
{
    return ash_cmd_dispatch("ashlar jobs", commands, ASH_COUNT(commands), argc, argv);
}

const struct ash_cmd ash_cmd_jobs = {"jobs", "jobs that were submitted: list, output, why they wait, stop", run_jobs};
