/* Nodes that were added to a job are a job of their own, with the same script: they are cancelled, and leave. Those
 * that the job itself began with are told by SIGUSR1 (script.c) and then taken from it. */
#include "orchestrate/slurm/balance_act.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/command.h"
#include "infra/topology/hostlist.h"
#include "orchestrate/slurm/queue.h"

#define LIMIT_S 30.0
#define LEAVE_LIMIT_S 600.0 /* for a step to end, and for a shard to be handed over */
#define NAMES_MAX 4096

static int run(const char *const *argv, const char *const *env, const char *input, double limit_s, struct ash_str *text,
               struct ash_err *err)
{
    const struct ash_command command = {.argv = argv, .env = env, .input = input, .limit_s = limit_s};
    int rc = ash_command_output(&command, text, err);

    return rc == -ENOENT ? ash_err_prefix(err, rc, "Slurm is not installed here") : rc;
}

/* ---- looking ----------------------------------------------------------------------------------------------------- */

/* "PartitionName=a ... PriorityTier=2": that of a partition; 1 if it is not there. */
static int64_t tier_of(const char *partitions, const char *name)
{
    char value[ASH_BALANCE_NAME_BYTES];

    for (const char *line = partitions; line != NULL && *line != '\0';) {
        const char *end = strchr(line, '\n');

        ash_slurm_value(line, "PartitionName", value, sizeof(value));
        if (strcmp(value, name) == 0)
            return strtoll(ash_slurm_value(line, "PriorityTier", value, sizeof(value)), NULL, 10);
        line = end != NULL ? end + 1 : NULL;
    }
    return 1;
}

/* "normal|0\nurgent|90": the priority of a QOS; 0 if it is not there. */
static int64_t priority_of(const char *qos, const char *name)
{
    size_t length = strlen(name);

    for (const char *line = qos; line != NULL && *line != '\0';) {
        const char *end = strchr(line, '\n');

        if (strncmp(line, name, length) == 0 && line[length] == '|') return strtoll(line + length + 1, NULL, 10);
        line = end != NULL ? end + 1 : NULL;
    }
    return 0;
}

static void rank_jobs(struct ash_balance *balance, const char *partitions, const char *qos)
{
    for (size_t i = 0; i < balance->job_count; i++) {
        struct ash_balance_job *job = &balance->jobs[i];
        int64_t tier = tier_of(partitions, job->partition) % 65536, priority = priority_of(qos, job->qos);

        job->rank = tier * 4294967296 + priority % 4294967296;
    }
}

int ash_balance_look(struct ash_balance *balance, struct ash_err *err)
{
    struct ash_str queue = {0}, nodes = {0}, partitions = {0}, qos = {0};
    int rc = run((const char *const[]){"squeue", "--noheader", "--states=running,pending", "--sort=-p",
                                       "--format=" ASH_BALANCE_FORMAT, NULL},
                 NULL, NULL, LIMIT_S, &queue, err);

    if (rc == 0)
        rc = run((const char *const[]){"sinfo", "--noheader", "--Node", "--format=%N|%P|%t", NULL}, NULL, NULL, LIMIT_S,
                 &nodes, err);
    if (rc == 0)
        rc = run((const char *const[]){"scontrol", "--oneliner", "show", "partition", NULL}, NULL, NULL, LIMIT_S,
                 &partitions, err);
    if (rc == 0) /* without accounting there are none */
        (void)run(
            (const char *const[]){"sacctmgr", "--noheader", "--parsable2", "show", "qos", "format=Name,Priority", NULL},
            NULL, NULL, LIMIT_S, &qos, NULL);
    if (rc == 0)
        rc = ash_balance_read(balance, queue.data != NULL ? queue.data : "", nodes.data != NULL ? nodes.data : "", err);
    if (rc == 0) rank_jobs(balance, partitions.data, qos.data);
    ash_str_fini(&queue);
    ash_str_fini(&nodes);
    ash_str_fini(&partitions);
    ash_str_fini(&qos);
    return rc;
}

/* ---- giving ------------------------------------------------------------------------------------------------------ */

struct split {
    struct ash_str kept, given; /* comma-separated */
    size_t keeps, seen;
    int rc;
};

static int visit(void *ctx, const char *name, struct ash_err *err)
{
    struct split *split = ctx;
    struct ash_str *to = split->seen < split->keeps ? &split->kept : &split->given;
    (void)err;

    split->seen++;
    return ash_str_addf(to, "%s%s", to->size_bytes > 0 ? "," : "", name);
}

