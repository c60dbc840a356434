/* ashlar policy: one file for teams and shares, compared with a cluster's own objects and applied to them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "cmd/cmd.h"
#include "cmd/policy_priv.h"

#define DIFFERS 3 /* exit code */

enum { TO_SLURM, TO_KUEUE };
static const char *const site_names[] = {"slurm", "kueue", NULL};
static const struct ash_policy_site_ops *const sites[] = {
    [TO_SLURM] = &ash_policy_slurm_site, [TO_KUEUE] = &ash_policy_kueue_site};

struct policy_flags {
    int to;
    bool yes;
};

#define FIELD(name) offsetof(struct policy_flags, name)
static const struct ash_opt policy_opts[] = {
    {"to", ASH_OPT_CHOICE, FIELD(to), "slurm",
     "slurm: accounts and QOS, through sacctmgr; kueue: queues, cohorts and priority classes, through the API", 0, 0,
     site_names},
    {"yes", ASH_OPT_BOOL, FIELD(yes), NULL, "apply: make the changes; without it they are only printed", 0, 0, NULL},
};
static const struct ash_opt_table policy_table = {"", "flags", policy_opts, ASH_COUNT(policy_opts)};

static const struct ash_cmd_usage show_usage = {
    .synopsis = "ashlar policy show POLICY.yaml [--to slurm|kueue]",
    .about = "The accounts and QOS, or the objects of Kueue, that the policy wants. The file is that of ashlar plan "
             "queue,\nwhich simulates what it does to waiting times.",
    .examples = "  ashlar policy show teams.yaml\n  ashlar policy show teams.yaml --to kueue",
};
static const struct ash_cmd_usage diff_usage = {
    .synopsis = "ashlar policy diff POLICY.yaml [--to slurm|kueue]",
    .about =
        "What the cluster would have to change. Exit code 0 if nothing, 3 if something. Things that the policy does "
        "not\nname are left alone.",
    .examples = "  ashlar policy diff teams.yaml --to kueue",
};
static const struct ash_cmd_usage apply_usage = {
    .synopsis = "ashlar policy apply POLICY.yaml [--to slurm|kueue] [--yes]",
    .about = "Prints these changes, and with --yes makes them and compares again.",
    .examples = "  ashlar policy apply teams.yaml\n  ashlar policy apply teams.yaml --yes",
};

static int print_changes(const struct ash_policy_site_ops *site, const json_t *changes, struct ash_err *err)
{
    struct ash_str text = {0};
    const json_t *change;
    size_t i;
    int rc = 0;

    json_array_foreach(changes, i, change)
        if (rc == 0) rc = site->describe(change, &text);
    if (rc == 0 && text.size_bytes > 0) fputs(text.data, stdout);
    ash_str_fini(&text);
    return rc < 0 ? ash_err_set(err, rc, "out of memory") : 0;
}

static int show(const struct ash_policy_conf *conf, const struct policy_flags *flags, struct ash_err *err)
{
    struct ash_str text = {0};
    int rc = sites[flags->to]->show(conf, &text, err);

    if (rc == 0) fputs(text.data, stdout);
    ash_str_fini(&text);
    return rc;
}

static int diff(const struct ash_policy_conf *conf, const struct policy_flags *flags, struct ash_err *err)
{
    const struct ash_policy_site_ops *site = sites[flags->to];
    json_t *changes = NULL;
    int rc = site->compare(conf, &changes, err);

    if (rc == 0) rc = print_changes(site, changes, err);
    if (rc == 0 && json_array_size(changes) > 0) rc = DIFFERS;
    json_decref(changes);
    return rc;
}

/* Make the changes, in order; the first that fails says how many were made. */
static int make(const struct ash_policy_site_ops *site, const json_t *changes, struct ash_err *err)
{
    const json_t *change;
    struct ash_err cause = {0};
    size_t i;

    json_array_foreach(changes, i, change) {
        int rc = site->run(change, &cause);

        if (rc < 0)
            return ash_err_set(err, rc, "%zu of %zu changes were made, then: %.300s", i, json_array_size(changes),
                               cause.text);
    }
    return 0;
}

static int apply(const struct ash_policy_conf *conf, const struct policy_flags *flags, struct ash_err *err)
{
    const struct ash_policy_site_ops *site = sites[flags->to];
    json_t *changes = NULL, *left = NULL;
    int rc = site->compare(conf, &changes, err);

    if (rc == 0) rc = print_changes(site, changes, err);
    if (rc == 0 && flags->yes) rc = make(site, changes, err);
    if (rc == 0 && flags->yes) rc = site->compare(conf, &left, err);
    if (rc == 0 && json_array_size(left) > 0)
        rc = ash_err_set(err, -EIO, "all %zu changes were made, and %zu differ still: ashlar policy diff shows them",
                         json_array_size(changes), json_array_size(left));
    if (rc == 0)
        printf("%s%zu changes%s\n", json_array_size(changes) == 0 ? "equal: " : "", json_array_size(changes),
               flags->yes || json_array_size(changes) == 0 ? "" : ", none made: --yes makes them");
    json_decref(left);
    json_decref(changes);
    return rc;
}

/* A subcommand: the policy, and what to do with it. */
static int run_with(const struct ash_cmd_usage *usage,
                    int (*act)(const struct ash_policy_conf *, const struct policy_flags *, struct ash_err *), int argc,
                    char **argv)
{
    struct policy_flags flags = {0};
    struct ash_opt_binding binding = {&policy_table, &flags};
    struct ash_policy_conf conf = {0};
    struct ash_opts *opts = NULL;
    struct ash_err err = {0};
    const char *path = NULL;
    size_t count = 0;
    int code;

    if (ash_opts_open(&binding, 1, &opts, &err) < 0) return ash_cmd_fail(&err);
    code = ash_cmd_parse(usage, opts, argc, argv, &path, 1, &count);
    if (code == ASH_CMD_GO && count == 0)
        code = ash_cmd_misuse("policy", "it takes a policy: a file, or kueue, slurm, ...");
    if (code == ASH_CMD_GO) {
        code = ash_policy_conf_open(path, &conf, &err);
        if (code == 0) code = act(&conf, &flags, &err);
        if (code < 0) code = ash_cmd_fail(&err);
    }
    ash_policy_conf_fini(&conf);
    ash_opts_close(opts);
    return code;
}

static int run_show(int argc, char **argv)
{
    return run_with(&show_usage, show, argc, argv);
}

static int run_diff(int argc, char **argv)
{
    return run_with(&diff_usage, diff, argc, argv);
}

static int run_apply(int argc, char **argv)
{
    return run_with(&apply_usage, apply, argc, argv);
}

static const struct ash_cmd cmd_show = {"show", "the objects that a policy wants", run_show},
                            cmd_diff = {"diff", "what a cluster has that differs", run_diff},
                            cmd_apply = {"apply", "change the cluster", run_apply};
static const struct ash_cmd *const commands[] = {&cmd_show, &cmd_diff, &cmd_apply};

static int run(int argc, char **argv)
{
    return ash_cmd_dispatch("ashlar policy", commands, ASH_COUNT(commands), argc, argv);
}

const struct ash_cmd ash_cmd_policy = {"policy", "teams and shares of a cluster, from one file", run};
