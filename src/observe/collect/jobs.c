/* Jobs: control groups of Slurm's jobs and Kubernetes' pods, of both versions, and processes that are stuck in D,
 * uninterruptible. */
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/number.h"
#include "observe/collect/collector.h"
#include "observe/collect/exposition.h"
#include "observe/collect/fabric_manager.h"

#define DEPTH_MAX 7
#define JOBS_MAX 512
#define STUCK_MAX 32
#define NO_LIMIT 0x1p62 /* version 1 writes about 2^63 for none */
#define STUCK_S 10.0    /* a process that is in D that long is stuck */
#define LOOK_S 30.0     /* between two looks at all processes where the kernel counts none that waits for storage */

struct stuck {
    int pid;
    double since_s;
    bool is_seen;
};

struct jobs {
    const struct ash_host_files *source;
    struct stuck stuck[STUCK_MAX];
    size_t stuck_count;
    double looked_s;  /* when all processes were last looked at */
    double manager_s; /* when the fabric manager was last looked for; 0: never */
    enum ash_fabric_manager manager;
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

/* A value of a file of "key value" lines. A key that ends in _ stands for all that begin with it: their sum. */
static int read_key(const struct ash_host_files *source, const char *path, const char *key, double *value_out)
{
    size_t key_bytes = strlen(key);
    bool is_start = key[key_bytes - 1] == '_';
    struct ash_str text = {0};
    char *cursor, *line;
    int rc = ash_host_read(source, path, &text);

    if (rc < 0) return rc;
    rc = -ENOENT;
    cursor = text.data;
    while ((rc < 0 || is_start) && (line = ash_text_line(&cursor)) != NULL) {
        char *word = ash_text_word(&line), *value = ash_text_word(&line);

        if (value == NULL || (is_start ? strncmp(word, key, key_bytes) : strcmp(word, key)) != 0) continue;
        *value_out = strtod(value, NULL) + (rc == 0 ? *value_out : 0);
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

/* A figure of a job's cgroup: a file of one number, a key of a file, or a pressure. Version 1 has a tree per
 * controller, and no pressure. */
struct fact {
    const char *tree; /* of version 1; NULL: version 2 */
    const char *file, *key, *name, *type, *help;
    double scale; /* 0: pages */
};

#define CPU_HELP "CPU time of a job's control group."
#define THROTTLED_HELP "Time in which a job's control group had used up its CPU quota."
#define MEMORY_HELP "Memory of a job's control group."
#define LIMIT_HELP "What a job's control group may have of memory."
#define REFAULT_HELP "Pages that a job had lost for lack of memory and read again."
#define KILLS_HELP "Processes of a job that were killed because its memory ran out."

static const struct fact facts[] = {
    {NULL, "cpu.stat", "usage_usec", "ashlar_job_cpu_seconds_total", "counter", CPU_HELP, 1e-6},
    {NULL, "cpu.stat", "throttled_usec", "ashlar_job_cpu_throttled_seconds_total", "counter", THROTTLED_HELP, 1e-6},
    {NULL, "memory.current", NULL, "ashlar_job_memory_bytes", "gauge", MEMORY_HELP, 1},
    {NULL, "memory.max", NULL, "ashlar_job_memory_limit_bytes", "gauge", LIMIT_HELP, 1},
    {NULL, "memory.stat", "workingset_refault_", "ashlar_job_refault_bytes_total", "counter", REFAULT_HELP, 0},
    {NULL, "memory.events", "oom_kill", "ashlar_job_oom_kills_total", "counter", KILLS_HELP, 1},
    {NULL, "cpu.pressure", "some", "ashlar_job_pressure_cpu_waiting_seconds_total", "counter",
     "Time in which some process of a job waited for a CPU.", 1},
    {NULL, "io.pressure", "some", "ashlar_job_pressure_io_waiting_seconds_total", "counter",
     "Time in which some process of a job waited for storage.", 1},
    {NULL, "io.pressure", "full", "ashlar_job_pressure_io_stalled_seconds_total", "counter",
     "Time in which all processes of a job waited for storage.", 1},
    {NULL, "memory.pressure", "full", "ashlar_job_pressure_memory_stalled_seconds_total", "counter",
     "Time in which all processes of a job waited for memory.", 1},
};

static const struct fact old_facts[] = {
    {"cpuacct", "cpuacct.usage", NULL, "ashlar_job_cpu_seconds_total", "counter", CPU_HELP, 1e-9},
    {"cpu", "cpu.stat", "throttled_time", "ashlar_job_cpu_throttled_seconds_total", "counter", THROTTLED_HELP, 1e-9},
    {"memory", "memory.usage_in_bytes", NULL, "ashlar_job_memory_bytes", "gauge", MEMORY_HELP, 1},
    {"memory", "memory.limit_in_bytes", NULL, "ashlar_job_memory_limit_bytes", "gauge", LIMIT_HELP, 1},
    {"memory", "memory.stat", "total_workingset_refault_", "ashlar_job_refault_bytes_total", "counter", REFAULT_HELP,
     0},
    {"memory", "memory.oom_control", "oom_kill", "ashlar_job_oom_kills_total", "counter", KILLS_HELP, 1},
};

static int read_fact(const struct ash_host_files *source, const char *folder, const struct fact *fact,
                     double *value_out)
{
    char path[PATH_MAX + 32];

    snprintf(path, sizeof(path), "%s/%s", folder, fact->file);
    if (fact->key == NULL) return ash_host_number(source, path, value_out);
    if (strstr(fact->file, ".pressure") != NULL) return read_pressure(source, path, fact->key, value_out);
    return read_key(source, path, fact->key, value_out);
}

static void add_fact(const struct ash_host_files *source, const struct fact *fact, const struct ash_devices *found,
                     struct ash_str *out)
{
    double value, scale = fact->scale > 0 ? fact->scale : (double)sysconf(_SC_PAGESIZE);
    bool has_head = false;

    for (size_t i = 0; i < found->folders.count; i++) {
        if (read_fact(source, found->folders.items[i], fact, &value) < 0 || value >= NO_LIMIT) continue;
        if (!has_head) ash_exp_family(out, fact->name, fact->type, fact->help);
        has_head = true;
        ash_exp_value(out, fact->name, found->labels.items[i], value * scale);
    }
}

static void add_jobs(const struct ash_host_files *source, struct ash_str *out)
{
    struct walk walk = {.source = source, .path = "/sys/fs/cgroup"};

    ash_host_list(source, walk.path, visit_group, &walk);
    for (size_t f = 0; f < ASH_COUNT(facts); f++)
        add_fact(source, &facts[f], &walk.found, out);
    for (size_t f = 0; walk.found.folders.count == 0 && f < ASH_COUNT(old_facts); f++) {
        struct walk old = {.source = source};

        snprintf(old.path, sizeof(old.path), "/sys/fs/cgroup/%s", old_facts[f].tree);
        ash_host_list(source, old.path, visit_group, &old);
        add_fact(source, &old_facts[f], &old.found, out);
        ash_devices_fini(&old.found);
    }
    ash_devices_fini(&walk.found);
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
    /* To look at all processes is dear. The kernel counts those that wait for storage; the others that are in D, in a
     * driver or for a server, it does not count. */
    if (read_key(jobs->source, "/proc/stat", "procs_blocked", &blocked) < 0) return;
    if (blocked > 0 || jobs->stuck_count > 0 || jobs->looked_s == 0 || now_s - jobs->looked_s >= LOOK_S) {
        ash_host_list(jobs->source, "/proc", visit_process, jobs);
        jobs->looked_s = now_s;
    }
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

static void add_fabric_manager(struct jobs *jobs, struct ash_str *out)
{
    double now_s = (double)ash_clock_ns() * 1e-9;

    if (jobs->manager_s == 0 || now_s - jobs->manager_s >= LOOK_S) {
        jobs->manager = ash_fabric_manager_look(jobs->source);
        jobs->manager_s = now_s;
    }
    if (jobs->manager >= ASH_FABRIC_MANAGER_DOWN)
        ash_exp_single(out, "ashlar_fabric_manager_up", "gauge", "Whether NVIDIA's fabric manager runs.",
                       jobs->manager == ASH_FABRIC_MANAGER_UP);
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
    add_fabric_manager(jobs, out);
    return 0;
}

const struct ash_collector_ops ash_collect_jobs = {
    .name = "jobs", .deadline_s = 2, .open = open_jobs, .collect = collect_jobs, .close = free};
