/* ashlar jobs usage: who has used how many hours, what they went into, and what that costs. */
#include "cmd/jobs_usage.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/table.h"
#include "cmd/catalog_priv.h"
#include "cmd/jobs_priv.h"
#include "infra/catalog.h"
#include "orchestrate/job/jobs.h"
#include "plan/price.h"

static const char *const by_names[] = {"team", "user", "job", NULL}; /* as enum ash_usage_by */

struct usage_flags {
    const char *to, *space, *from, *until, *team, *user, *machine;
    double price;
    int by;
    bool json, csv;
    struct ash_catalog_flags machines;
};

#define FIELD(name) offsetof(struct usage_flags, name)
static const struct ash_opt usage_opts[] = {
    {"to", ASH_OPT_STRING, FIELD(to), NULL, "slurm or kubernetes; default: the one that is known here", 0, 0, NULL},
    {"namespace", ASH_OPT_STRING, FIELD(space), NULL, "of Kubernetes; default: the context's", 0, 0, NULL},
    {"by", ASH_OPT_CHOICE, FIELD(by), "team", "a line for each team (Slurm's account, a queue), user or job", 0, 0,
     by_names},
    {"from", ASH_OPT_STRING, FIELD(from), "30d",
     "begin: 2026-11-01, 2026-11-01T08:30 (local time), or how long ago (7d, 12h)", 0, 0, NULL},
    {"until", ASH_OPT_STRING, FIELD(until), "now", "end, in the same way", 0, 0, NULL},
    {"team", ASH_OPT_STRING, FIELD(team), NULL, "only this one's", 0, 0, NULL},
    {"user", ASH_OPT_STRING, FIELD(user), NULL, "only this one's", 0, 0, NULL},
    {"price", ASH_OPT_DOUBLE, FIELD(price), NULL,
     "dollars an hour of a GPU; default: --machine's, else job.price of each job", 0, 1e6, NULL},
    {"machine", ASH_OPT_STRING, FIELD(machine), NULL, "machine of the catalog (p5.48xlarge): price of its GPUs", 0, 0,
     NULL},
    {"csv", ASH_OPT_BOOL, FIELD(csv), NULL, "as a table for other programs, with a line of heads", 0, 0, NULL},
    {"json", ASH_OPT_BOOL, FIELD(json), NULL, "as JSON", 0, 0, NULL},
};
static const struct ash_opt_table usage_table = {"", "flags", usage_opts, ASH_COUNT(usage_opts)};

static const struct ash_cmd_usage usage = {
    .synopsis = "ashlar jobs usage [--by team|user|job] [--from WHEN] [--until WHEN] [--csv | --json]",
    .about = "Hours of nodes and GPUs of all users' jobs, from Slurm's accounting (sacct) or the pods that Kubernetes "
             "still has.\nWhere a run's folder is seen from here, they are split as its ledger is (ashlar run cost). "
             "Cents are rounded for each\nstretch of a job, so that all parts add up.",
    .examples = "  ashlar jobs usage\n  ashlar jobs usage --by user --from 2026-11-01 --until 2026-12-01 --csv\n"
                "  ashlar jobs usage --by job --team research --from 7d --machine p5.48xlarge",
};

/* ---- what is asked ----------------------------------------------------------------------------------------------- */

static int read_times(const struct usage_flags *flags, double *from_out, double *until_out, struct ash_err *err)
{
    double now_s = ash_clock_wall_s();
    const struct {
        const char *flag, *text;
        double *moment;
    } times[] = {{"from", flags->from, from_out}, {"until", flags->until, until_out}};

    for (size_t i = 0; i < ASH_COUNT(times); i++)
        if (ash_usage_parse_time(times[i].text, now_s, times[i].moment) < 0)
            return ash_err_set(err, -EINVAL,
                               "--%s %.60s is no time: write 2026-11-01, 2026-11-01T08:30, or how long ago (7d, 12h)",
                               times[i].flag, times[i].text);
    if (*until_out > now_s) *until_out = now_s;
    if (*from_out < *until_out) return 0;
    return ash_err_set(err, -EINVAL, "from %.60s until %.60s there is no time", flags->from, flags->until);
}

static int find_rates(const struct usage_flags *flags, struct ash_usage_rates *rates_out, struct ash_err *err)
{
    struct ash_catalog *catalog = NULL;
    const struct ash_machine *machine = NULL;
    int rc = 0;

    *rates_out = (struct ash_usage_rates){.usd_gpu = flags->price};
    if (flags->machine == NULL || flags->price > 0.0) return 0;
    rc = ash_cmd_catalog_open(&flags->machines, &catalog, err);
    if (rc == 0) rc = ash_catalog_machine(catalog, flags->machine, &machine, err);
    if (rc == 0) rates_out->usd_gpu = ash_price_gpu_hour(machine);
    if (rc == 0 && rates_out->usd_gpu <= 0.0)
        rc = ash_err_set(err, -EINVAL, "the catalog has no price of %.60s: give --price", flags->machine);
    ash_catalog_close(catalog);
    return rc;
}

