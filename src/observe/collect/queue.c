/* Slurm's queue, through its own programs: any version will do. They run once in a period, however often the agent is
 * scraped, to spare the controller. */
#include "observe/collect/queue.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/command.h"
#include "base/math.h"
#include "observe/collect/collector.h"
#include "observe/collect/exposition.h"

#define GROUPS_MAX 2000 /* partitions times states times reasons; more of them are merged */
#define ANSWER_S 30.0   /* a controller of many jobs takes seconds; the scrape does not wait for it */

/* Jobs or nodes that have the same labels. */
struct group {
    char labels[256];
    bool is_waiting;
    double count, wait_sum_s, wait_max_s, gpus;
};

struct groups {
    struct group *items;
    size_t count;
};

static struct group *find_group(struct groups *groups, const char *labels)
{
    struct group *items;

    for (size_t i = 0; i < groups->count; i++)
        if (strcmp(groups->items[i].labels, labels) == 0) return &groups->items[i];
    if (groups->count >= GROUPS_MAX) return NULL;
    items = realloc(groups->items, (groups->count + 1) * sizeof(*items));
    if (items == NULL) return NULL;
    groups->items = items;
    items[groups->count] = (struct group){0};
    snprintf(items[groups->count].labels, sizeof(items->labels), "%s", labels);
    return &items[groups->count++];
}

/* ---- words ------------------------------------------------------------------------------------------------------- */

/* A count, or 0. */
static double number(const char *text)
{
    double value = strtod(text, NULL);

    return value > 0 && value < 1e12 ? value : 0;
}

/* GPUs of one resource, up to `end`; *is_total: of all models together, as in gres/gpu=8. */
static double gpus_of(const char *word, const char *end, bool *is_total)
{
    const char *bracket = memchr(word, '(', (size_t)(end - word)), *colon = NULL, *equals;

    *is_total = false;
    if (strncmp(word, "gres/", 5) == 0 || strncmp(word, "gres:", 5) == 0) word += 5;
    if (word + 3 > end || strncmp(word, "gpu", 3) != 0) return 0;
    if (bracket != NULL) end = bracket;
    if (word + 3 < end && word[3] != ':' && word[3] != '=') return 0; /* for example gpumem */
    equals = word < end ? memchr(word, '=', (size_t)(end - word)) : NULL;
    *is_total = equals == word + 3;
    if (equals != NULL) return number(equals + 1);
    for (const char *at = word; at < end; at++)
        if (*at == ':') colon = at;
    if (colon == NULL) return 1; /* "gpu" alone is one */
    return isdigit((unsigned char)colon[1]) ? number(colon + 1) : 1;
}

double ash_queue_gpus(const char *resources)
{
    double total = 0, sum = 0;

    while (*resources != '\0') {
        const char *end = resources;
        bool is_total;
        double gpus;

        for (int depth = 0; *end != '\0' && (*end != ',' || depth > 0); end++)
            depth += (*end == '(') - (*end == ')');
        gpus = gpus_of(resources, end, &is_total);
        if (is_total)
            total = gpus;
        else
            sum += gpus;
        resources = *end == ',' ? end + 1 : end;
    }
    return total > 0 ? total : sum;
}

/* A state in small letters, without marks at its end: "idle*" (does not answer), "drained$". */
static void plain_state(char *word)
{
    for (; isalpha((unsigned char)*word) || *word == '_'; word++)
        *word = (char)tolower((unsigned char)*word);
    *word = '\0';
}

/* A reason as one word, up to the names of nodes: "ReqNodeNotAvail, UnavailableNodes:n[1-3]", "Nodes required for job
 * are DOWN, DRAINED or reserved". */
static void plain_reason(char *text)
{
    size_t length = 0;

    while (isalnum((unsigned char)text[length]) || text[length] == '_' || text[length] == ' ')
        length++;
    while (length > 0 && (text[length - 1] == '_' || text[length - 1] == ' '))
        length--;
    text[length] = '\0';
    for (; *text != '\0'; text++)
        if (*text == ' ') *text = '_';
}

/* ---- jobs -------------------------------------------------------------------------------------------------------- */

enum { STATE, PARTITION, NODES, WAITED, ALLOC, PER_NODE, PER_JOB, JOB_WORDS };

