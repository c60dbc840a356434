/* Slurm's words for states and reasons, and sentences made of them. */
#include "orchestrate/slurm/queue.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"

#define FIELDS 7

struct word {
    const char *word;
    int phase;
};

static enum ash_jobs_phase phase_of(const char *state, const char *reason)
{
    static const struct word states[] = {
        {"PENDING", ASH_JOBS_WAITING},    {"REQUEUED", ASH_JOBS_WAITING},    {"REQUEUE_HOLD", ASH_JOBS_HELD},
        {"SPECIAL_EXIT", ASH_JOBS_HELD},  {"CONFIGURING", ASH_JOBS_RUNNING}, {"RUNNING", ASH_JOBS_RUNNING},
        {"COMPLETING", ASH_JOBS_RUNNING}, {"SUSPENDED", ASH_JOBS_HELD},      {"STOPPED", ASH_JOBS_HELD},
        {"SIGNALING", ASH_JOBS_RUNNING},  {"STAGE_OUT", ASH_JOBS_RUNNING},   {"RESIZING", ASH_JOBS_RUNNING},
        {"COMPLETED", ASH_JOBS_DONE},     {"CANCELLED", ASH_JOBS_STOPPED}};

    if (strcmp(state, "PENDING") == 0 && strstr(reason, "Held") != NULL) return ASH_JOBS_HELD;
    for (size_t i = 0; i < ASH_COUNT(states); i++)
        if (strcmp(state, states[i].word) == 0) return (enum ash_jobs_phase)states[i].phase;
    return ASH_JOBS_FAILED; /* FAILED, TIMEOUT, NODE_FAIL, OUT_OF_MEMORY, ... */
}

static void copy_text(char *to, size_t to_bytes, const char *from)
{
    snprintf(to, to_bytes, "%.*s", (int)to_bytes - 1, from);
}

/* Fields of a line, cut at '|' in place. Returns how many. */
static size_t cut(char *line, char *fields[], size_t most)
{
    size_t count = 0;

    while (line != NULL && count < most)
        fields[count++] = strsep(&line, "|");
    ash_assert(count <= most);
    return line == NULL ? count : most + 1;
}

static double age_of(const char *submitted, double now)
{
    struct tm when = {.tm_isdst = -1};

    if (strptime(submitted, "%Y-%m-%dT%H:%M:%S", &when) == NULL) return -1;
    return now - (double)mktime(&when); /* Slurm prints local time */
}

static int read_line(char *line, double now, struct ash_jobs_list *list, struct ash_err *err)
{
    char *fields[FIELDS];
    struct ash_jobs_entry entry = {.code = -1};

    if (cut(line, fields, FIELDS) != FIELDS)
        return ash_err_set(err, -EINVAL, "squeue prints a line that is no job: '%.80s'", line);
    copy_text(entry.id, sizeof(entry.id), fields[0]);
    copy_text(entry.name, sizeof(entry.name), fields[1]);
    copy_text(entry.user, sizeof(entry.user), fields[2]);
    entry.phase = phase_of(fields[3], fields[4]);
    if (strcmp(fields[4], "None") != 0) copy_text(entry.reason, sizeof(entry.reason), fields[4]);
    if (entry.phase == ASH_JOBS_FAILED) copy_text(entry.reason, sizeof(entry.reason), fields[3]);
    entry.nodes = (size_t)strtoul(fields[5], NULL, 10);
    entry.age_s = age_of(fields[6], now);
    return ash_jobs_add(list, &entry);
}

int ash_slurm_read_queue(const char *text, double now, struct ash_jobs_list *list_out, struct ash_err *err)
{
    char *copy = strdup(text), *rest = copy, *line;
    int rc = copy == NULL ? -ENOMEM : 0;

    while (rc == 0 && (line = strsep(&rest, "\n")) != NULL)
        if (line[0] != '\0') rc = read_line(line, now, list_out, err);
    free(copy);
    return rc == -ENOMEM ? ash_err_set(err, rc, "out of memory for the queue") : rc;
}

size_t ash_slurm_partition_nodes(const char *text, const char *name, char *buf, size_t buf_bytes)
{
    size_t nodes = 0;

    buf[0] = '\0';
    for (const char *line = text; *line != '\0'; line += strcspn(line, "\n") + (strchr(line, '\n') != NULL)) {
        size_t length = strcspn(line, "*|\n");
        bool is_default = line[length] == '*';
        const char *count = line + length + (is_default ? 1 : 0);

        if (*count != '|') continue;
        if (name != NULL ? strlen(name) != length || strncmp(line, name, length) != 0 : !is_default) continue;
        nodes += (size_t)strtoul(count + 1, NULL, 10);
        snprintf(buf, buf_bytes, "%.*s", (int)length, line);
    }
    return nodes;
}

/* ---- why --------------------------------------------------------------------------------------------------------- */

struct meaning {
    const char *word, *means;
};

