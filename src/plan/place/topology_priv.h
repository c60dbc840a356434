/* What the files of topology share. */
#ifndef ASH_PLAN_TOPOLOGY_PRIV_H
#define ASH_PLAN_TOPOLOGY_PRIV_H

#include "plan/place/topology.h"

/* The node of that name and kind, made if there is none yet (then it hangs nowhere: parent is -1). Returns its index,
 * -EINVAL or -ENOMEM. */
int ash_topology_add(struct ash_topology *topology, const char *name, bool is_host, struct ash_err *err);
/* Hang child below parent; -EINVAL where it hangs elsewhere. */
int ash_topology_hang(struct ash_topology *topology, int child, int parent, struct ash_err *err);

/* Slurm's topology.conf. text is NUL-terminated and may be written to. Returns 0, -EINVAL or -ENOMEM. */
int ash_topology_read_slurm(struct ash_topology *topology, char *text, struct ash_err *err);
/* The JSON of `aws ec2 describe-instance-topology`, or its list of instances alone. The same. */
int ash_topology_read_ec2(struct ash_topology *topology, const char *text, struct ash_err *err);
/* Lines of `host spine1/leaf3`. The same. */
int ash_topology_read_plain(struct ash_topology *topology, char *text, struct ash_err *err);

#endif
