/* What the files of topology share. */
#ifndef ASH_PLAN_TOPOLOGY_PRIV_H
#define ASH_PLAN_TOPOLOGY_PRIV_H

#include "plan/place/topology.h"

/* The node of that name and kind, made if there is none yet (then it hangs nowhere: parent is -1). Returns its index,
 * -EINVAL or -ENOMEM. */
int ash_topology_add(struct ash_topology *topology, const char *name, bool is_host, struct ash_err *err);
/* Hang child below parent; -EINVAL where it hangs elsewhere. */
int ash_topology_hang(struct ash_topology *topology, int child, int parent, struct ash_err *err);

/* The readers: text is NUL-terminated and may be written to. */
int ash_topology_read_slurm(struct ash_topology *topology, char *text, struct ash_err *err);
int ash_topology_read_ec2(struct ash_topology *topology, const char *text, const char *name, struct ash_err *err);
int ash_topology_read_plain(struct ash_topology *topology, char *text, struct ash_err *err);

#endif
