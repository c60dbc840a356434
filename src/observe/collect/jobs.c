/* Jobs: control groups of Slurm's jobs and Kubernetes' pods (version 2, and memory and cpu of version 1), and processes
 * that are stuck in D, uninterruptible. */
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/number.h"
#include "observe/collect/collector.h"
#include "observe/collect/exposition.h"

#define DEPTH_MAX 7
#define JOBS_MAX 512
#define STUCK_MAX 32
#define STUCK_S 10.0 /* a process that is in D that long is stuck */

struct stuck {
    int pid;
    double since_s;
    bool is_seen;
};

struct jobs {
    const struct ash_host_files *source;
    struct stuck stuck[STUCK_MAX];
    size_t stuck_count;
};

/* ---- control groups ---------------------------------------------------------------------------------------------- */

struct walk {
    const struct ash_host_files *source;
    struct ash_devices found;
    char path[PATH_MAX];
    size_t depth;
};

/* The job of a folder's name: Slurm's job_7, a pod's UID. Returns whether it is one. */
static bool job_of(const char *name, char *job, size_t job_bytes, const char **kind_out)
{
    const char *pod = strstr(name, "pod");

    if (strncmp(name, "job_", 4) == 0 && name[4] >= '0' && name[4] <= '9') {
        snprintf(job, job_bytes, "%.*s", (int)strspn(name + 4, "0123456789"), name + 4);
        *kind_out = "job";
        return true;
    }
    while (pod != NULL && pod != name && pod[-1] != '-')
        pod = strstr(pod + 1, "pod"); /* kubepods-burstable-podUID.slice */
    if (pod != NULL && strlen(pod) >= 3 + 36) {
        snprintf(job, job_bytes, "%.36s", pod + 3);
        for (char *at = job; *at != '\0'; at++)
            if (*at == '_') *at = '-';
        *kind_out = "pod_uid";
        return true;
    }
    return false;
}

/* May a job's group lie in a folder of this name? */
static bool is_way(const char *name)
{
    static const char *const starts[] = {"job_", "uid_", "slurm", "kubepods", "pod", "burstable", "besteffort"};

    for (size_t i = 0; i < ASH_COUNT(starts); i++)
        if (strncmp(name, starts[i], strlen(starts[i])) == 0) return true;
    return strstr(name, ".slice") != NULL || strstr(name, ".scope") != NULL;
}

static void visit_group(void *ctx, const char *name)
{
    struct walk *walk = ctx;
    size_t used = strlen(walk->path);
    char job[64], labels[ASH_EXP_LABELS_BYTES];
    const char *kind = NULL;

    if (walk->depth >= DEPTH_MAX || walk->found.folders.count >= JOBS_MAX || !is_way(name)) return;
    if (used + strlen(name) + 2 > sizeof(walk->path)) return;
    snprintf(walk->path + used, sizeof(walk->path) - used, "/%s", name);
    if (job_of(name, job, sizeof(job), &kind)) {
        ash_exp_labels(labels, sizeof(labels), kind, job, (char *)NULL);
        ash_devices_add(&walk->found, walk->path, labels);
    } else {
        walk->depth++;
        ash_host_list(walk->source, walk->path, visit_group, walk);
        walk->depth--;
    }
    walk->path[used] = '\0';
}

/* A value of a file of "key value" lines. */
static int read_key(const struct ash_host_files *source, const char *path, const char *key, double *value_out)
{
    struct ash_str text = {0};
    char *cursor, *line;
    int rc = ash_host_read(source, path, &text);

    if (rc < 0) return rc;
    rc = -ENOENT;
    cursor = text.data;
    while (rc < 0 && (line = ash_text_line(&cursor)) != NULL) {
        char *word = ash_text_word(&line), *value = ash_text_word(&line);

        if (value == NULL || strcmp(word, key) != 0) continue;
        *value_out = strtod(value, NULL);
        rc = 0;
    }
    ash_str_fini(&text);
    return rc;
}

/* total= of a line of a pressure file. */
static int read_pressure(const struct ash_host_files *source, const char *path, const char *kind, double *value_out)
{
    struct ash_str text = {0};
    char *cursor, *line;
    int rc = ash_host_read(source, path, &text);

    if (rc < 0) return rc;
    rc = -ENOENT;
    cursor = text.data;
    while (rc < 0 && (line = ash_text_line(&cursor)) != NULL) {
        const char *total = strstr(line, "total=");

        if (strncmp(line, kind, strlen(kind)) != 0 || total == NULL) continue;
        *value_out = (double)strtoull(total + 6, NULL, 10) / 1e6;
        rc = 0;
    }
    ash_str_fini(&text);
    return rc;
}

/* What a job's group tells: a file of one number, a key of a file, or a pressure. */
static const struct {
    const char *file, *key, *name, *type, *help;
    double scale;
} facts[] = {
    {"cpu.stat", "usage_usec", "ashlar_job_cpu_seconds_total", "counter", "CPU time of a job's control group.", 1e-6},
    {"cpu.stat", "throttled_usec", "ashlar_job_cpu_throttled_seconds_total", "counter",
     "Time in which a job's control group had used up its CPU quota.", 1e-6},
    {"memory.current", NULL, "ashlar_job_memory_bytes", "gauge", "Memory of a job's control group.", 1},
    {"memory.events", "oom_kill", "ashlar_job_oom_kills_total", "counter",
     "Processes of a job that were killed because its memory ran out.", 1},
    {"cpu.pressure", "some", "ashlar_job_pressure_cpu_waiting_seconds_total", "counter",
     "Time in which some process of a job waited for a CPU.", 1},
    {"io.pressure", "some", "ashlar_job_pressure_io_waiting_seconds_total", "counter",
     "Time in which some process of a job waited for storage.", 1},
    {"io.pressure", "full", "ashlar_job_pressure_io_stalled_seconds_total", "counter",
     "Time in which all processes of a job waited for storage.", 1},
    {"memory.pressure", "full", "ashlar_job_pressure_memory_stalled_seconds_total", "counter",
     "Time in which all processes of a job waited for memory.", 1},
};

