/* balance: the queue read, and the next change found. */
#include "orchestrate/slurm/balance.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

#define FIELDS 8
#define NODES_MAX 65536u

enum { ID, STATE, REASON, NODES, PARTITION, QOS, HOSTS, COMMENT };

static void copy_name(char *to, const char *from, size_t length)
{
    snprintf(to, ASH_BALANCE_NAME_BYTES, "%.*s", (int)(length < ASH_BALANCE_NAME_BYTES ? length : 0), from);
}

/* "ashlar [joins=ID ][price=X ][elastic=A-B ]out=FOLDER". */
static void read_comment(struct ash_balance_job *job)
{
    const char *at = job->comment, *found;
    unsigned least = 0, most = 0;

    if (strncmp(at, "ashlar ", 7) != 0) return;
    if (strncmp(at, ASH_BALANCE_JOINS, strlen(ASH_BALANCE_JOINS)) == 0) {
        at += strlen(ASH_BALANCE_JOINS);
        copy_name(job->joins, at, strcspn(at, " "));
    }
    job->out = strstr(at, " out=") != NULL ? strstr(at, " out=") + strlen(" out=") : NULL;
    found = strstr(at, " elastic=");
    if (job->joins[0] != '\0' || job->out == NULL || found == NULL || found > job->out) return;
    if (sscanf(found, " elastic=%5u-%5u ", &least, &most) != 2 || least < 1 || most < least || most > NODES_MAX) return;
    job->least = least;
    job->most = most;
}

static int read_job(char *line, struct ash_balance *balance, struct ash_err *err)
{
    char *fields[FIELDS], *rest = line;
    struct ash_balance_job job = {.least = 0};
    size_t count = 0;

    while (rest != NULL && count < FIELDS)
        fields[count++] = strsep(&rest, ASH_BALANCE_BREAK);
    if (count != FIELDS || rest != NULL)
        return ash_err_set(err, -EINVAL, "squeue prints a line that is no job: '%.80s'", line);
    copy_name(job.id, fields[ID], strlen(fields[ID]));
    copy_name(job.partition, fields[PARTITION], strlen(fields[PARTITION]));
    copy_name(job.qos, fields[QOS], strlen(fields[QOS]));
    job.nodes = strtoul(fields[NODES], NULL, 10) % (NODES_MAX + 1);
    job.runs = strcmp(fields[STATE], "RUNNING") == 0;
    job.waits = strcmp(fields[STATE], "PENDING") == 0 &&
                (strcmp(fields[REASON], "Resources") == 0 || strcmp(fields[REASON], "Priority") == 0);
    if (ash_array_reserve(&balance->jobs, &balance->job_capacity, balance->job_count + 1, sizeof(job)) < 0)
        return ash_err_set(err, -ENOMEM, "out of memory for the queue");
    job.hosts = strdup(fields[HOSTS]);
    job.comment = strdup(fields[COMMENT]);
    if (job.comment != NULL) read_comment(&job);
    balance->jobs[balance->job_count++] = job;
    return job.hosts != NULL && job.comment != NULL ? 0 : ash_err_set(err, -ENOMEM, "out of memory for the queue");
}

static int read_node(char *line, struct ash_balance *balance, struct ash_err *err)
{
    char *rest = line, *name = strsep(&rest, "|"), *partition = strsep(&rest, "|");
    struct ash_balance_node node;

    if (rest == NULL) return ash_err_set(err, -EINVAL, "sinfo prints a line that is no node: '%.80s'", line);
    if (strcmp(rest, "idle") != 0 && strcmp(rest, "plnd") != 0) return 0; /* plnd: kept for the first that waits */
    copy_name(node.name, name, strlen(name));
    copy_name(node.partition, partition, strcspn(partition, "*"));
    if (ash_array_reserve(&balance->idle, &balance->idle_capacity, balance->idle_count + 1, sizeof(node)) < 0)
        return ash_err_set(err, -ENOMEM, "out of memory for the nodes");
    balance->idle[balance->idle_count++] = node;
    return 0;
}