/* The last nodes of the job itself: ranks leave, then Slurm gets them. */
static int give_own(const struct ash_balance_job *job, size_t count, struct ash_err *err)
{
    static const char leave[] = "f=$0/.ashlar-node-$SLURM_JOB_ID-$SLURMD_NODENAME\n"
                                "p=$(cat \"$f\") && kill -USR1 \"$p\" || exit 1\n"
                                "while kill -0 \"$p\" 2> /dev/null; do sleep 0.05; done\n";
    struct split split = {.keeps = job->nodes - count};
    char id[ASH_BALANCE_NAME_BYTES + 16], number[40], *list = NULL;
    int rc = ash_hostlist_each(job->hosts, visit, &split, err);

    snprintf(id, sizeof(id), "--jobid=%s", job->id);
    snprintf(number, sizeof(number), "--nodes=%zu", count);
    if (rc == 0 && asprintf(&list, "--nodelist=%s", split.given.data) < 0) rc = -ENOMEM;
    if (rc == 0)
        rc = run((const char *const[]){"srun", "--overlap", "--quiet", id, number, "--ntasks-per-node=1", list, "bash",
                                       "-c", leave, job->out, NULL},
                 NULL, NULL, LEAVE_LIMIT_S, NULL, err);
    free(list);
    list = NULL;
    snprintf(id, sizeof(id), "JobId=%s", job->id);
    if (rc == 0 && asprintf(&list, "NodeList=%s", split.kept.data) < 0) rc = -ENOMEM;
    if (rc == 0) rc = run((const char *const[]){"scontrol", "update", id, list, NULL}, NULL, NULL, LIMIT_S, NULL, err);
    free(list);
    ash_str_fini(&split.kept);
    ash_str_fini(&split.given);
    return rc == -ENOMEM ? ash_err_set(err, rc, "out of memory") : rc;
}

static int give(const struct ash_balance *balance, const struct ash_balance_job *job, size_t count, struct ash_err *err)
{
    int rc = 0;

    for (size_t i = 0; i < balance->job_count && count > 0 && rc == 0; i++) {
        const struct ash_balance_job *piece = &balance->jobs[i];

        if (strcmp(piece->joins, job->id) != 0) continue;
        rc = run((const char *const[]){"scancel", "--signal=TERM", piece->id, NULL}, NULL, NULL, LIMIT_S, NULL, err);
        count -= piece->nodes < count ? piece->nodes : count;
    }
    return rc == 0 && count > 0 ? give_own(job, count, err) : rc;
}

/* ---- growing ----------------------------------------------------------------------------------------------------- */

static int grow(const struct ash_balance_job *job, size_t count, struct ash_err *err)
{
    const char *rest = strchr(job->comment, ' ');
    char number[40], joins[ASH_BALANCE_NAME_BYTES + 16], most[40], *comment = NULL, *output = NULL;
    struct ash_str script = {0};
    int rc = run((const char *const[]){"scontrol", "write", "batch_script", job->id, "-", NULL}, NULL, NULL, LIMIT_S,
                 &script, err);

    snprintf(number, sizeof(number), "--nodes=%zu", count);
    snprintf(joins, sizeof(joins), "ASHLAR_JOINS=%s", job->id);
    snprintf(most, sizeof(most), "ASHLAR_NODES=%zu", job->most);
    if (rc == 0 && asprintf(&comment, "--comment=%s%s%s", ASH_BALANCE_JOINS, job->id, rest != NULL ? rest : "") < 0)
        rc = -ENOMEM;
    if (rc == 0 && asprintf(&output, "--output=%s/slurm-%%j.out", job->out) < 0) rc = -ENOMEM;
    if (rc == 0)
        rc = run((const char *const[]){"sbatch", "--parsable", "--no-requeue", "--export=ALL", number, comment, output,
                                       NULL},
                 (const char *const[]){joins, most, NULL}, script.data, LIMIT_S, NULL, err);
    free(comment);
    free(output);
    ash_str_fini(&script);
    return rc == -ENOMEM ? ash_err_set(err, rc, "out of memory") : rc;
}

int ash_balance_make(const struct ash_balance *balance, const struct ash_balance_change *change, struct ash_err *err)
{
    const struct ash_balance_job *job = &balance->jobs[change->job];
    int rc = change->verb == ASH_BALANCE_GIVE   ? give(balance, job, change->nodes, err)
             : change->verb == ASH_BALANCE_GROW ? grow(job, change->nodes, err)
                                                : 0;

    return rc < 0 ? ash_err_prefix(err, rc, "job %.60s", job->id) : 0;
}
