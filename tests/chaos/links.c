/* links: faults of the network between nodes that have one of their own (ashlar launch --netns). A job's second
 * node is cut off, in one or both directions, or its link gets slow. */
#include "chaos/links.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECOND_NODE 2 /* its first rank, of four */
#define RANKS 4
#define FIRST_NODE_ADDRESS "10.77.0.1" /* see orchestrate/local/netns.h */
#define NOBODY "02:00:00:00:00:99"     /* a hardware address that no node has */
#define SLOW_RATE "2mbit"              /* a small job's messages then take ten times as long */
#define GO_ON "continue from step"

/* Run a program in the network of a process. words: NULL-terminated. */
static int run_inside(pid_t pid, const char *const *words)
{
    char path[64];
    pid_t child = fork();
    int status = -1;

    if (child == 0) {
        int fd;

        snprintf(path, sizeof(path), "/proc/%d/ns/net", (int)pid);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd >= 0 && setns(fd, CLONE_NEWNET) == 0) execvp(words[0], (char *const *)(uintptr_t)words);
        _exit(127);
    }
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) return -EIO;
    return 0;
}

/* A process of the second node. Returns 0 or -ESRCH. */
static int find_second(const struct ash_chaos_cell *cell, pid_t pids[ASH_CHAOS_RANKS_MAX])
{
    return ash_chaos_job_ranks(&cell->job, pids) >= RANKS ? 0 : -ESRCH;
}

/* Until one side has gone on and the other has ended; never both go on. */
static int wait_for_one_side(struct ash_chaos_cell *cell, const pid_t *pids, const char *const *heal)
{
    int rc = ash_chaos_wait_text(cell, GO_ON, 1);

    if (rc == 0) run_inside(pids[SECOND_NODE], heal); /* they may have ended before, and their network with them */
    return rc < 0 ? rc : ash_chaos_wait_left(cell, pids, RANKS, RANKS / 2);
}

int ash_chaos_cut_link(struct ash_chaos_cell *cell)
{
    static const char *const down[] = {"ip", "link", "set", "eth0", "down", NULL};
    static const char *const up[] = {"ip", "link", "set", "eth0", "up", NULL};
    pid_t pids[ASH_CHAOS_RANKS_MAX];
    int rc = find_second(cell, pids);

    if (rc == 0) rc = run_inside(pids[SECOND_NODE], down);
    return rc < 0 ? rc : wait_for_one_side(cell, pids, up);
}

/* The second node's packets go to an unused hardware address; it still receives the first one's. */
int ash_chaos_cut_one_way(struct ash_chaos_cell *cell)
{
    static const char *const cut[] = {"ip",  "neigh", "replace", FIRST_NODE_ADDRESS, "lladdr", NOBODY,
                                      "dev", "eth0",  "nud",     "permanent",        NULL};
    static const char *const heal[] = {"ip", "neigh", "del", FIRST_NODE_ADDRESS, "dev", "eth0", NULL};
    pid_t pids[ASH_CHAOS_RANKS_MAX];
    int rc = find_second(cell, pids);

    if (rc == 0) rc = run_inside(pids[SECOND_NODE], cut);
    return rc < 0 ? rc : wait_for_one_side(cell, pids, heal);
}

int ash_chaos_throttle(struct ash_chaos_cell *cell)
{
    static const char *const slow[] = {"tc",   "qdisc",   "replace", "dev",   "eth0",    "root",  "tbf",
                                       "rate", SLOW_RATE, "burst",   "16384", "latency", "400ms", NULL};
    pid_t pids[ASH_CHAOS_RANKS_MAX];
    int rc = find_second(cell, pids);

    if (rc == 0) rc = run_inside(pids[SECOND_NODE], slow);
    return rc < 0 ? rc : ash_chaos_wait_text(cell, "the link from the node of rank 2 ", 1);
}

int ash_chaos_replace_throttled(struct ash_chaos_cell *cell)
{
    int rc = ash_chaos_throttle(cell);

    return rc < 0 ? rc : ash_chaos_wait_text(cell, "2 ranks leave; 4 ranks " GO_ON, 1);
}
