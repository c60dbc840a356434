/* Networks of nodes. Namespaces are made by leaving for a new one and keeping a descriptor of it; ip and tc, started
 * inside, lay the cables. */
#include "orchestrate/local/netns.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/command.h"

#define WORDS_MAX 16
#define LIMIT_S 60.0 /* of one program */

struct ash_netns {
    int home_fd, switch_fd; /* -1: not there */
    size_t nodes;
    int node_fds[ASH_NETNS_NODES_MAX];
};

const char *ash_netns_address(size_t node, char *buf, size_t buf_bytes)
{
    snprintf(buf, buf_bytes, "10.77.0.%zu", node + 1);
    return buf;
}

int ash_netns_enter(const struct ash_netns *netns, size_t node)
{
    ash_assert(node < netns->nodes);
    return setns(netns->node_fds[node], CLONE_NEWNET) < 0 ? -errno : 0;
}

/* ---- programs ---------------------------------------------------------------------------------------------------- */

/* Run a program in a network: words, separated by single spaces. */
static int run_in(int network_fd, struct ash_err *err, const char *format, ...) __attribute__((format(printf, 3, 4)));
static int run_in(int network_fd, struct ash_err *err, const char *format, ...)
{
    char text[256], copy[256], *rest = copy;
    const char *words[WORDS_MAX + 1] = {NULL};
    const struct ash_command command = {.argv = words, .limit_s = LIMIT_S, .network_fd = network_fd};
    struct ash_command_result result;
    va_list args;
    int rc;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    memcpy(copy, text, sizeof(copy));
    for (size_t i = 0; i < WORDS_MAX && rest != NULL; i++)
        words[i] = strsep(&rest, " ");
    rc = ash_command_run(&command, &result, err);
    if (rc == -ENOENT)
        ash_err_set(err, rc, "networks of their own for nodes need the program %s (Debian: iproute2)", words[0]);
    if (rc == 0 && result.code != 0)
        rc = ash_err_set(err, -EIO, "networks of their own for nodes cannot be had: \"%s\" failed: %.*s", text,
                         (int)strcspn(result.err.data, "\n"), result.err.data);
    ash_command_free(&result);
    return rc;
}

/* ---- networks ---------------------------------------------------------------------------------------------------- */

/* A new namespace; the caller's thread is in it afterwards. */
static int new_network(int *fd_out)
{
    if (unshare(CLONE_NEWNET) < 0) return -errno;
    *fd_out = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    return *fd_out < 0 ? -errno : 0;
}

static int make_networks(struct ash_netns *netns, size_t nodes, struct ash_err *err)
{
    int rc = 0;

    netns->home_fd = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    if (netns->home_fd < 0) return ash_err_set(err, -errno, "this system has no network namespaces");
    for (size_t n = 0; n < nodes && rc == 0; n++) {
        rc = new_network(&netns->node_fds[n]);
        if (rc == 0) netns->nodes++;
    }
    if (rc == 0) rc = new_network(&netns->switch_fd);
    if (setns(netns->home_fd, CLONE_NEWNET) < 0 && rc == 0) rc = -errno;
    if (rc == -EPERM)
        return ash_err_set(err, rc, "networks of their own for nodes need root (CAP_SYS_ADMIN and CAP_NET_ADMIN)");
    return rc == 0 ? 0 : ash_err_set(err, rc, "networks of their own for nodes cannot be had: %s", strerror(-rc));
}

/* A cable from the switch to a node. */
static int lay_cable(const struct ash_netns *netns, size_t node, const char *rate, struct ash_err *err)
{
    int inside = netns->node_fds[node], outside = netns->switch_fd,
        rc = run_in(outside, err, "ip link add name node%zu type veth peer name eth0 netns /proc/%d/fd/%d", node,
                    (int)getpid(), inside);
    char address[ASH_NETNS_ADDRESS_BYTES];

    if (rc < 0) return rc;
    rc = run_in(outside, err, "ip link set node%zu master switch up", node);
    if (rc < 0) return rc;
    rc = run_in(inside, err, "ip link set lo up");
    if (rc < 0) return rc;
    rc = run_in(inside, err, "ip addr add %s/16 dev eth0", ash_netns_address(node, address, sizeof(address)));
    if (rc < 0) return rc;
    rc = run_in(inside, err, "ip link set eth0 up");
    if (rc < 0 || rate == NULL) return rc;
    return run_in(inside, err, "tc qdisc add dev eth0 root tbf rate %s burst 256k latency 50ms", rate);
}

static int check(size_t nodes, const char *rate, struct ash_err *err)
{
    if (nodes == 0 || nodes > ASH_NETNS_NODES_MAX)
        return ash_err_set(err, -EINVAL, "%zu nodes with networks of their own: 1 to %d are possible", nodes,
                           ASH_NETNS_NODES_MAX);
    for (const char *at = rate; at != NULL && *at != '\0'; at++)
        if (!isalnum((unsigned char)*at) && *at != '.')
            return ash_err_set(err, -EINVAL, "a link rate of '%s': give one like 1gbit or 200mbit", rate);
    return rate != NULL && *rate == '\0' ? ash_err_set(err, -EINVAL, "an empty link rate") : 0;
}

int ash_netns_open(size_t nodes, const char *rate, struct ash_netns **netns_out, struct ash_err *err)
{
    struct ash_netns *netns;
    int rc = check(nodes, rate, err);

    if (rc < 0) return rc;
    netns = calloc(1, sizeof(*netns));
    if (netns == NULL) return ash_err_set(err, -ENOMEM, "out of memory for networks");
    netns->home_fd = netns->switch_fd = -1;
    rc = make_networks(netns, nodes, err);
    if (rc == 0) rc = run_in(netns->switch_fd, err, "ip link add name switch type bridge");
    if (rc == 0) rc = run_in(netns->switch_fd, err, "ip link set switch up");
    for (size_t n = 0; n < nodes && rc == 0; n++)
        rc = lay_cable(netns, n, rate, err);
    if (rc < 0) {
        ash_netns_close(netns);
        return rc;
    }
    *netns_out = netns;
    return 0;
}

int ash_netns_cut(const struct ash_netns *netns, size_t node, struct ash_err *err)
{
    return run_in(netns->switch_fd, err, "ip link set node%zu down", node);
}

void ash_netns_close(struct ash_netns *netns)
{
    if (netns == NULL) return;
    for (size_t n = 0; n < netns->nodes; n++)
        close(netns->node_fds[n]);
    if (netns->switch_fd >= 0) close(netns->switch_fd);
    if (netns->home_fd >= 0) close(netns->home_fd);
    free(netns);
}