/* Those that --team and --user ask for. */
static int pick(const struct usage_flags *flags, const struct ash_usage_list *list, struct ash_usage_list *chosen)
{
    for (size_t i = 0; i < list->count; i++) {
        const struct ash_usage_entry *entry = &list->entries[i];

        if (flags->team != NULL && strcmp(entry->team, flags->team) != 0) continue;
        if (flags->user != NULL && strcmp(entry->user, flags->user) != 0) continue;
        if (ash_usage_add(chosen, entry, entry->start_s, entry->end_s) < 0) return -ENOMEM;
    }
    return 0;
}

/* Drop what they do not ask for. A name that nobody has is more likely misspelt than idle. */
static int choose(const struct usage_flags *flags, struct ash_usage_list *list, struct ash_err *err)
{
    const char *team = flags->team, *user = flags->user;
    struct ash_usage_list chosen = {0};
    int rc;

    if (team == NULL && user == NULL) return 0;
    rc = pick(flags, list, &chosen);
    if (rc < 0) ash_err_set(err, rc, "out of memory for what jobs have used");
    if (rc == 0 && chosen.count == 0 && team != NULL && user != NULL)
        rc = ash_err_set(err, -ENOENT, "no job of team %.60s and user %.60s ran in this time", team, user);
    else if (rc == 0 && chosen.count == 0)
        rc = ash_err_set(err, -ENOENT, "no job of %s %.60s ran in this time", team != NULL ? "team" : "user",
                         team != NULL ? team : user);
    ash_usage_free(rc < 0 ? &chosen : list);
    if (rc == 0) *list = chosen;
    return rc;
}

/* ---- what is told ------------------------------------------------------------------------------------------------ */

static void add_row(struct ash_table *table, const struct ash_usage_sum *sum, enum ash_usage_by by, bool has_gpus)
{
    const double *hours = has_gpus ? sum->gpu_hours : sum->node_hours;

    ash_table_row(table, "%s", sum->key[0] != '\0' ? sum->key : "-");
    if (by == ASH_USAGE_BY_JOB) ash_table_cell(table, "%s|%s|%s", sum->name, sum->user, sum->team);
    ash_table_cell(table, "%zu|%.4g", sum->jobs, sum->all_node_hours);
    if (has_gpus) ash_table_cell(table, "%.4g", sum->all_gpu_hours);
    for (size_t kind = 0; kind < ASH_USAGE_KINDS; kind++)
        ash_table_cell(table, "%.4g", hours[kind]);
    if (sum->all_cents == 0 && sum->unpriced > 0)
        ash_table_cell(table, "-");
    else
        ash_table_cell(table, "%.2f%s", (double)sum->all_cents / 100.0, sum->unpriced > 0 ? "+" : "");
}

static int print_table(const struct ash_usage_sum *sums, size_t count, const struct ash_usage_sum *total,
                       enum ash_usage_by by)
{
    bool has_gpus = total->all_gpu_hours > 0.0;
    struct ash_str heads = {0};
    struct ash_table table = {0};
    int rc = ash_str_addf(&heads, "%s%s|>jobs|>node h%s", by_names[by], by == ASH_USAGE_BY_JOB ? "|name|user|team" : "",
                          has_gpus ? "|>GPU h" : "");

    for (size_t kind = 0; kind < ASH_USAGE_KINDS && rc == 0; kind++)
        rc = ash_str_addf(&heads, "|>%s", ash_usage_kind_name(kind));
    if (rc == 0) rc = ash_str_adds(&heads, "|>dollars");
    if (rc == 0) {
        table.heads = heads.data;
        for (size_t i = 0; i < count; i++)
            add_row(&table, &sums[i], by, has_gpus);
        if (count > 1) add_row(&table, total, by, has_gpus);
        rc = ash_table_print(&table, stdout);
        if (total->all_cents > 0 && total->unpriced > 0) printf("+: more, of jobs whose price is not known\n");
    }
    ash_str_fini(&heads);
    return rc;
}

/* A field of RFC 4180. */
static void print_field(const char *text)
{
    if (strpbrk(text, ",\"\n\r") == NULL) {
        fputs(text, stdout);
        return;
    }
    putchar('"');
    for (; *text != '\0'; text++) {
        if (*text == '"') putchar('"');
        putchar(*text);
    }
    putchar('"');
}

static void print_csv(const struct ash_usage_sum *sums, size_t count, enum ash_usage_by by)
{
    printf("%s,%sjobs,node_hours,gpu_hours", by_names[by], by == ASH_USAGE_BY_JOB ? "name,user,team," : "");
    for (size_t kind = 0; kind < ASH_USAGE_KINDS; kind++)
        printf(",%s_node_hours,%s_gpu_hours", ash_usage_kind_name(kind), ash_usage_kind_name(kind));
    printf(",dollars\n");
    for (size_t i = 0; i < count; i++) {
        const char *names[] = {sums[i].name, sums[i].user, sums[i].team};

        print_field(sums[i].key);
        for (size_t k = 0; k < ASH_COUNT(names) && by == ASH_USAGE_BY_JOB; k++) {
            putchar(',');
            print_field(names[k]);
        }
        printf(",%zu,%.9g,%.9g", sums[i].jobs, sums[i].all_node_hours, sums[i].all_gpu_hours);
        for (size_t kind = 0; kind < ASH_USAGE_KINDS; kind++)
            printf(",%.9g,%.9g", sums[i].node_hours[kind], sums[i].gpu_hours[kind]);
        printf(",%.2f\n", (double)sums[i].all_cents / 100.0);
    }
}

