/* Peers of an endpoint: which path leads to each, what they were sent, and who is gone. */
#include "fabric/fabric_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "record/metrics.h"

/* ---- the table --------------------------------------------------------------------------------------------------- */

static int make_room(struct ash_fabric *fabric, uint32_t number)
{
    size_t known = fabric->peer_room;
    int rc = ash_array_reserve(&fabric->peers, &fabric->peer_room, (size_t)number + 1, sizeof(struct ash_peer *));

    if (rc == 0 && fabric->peer_room > known)
        memset(fabric->peers + known, 0, (fabric->peer_room - known) * sizeof(struct ash_peer *));
    return rc;
}

struct ash_peer *ash_fabric_peer_of(const struct ash_fabric *fabric, uint64_t id)
{
    for (size_t i = 0; i < fabric->peer_room; i++)
        if (fabric->peers[i] != NULL && fabric->peers[i]->id == id) return fabric->peers[i];
    return NULL;
}

/* The path to an address: shared memory where both are on one node, as far as the settings let. */
static struct ash_fabric_route *choose_route(struct ash_fabric *fabric, const struct ash_wire_addr *addr,
                                             struct ash_err *err)
{
    struct ash_fabric_route *shm = &fabric->routes[0], *ofi = &fabric->routes[1];
    bool visible = addr->has_shm && addr->machine == fabric->machine;

    if (fabric->path != ASH_FABRIC_OFI && visible &&
        (fabric->path == ASH_FABRIC_SHM || strcmp(addr->node, fabric->node) == 0))
        return shm;
    if (fabric->path == ASH_FABRIC_SHM) {
        ash_err_set(err, -ENETUNREACH,
                    "node %s cannot be reached through shared memory from node %s: set fabric.path to "
                    "auto or ofi",
                    addr->node, fabric->node);
        return NULL;
    }
    if (ofi->transport != NULL && addr->has_ofi) return ofi;
    ash_err_set(err, -ENETUNREACH, "no network leads from node %s to node %s: %s", fabric->node, addr->node,
                ofi->transport != NULL ? "the peer has none" : ofi->why.text);
    return NULL;
}

int ash_fabric_add_peer(struct ash_fabric *fabric, uint32_t number, const struct ash_fabric_addr *addr,
                        struct ash_err *err)
{
    struct ash_wire_addr wire;
    struct ash_fabric_route *route;
    struct ash_peer *peer;
    int rc;

    if (number >= ASH_FABRIC_PEERS_MAX)
        return ash_err_set(err, -EINVAL, "peer %u: numbers go up to %u", number, ASH_FABRIC_PEERS_MAX - 1);
    rc = ash_wire_get_addr(addr, &wire, err);
    if (rc < 0) return ash_err_prefix(err, rc, "peer %u", number);
    route = choose_route(fabric, &wire, err);
    if (route == NULL) return ash_err_prefix(err, -ENETUNREACH, "peer %u", number);
    ash_fabric_drop_peer(fabric, number);
    peer = calloc(1, sizeof(*peer));
    if (peer == NULL || make_room(fabric, number) < 0) {
        free(peer);
        return ash_err_set(err, -ENOMEM, "out of memory for peer %u", number);
    }
    *peer = (struct ash_peer){.fabric = fabric,
                              .number = number,
                              .id = wire.id,
                              .ops = route->ops,
                              .transport = route->transport,
                              .stats = {.path = route->ops->path}};
    fabric->peers[number] = peer; /* before the link: the path may find it by id */
    rc = peer->ops->link_open(peer->transport, peer, &wire, err);
    if (rc == 0) return 0;
    fabric->peers[number] = NULL;
    free(peer);
    return ash_err_prefix(err, rc, "peer %u on node %s", number, wire.node);
}

static void add_stats(struct ash_fabric_stats *sum, const struct ash_fabric_stats *stats)
{
    sum->messages += stats->messages;
    sum->bytes += stats->bytes;
    sum->retries += stats->retries;
    sum->stalls += stats->stalls;
}

void ash_fabric_drop_peer(struct ash_fabric *fabric, uint32_t number)
{
    struct ash_peer *peer = ash_fabric_peer(fabric, number);

    if (peer == NULL) return;
    if (peer->link != NULL) peer->ops->link_close(peer->transport, peer);
    if (peer->status < 0 && !peer->told) fabric->lost_count--;
    add_stats(&fabric->routes[peer->ops->path - ASH_FABRIC_SHM].totals, &peer->stats);
    fabric->peers[number] = NULL;
    free(peer);
}

void ash_fabric_drop_all(struct ash_fabric *fabric)
{
    for (size_t i = 0; i < fabric->peer_room; i++)
        ash_fabric_drop_peer(fabric, (uint32_t)i);
    free(fabric->peers);
    fabric->peers = NULL;
    fabric->peer_room = 0;
}

enum ash_fabric_path ash_fabric_peer_path(const struct ash_fabric *fabric, uint32_t number)
{
    const struct ash_peer *peer = ash_fabric_peer(fabric, number);

    return peer != NULL ? peer->ops->path : ASH_FABRIC_AUTO;
}

/* ---- counters ---------------------------------------------------------------------------------------------------- */

void ash_fabric_peer_stats(const struct ash_fabric *fabric, uint32_t number, struct ash_fabric_stats *stats_out)
{
    const struct ash_peer *peer = ash_fabric_peer(fabric, number);

    *stats_out = peer != NULL ? peer->stats : (struct ash_fabric_stats){0};
}

#define COUNTER(what, text, path)                                                                                      \
    {                                                                                                                  \
        .name = "ashlar_fabric_" what "_total", .labels = "path=\"" path "\"", .help = text,                           \
        .type = ASH_METRIC_COUNTER                                                                                     \
    }
#define COUNTERS(what, text)                                                                                           \
    {                                                                                                                  \
        COUNTER(what, text, "shm"), COUNTER(what, text, "ofi")                                                         \
    }

static struct ash_metric bytes_total[] = COUNTERS("bytes", "bytes posted to peers");
static struct ash_metric messages_total[] = COUNTERS("messages", "transfers and notifications posted to peers");
static struct ash_metric retries_total[] = COUNTERS("retries", "posts that had to be repeated");
static struct ash_metric stalls_total[] = COUNTERS("stalls", "posts refused for want of room");

void ash_fabric_tell_metrics(struct ash_fabric *fabric)
{
    for (size_t w = 0; w < ASH_FABRIC_PATHS; w++) {
        struct ash_fabric_route *route = &fabric->routes[w];
        struct ash_fabric_stats now = route->totals;

        if (route->transport == NULL) continue;
        for (size_t i = 0; i < fabric->peer_room; i++)
            if (fabric->peers[i] != NULL && fabric->peers[i]->ops == route->ops)
                add_stats(&now, &fabric->peers[i]->stats);
        ash_metric_add(&bytes_total[w], (double)(now.bytes - route->told.bytes));
        ash_metric_add(&messages_total[w], (double)(now.messages - route->told.messages));
        ash_metric_add(&retries_total[w], (double)(now.retries - route->told.retries));
        ash_metric_add(&stalls_total[w], (double)(now.stalls - route->told.stalls));
        route->told = now;
    }
}
