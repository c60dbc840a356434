/* A trace in memory: rows are appended, names become numbers, and all is sorted by submission at the end. */
#include "queue/replay/trace_priv.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zlib.h>

#include "base/hash.h"
#include "base/number.h"
#include "base/str.h"

#define READ_BYTES 65536
#define RUN_MAX_S 1e9

/* ---- names ------------------------------------------------------------------------------------------------------- */

/* Names in the order of their first use. */
struct ash_trace_names {
    char **names;
    int count;
    int *slots; /* index plus 1; 0: empty */
    size_t slot_count;
};

static size_t slot_of(const struct ash_trace_names *names, const char *name)
{
    size_t at = (size_t)ash_hash_str(name) & (names->slot_count - 1);

    while (names->slots[at] != 0 && strcmp(names->names[names->slots[at] - 1], name) != 0)
        at = (at + 1) & (names->slot_count - 1);
    return at;
}

static int grow_names(struct ash_trace_names *names)
{
    size_t slot_count = names->slot_count == 0 ? 64 : 2 * names->slot_count;
    char **more = realloc(names->names, slot_count / 2 * sizeof(char *));
    int *slots = calloc(slot_count, sizeof(*slots));

    if (more != NULL) names->names = more;
    if (more == NULL || slots == NULL) {
        free(slots);
        return -ENOMEM;
    }
    free(names->slots);
    names->slots = slots;
    names->slot_count = slot_count;
    for (int i = 0; i < names->count; i++)
        slots[slot_of(names, names->names[i])] = i + 1;
    return 0;
}

static int number_of(struct ash_trace_names *names, const char *name)
{
    size_t slot;

    if ((size_t)names->count >= names->slot_count / 2 && grow_names(names) < 0) return -ENOMEM;
    slot = slot_of(names, name);
    if (names->slots[slot] > 0) return names->slots[slot] - 1;
    names->names[names->count] = strdup(name);
    if (names->names[names->count] == NULL) return -ENOMEM;
    names->slots[slot] = ++names->count;
    return names->count - 1;
}

static void close_names(struct ash_trace_names *names)
{
    if (names == NULL) return;
    for (int i = 0; i < names->count; i++)
        free(names->names[i]);
    free(names->names);
    free(names->slots);
    free(names);
}

/* ---- building ---------------------------------------------------------------------------------------------------- */

int ash_trace_build_open(struct ash_trace_build *build)
{
    *build = (struct ash_trace_build){.trace = calloc(1, sizeof(*build->trace)),
                                      .queues = calloc(1, sizeof(*build->queues)),
                                      .classes = calloc(1, sizeof(*build->classes)),
                                      .users = calloc(1, sizeof(*build->users))};
    return build->trace != NULL && build->queues != NULL && build->classes != NULL && build->users != NULL ? 0
                                                                                                           : -ENOMEM;
}

void ash_trace_build_close(struct ash_trace_build *build)
{
    close_names(build->queues);
    close_names(build->classes);
    close_names(build->users);
}

static int name_or(struct ash_trace_names *names, const char *name, const char *other)
{
    return number_of(names, name != NULL && *name != '\0' ? name : other);
}

/* Can no cluster run it? */
static bool is_useless(const struct ash_trace_job *job)
{
    return job->gpus < 0 || !(job->run_s > 0) || job->run_s > RUN_MAX_S || (job->gpus == 0 && job->cpu_milli == 0);
}

/* Room for one job more. */
static int grow_jobs(struct ash_trace_build *build)
{
    size_t capacity = build->capacity == 0 ? 1024 : 2 * build->capacity;
    struct ash_trace_job *jobs;

    if (build->trace->count < build->capacity) return 0;
    jobs = realloc(build->trace->jobs, capacity * sizeof(*jobs));
    if (jobs == NULL) return -ENOMEM;
    build->trace->jobs = jobs;
    build->capacity = capacity;
    return 0;
}

int ash_trace_add(struct ash_trace_build *build, struct ash_trace_job job, const char *queue, const char *class,
                  const char *user, struct ash_err *err)
{
    struct ash_trace *trace = build->trace;
    int queue_number = name_or(build->queues, queue, "all"), class_number = name_or(build->classes, class, "normal");
    int user_number = name_or(build->users, user, "anyone");

    if (queue_number < 0 || class_number < 0 || user_number < 0 || grow_jobs(build) < 0)
        return ash_err_set(err, -ENOMEM, "out of memory");
    if (queue_number >= ASH_TRACE_NAMES_MAX || class_number >= INT16_MAX)
        return ash_err_set(err, -EINVAL, "more than %d queues, or %d classes", ASH_TRACE_NAMES_MAX, INT16_MAX);
    if (job.run_s >= 0 && job.run_s < 1) job.run_s = 1;
    if (is_useless(&job)) {
        trace->skipped++;
        return 0;
    }
    if (trace->count >= ASH_TRACE_JOBS_MAX) return ash_err_set(err, -EINVAL, "more than %d jobs", ASH_TRACE_JOBS_MAX);
    job.queue = queue_number;
    job.class = (int16_t)class_number;
    job.user = user_number;
    if (job.gpu_milli == 0) job.gpu_milli = 1000;
    if (!(job.limit_s > 0)) job.limit_s = job.run_s;
    trace->jobs[trace->count++] = job;
    return 0;
}

static int by_submit(const void *a, const void *b)
{
    const struct ash_trace_job *x = a, *y = b;

    return x->submit_s < y->submit_s ? -1 : x->submit_s > y->submit_s;
}