/* GPUs of a job: as accounted by Slurm, or as requested if it does not account GPUs. */
static double job_gpus(char *const *words)
{
    double gpus = ash_queue_gpus(words[ALLOC]);

    if (gpus == 0) gpus = ash_queue_gpus(words[PER_NODE]) * ash_max(number(words[NODES]), 1.0);
    if (gpus == 0) gpus = ash_queue_gpus(words[PER_JOB]);
    return gpus;
}

static void take_job(char **words, char *reason, struct groups *groups)
{
    char labels[256];
    struct group *group;
    bool is_waiting;

    plain_state(words[STATE]);
    plain_reason(reason);
    is_waiting = strcmp(words[STATE], "pending") == 0;
    ash_exp_labels(labels, sizeof(labels), "partition", words[PARTITION], "state", words[STATE], "reason",
                   is_waiting ? reason : "", (char *)NULL);
    group = find_group(groups, labels);
    if (group == NULL) return;
    group->is_waiting = is_waiting;
    group->count++;
    group->gpus += job_gpus(words);
    if (!is_waiting) return;
    group->wait_sum_s += number(words[WAITED]);
    group->wait_max_s = ash_max(group->wait_max_s, number(words[WAITED]));
}

/* The first words of a line. Returns the rest of it, or NULL if it has fewer. */
static char *split(char *line, char **words, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if ((words[i] = ash_text_word(&line)) == NULL) return NULL;
    return line + strspn(line, " ");
}

void ash_queue_jobs(char *text, struct ash_str *out)
{
    struct groups groups = {0};
    char *line, *reason, *words[JOB_WORDS];

    while ((line = ash_text_line(&text)) != NULL)
        if ((reason = split(line, words, JOB_WORDS)) != NULL) take_job(words, reason, &groups);
    ash_exp_family(out, "ashlar_queue_jobs", "gauge", "Jobs in the queue; of those that wait, why.");
    for (size_t i = 0; i < groups.count; i++)
        ash_exp_value(out, "ashlar_queue_jobs", groups.items[i].labels, groups.items[i].count);
    ash_exp_family(out, "ashlar_queue_job_gpus", "gauge", "GPUs that jobs in the queue have or ask for.");
    for (size_t i = 0; i < groups.count; i++)
        ash_exp_value(out, "ashlar_queue_job_gpus", groups.items[i].labels, groups.items[i].gpus);
    ash_exp_family(out, "ashlar_queue_wait_mean_seconds", "gauge", "How long waiting jobs have waited, their mean.");
    for (size_t i = 0; i < groups.count; i++)
        if (groups.items[i].is_waiting)
            ash_exp_value(out, "ashlar_queue_wait_mean_seconds", groups.items[i].labels,
                          groups.items[i].wait_sum_s / groups.items[i].count);
    ash_exp_family(out, "ashlar_queue_wait_max_seconds", "gauge", "How long the one that waits longest has waited.");
    for (size_t i = 0; i < groups.count; i++)
        if (groups.items[i].is_waiting)
            ash_exp_value(out, "ashlar_queue_wait_max_seconds", groups.items[i].labels, groups.items[i].wait_max_s);
    free(groups.items);
}

/* ---- nodes ------------------------------------------------------------------------------------------------------- */

enum { NODE, NODE_PARTITION, NODE_STATE, GRES, GRES_USED, NODE_WORDS };

struct gpu_room {
    double used, free, out;
};

/* A node that takes no new work: its idle GPUs are unavailable. */
static bool is_out(const char *state)
{
    static const char *const takes[] = {"idle", "mixed", "allocated", "completing"};

    for (size_t i = 0; i < sizeof(takes) / sizeof(*takes); i++)
        if (strcmp(state, takes[i]) == 0) return false;
    return true;
}

static void take_room(char *const *words, bool answers, struct gpu_room *room)
{
    double all = ash_queue_gpus(words[GRES]), used = ash_min(ash_queue_gpus(words[GRES_USED]), all);

    room->used += used;
    if (is_out(words[NODE_STATE]) || !answers)
        room->out += all - used;
    else
        room->free += all - used;
}

