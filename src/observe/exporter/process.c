/* Process metrics from /proc and getrusage, under the names that every Prometheus client uses. */
#include "observe/exporter/process.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static void write_value(FILE *out, const char *name, const char *type, const char *help, double value)
{
    fprintf(out, "# HELP %s %s\n# TYPE %s %s\n%s %.3f\n", name, help, name, type, name, value);
}

static double timeval_s(struct timeval time)
{
    return (double)time.tv_sec + (double)time.tv_usec * 1e-6;
}

static void write_cpu(FILE *out)
{
    struct rusage usage;

    if (getrusage(RUSAGE_SELF, &usage) < 0) return;
    write_value(out, "process_cpu_seconds_total", "counter", "Total user and system CPU time spent in seconds.",
                timeval_s(usage.ru_utime) + timeval_s(usage.ru_stime));
}

static void write_memory(FILE *out)
{
    FILE *file = fopen("/proc/self/statm", "re");
    unsigned long long pages = 0;

    if (file == NULL) return;
    if (fscanf(file, "%*u %llu", &pages) == 1)
        write_value(out, "process_resident_memory_bytes", "gauge", "Resident memory size in bytes.",
                    (double)pages * (double)sysconf(_SC_PAGESIZE));
    fclose(file);
}

/* Seconds since 1970 at which the machine started, or 0. */
static double boot_time_s(void)
{
    FILE *file = fopen("/proc/stat", "re");
    char line[256];
    unsigned long long seconds = 0;

    if (file == NULL) return 0;
    while (fgets(line, sizeof(line), file) != NULL)
        if (sscanf(line, "btime %llu", &seconds) == 1) break;
    fclose(file);
    return (double)seconds;
}

/* Clock ticks between the machine's start and this process's, or 0: the 22nd field, after a name that may hold
 * anything. */
static unsigned long long start_ticks(void)
{
    FILE *file = fopen("/proc/self/stat", "re");
    char line[1024];
    unsigned long long ticks = 0;
    const char *fields = NULL;

    if (file == NULL) return 0;
    if (fgets(line, sizeof(line), file) != NULL) fields = strrchr(line, ')');
    fclose(file);
    if (fields == NULL ||
        sscanf(fields + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
               &ticks) != 1)
        return 0;
    return ticks;
}

/* It does not change, and /proc/stat is expensive to read: read once. */
static void write_start(FILE *out)
{
    static _Atomic double known;
    double start = known;

    if (start == 0) {
        double boot = boot_time_s();
        unsigned long long ticks = start_ticks();

        if (boot == 0 || ticks == 0) return;
        known = start = boot + (double)ticks / (double)sysconf(_SC_CLK_TCK);
    }
    write_value(out, "process_start_time_seconds", "gauge", "Start time of the process since unix epoch in seconds.",
                start);
}

void ash_process_write(FILE *out)
{
    write_cpu(out);
    write_memory(out);
    write_start(out);
}
