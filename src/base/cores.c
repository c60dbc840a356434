/* Usable cores: what the scheduler allows, which in a container is less than what the machine has. */
#include "base/cores.h"

#include <errno.h>
#include <math.h>
#include <sched.h>
#include <unistd.h>

#include "base/cgroup.h"

#define CPUS_MAX (1 << 16)

/* The cores that this thread may run on, ascending: the first max of them into cpus (NULL: none); returns how many
 * there are, 0 if the system does not say. */
static int affinity_list(int *cpus, int max)
{
    int count = 0;

    for (int limit = 1024; limit <= CPUS_MAX && count == 0;
         limit *= 4) { /* the kernel refuses a mask that is too small */
        size_t mask_bytes = CPU_ALLOC_SIZE((size_t)limit);
        cpu_set_t *set = CPU_ALLOC((size_t)limit);
        if (set == NULL) break;
        if (sched_getaffinity(0, mask_bytes, set) == 0)
            for (int cpu = 0; cpu < limit; cpu++) {
                if (!CPU_ISSET_S((size_t)cpu, mask_bytes, set)) continue;
                if (cpus != NULL && count < max) cpus[count] = cpu;
                count++;
            }
        CPU_FREE(set);
    }
    return count;
}

static int affinity_count(void)
{
    int count = affinity_list(NULL, 0);

    if (count <= 0) count = (int)sysconf(_SC_NPROCESSORS_ONLN);
    return count > 0 ? count : 1;
}

int ash_cores_list(int *cpus, int max)
{
    int count = affinity_list(cpus, max);

    return count < max ? count : max;
}

int ash_cores_pin(pthread_t thread, int cpu)
{
    size_t limit = (size_t)cpu + 1, mask_bytes = CPU_ALLOC_SIZE(limit);
    cpu_set_t *set = CPU_ALLOC(limit);
    int rc;

    if (set == NULL) return -ENOMEM;
    CPU_ZERO_S(mask_bytes, set);
    CPU_SET_S((size_t)cpu, mask_bytes, set);
    rc = -pthread_setaffinity_np(thread, mask_bytes, set);
    CPU_FREE(set);
    return rc;
}

int ash_cores_usable(void)
{
    int affinity = affinity_count();
    double quota = ceil(ash_cgroup_limit("cpu.max"));

    return quota >= 1 && quota < affinity ? (int)quota : affinity;
}
