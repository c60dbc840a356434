/* networks - nodes with networks of their own, for tests that cut them; also for a user who is not root, where the
 * system lets users have namespaces. */
#ifndef ASH_TESTS_NETWORKS_H
#define ASH_TESTS_NETWORKS_H

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "orchestrate/local/netns.h"

static inline void write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);

    if (fd < 0) return;
    if (write(fd, text, strlen(text)) < 0) perror(path);
    close(fd);
}

/* Who is not root becomes that in a world of its own, with a network of its own to come back to. Call before there are
 * threads. */
static inline void become_root(void)
{
    char uid[32], gid[32];

    snprintf(uid, sizeof(uid), "0 %d 1", (int)geteuid());
    snprintf(gid, sizeof(gid), "0 %d 1", (int)getegid());
    if (geteuid() == 0 || unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0) return;
    write_file("/proc/self/setgroups", "deny");
    write_file("/proc/self/uid_map", uid);
    write_file("/proc/self/gid_map", gid);
    if (system("ip link set lo up") != 0) fprintf(stderr, "no loopback in a network of one's own\n");
}

/* Networks for `nodes` nodes; NULL, with a word why, where they cannot be had. */
static inline struct ash_netns *open_networks(size_t nodes)
{
    struct ash_netns *netns = NULL;
    struct ash_err err = {0};

    if (ash_netns_open(nodes, NULL, &netns, &err) < 0) fprintf(stderr, "no networks: %s\n", err.text);
    return netns;
}

#endif
