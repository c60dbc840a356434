/* topology - the tree of switches above the hosts of a cluster, as a scheduler or a cloud describes it. Read-only after
 * open: any thread may read. */
#ifndef ASH_INFRA_TOPOLOGY_H
#define ASH_INFRA_TOPOLOGY_H

#include <stdbool.h>
#include <stddef.h>
#include "ashlar/err.h"

#define ASH_TOPOLOGY_NODES_MAX 262144 /* hosts and domains */
#define ASH_TOPOLOGY_HEIGHT_MAX 16    /* layers of switches */
#define ASH_TOPOLOGY_NAME_MAX 512     /* bytes of a name, or of a path of domains */

/* A host, or a domain: a switch, block or network node with all that hangs below it. */
struct ash_topology_node {
    char *name; /* of a host; of a switch; or the path of a domain ("spine1/leaf3") */
    int parent; /* index; -1 for the root */
    int height; /* 0: a host; else one more than the highest node below; 1 where nothing is */
    int hosts;  /* below it; 1 for a host */
    bool is_host;
};

/* Node 0 is the root that holds everything, whether or not the file names one. */
struct ash_topology {
    struct ash_topology_node *nodes;
    int count;
    int *slots; /* indices of nodes by name: open addressing, 0 is empty (the root has no slot) */
    size_t slot_count;
};

/* Read a tree from one of
 * - Slurm's topology.conf: SwitchName=s1 Nodes=n[0-7] and SwitchName=top Switches=s[1-2], or BlockName=b1 Nodes=... and
 *   BlockSizes=4,16, which makes larger blocks of neighbours;
 * - Slurm's topology.yaml (its tree or block topology);
 * - the JSON of EC2's DescribeInstanceTopology: InstanceId and NetworkNodes, from the top down, of every instance;
 * - the JSON of `kubectl get nodes`: labels of zones, network nodes, blocks, racks, UltraServers and NVLink cliques;
 * - HyperPod's resource_config.json: instance groups, and the network nodes of instances where they are given;
 * - plain lines, one per host: "host1 spine1/leaf3".
 * name is for messages. Hosts that hang on two domains, loops, and more than the limits above are -EINVAL. On 0 the
 * caller owns *topology_out. */
int ash_topology_parse(const char *text, size_t size_bytes, const char *name, struct ash_topology **topology_out,
                       struct ash_err *err);
/* The same from a file. Returns 0 or a negative errno with the file and reason in err. */
int ash_topology_open(const char *path, struct ash_topology **topology_out, struct ash_err *err);
/* NULL and half-built trees are fine. */
void ash_topology_close(struct ash_topology *topology);

/* The host of that name, or -1. */
int ash_topology_host(const struct ash_topology *topology, const char *name);
/* The lowest domain that holds both nodes. */
int ash_topology_meet(const struct ash_topology *topology, int a, int b);
/* Is node below domain, or domain itself? */
bool ash_topology_holds(const struct ash_topology *topology, int domain, int node);
/* Switches that a message from host a to host b passes; 0 where they are the same. */
int ash_topology_hops(const struct ash_topology *topology, int a, int b);

/* Hosts as people write them ("n[0-3,7],gpu01 gpu02", '#' begins a comment), in that order, each known to the topology
 * and named once. On 0 the caller frees *hosts_out (indices of nodes). */
int ash_topology_hosts(const struct ash_topology *topology, const char *text, int **hosts_out, int *count_out,
                       struct ash_err *err);

#endif
