/* Usable cores: what the scheduler allows, which in a container is less than what the machine has. */
#include "base/cores.h"

#include <math.h>
#include <sched.h>
#include <unistd.h>

#include "base/cgroup.h"

#define CPUS_MAX (1 << 16)

static int affinity_count(void)
{
    int count = 0;

    for (int cpus = 1024; cpus <= CPUS_MAX && count == 0; cpus *= 4) { /* the kernel refuses a mask that is too small */
        size_t mask_bytes = CPU_ALLOC_SIZE((size_t)cpus);
        cpu_set_t *set = CPU_ALLOC((size_t)cpus);
        if (set == NULL) break;
        if (sched_getaffinity(0, mask_bytes, set) == 0) count = CPU_COUNT_S(mask_bytes, set);
        CPU_FREE(set);
    }
    if (count <= 0) count = (int)sysconf(_SC_NPROCESSORS_ONLN);
    return count > 0 ? count : 1;
}

int ash_cores_usable(void)
{
    int affinity = affinity_count();
    double quota = ceil(ash_cgroup_limit("cpu.max"));

    return quota >= 1 && quota < affinity ? (int)quota : affinity;
}
