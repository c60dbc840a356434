/* Usable cores: what the scheduler allows, which in a container is less than what the machine has. */
#include "base/cores.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CPUS_MAX (1 << 16)

static int affinity_count(void)
{
    int count = 0;

    for (int cpus = 1024; cpus <= CPUS_MAX && count == 0; cpus *= 4) { /* the kernel refuses a mask that is too small */
        cpu_set_t *set = CPU_ALLOC((size_t)cpus);
        if (set == NULL) break;
        if (sched_getaffinity(0, CPU_ALLOC_SIZE((size_t)cpus), set) == 0) count = CPU_COUNT_S(CPU_ALLOC_SIZE((size_t)cpus), set);
        CPU_FREE(set);
    }
    if (count <= 0) count = (int)sysconf(_SC_NPROCESSORS_ONLN);
    return count > 0 ? count : 1;
}

/* This process's cgroup v2 folder into path, as /sys/fs/cgroup/a/b. Returns 0 or -1. */
static int cgroup_folder(char *path, size_t path_bytes)
{
    FILE *file = fopen("/proc/self/cgroup", "re");
    char line[PATH_MAX];
    int rc = -1;

    if (file == NULL) return -1;
    while (rc < 0 && fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, "0::/", 4) != 0) continue;
        line[strcspn(line, "\n")] = '\0';
        int used = snprintf(path, path_bytes, "/sys/fs/cgroup%s", line + 3);
        rc = used > 0 && (size_t)used < path_bytes ? 0 : -1;
    }
    fclose(file);
    return rc;
}

/* The quota that one cgroup sets, in cores rounded up, or INT_MAX. */
static int folder_quota(const char *folder)
{
    char path[PATH_MAX + 16];
    long long quota, period;
    int cores = INT_MAX;
    FILE *file = NULL;

    snprintf(path, sizeof(path), "%s/cpu.max", folder);
    file = fopen(path, "re");
    if (file == NULL) return INT_MAX;
    if (fscanf(file, "%lld %lld", &quota, &period) == 2 && quota > 0 && period > 0) { /* "max" when there is none */
        long long count = (quota + period - 1) / period;
        cores = count < INT_MAX ? (int)count : INT_MAX;
    }
    fclose(file);
    return cores;
}

static int quota_count(void)
{
    char folder[PATH_MAX];
    int least = INT_MAX;

    if (cgroup_folder(folder, sizeof(folder)) < 0) return INT_MAX;
    while (strlen(folder) >= strlen("/sys/fs/cgroup")) { /* every ancestor's quota binds too */
        int cores = folder_quota(folder);
        if (cores < least) least = cores;
        *strrchr(folder, '/') = '\0';
    }
    return least;
}

int ash_cores_usable(void)
{
    int affinity = affinity_count(), quota = quota_count();

    return quota < affinity ? quota : affinity;
}