static json_t *sum_json(const struct ash_usage_sum *sum, enum ash_usage_by by)
{
    json_t *json = json_pack("{ss sI sf sf sI}", by_names[by], sum->key, "jobs", (json_int_t)sum->jobs, "node_hours",
                             sum->all_node_hours, "gpu_hours", sum->all_gpu_hours, "cents", (json_int_t)sum->all_cents);
    json_t *kinds = json_object();

    for (size_t kind = 0; kind < ASH_USAGE_KINDS; kind++)
        json_object_set_new(kinds, ash_usage_kind_name(kind),
                            json_pack("{sf sf sI}", "node_hours", sum->node_hours[kind], "gpu_hours",
                                      sum->gpu_hours[kind], "cents", (json_int_t)sum->cents[kind]));
    json_object_set_new(json, "kinds", kinds);
    json_object_set_new(json, "is_priced", json_boolean(sum->unpriced == 0));
    if (by == ASH_USAGE_BY_JOB)
        json_object_update_new(json, json_pack("{ss ss ss}", "name", sum->name, "user", sum->user, "team", sum->team));
    return json;
}

static int print_json(const struct ash_usage_sum *sums, size_t count, const struct ash_usage_sum *total,
                      enum ash_usage_by by, struct ash_err *err)
{
    json_t *json = json_object(), *rows = json_array(), *all = sum_json(total, by);

    for (size_t i = 0; i < count; i++)
        json_array_append_new(rows, sum_json(&sums[i], by));
    json_object_del(all, by_names[by]);
    json_object_set_new(json, "rows", rows);
    json_object_set_new(json, "total", all);
    return ash_cmd_print_json(json, err);
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

static int tell(const struct usage_flags *flags, struct ash_usage_list *list, struct ash_err *err)
{
    struct ash_usage_rates rates;
    struct ash_usage_sum *sums = NULL, total;
    size_t count = 0;
    int rc = find_rates(flags, &rates, err);

    if (rc == 0) rc = choose(flags, list, err);
    if (rc == 0 && ash_usage_sum_up(list, (enum ash_usage_by)flags->by, &rates, &sums, &count, &total) < 0)
        rc = ash_err_set(err, -ENOMEM, "out of memory for what jobs have used");
    if (rc < 0) return rc;
    if (flags->json)
        rc = print_json(sums, count, &total, (enum ash_usage_by)flags->by, err);
    else if (flags->csv)
        print_csv(sums, count, (enum ash_usage_by)flags->by);
    else if (count == 0)
        printf("no job ran in this time\n");
    else if (print_table(sums, count, &total, (enum ash_usage_by)flags->by) < 0)
        rc = ash_err_set(err, -ENOMEM, "out of memory");
    free(sums);
    return rc;
}

static int respond(const void *flags_in, const struct ash_opts *opts, const char *word)
{
    const struct usage_flags *flags = flags_in;
    const struct ash_jobs_ops *ops = NULL;
    struct ash_usage_list list = {0};
    struct ash_err err = {0};
    double from_s = 0.0, until_s = 0.0;
    int rc = read_times(flags, &from_s, &until_s, &err);
    (void)opts, (void)word;

    if (rc < 0) return ash_cmd_misuse("jobs usage", "%s", err.text);
    if (flags->csv && flags->json) return ash_cmd_misuse("jobs usage", "--csv and --json: give one of them");
    rc = ash_jobs_choose(flags->to, &ops, &err);
    if (rc == 0) rc = ash_jobs_use_namespace(ops, flags->space, &err);
    if (rc == 0 && ops->usage == NULL)
        rc = ash_err_set(&err, -ENOTSUP,
                         "no accounts are kept of jobs on this machine: ashlar run cost DIR tells what a "
                         "run has used");
    if (rc == 0) rc = ops->usage(from_s, until_s, &list, &err);
    if (rc == 0) rc = tell(flags, &list, &err);
    ash_usage_free(&list);
    return rc < 0 ? ash_cmd_fail(&err) : 0;
}

static int run_usage(int argc, char **argv)
{
    struct usage_flags flags = {0};
    const struct ash_cmd_form form = {.usage = &usage,
                                      .bindings = {{&usage_table, &flags}, {&ash_catalog_table, &flags.machines}},
                                      .respond = respond,
                                      .flags = &flags};

    return ash_cmd_run(&form, argc, argv);
}

const struct ash_cmd ash_cmd_jobs_usage = {"usage", "hours and dollars by team, user or job", run_usage};
