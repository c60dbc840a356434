/* Tables with a header (Helios, Acme, openb, Philly's digest, sacct), the Standard Workload Format, and Philly's JSON.
 * Every table is a row of column names; missing columns are left out. */
#include "queue/replay/trace_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/assert.h"
#include "base/json.h"
#include "base/number.h"

#define COLUMNS_MAX 128
#define SWF_FIELDS 18
#define MODELS_MAX 64

enum column { SUBMIT, START, END, RUN, LIMIT, GPUS, NODES, MILLI, CPU, MEMORY, QUEUE, USER, CLASS, MODEL, ID, COLUMNS };

struct format {
    const char *name;
    const char *columns[COLUMNS];
    char separator;
    bool is_tres; /* GPUs stand in "cpu=8,gres/gpu=4" */
};

static const struct format formats[] = {
    {.name = "Philly",
     .separator = ',',
     .columns = {[SUBMIT] = "submit_s", [RUN] = "duration_s", [GPUS] = "gpus", [QUEUE] = "queue"}},
    {.name = "openb",
     .separator = ',',
     .columns = {[SUBMIT] = "creation_time",
                 [END] = "deletion_time",
                 [START] = "scheduled_time",
                 [GPUS] = "num_gpu",
                 [MILLI] = "gpu_milli",
                 [CPU] = "cpu_milli",
                 [MEMORY] = "memory_mib",
                 [CLASS] = "qos",
                 [MODEL] = "gpu_spec"}},
    {.name = "Helios",
     .separator = ',',
     .columns = {[SUBMIT] = "submit_time",
                 [RUN] = "duration",
                 [GPUS] = "gpu_num",
                 [NODES] = "node_num",
                 [QUEUE] = "vc",
                 [USER] = "user"}},
    {.name = "Acme",
     .separator = ',',
     .columns = {[SUBMIT] = "submit_time",
                 [RUN] = "duration",
                 [GPUS] = "gpu_num",
                 [NODES] = "node_num",
                 [QUEUE] = "queue",
                 [USER] = "user",
                 [CLASS] = "type"}},
    {.name = "sacct",
     .separator = '|',
     .is_tres = true,
     .columns = {[SUBMIT] = "Submit",
                 [RUN] = "Elapsed",
                 [LIMIT] = "Timelimit",
                 [GPUS] = "AllocTRES",
                 [NODES] = "NNodes",
                 [QUEUE] = "Account",
                 [USER] = "User",
                 [CLASS] = "QOS",
                 [ID] = "JobID"}},
};

/* Columns without which a table is not of that format. */
static const enum column needed[] = {SUBMIT, GPUS};

/* ---- rows -------------------------------------------------------------------------------------------------------- */

/* Cut line at separators, in place. Returns the number of fields. */
static int split(char *line, char separator, char **fields)
{
    int count = 0;

    line[strcspn(line, "\r\n")] = '\0';
    for (char *at = line; at != NULL && count < COLUMNS_MAX;) {
        char *next = strchr(at, separator);

        if (next != NULL) *next++ = '\0';
        fields[count++] = at;
        at = next;
    }
    return count;
}

static int find_column(char **fields, int count, const char *name)
{
    for (int i = 0; i < count && name != NULL; i++)
        if (strcasecmp(fields[i], name) == 0) return i;
    return -1;
}

static const struct format *find_format(char *header, int *at)
{
    char *fields[COLUMNS_MAX];
    char separator = strchr(header, '|') != NULL ? '|' : ',';
    int count = split(header, separator, fields);

    for (size_t i = 0; i < ASH_COUNT(formats); i++) {
        bool has_all = formats[i].separator == separator;

        for (int column = 0; column < COLUMNS; column++)
            at[column] = find_column(fields, count, formats[i].columns[column]);
        for (size_t k = 0; k < ASH_COUNT(needed); k++)
            has_all = has_all && at[needed[k]] >= 0;
        if (has_all && (at[RUN] >= 0 || at[END] >= 0) && (formats[i].columns[QUEUE] == NULL || at[QUEUE] >= 0))
            return &formats[i];
    }
    return NULL;
}

/* GPUs in "billing=8,cpu=8,gres/gpu=4,gres/gpu:h100=4,node=1". */
static double tres_gpus(const char *text)
{
    const char *at = strstr(text, "gres/gpu");
    double total = 0;

    for (; at != NULL; at = strstr(at + 1, "gres/gpu")) {
        if (strncmp(at, "gres/gpu=", 9) == 0) return strtod(at + 9, NULL);
        total += strtod(at + strcspn(at, "=,") + (at[strcspn(at, "=,")] == '='), NULL);
    }
    return total;
}

