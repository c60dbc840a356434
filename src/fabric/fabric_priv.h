/* fabric_priv - the endpoint as fabric.c and peers.c see it. */
#ifndef ASH_FABRIC_FABRIC_PRIV_H
#define ASH_FABRIC_FABRIC_PRIV_H

#include "fabric/transport.h"

#define ASH_FABRIC_PEERS_MAX (1u << 20)

/* A path as the endpoint holds it. */
struct ash_fabric_route {
    const struct ash_transport_ops *ops;
    struct ash_transport *transport; /* NULL: not open */
    struct ash_err why;              /* ... because */
    struct ash_fabric_stats told;    /* what the metrics have of the totals */
    struct ash_fabric_stats totals;  /* of all peers, also of those that were dropped */
};

struct ash_fabric {
    uint64_t id, machine;
    char node[ASH_WIRE_NODE_BYTES];
    enum ash_fabric_path path; /* as asked for */
    struct ash_fabric_route routes[ASH_FABRIC_PATHS];
    struct ash_peer **peers; /* by number; NULL where there is none */
    size_t peer_room;
    struct ash_region *regions;
    uint64_t region_number;                                 /* of the newest */
    struct ash_fabric_event done[ASH_FABRIC_UNDER_WAY_MAX]; /* a ring */
    size_t done_first, done_count, under_way;               /* under_way: posted, and DONE not taken */
    size_t lost_count;                                      /* lost and not reported */
    uint64_t tick_ns;
    int epoll_fd;
};

static inline struct ash_peer *ash_fabric_peer(const struct ash_fabric *fabric, uint32_t number)
{
    return number < fabric->peer_room ? fabric->peers[number] : NULL;
}

/* Forget all peers and free the table. */
void ash_fabric_drop_all(struct ash_fabric *fabric);
/* Add the events since the last call to the metrics. */
void ash_fabric_tell_metrics(struct ash_fabric *fabric);

#endif
