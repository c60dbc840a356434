/* ashlar jobs balance: elastic jobs give nodes to those of a higher class that wait, and get idle ones back. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/interrupt.h"
#include "cmd/jobs_priv.h"
#include "orchestrate/slurm/balance_act.h"

#define RECORD ".ashlar-balance" /* in the folder of a run: when it was changed */
#define HOUR_S 3600.0
#define LOOK_NS 100000000

static const char *const to_names[] = {"higher", "any", NULL};

struct balance_flags {
    bool once, dry_run;
    double interval, quiet;
    int64_t budget;
    int give_to;
};

#define FIELD(name) offsetof(struct balance_flags, name)
static const struct ash_opt balance_opts[] = {
    {"once", ASH_OPT_BOOL, FIELD(once), NULL, "look once, make at most one change, and end", 0, 0, NULL},
    {"dry_run", ASH_OPT_BOOL, FIELD(dry_run), NULL, "print the next change, make none", 0, 0, NULL},
    {"interval", ASH_OPT_DOUBLE, FIELD(interval), "5", "seconds between two looks", 0.1, 3600, NULL},
    {"quiet", ASH_OPT_DOUBLE, FIELD(quiet), "60", "seconds after a job's last change before it gets nodes back", 0,
     86400, NULL},
    {"budget", ASH_OPT_INT, FIELD(budget), "12", "changes of a job an hour; 0: any number", 0, 3600, NULL},
    {"give_to", ASH_OPT_CHOICE, FIELD(give_to), "higher",
     "who gets nodes: jobs of a higher class (PriorityTier of the partition, priority of the QOS), or any that waits",
     0, 0, to_names},
};
static const struct ash_opt_table balance_table = {"", "flags", balance_opts, ASH_COUNT(balance_opts)};

static const struct ash_cmd_usage usage = {
    .synopsis = "ashlar jobs balance [--once] [--dry-run]",
    .about =
        "Watches the queue of a Slurm. A job with job.elastic gives nodes to the first job that waits, if they are "
        "enough for\nit, down to job.elastic.min; where none waits, it gets idle nodes back. Ranks leave and join "
        "between two steps.",
    .examples = "  ashlar jobs balance\n  ashlar jobs balance --once --dry-run",
};

/* ---- budget and hysteresis --------------------------------------------------------------------------------------- */

static int record_path(const struct ash_balance_job *job, char path[PATH_MAX])
{
    int used = snprintf(path, PATH_MAX, "%s/" RECORD, job->out);

    return used > 0 && used < PATH_MAX ? 0 : -ENAMETOOLONG;
}

static bool may(void *ctx, const struct ash_balance_job *job, enum ash_balance_verb verb)
{
    const struct balance_flags *flags = ctx;
    double now_s = ash_clock_wall_s(), at_s, last_s = 0.0;
    int64_t count = 0;
    char path[PATH_MAX];
    FILE *file = record_path(job, path) == 0 ? fopen(path, "r") : NULL;

    while (file != NULL && fscanf(file, "%lf", &at_s) == 1) {
        count += at_s > now_s - HOUR_S && at_s <= now_s;
        if (at_s <= now_s) last_s = at_s;
    }
    if (file != NULL) fclose(file);
    if (flags->budget > 0 && count >= flags->budget) return false;
    return verb != ASH_BALANCE_GROW || now_s - last_s >= flags->quiet;
}

/* Before the change: one that cannot be recorded is not made. */
static int record(const struct ash_balance_job *job, struct ash_err *err)
{
    char path[PATH_MAX];
    FILE *file = record_path(job, path) == 0 ? fopen(path, "a") : NULL;
    bool is_written = file != NULL && fprintf(file, "%.3f\n", ash_clock_wall_s()) > 0;

    if (file != NULL && fclose(file) != 0) is_written = false;
    if (is_written) return 0;
    return ash_err_set(err, -EIO, "the change of job %.60s cannot be noted in %.200s: %s", job->id, job->out,
                       strerror(errno));
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

static void say(const struct ash_balance *balance, const struct ash_balance_change *change)
{
    const struct ash_balance_job *job = &balance->jobs[change->job];
    size_t has = ash_balance_all_nodes(balance, job);
    const char *s = change->nodes == 1 ? "" : "s";

    if (change->verb == ASH_BALANCE_GIVE)
        printf("job %s gives %zu of %zu nodes to job %s\n", job->id, change->nodes, has,
               balance->jobs[change->heir].id);
    else if (change->verb == ASH_BALANCE_GROW)
        printf("job %s gets %zu node%s to its %zu\n", job->id, change->nodes, s, has);
    fflush(stdout);
}

static int look(const struct balance_flags *flags, struct ash_err *err)
{
    struct ash_balance balance = {.job_count = 0};
    struct ash_balance_change change = {.nodes = 0};
    int rc = ash_balance_look(&balance, err);

    if (rc == 0) change = ash_balance_decide(&balance, flags->give_to != 0, may, (void *)flags);
    if (rc == 0) say(&balance, &change);
    if (rc == 0 && change.verb != ASH_BALANCE_NOTHING && !flags->dry_run) {
        rc = record(&balance.jobs[change.job], err);
        if (rc == 0) rc = ash_balance_make(&balance, &change, err);
    }
    ash_balance_free(&balance);
    return rc;
}

static int respond(const void *flags_in, const struct ash_opts *opts, const char *word)
{
    const struct balance_flags *flags = flags_in;
    struct ash_err err = {0};
    bool is_once = flags->once || flags->dry_run;
    int rc;
    (void)opts, (void)word;

    ash_interrupt_install();
    do {
        uint64_t end_ns = ash_clock_ns() + (uint64_t)(flags->interval * 1e9);

        rc = look(flags, &err);
        if (rc < 0) ash_cmd_fail(&err); /* it may answer again */
        while (!is_once && ash_clock_ns() < end_ns && !ash_interrupt_requested())
            nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
    } while (!is_once && !ash_interrupt_requested());
    return rc < 0 && is_once ? 1 : 0;
}

static int run_balance(int argc, char **argv)
{
    struct balance_flags flags = {0};
    const struct ash_cmd_form form = {
        .usage = &usage, .bindings = {{&balance_table, &flags}}, .respond = respond, .flags = &flags};

    return ash_cmd_run(&form, argc, argv);
}

const struct ash_cmd ash_cmd_jobs_balance = {"balance", "nodes of elastic jobs to those that wait, and back",
                                             run_balance};