static const struct meaning meanings[] = {
    {"Resources", "it is the next one, and waits for nodes that are busy"},
    {"Priority", "jobs with a higher priority are before it"},
    {"Dependency", "it waits for the end of another job"},
    {"DependencyNeverSatisfied", "the job that it waits for ended otherwise than it asked: it will never start"},
    {"JobHeldUser", "its user holds it: `ashlar jobs release` lets it go"},
    {"JobHeldAdmin", "an administrator holds it"},
    {"BeginTime", "its start time has not come (also some seconds after a requeue)"},
    {"ReqNodeNotAvail", "a node that it needs is down, drained or reserved"},
    {"ReservationDeleted", "its reservation is gone"},
    {"Reservation", "its reservation has not begun"},
    {"PartitionDown", "its partition takes no jobs to run now"},
    {"PartitionInactive", "its partition is switched off"},
    {"PartitionNodeLimit", "it asks for more nodes than its partition may give one job"},
    {"PartitionTimeLimit", "its time limit is longer than its partition allows: give a shorter job.time"},
    {"PartitionConfig", "it asks for what no node of its partition has"},
    {"BadConstraints", "no node can ever satisfy it"},
    {"Licenses", "it waits for licences"},
    {"AssociationJobLimit", "its account runs as many jobs as it may"},
    {"AssocGrpGRES", "its account uses as many GPUs as it may"},
    {"AssocGrpNodeLimit", "its account uses as many nodes as it may"},
    {"QOSMaxGRESPerUser", "its user has as many GPUs of this class as one may have"},
    {"QOSGrpGRES", "all GPUs of this class are in use"},
    {"QOSMaxJobsPerUserLimit", "its user runs as many jobs of this class as one may"},
    {"QOSMaxNodePerUserLimit", "its user has as many nodes of this class as one may have"},
    {"QOSMaxWallDurationPerJobLimit", "its time limit is longer than its class allows: give a shorter job.time"},
    {"InvalidAccount", "its account does not exist"},
    {"InvalidQOS", "its class does not exist"},
    {"FrontEndDown", "no front end is up"},
    {"NodeDown", "a node that it needs is down"},
    {"Prolog", "its nodes are being prepared"},
    {"Cleaning", "it was requeued, and its first run is being cleaned up"},
};

const char *ash_slurm_reason(const char *word)
{
    for (size_t i = 0; i < ASH_COUNT(meanings); i++)
        if (strcmp(word, meanings[i].word) == 0) return meanings[i].means;
    return NULL;
}

int ash_slurm_duration(const char *text, double *seconds_out)
{
    unsigned days = 0, hours, minutes, seconds;
    const char *dash = strchr(text, '-');

    if (dash != NULL && sscanf(text, "%6u-", &days) != 1) return -EINVAL;
    if (sscanf(dash != NULL ? dash + 1 : text, "%6u:%2u:%2u", &hours, &minutes, &seconds) != 3) return -EINVAL;
    *seconds_out = 86400.0 * days + 3600.0 * hours + 60.0 * minutes + seconds;
    return 0;
}

const char *ash_slurm_value(const char *line, const char *key, char *buf, size_t buf_bytes)
{
    size_t length = strlen(key);

    buf[0] = '\0';
    for (const char *at = line; at != NULL && *at != '\0'; at = strchr(at, ' ') != NULL ? strchr(at, ' ') + 1 : NULL)
        if (strncmp(at, key, length) == 0 && at[length] == '=') {
            snprintf(buf, buf_bytes, "%.*s", (int)strcspn(at + length + 1, " \n"), at + length + 1);
            break;
        }
    return buf;
}

/* Jobs that hold nodes of the partition now. */
static int add_holders(const char *running, const char *partition, struct ash_str *text)
{
    char *copy = strdup(running), *rest = copy, *line, *fields[6];
    int rc = copy == NULL ? -ENOMEM : 0;
    bool is_first = true;

    while (rc == 0 && (line = strsep(&rest, "\n")) != NULL) {
        if (cut(line, fields, ASH_COUNT(fields)) != ASH_COUNT(fields) || strcmp(fields[5], partition) != 0) continue;
        if (is_first) rc = ash_str_adds(text, "in use there:\n");
        if (rc == 0)
            rc = ash_str_addf(text, "  job %s (%s) of %s: %s node%s, at most %s longer\n", fields[0], fields[1],
                              fields[2], fields[3], strcmp(fields[3], "1") == 0 ? "" : "s", fields[4]);
        is_first = false;
    }
    free(copy);
    return rc;
}

