/* comm - what moving bytes costs: latency + size / bandwidth per collective and level of the topology. */
#ifndef ASH_PLAN_COMM_H
#define ASH_PLAN_COMM_H

#include "plan/consts.h"
#include "infra/catalog.h"

/* Where the ranks of one group sit: ranks of them, `local` in one NVLink domain, over `domains` domains. */
struct ash_group_place {
    double ranks, local, domains;
    double net_share; /* of the rate between domains that is left; 0: all */
};

/* A group of ranks whose members are stride apart in the order of ranks (tp 1, cp tp, dp tp * cp, ...). */
struct ash_group_place ash_group_place_of(const struct ash_cluster *cluster, double ranks, double stride);

/* Seconds inside the domain and across; both are under way at the same time where an algorithm pipelines them. */
struct ash_comm {
    double nvlink_s, network_s; /* each with its latency */
    double total_s;             /* the longer of the two, plus the other's latency */
    double network_bytes;       /* that one rank sends to other domains */
};

/* Gather or reduce-scatter: bytes is the whole buffer (what a rank ends or starts with). */
struct ash_comm ash_comm_gather(const struct ash_consts *consts, const struct ash_cluster *cluster,
                                struct ash_group_place place, double bytes);
/* All-reduce of bytes per rank. */
struct ash_comm ash_comm_reduce(const struct ash_consts *consts, const struct ash_cluster *cluster,
                                struct ash_group_place place, double bytes);
/* One message to the next stage, which is stride ranks away; net_share as in ash_group_place. */
struct ash_comm ash_comm_send(const struct ash_consts *consts, const struct ash_cluster *cluster, double stride,
                              double net_share, double bytes);

#endif
