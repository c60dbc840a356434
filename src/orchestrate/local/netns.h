/* netns - a network namespace for every node of a job on this machine: namespaces joined by cables (veth) to a switch
 * (a bridge in another namespace), so that traffic between nodes goes through real network code, can be slowed down and
 * can be cut. The namespaces have no names: they belong to the launcher and to the processes in them, and are gone with
 * the last of these, however they end. Needs root. */
#ifndef ASH_ORCHESTRATE_NETNS_H
#define ASH_ORCHESTRATE_NETNS_H

#include <stddef.h>
#include "ashlar/err.h"

#define ASH_NETNS_NODES_MAX 250
#define ASH_NETNS_ADDRESS_BYTES 32

struct ash_netns;

/* Networks for `nodes` nodes; what each sends is limited to rate ("1gbit", as tc reads it; NULL: not
 * limited). Returns 0, -EPERM, -ENOENT (no program ip or tc), -EINVAL or another. The calling thread's own
 * network does not change. */
int ash_netns_open(size_t nodes, const char *rate, struct ash_netns **netns_out, struct ash_err *err);
/* NULL is a no-op. Processes inside keep their networks. */
void ash_netns_close(struct ash_netns *netns);
/* Move the calling thread (of a new process, before exec) to the network of a node. Returns 0 or a negative errno. */
int ash_netns_enter(const struct ash_netns *netns, size_t node);
/* Pull a node's cable out of the switch: packets are dropped without any error. */
int ash_netns_cut(const struct ash_netns *netns, size_t node, struct ash_err *err);
/* The address of a node there. Returns buf. */
const char *ash_netns_address(size_t node, char *buf, size_t buf_bytes);

#endif
