/* cgroup - limits that a container or a job's scheduler sets on this process (Linux control groups: version 2, and the
 * memory of version 1). */
#ifndef ASH_BASE_CGROUP_H
#define ASH_BASE_CGROUP_H

/* The smallest limit in the file of that name ("cpu.max", "memory.max") over this process's cgroup and all its
 * ancestors. A file with two numbers counts as their quotient: "150000 100000" in cpu.max is 1.5 cores. INFINITY when
 * nothing is limited or known. */
double ash_cgroup_limit(const char *name);
/* The same with other places for /sys/fs/cgroup and /proc/self/cgroup; for tests. */
double ash_cgroup_limit_at(const char *root, const char *membership, const char *name);

#endif