void ash_trace_settle(struct ash_trace *trace)
{
    double first;

    if (trace->count == 0) return;
    for (size_t i = 1; i < trace->count; i++) {
        if (trace->jobs[i].submit_s >= trace->jobs[i - 1].submit_s) continue;
        qsort(trace->jobs, trace->count, sizeof(*trace->jobs), by_submit);
        break;
    }
    first = trace->jobs[0].submit_s;
    for (size_t i = 0; i < trace->count; i++)
        trace->jobs[i].submit_s -= first;
}

void ash_trace_keep_names(struct ash_trace_build *build)
{
    struct ash_trace *trace = build->trace;

    trace->queues = build->queues->names;
    trace->queue_count = build->queues->count;
    trace->classes = build->classes->names;
    trace->class_count = build->classes->count;
    trace->user_count = build->users->count;
    build->queues->names = build->classes->names = NULL;
    build->queues->count = build->classes->count = 0;
}

/* ---- times ------------------------------------------------------------------------------------------------------- */

double ash_trace_time(const char *text)
{
    struct tm tm = {0};
    int hour = 0, minute = 0;
    double number;
    const char *rest;
    char sign;

    if (ash_number_parse(text, &number) == 0) return number;
    rest = strptime(text, strchr(text, 'T') != NULL ? "%Y-%m-%dT%H:%M:%S" : "%Y-%m-%d %H:%M:%S", &tm);
    if (rest == NULL) return -1;
    number = (double)timegm(&tm);
    if (sscanf(rest, "%c%2d:%2d", &sign, &hour, &minute) == 3 && (sign == '+' || sign == '-'))
        number -= (sign == '+' ? 1 : -1) * (hour * 3600.0 + minute * 60.0);
    return number;
}

double ash_trace_span(const char *text)
{
    double days = 0, number, parts[3] = {0};
    const char *at = strchr(text, '-');
    int count;

    if (ash_number_parse(text, &number) == 0) return number;
    if (at != NULL && sscanf(text, "%lf-", &days) != 1) return -1;
    count = sscanf(at != NULL ? at + 1 : text, "%lf:%lf:%lf", &parts[0], &parts[1], &parts[2]);
    if (count < 2 || !isfinite(days) || !isfinite(parts[0]) || !isfinite(parts[1]) || !isfinite(parts[2])) return -1;
    if (count == 2) return days * 86400 + parts[0] * 60 + parts[1];
    return days * 86400 + parts[0] * 3600 + parts[1] * 60 + parts[2];
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static int read_text(struct ash_trace_build *build, const char *text, size_t size_bytes, struct ash_err *err)
{
    const char *first = text;
    char *copy;
    int rc;

    while (first < text + size_bytes && strchr(" \t\r\n", *first) != NULL && *first != '\0')
        first++;
    if (first == text + size_bytes) return ash_err_set(err, -EINVAL, "it is empty");
    if (*first == '[' || *first == '{') return ash_trace_read_philly(build, text, size_bytes, err);
    copy = strndup(text, size_bytes);
    if (copy == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    rc = *first == ';' || (*first >= '0' && *first <= '9') ? ash_trace_read_swf(build, copy, err)
                                                           : ash_trace_read_table(build, copy, err);
    free(copy);
    return rc;
}

int ash_trace_parse(const char *text, size_t size_bytes, const char *name, struct ash_trace **trace_out,
                    struct ash_err *err)
{
    struct ash_trace_build build;
    int rc = ash_trace_build_open(&build);

    if (rc < 0)
        ash_err_set(err, rc, "out of memory");
    else
        rc = read_text(&build, text, size_bytes, err);
    if (rc >= 0 && build.trace->count == 0) rc = ash_err_set(err, -EINVAL, "no job of it used a GPU and ended");
    if (rc >= 0) {
        ash_trace_keep_names(&build);
        ash_trace_settle(build.trace);
    }
    ash_trace_build_close(&build);
    if (rc < 0) {
        ash_trace_close(build.trace);
        return ash_err_prefix(err, rc, "%s", name);
    }
    *trace_out = build.trace;
    return 0;
}

int ash_trace_open(const char *path, struct ash_trace **trace_out, struct ash_err *err)
{
    gzFile file = gzopen(path, "rb"); /* reads plain files too */
    struct ash_str text = {0};
    static char block[READ_BYTES];
    int got = 0, rc = 0, code = 0;

    if (file == NULL) return ash_err_set(err, -errno, "cannot open %s: %s", path, strerror(errno));
    while (rc == 0 && (got = gzread(file, block, sizeof(block))) > 0) {
        rc = text.size_bytes > ASH_TRACE_BYTES_MAX ? -EFBIG : ash_str_add(&text, block, (size_t)got);
    }
    if (got < 0) rc = ash_err_set(err, -EIO, "%s: %s", path, gzerror(file, &code));
    if (rc < 0 && got >= 0) rc = ash_err_set(err, rc, "%s: too large for memory", path);
    gzclose(file);
    if (rc == 0) rc = ash_trace_parse(text.data != NULL ? text.data : "", text.size_bytes, path, trace_out, err);
    ash_str_fini(&text);
    return rc;
}

void ash_trace_close(struct ash_trace *trace)
{
    if (trace == NULL) return;
    for (int i = 0; i < trace->queue_count; i++)
        free(trace->queues[i]);
    for (int i = 0; i < trace->class_count; i++)
        free(trace->classes[i]);
    free(trace->queues);
    free(trace->classes);
    free(trace->jobs);
    free(trace);
}
