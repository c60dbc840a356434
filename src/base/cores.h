/* cores - how many processor cores this process may keep busy. */
#ifndef ASH_BASE_CORES_H
#define ASH_BASE_CORES_H

#include <pthread.h>

/* The smaller of the affinity mask and the cgroup v2 CPU quota (rounded up), at least 1. Any thread may call. */
int ash_cores_usable(void);
/* Cores that this thread may run on, ascending, at most max of them, into cpus. Returns how many; 0 if the system does
 * not say. */
int ash_cores_list(int *cpus, int max);
/* Run thread on this core only. Returns 0 or a negative errno. */
int ash_cores_pin(pthread_t thread, int cpu);

#endif