void ash_queue_nodes(char *text, struct ash_str *out)
{
    struct groups groups = {0};
    struct gpu_room room = {0};
    char *line, *words[NODE_WORDS], labels[256];
    const char *before = "";

    while ((line = ash_text_line(&text)) != NULL) {
        struct group *group;
        bool answers;

        if (split(line, words, NODE_WORDS) == NULL) continue;
        answers = strchr(words[NODE_STATE], '*') == NULL;
        plain_state(words[NODE_STATE]);
        ash_exp_labels(labels, sizeof(labels), "partition", words[NODE_PARTITION], "state", words[NODE_STATE],
                       (char *)NULL);
        group = find_group(&groups, labels);
        if (group != NULL) group->count++;
        /* sorted by node; one of several partitions comes several times */
        if (strcmp(words[NODE], before) != 0) take_room(words, answers, &room);
        before = words[NODE];
    }
    ash_exp_family(out, "ashlar_queue_nodes", "gauge", "Nodes by partition and state.");
    for (size_t i = 0; i < groups.count; i++)
        ash_exp_value(out, "ashlar_queue_nodes", groups.items[i].labels, groups.items[i].count);
    ash_exp_family(out, "ashlar_queue_gpus", "gauge",
                   "GPUs of all nodes: used by jobs, free, or idle on nodes that take no work.");
    ash_exp_value(out, "ashlar_queue_gpus", "state=\"used\"", room.used);
    ash_exp_value(out, "ashlar_queue_gpus", "state=\"free\"", room.free);
    ash_exp_value(out, "ashlar_queue_gpus", "state=\"out\"", room.out);
    free(groups.items);
}

/* ---- the source -------------------------------------------------------------------------------------------------- */

struct queue {
    const struct ash_host_files *source;
    struct ash_str text; /* the last answer */
    uint64_t read_ns;    /* when it came; 0: never */
};

static int ask(const char *const *argv, void (*parse)(char *text, struct ash_str *out), struct ash_str *out,
               struct ash_err *err)
{
    const struct ash_command command = {.argv = argv, .limit_s = ANSWER_S};
    struct ash_str text = {0};
    int rc = ash_command_output(&command, &text, err);

    if (rc == 0) parse(text.data, out);
    ash_str_fini(&text);
    return rc;
}

static int open_queue(const struct ash_host_files *source, void **state_out, struct ash_err *err)
{
    struct queue *queue = calloc(1, sizeof(*queue));

    if (queue == NULL) return ash_err_set(err, -ENOMEM, "no memory for the queue");
    queue->source = source;
    *state_out = queue;
    return 0;
}

static void close_queue(void *state)
{
    struct queue *queue = state;

    if (queue == NULL) return;
    ash_str_fini(&queue->text);
    free(queue);
}

static int collect_queue(void *state, struct ash_str *out, struct ash_err *err)
{
    static const char *const jobs[] = {"squeue", "--all", "--array", "--noheader", "--Format", ASH_QUEUE_JOB_FIELDS,
                                       NULL};
    static const char *const nodes[] = {"sinfo", "--all", "--Node", "--noheader", "--Format", ASH_QUEUE_NODE_FIELDS,
                                        NULL};
    struct queue *queue = state;
    double age_s = (double)(ash_clock_ns() - queue->read_ns) * 1e-9;
    int rc = 0;

    if (queue->source->queue_seconds <= 0) return 0; /* not this agent */
    if (queue->read_ns == 0 || age_s >= queue->source->queue_seconds) {
        struct ash_str text = {0};

        rc = ask(jobs, ash_queue_jobs, &text, err);
        if (rc == 0) rc = ask(nodes, ash_queue_nodes, &text, err);
        ash_str_fini(&queue->text);
        queue->text = text;
        queue->read_ns = rc == 0 ? ash_clock_ns() : 0;
        age_s = 0;
    }
    if (rc < 0) return rc;
    if (queue->text.data != NULL) rc = ash_str_add(out, queue->text.data, queue->text.size_bytes);
    ash_exp_single(out, "ashlar_queue_age_seconds", "gauge", "How long ago Slurm said what ashlar_queue_* say.", age_s);
    return rc;
}

const struct ash_collector_ops ash_collect_queue = {
    .name = "queue", .deadline_s = 5, .open = open_queue, .collect = collect_queue, .close = close_queue};
