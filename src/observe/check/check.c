/* The quick checks: cheap enough for a prolog. */
#include "observe/check/check.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/timex.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "observe/agent/kmsg.h"
#include "observe/collect/collector.h"
#include "observe/health/kernel_log.h"

#define MEMLOCK_BYTES (16.0 * 1073741824.0) /* minimum of AWS's health check with EFA */
#define LOG_NS 500000000u                   /* for the kernel log */
#define FREE_SHARE 0.05

enum ash_check_grade ash_check_worst(const struct ash_check_report *report)
{
    enum ash_check_grade worst = ASH_GRADE_GOOD;

    for (size_t i = 0; i < report->count; i++)
        if (report->results[i].grade != ASH_GRADE_SKIPPED && report->results[i].grade > worst)
            worst = report->results[i].grade;
    return worst;
}

const char *ash_check_grade_name(enum ash_check_grade grade)
{
    static const char *const names[] = {"good", "warn", "BAD", "skipped"};

    ash_assert((size_t)grade < ASH_COUNT(names));
    return names[grade];
}

/* ---- the host ---------------------------------------------------------------------------------------------------- */

static void check_limits(const struct ash_check_opts *opts, struct ash_check_report *report)
{
    size_t devices = ash_names_count(&opts->source, "/sys/class/infiniband");
    struct rlimit limit;
    char wanted[32] = "";
    bool is_wrong;

    if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0) {
        bool is_enough = limit.rlim_cur == RLIM_INFINITY || (double)limit.rlim_cur >= MEMLOCK_BYTES;

        if (limit.rlim_cur == RLIM_INFINITY)
            ash_check_add(report, "locked memory", ASH_GRADE_GOOD, "16 GiB", "no limit");
        else
            ash_check_add(report, "locked memory", devices > 0 && !is_enough ? ASH_GRADE_WARN : ASH_GRADE_GOOD,
                          devices > 0 ? "16 GiB" : "", "%.3g GiB", (double)limit.rlim_cur / 1073741824.0);
    }
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
        ash_check_add(report, "open files", limit.rlim_max < 65536 ? ASH_GRADE_WARN : ASH_GRADE_GOOD, "65536", "%llu",
                      (unsigned long long)limit.rlim_max);
    if (opts->network_devices > 0) snprintf(wanted, sizeof(wanted), "%lld", (long long)opts->network_devices);
    /* AWS requires exactly as many; other machines may have more, for storage. */
    is_wrong = (int64_t)devices < opts->network_devices ||
               (opts->has_efa && opts->network_devices > 0 && (int64_t)devices != opts->network_devices);
    ash_check_add(report, "RDMA devices", is_wrong ? ASH_GRADE_BAD : ASH_GRADE_GOOD, wanted, "%zu", devices);
}

static void check_time(struct ash_check_report *report)
{
    struct timex state = {0};
    int rc = adjtimex(&state);

    ash_check_add(
        report, "clock", rc == TIME_ERROR || (state.status & STA_UNSYNC) != 0 ? ASH_GRADE_WARN : ASH_GRADE_GOOD,
        "synchronised", "%s, within %.3g ms", (state.status & STA_UNSYNC) != 0 ? "not synchronised" : "synchronised",
        (double)state.maxerror * 1e-3);
}

/* Slow, full and dead mounts, from the collector's own text. */
static void check_mounts(const struct ash_check_opts *opts, struct ash_check_report *report)
{
    struct ash_str text = {0};
    struct ash_err err = {0};
    size_t dead = 0, count = 0;
    void *state = NULL;
    char *cursor, *line;

    if (ash_collect_mounts.open(&opts->source, &state, &err) < 0 ||
        ash_collect_mounts.collect(state, &text, &err) < 0) {
        ash_check_add(report, "mounts", ASH_GRADE_SKIPPED, "", "%s", err.text);
        ash_collect_mounts.close(state);
        return;
    }
    cursor = text.data;
    while (cursor != NULL && (line = ash_text_line(&cursor)) != NULL) {
        const char *name = strstr(line, "mountpoint=\"");

        if (strncmp(line, "node_filesystem_device_error{", 29) != 0 || name == NULL) continue;
        count++;
        if (line[strlen(line) - 1] == '0') continue;
        dead++;
        ash_check_add(report, "mounts", ASH_GRADE_BAD, "answers within 0.3 s", "%.*s does not answer",
                      (int)strcspn(name + 12, "\""), name + 12);
    }
    if (dead == 0) ash_check_add(report, "mounts", ASH_GRADE_GOOD, "", "%zu answer", count);
    ash_str_fini(&text);
    ash_collect_mounts.close(state);
}

/* The worst event since the machine started. */
static void check_log(const struct ash_check_opts *opts, struct ash_check_report *report)
{
    char path[PATH_MAX], line[ASH_KMSG_LINE_BYTES], worst_line[160] = "";
    const char *log =
        opts->kernel_log != NULL ? opts->kernel_log : ash_host_path(&opts->source, "/dev/kmsg", path, sizeof(path));
    enum ash_node_remedy worst = ASH_REMEDY_NONE;
    uint64_t number, end_ns = ash_clock_ns() + LOG_NS;
    struct ash_kmsg *kmsg = NULL;
    struct ash_err err = {0};
    size_t events = 0;

    if (log == NULL || ash_kmsg_open(log, 0, &kmsg, &err) < 0) {
        ash_check_add(report, "kernel log", ASH_GRADE_SKIPPED, "", "%s", err.text);
        return;
    }
    while (ash_clock_ns() < end_ns && ash_kmsg_next(kmsg, 0, -1, line, &number) == 1) {
        struct ash_kernel_event event;

        if (!ash_kernel_log_judge(line, &event)) continue;
        events++;
        if (event.remedy <= worst) continue;
        worst = event.remedy;
        snprintf(worst_line, sizeof(worst_line), "%.150s", line);
    }
    ash_kmsg_close(kmsg);
    if (worst > ASH_REMEDY_WATCH)
        ash_check_add(report, "kernel log", ASH_GRADE_BAD, "nothing that asks for more than watching", "%s: %s",
                      ash_node_remedy_name(worst), worst_line);
    else
        ash_check_add(report, "kernel log", ASH_GRADE_GOOD, "", "%zu events since the start, none hard", events);
}

void ash_check_quick(const struct ash_check_opts *opts, struct ash_check_report *report)
{
    uint64_t start_ns = ash_clock_ns();

    ash_check_add(report, "cores", ASH_GRADE_GOOD, "", "%ld", sysconf(_SC_NPROCESSORS_ONLN));
    ash_check_gpus(opts, report);
    check_limits(opts, report);
    ash_check_network(opts, report);
    check_time(report);
    check_mounts(opts, report);
    check_log(opts, report);
    report->seconds += (double)(ash_clock_ns() - start_ns) * 1e-9;
}
