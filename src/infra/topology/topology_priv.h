/* What the files of topology share. */
#ifndef ASH_INFRA_TOPOLOGY_PRIV_H
#define ASH_INFRA_TOPOLOGY_PRIV_H

#include "infra/topology/topology.h"

/* A topology of one node, the whole cluster. NULL without memory; ash_topology_close frees it. */
struct ash_topology *ash_topology_make_empty(void);
/* Once all is read: nodes that hang nowhere hang below the first; heights and counts of hosts. -EINVAL for a loop, or
 * without hosts. */
int ash_topology_settle(struct ash_topology *topology, struct ash_err *err);

/* The node of that name and kind, made if there is none yet (then it hangs nowhere: parent is -1). Returns its index,
 * -EINVAL or -ENOMEM. */
int ash_topology_add(struct ash_topology *topology, const char *name, bool is_host, struct ash_err *err);
/* Hang child below parent; -EINVAL where it hangs elsewhere. */
int ash_topology_hang(struct ash_topology *topology, int child, int parent, struct ash_err *err);

/* Hang host below a path of domains, each known by its whole path: leaf1 of one spine is not leaf1 of another. path is
 * written to and restored. */
int ash_topology_hang_path(struct ash_topology *topology, const char *host, char *path, struct ash_err *err);
/* Hang every name of a host list ("n[0-7]") below parent. */
int ash_topology_hang_list(struct ash_topology *topology, const char *list, bool is_host, int parent,
                           struct ash_err *err);

/* Slurm's blocks in the order of the file, and how many nodes a block, a block of blocks, ... has. Zero-initialise;
 * free nodes at the end. */
struct ash_topology_blocks {
    int *nodes, count; /* domains */
    int sizes[ASH_TOPOLOGY_HEIGHT_MAX], size_count;
};

/* Append a domain. Returns 0 or -ENOMEM. */
int ash_topology_add_block(struct ash_topology_blocks *blocks, int node, struct ash_err *err);
/* Once all blocks are known: neighbours become the larger blocks that sizes name. -EINVAL where a size is no multiple
 * of the one before it. */
int ash_topology_join_blocks(struct ash_topology *topology, struct ash_topology_blocks *blocks, struct ash_err *err);

/* Slurm's topology.conf. text is NUL-terminated and may be written to. Returns 0, -EINVAL or -ENOMEM. */
int ash_topology_read_slurm(struct ash_topology *topology, char *text, struct ash_err *err);
/* Slurm's topology.yaml: the topology with cluster_default, or the first. The same. */
int ash_topology_read_yaml(struct ash_topology *topology, const char *text, struct ash_err *err);
/* JSON of `aws ec2 describe-instance-topology`, of `kubectl get nodes -o json`, or HyperPod's resource_config.json. The
 * same. */
int ash_topology_read_json(struct ash_topology *topology, const char *text, struct ash_err *err);
/* Lines of `host spine1/leaf3`. The same. */
int ash_topology_read_plain(struct ash_topology *topology, char *text, struct ash_err *err);

#define ASH_TOPOLOGY_FORMATS                                                                                           \
    "a topology is what `aws ec2 describe-instance-topology` or `kubectl get nodes -o json` prints, Slurm's "          \
    "topology.conf or topology.yaml, HyperPod's resource_config.json, or lines of `host spine1/leaf3`"

#endif