static int read_fact(const struct ash_host_files *source, const char *folder, size_t fact, double *value_out)
{
    char path[PATH_MAX + 32];

    snprintf(path, sizeof(path), "%s/%s", folder, facts[fact].file);
    if (facts[fact].key == NULL) return ash_host_number(source, path, value_out);
    if (strstr(facts[fact].file, ".pressure") != NULL) return read_pressure(source, path, facts[fact].key, value_out);
    return read_key(source, path, facts[fact].key, value_out);
}

/* Version 1 has a tree per controller. */
static const struct ash_sys_file memory_v1[] = {
    {"memory.usage_in_bytes", "ashlar_job_memory_bytes", "gauge", "Memory of a job's control group.", 1}};

static void add_jobs(const struct ash_host_files *source, struct ash_str *out)
{
    struct walk walk = {.source = source, .path = "/sys/fs/cgroup"};
    struct walk old = {.source = source, .path = "/sys/fs/cgroup/memory"};
    double value;

    ash_host_list(source, walk.path, visit_group, &walk);
    for (size_t f = 0; f < ASH_COUNT(facts); f++) {
        bool has_head = false;

        for (size_t i = 0; i < walk.found.folders.count; i++) {
            if (read_fact(source, walk.found.folders.items[i], f, &value) < 0) continue;
            if (!has_head) ash_exp_family(out, facts[f].name, facts[f].type, facts[f].help);
            has_head = true;
            ash_exp_value(out, facts[f].name, walk.found.labels.items[i], value * facts[f].scale);
        }
    }
    if (walk.found.folders.count == 0) {
        ash_host_list(source, old.path, visit_group, &old);
        ash_collect_files(source, memory_v1, ASH_COUNT(memory_v1), &old.found, out);
    }
    ash_devices_fini(&walk.found);
    ash_devices_fini(&old.found);
}

/* ---- processes in D ---------------------------------------------------------------------------------------------- */

static void visit_process(void *ctx, const char *name)
{
    struct jobs *jobs = ctx;
    char path[64], line[512];
    const char *state;
    int64_t number;
    int pid;

    if (strspn(name, "0123456789") != strlen(name) || ash_number_parse_whole(name, &number) < 0) return;
    if (number <= 0 || number > INT_MAX) return;
    pid = (int)number;
    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    if (ash_host_line(jobs->source, path, line, sizeof(line)) < 0) return;
    state = strrchr(line, ')');
    if (state == NULL || strncmp(state, ") D", 3) != 0) return;
    for (size_t i = 0; i < jobs->stuck_count; i++)
        if (jobs->stuck[i].pid == pid) {
            jobs->stuck[i].is_seen = true;
            return;
        }
    if (jobs->stuck_count < STUCK_MAX)
        jobs->stuck[jobs->stuck_count++] = (struct stuck){pid, (double)ash_clock_ns() * 1e-9, true};
}

static void add_stuck(struct jobs *jobs, struct ash_str *out)
{
    double now_s = (double)ash_clock_ns() * 1e-9, blocked = 0;
    size_t long_ago = 0;

    for (size_t i = 0; i < jobs->stuck_count; i++)
        jobs->stuck[i].is_seen = false;
    /* all processes are looked at only where the kernel says that one is blocked, or one was */
    if (read_key(jobs->source, "/proc/stat", "procs_blocked", &blocked) < 0) return;
    if (blocked > 0 || jobs->stuck_count > 0) ash_host_list(jobs->source, "/proc", visit_process, jobs);
    for (size_t i = 0; i < jobs->stuck_count;) {
        if (!jobs->stuck[i].is_seen) {
            jobs->stuck[i] = jobs->stuck[--jobs->stuck_count];
            continue;
        }
        long_ago += now_s - jobs->stuck[i].since_s >= STUCK_S;
        i++;
    }
    ash_exp_single(out, "ashlar_processes_stuck", "gauge",
                   "Processes that have been in uninterruptible sleep (D) for 10 seconds or more.", (double)long_ago);
}

static int open_jobs(const struct ash_host_files *source, void **state_out, struct ash_err *err)
{
    struct jobs *jobs = calloc(1, sizeof(*jobs));

    if (jobs == NULL) return ash_err_set(err, -ENOMEM, "no memory for jobs");
    jobs->source = source;
    *state_out = jobs;
    return 0;
}

static int collect_jobs(void *state, struct ash_str *out, struct ash_err *err)
{
    struct jobs *jobs = state;

    (void)err;
    add_jobs(jobs->source, out);
    add_stuck(jobs, out);
    return 0;
}

const struct ash_collector_ops ash_collect_jobs = {
    .name = "jobs", .deadline_s = 2, .open = open_jobs, .collect = collect_jobs, .close = free};