struct row {
    char *fields[COLUMNS_MAX];
    const int *at;
    int count;
};

static const char *text_of(const struct row *row, enum column column)
{
    int at = row->at[column];

    return at >= 0 && at < row->count ? row->fields[at] : NULL;
}

/* A number in [0, max]; without one, other. */
static double value_of(const struct row *row, enum column column, double max, double other)
{
    const char *text = text_of(row, column);
    double value;

    if (text == NULL || ash_number_parse(text, &value) < 0 || !(value >= 0) || value > max) return other;
    return value;
}

/* A bit for each "V100M16|T4": models are numbered in the order of the words of a fixed list. */
static uint64_t models_of(const char *text)
{
    uint64_t bits = 0;

    while (text != NULL && *text != '\0') {
        size_t length = strcspn(text, "|");
        char name[32];

        snprintf(name, sizeof(name), "%.*s", (int)(length < sizeof(name) ? length : sizeof(name) - 1), text);
        bits |= (uint64_t)1 << ash_trace_model_number(name);
        text += length + (text[length] == '|');
    }
    return bits;
}

int ash_trace_model_number(const char *name)
{
    static const char *const known[] = {"P100", "T4",   "V100M16", "V100M32", "A10",  "G2",
                                        "G3",   "A100", "H100",    "H200",    "B200", "B300"};

    for (size_t i = 0; i < ASH_COUNT(known); i++)
        if (strcasecmp(known[i], name) == 0) return (int)i;
    return MODELS_MAX - 1;
}

static double run_of(const struct row *row, double submit_s)
{
    const char *run = text_of(row, RUN), *start = text_of(row, START), *end = text_of(row, END);
    double from = start != NULL && *start != '\0' ? ash_trace_time(start) : submit_s;

    if (run != NULL) return ash_trace_span(run);
    return end != NULL && *end != '\0' && from >= 0 ? ash_trace_time(end) - from : -1;
}

static int add_row(struct ash_trace_build *build, const struct format *format, const struct row *row,
                   struct ash_err *err)
{
    const char *id = text_of(row, ID), *submit = text_of(row, SUBMIT), *gpus = text_of(row, GPUS);
    const char *limit = text_of(row, LIMIT);
    struct ash_trace_job job = {0};

    if (submit == NULL || gpus == NULL) return ash_err_set(err, -EINVAL, "a row with too few columns");
    if (id != NULL && strchr(id, '.') != NULL) { /* a step of a job */
        build->trace->skipped++;
        return 0;
    }
    job.submit_s = ash_trace_time(submit);
    if (job.submit_s < 0 && ash_trace_span(submit) < 0)
        return ash_err_set(err, -EINVAL, "'%.40s' is no time of submission", submit);
    job.run_s = (float)run_of(row, job.submit_s);
    job.limit_s = limit != NULL ? (float)ash_trace_span(limit) : 0;
    if (format->is_tres) {
        double count = tres_gpus(gpus);

        job.gpus = count >= 0 && count <= 1e6 ? (int32_t)count : -1;
    } else {
        job.gpus = (int32_t)value_of(row, GPUS, 1e6, -1);
    }
    job.nodes = (int32_t)value_of(row, NODES, 1e6, 0);
    job.gpu_milli = (uint16_t)value_of(row, MILLI, 1000, 0);
    job.cpu_milli = (int32_t)value_of(row, CPU, 1e9, 0);
    job.memory_mib = (int32_t)value_of(row, MEMORY, 1e9, 0);
    job.models = models_of(text_of(row, MODEL));
    return ash_trace_add(build, job, text_of(row, QUEUE), text_of(row, CLASS), text_of(row, USER), err);
}

int ash_trace_read_table(struct ash_trace_build *build, char *text, struct ash_err *err)
{
    char *header = strsep(&text, "\n"), *line;
    const struct format *format;
    struct row row;
    int at[COLUMNS], number = 1;

    format = find_format(header, at);
    if (format == NULL)
        return ash_err_set(err, -EINVAL,
                           "line 1: not a header of Philly (submit_s,duration_s,gpus,queue), Helios, Acme, openb or "
                           "`sacct -P -o JobID,User,Account,QOS,Submit,Elapsed,Timelimit,NNodes,AllocTRES`");
    build->trace->format = format->name;
    row.at = at;
    while ((line = strsep(&text, "\n")) != NULL) {
        int rc;

        number++;
        if (line[strspn(line, " \t\r")] == '\0') continue;
        row.count = split(line, format->separator, row.fields);
        rc = add_row(build, format, &row, err);
        if (rc < 0) return ash_err_prefix(err, rc, "line %d", number);
    }
    return 0;
}

