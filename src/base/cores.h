/* cores - how many processor cores this process may keep busy. */
#ifndef ASH_BASE_CORES_H
#define ASH_BASE_CORES_H

/* The smaller of the affinity mask and the cgroup v2 CPU quota (rounded up), at least 1. Any thread may call. */
int ash_cores_usable(void);

#endif