static int read_lines(const char *text, int (*read)(char *, struct ash_balance *, struct ash_err *),
                      struct ash_balance *balance, struct ash_err *err)
{
    char *copy = strdup(text), *rest = copy, *line;
    int rc = copy == NULL ? ash_err_set(err, -ENOMEM, "out of memory for the queue") : 0;

    while (rc == 0 && (line = strsep(&rest, "\n")) != NULL)
        if (line[0] != '\0') rc = read(line, balance, err);
    free(copy);
    return rc;
}

int ash_balance_read(struct ash_balance *balance, const char *queue, const char *nodes, struct ash_err *err)
{
    int rc = read_lines(queue, read_job, balance, err);

    return rc == 0 ? read_lines(nodes, read_node, balance, err) : rc;
}

void ash_balance_free(struct ash_balance *balance)
{
    for (size_t i = 0; i < balance->job_count; i++) {
        free(balance->jobs[i].hosts);
        free(balance->jobs[i].comment);
    }
    free(balance->jobs);
    free(balance->idle);
    *balance = (struct ash_balance){.job_count = 0};
}

/* ---- the decision ------------------------------------------------------------------------------------------------ */

size_t ash_balance_all_nodes(const struct ash_balance *balance, const struct ash_balance_job *job)
{
    size_t nodes = job->nodes;

    for (size_t i = 0; i < balance->job_count; i++)
        if (strcmp(balance->jobs[i].joins, job->id) == 0) nodes += balance->jobs[i].nodes;
    return nodes;
}

static size_t count_idle(const struct ash_balance *balance, const char *partition)
{
    size_t count = 0;

    for (size_t i = 0; i < balance->idle_count; i++)
        count += strcmp(balance->idle[i].partition, partition) == 0;
    return count;
}

static bool is_elastic(const struct ash_balance_job *job)
{
    return job->runs && job->most > 0 && job->joins[0] == '\0';
}

/* One job must give all that the first waiting one lacks. Of several, one of the lowest class. */
static struct ash_balance_change decide_give(const struct ash_balance *balance, size_t heir, bool any,
                                             ash_balance_may_fn may, void *ctx)
{
    const struct ash_balance_job *waiting = &balance->jobs[heir];
    size_t idle = count_idle(balance, waiting->partition), lacks;
    struct ash_balance_change change = {.heir = heir};

    if (idle >= waiting->nodes) return change; /* Slurm starts it */
    lacks = waiting->nodes - idle;
    for (size_t i = 0; i < balance->job_count; i++) {
        const struct ash_balance_job *job = &balance->jobs[i];
        bool is_lower = any || job->rank < waiting->rank;

        if (!is_elastic(job) || !is_lower || strcmp(job->partition, waiting->partition) != 0) continue;
        if (ash_balance_all_nodes(balance, job) < job->least + lacks) continue;
        if (change.verb != ASH_BALANCE_NOTHING && balance->jobs[change.job].rank <= job->rank) continue;
        if (!may(ctx, job, ASH_BALANCE_GIVE)) continue;
        change = (struct ash_balance_change){ASH_BALANCE_GIVE, i, heir, lacks};
    }
    return change;
}

struct ash_balance_change ash_balance_decide(const struct ash_balance *balance, bool any, ash_balance_may_fn may,
                                             void *ctx)
{
    struct ash_balance_change change = {ASH_BALANCE_NOTHING, 0, 0, 0};

    for (size_t i = 0; i < balance->job_count; i++)
        if (balance->jobs[i].waits && balance->jobs[i].joins[0] == '\0')
            return decide_give(balance, i, any, may, ctx); /* and nothing grows */
    for (size_t i = 0; i < balance->job_count; i++) {
        const struct ash_balance_job *job = &balance->jobs[i];
        size_t idle = count_idle(balance, job->partition), has = ash_balance_all_nodes(balance, job);

        if (!is_elastic(job) || has >= job->most || idle == 0 || !may(ctx, job, ASH_BALANCE_GROW)) continue;
        change = (struct ash_balance_change){ASH_BALANCE_GROW, i, i, idle < job->most - has ? idle : job->most - has};
        return change;
    }
    return change;
}
