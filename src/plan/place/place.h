/* place - where a training job's hosts sit in the tree of switches, and what that costs: the bytes of each axis from
 * the model of the step, the links they cross, and the step's time with what those links leave of the network. */
#ifndef ASH_PLAN_PLACE_H
#define ASH_PLAN_PLACE_H

#include "infra/topology/topology.h"
#include "plan/train/step.h"

enum ash_placement_axis {
    ASH_PLACEMENT_TP,
    ASH_PLACEMENT_CP,
    ASH_PLACEMENT_DP,
    ASH_PLACEMENT_EP,
    ASH_PLACEMENT_PP,
    ASH_PLACEMENT_AXES
};

/* job.cluster has as many machines as hosts are asked about, and layout has passed ash_layout_check. */
struct ash_placement_job {
    const struct ash_consts *consts;
    struct ash_plan_job job;
    struct ash_layout layout;
    double uplink_share; /* what one host gets across a layer, divided by its rate across the one below; (0, 1] */
};

/* The traffic of one axis between hosts, in one step. */
struct ash_placement_traffic {
    double bytes;     /* of the host that sends most */
    double hops;      /* switches between two hosts that talk, the mean over bytes; 0: none do */
    int hops_max;     /* of the farthest two */
    double net_share; /* of the network's rate that the links leave; 1: all */
};

struct ash_placement {
    struct ash_placement_traffic axis[ASH_PLACEMENT_AXES];
    double layer_bytes[ASH_TOPOLOGY_HEIGHT_MAX + 1]; /* of all hosts, that turn around in domains of this height */
    int worst_link;                                  /* the domain whose uplink is busiest; -1: none is crossed */
    double worst_bytes, worst_s; /* that cross it in the busier direction, and the seconds this takes */
    struct ash_plan_step step;   /* so placed */
    double flat_s;               /* the step on a network that is the same everywhere */
};

/* "dp", "pp", ... */
const char *ash_placement_axis_name(enum ash_placement_axis axis);

/* Machines whose NVLink domain spans several hosts cannot be asked about host by host: -EINVAL says what can. */
int ash_placement_check(const struct ash_placement_job *job, struct ash_err *err);

/* hosts are nodes of topology in the order of ranks, as many as job has machines. Returns 0 or -ENOMEM. */
int ash_placement_measure(const struct ash_placement_job *job, const struct ash_topology *topology, const int *hosts,
                          struct ash_placement *place_out);
/* Which of hosts (by position) send or receive across the uplink of a domain. Sets crossing_out[machines]. */
void ash_placement_crossing(const struct ash_placement_job *job, const struct ash_topology *topology, const int *hosts,
                            int link, bool *crossing_out);
/* The same hosts in a better order of ranks: sorted by their way up the tree, so that neighbours in rank are neighbours
 * in the tree, or so that the stages of one pipeline are; the given order where neither is faster. order_out has room
 * for all of them. Returns 0 or -ENOMEM. */
int ash_placement_reorder(const struct ash_placement_job *job, const struct ash_topology *topology, const int *hosts,
                          int *order_out, struct ash_placement *place_out);

#endif