/* ---- SWF --------------------------------------------------------------------------------------------------------- */

static int read_swf_line(struct ash_trace_build *build, char *line, struct ash_err *err)
{
    double field[SWF_FIELDS];
    struct ash_trace_job job = {0};
    char queue[32], user[32], *rest = NULL;
    int count = 0;

    for (char *word = strtok_r(line, " \t\r", &rest); word != NULL && count < SWF_FIELDS;
         word = strtok_r(NULL, " \t\r", &rest))
        if (ash_number_parse(word, &field[count++]) < 0)
            return ash_err_set(err, -EINVAL, "'%.40s' is not a number: SWF has %d of them in a line", word, SWF_FIELDS);
    if (count < 12) return ash_err_set(err, -EINVAL, "%d numbers: SWF has %d in a line", count, SWF_FIELDS);
    job.submit_s = field[1];
    job.run_s = (float)field[3];
    field[4] = field[4] > 0 ? field[4] : field[7];
    job.gpus = field[4] > 0 && field[4] <= 1e6 ? (int32_t)field[4] : -1;
    job.limit_s = (float)field[8];
    snprintf(user, sizeof(user), "%.0f", field[11]);
    snprintf(queue, sizeof(queue), "queue %.0f", count > 14 ? field[14] : 0);
    if (job.submit_s < 0) job.gpus = -1;
    return ash_trace_add(build, job, queue, NULL, user, err);
}

int ash_trace_read_swf(struct ash_trace_build *build, char *text, struct ash_err *err)
{
    int number = 0;

    build->trace->format = "SWF";
    for (char *line = strsep(&text, "\n"); line != NULL; line = strsep(&text, "\n")) {
        int rc;

        number++;
        line += strspn(line, " \t\r");
        if (*line == ';' || *line == '\0') continue;
        rc = read_swf_line(build, line, err);
        if (rc < 0) return ash_err_prefix(err, rc, "line %d", number);
    }
    return 0;
}

/* ---- Philly's JSON ----------------------------------------------------------------------------------------------- */

static int count_gpus(const json_t *attempt)
{
    const json_t *detail;
    size_t i;
    int gpus = 0;

    json_array_foreach(json_object_get(attempt, "detail"), i, detail)
        gpus += (int)json_array_size(json_object_get(detail, "gpus"));
    return gpus;
}

/* The size is the first attempt's, the duration that of all. */
static int add_philly(struct ash_trace_build *build, const json_t *item, struct ash_err *err)
{
    const json_t *attempt, *attempts = json_object_get(item, "attempts");
    const char *submitted = json_string_value(json_object_get(item, "submitted_time"));
    struct ash_trace_job job = {0};
    double run_s = 0;
    size_t i;

    if (submitted == NULL) return ash_err_set(err, -EINVAL, "a job has no submitted_time");
    job.submit_s = ash_trace_time(submitted);
    json_array_foreach(attempts, i, attempt) {
        const char *start = json_string_value(json_object_get(attempt, "start_time"));
        const char *end = json_string_value(json_object_get(attempt, "end_time"));

        if (start == NULL || end == NULL || ash_trace_time(start) < 0 || ash_trace_time(end) < 0) continue;
        run_s += ash_trace_time(end) - ash_trace_time(start);
        if (job.gpus == 0) job.gpus = count_gpus(attempt);
    }
    job.run_s = (float)run_s;
    if (job.gpus == 0) job.gpus = -1;
    return ash_trace_add(build, job, json_string_value(json_object_get(item, "vc")), NULL,
                         json_string_value(json_object_get(item, "user")), err);
}

int ash_trace_read_philly(struct ash_trace_build *build, const char *text, size_t size_bytes, struct ash_err *err)
{
    json_t *json = NULL;
    const json_t *item;
    size_t i;
    int rc = ash_json_parse(text, size_bytes, "trace", &json, err);

    if (rc < 0) return rc;
    build->trace->format = "Philly";
    if (!json_is_array(json)) rc = ash_err_set(err, -EINVAL, "Philly's cluster_job_log is a list of jobs");
    json_array_foreach(json, i, item) {
        if (rc == 0) rc = add_philly(build, item, err);
    }
    json_decref(json);
    return rc;
}