/* Unusable nodes of the partition, and why. */
static int add_lost_nodes(const char *nodes, const char *partition, struct ash_str *text)
{
    char *copy = strdup(nodes), *rest = copy, *line, *fields[4];
    int rc = copy == NULL ? -ENOMEM : 0;

    while (rc == 0 && (line = strsep(&rest, "\n")) != NULL) {
        if (cut(line, fields, ASH_COUNT(fields)) != ASH_COUNT(fields)) continue;
        fields[0][strcspn(fields[0], "*")] = '\0'; /* the mark of the default partition */
        if (strcmp(fields[0], partition) != 0 ||
            (strstr(fields[1], "drain") == NULL && strstr(fields[1], "drng") == NULL &&
             strstr(fields[1], "down") == NULL))
            continue;
        rc = ash_str_addf(text, "out of service: %s node%s (%s%s%s)\n", fields[2],
                          strcmp(fields[2], "1") == 0 ? "" : "s", fields[1], fields[3][0] != '\0' ? ": " : "",
                          fields[3]);
    }
    free(copy);
    return rc;
}

/* "priority 6710 = size 6250 + partition 500 - nice 40": what counts, in Slurm's own figures. */
static int add_factors(const char *factors, struct ash_str *text)
{
    static const char *const names[] = {"",          "age", "association", "fair share", "size",
                                        "partition", "QOS", "site",        "nice"};
    char *copy = factors != NULL ? strdup(factors) : NULL, *fields[ASH_COUNT(names)];
    bool is_first = true;
    int rc = 0;

    if (factors != NULL && copy == NULL) return -ENOMEM;
    if (copy != NULL) copy[strcspn(copy, "\n")] = '\0';
    if (copy == NULL || cut(copy, fields, ASH_COUNT(fields)) != ASH_COUNT(fields)) {
        free(copy);
        return 0; /* priority/basic: jobs in the order of their numbers */
    }
    for (size_t i = 0; i < ASH_COUNT(fields); i++)
        fields[i] += strspn(fields[i], " ");
    rc = ash_str_addf(text, "priority %s", fields[0]);
    for (size_t i = 1; i < ASH_COUNT(names) && rc == 0; i++) {
        bool is_nice = i + 1 == ASH_COUNT(names);

        if (strcmp(fields[i], "0") == 0) continue;
        rc = ash_str_addf(text, "%s%s %s", is_nice ? " - " : is_first ? " = " : " + ", names[i], fields[i]);
        is_first = false;
    }
    free(copy);
    return rc < 0 ? rc : ash_str_adds(text, "\n");
}

static int add_start(const char *facts, const char *reason, struct ash_str *text)
{
    char start[64];

    ash_slurm_value(facts, "StartTime", start, sizeof(start));
    if (start[0] == '\0' || strcmp(start, "Unknown") == 0)
        return ash_str_adds(text, "start: Slurm has not planned one yet\n");
    if (strcmp(reason, "BeginTime") == 0) return ash_str_addf(text, "start: not before %s\n", start);
    return ash_str_addf(text, "start: %s at the latest, as Slurm plans it now\n", start);
}

static int add_head(const struct ash_slurm_evidence *evidence, const char *partition, struct ash_str *text)
{
    const struct ash_jobs_entry *job = evidence->job;
    const char *means = ash_slurm_reason(job->reason);
    char limit[64];
    int rc;

    ash_slurm_value(evidence->facts, "TimeLimit", limit, sizeof(limit));
    if (means != NULL)
        rc = ash_str_addf(text, "job %s (%s) waits in partition %s: %s (%s)\n", job->id, job->name, partition, means,
                          job->reason);
    else
        rc = ash_str_addf(text, "job %s (%s) waits in partition %s: Slurm gives as reason %s\n", job->id, job->name,
                          partition, job->reason);
    return rc < 0 ? rc : ash_str_addf(text, "asked: %zu nodes for %s\n", job->nodes, limit);
}

int ash_slurm_explain(const struct ash_slurm_evidence *evidence, struct ash_str *text_out, struct ash_err *err)
{
    const struct ash_jobs_entry *job = evidence->job;
    bool is_behind = strcmp(job->reason, "Resources") == 0 || strcmp(job->reason, "Priority") == 0;
    char partition[128];
    int rc;

    ash_slurm_value(evidence->facts, "Partition", partition, sizeof(partition));
    if (job->phase != ASH_JOBS_WAITING && job->phase != ASH_JOBS_HELD) {
        rc = ash_str_addf(text_out, "job %s (%s) does not wait: it is %s%s%s\n", job->id, job->name,
                          ash_jobs_phase_name(job->phase), job->reason[0] != '\0' ? ": " : "", job->reason);
        return rc < 0 ? ash_err_set(err, rc, "out of memory") : 0;
    }
    rc = add_head(evidence, partition, text_out);
    if (rc == 0) rc = add_factors(evidence->factors, text_out);
    if (rc == 0) rc = add_start(evidence->facts, job->reason, text_out);
    if (rc == 0) rc = add_holders(evidence->running, partition, text_out);
    if (rc == 0) rc = add_lost_nodes(evidence->nodes, partition, text_out);
    if (rc == 0 && is_behind)
        rc = ash_str_adds(text_out, "sooner: a shorter job.time or fewer job.nodes lets it start in a gap before "
                                    "larger jobs\n");
    return rc < 0 ? ash_err_set(err, rc, "out of memory") : 0;
}
