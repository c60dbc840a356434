/* The endpoint: opens the paths, checks requests, passes them to the peer's path, and collects events. */
#include "fabric/fabric_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/hash.h"
#include "fabric/segment.h"

#define TICK_NS 10000000ull /* between checks for peers that are gone */
#define METRICS_TICKS 20    /* between updates of the metrics */

/* ---- life -------------------------------------------------------------------------------------------------------- */

static int name_node(struct ash_fabric *fabric, const char *node, struct ash_err *err)
{
    if (node == NULL) {
        if (gethostname(fabric->node, sizeof(fabric->node)) < 0 || fabric->node[0] == '\0')
            snprintf(fabric->node, sizeof(fabric->node), "localhost");
        fabric->node[sizeof(fabric->node) - 1] = '\0';
        return 0;
    }
    if (node[0] == '\0' || strlen(node) >= sizeof(fabric->node))
        return ash_err_set(err, -EINVAL, "the name of a node has 1 to %zu bytes", sizeof(fabric->node) - 1);
    snprintf(fabric->node, sizeof(fabric->node), "%s", node);
    return 0;
}

/* Open the paths that the settings ask for. Under auto a missing network is remembered, not reported. */
static int open_routes(struct ash_fabric *fabric, const struct ash_fabric_opts *opts, struct ash_err *err)
{
    static const struct ash_transport_ops *const all[ASH_FABRIC_PATHS] = {&ash_shm_ops, &ash_ofi_ops};

    for (size_t w = 0; w < ASH_FABRIC_PATHS; w++) {
        struct ash_fabric_route *route = &fabric->routes[w];
        int rc;

        route->ops = all[w];
        if (fabric->path != ASH_FABRIC_AUTO && fabric->path != route->ops->path) continue;
        rc = route->ops->open(fabric, opts, &route->transport, &route->why);
        if (rc == 0 || (fabric->path == ASH_FABRIC_AUTO && route->ops->path == ASH_FABRIC_OFI)) continue;
        return ash_err_set(err, rc, "fabric.path %s: %s", route->ops->name, route->why.text);
    }
    return 0;
}

int ash_fabric_open(const struct ash_fabric_opts *opts, struct ash_fabric **fabric_out, struct ash_err *err)
{
    struct ash_fabric *fabric;
    int rc;

    if (opts->path < ASH_FABRIC_AUTO || opts->path > ASH_FABRIC_OFI)
        return ash_err_set(err, -EINVAL, "fabric.path: %d is no path", opts->path);
    fabric = calloc(1, sizeof(*fabric));
    if (fabric == NULL) return ash_err_set(err, -ENOMEM, "out of memory for an endpoint");
    fabric->path = (enum ash_fabric_path)opts->path;
    fabric->machine = ash_segment_machine();
    while (fabric->id == 0)
        if (getrandom(&fabric->id, sizeof(fabric->id), 0) < 0) fabric->id = ash_hash_mix((uint64_t)getpid());
    fabric->region_number = (fabric->id & 0xffffff) << 8; /* a key of another endpoint hardly names a region here */
    fabric->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    rc = fabric->epoll_fd < 0 ? ash_err_set(err, -errno, "an endpoint cannot be opened: %s", strerror(errno)) : 0;
    if (rc < 0) goto fail;
    rc = name_node(fabric, opts->node, err);
    if (rc < 0) goto fail;
    rc = open_routes(fabric, opts, err);
    if (rc < 0) goto fail;
    *fabric_out = fabric;
    return 0;

fail:
    ash_fabric_close(fabric);
    return rc;
}

void ash_fabric_close(struct ash_fabric *fabric)
{
    if (fabric == NULL) return;
    ash_assert(fabric->regions == NULL);
    ash_fabric_tell_metrics(fabric);
    for (size_t w = 0; w < ASH_FABRIC_PATHS; w++)
        if (fabric->routes[w].transport != NULL) fabric->routes[w].ops->flush(fabric->routes[w].transport);
    ash_fabric_drop_all(fabric);
    for (size_t w = 0; w < ASH_FABRIC_PATHS; w++)
        if (fabric->routes[w].transport != NULL) fabric->routes[w].ops->close(fabric->routes[w].transport);
    if (fabric->epoll_fd >= 0) close(fabric->epoll_fd);
    free(fabric);
}

void ash_fabric_get_addr(const struct ash_fabric *fabric, struct ash_fabric_addr *addr_out)
{
    struct ash_wire_addr wire;

    memset(&wire, 0, sizeof(wire));
    wire.id = fabric->id;
    wire.machine = fabric->machine;
    memcpy(wire.node, fabric->node, sizeof(wire.node));
    for (size_t w = 0; w < ASH_FABRIC_PATHS; w++)
        if (fabric->routes[w].transport != NULL) fabric->routes[w].ops->describe(fabric->routes[w].transport, &wire);
    ash_wire_put_addr(&wire, addr_out);
}

uint64_t ash_fabric_id(const struct ash_fabric *fabric)
{
    return fabric->id;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* Give a region with memory its number and its key. On error it is closed. */
static int add_region(struct ash_region *region, struct ash_region **region_out, struct ash_err *err)
{
    struct ash_fabric *fabric = region->fabric;
    int rc = 0;

    region->key.endpoint = fabric->id;
    region->key.region = ++fabric->region_number;
    region->key.size_bytes = region->size_bytes;
    region->key.base = (uintptr_t)region->data;
    region->next = fabric->regions;
    fabric->regions = region;
    for (size_t w = 0; w < ASH_FABRIC_PATHS && rc == 0; w++)
        if (fabric->routes[w].transport != NULL)
            rc = fabric->routes[w].ops->region_open(fabric->routes[w].transport, region, err);
    if (rc < 0) {
        ash_region_close(region);
        return rc;
    }
    *region_out = region;
    return 0;
}

static struct ash_region *new_region(struct ash_fabric *fabric, size_t size_bytes, struct ash_err *err)
{
    struct ash_region *region = size_bytes > 0 && size_bytes <= SIZE_MAX / 4 ? calloc(1, sizeof(*region)) : NULL;

    if (region == NULL) {
        ash_err_set(err, size_bytes == 0 ? -EINVAL : -ENOMEM, "a region of %zu bytes cannot be had", size_bytes);
        return NULL;
    }
    region->fabric = fabric;
    region->size_bytes = size_bytes;
    return region;
}

int ash_region_alloc(struct ash_fabric *fabric, size_t size_bytes, struct ash_region **region_out, struct ash_err *err)
{
    struct ash_region *region = new_region(fabric, size_bytes, err);
    struct ash_segment *memory = region != NULL ? calloc(1, sizeof(*memory)) : NULL;
    int rc;

    if (region == NULL) return size_bytes == 0 ? -EINVAL : -ENOMEM;
    rc = memory != NULL ? ash_segment_create(memory, size_bytes, "ashlar-region", err)
                        : ash_err_set(err, -ENOMEM, "out of memory for a region");
    if (rc < 0) {
        free(memory);
        free(region);
        return rc;
    }
    region->memory = memory;
    region->data = memory->data;
    return add_region(region, region_out, err);
}

int ash_region_register(struct ash_fabric *fabric, void *data, size_t size_bytes, struct ash_region **region_out,
                        struct ash_err *err)
{
    struct ash_region *region;

    ash_assert(data != NULL || size_bytes == 0);
    region = new_region(fabric, size_bytes, err);
    if (region == NULL) return size_bytes == 0 ? -EINVAL : -ENOMEM;
    region->data = data;
    return add_region(region, region_out, err);
}

void ash_region_close(struct ash_region *region)
{
    struct ash_region **at;

    if (region == NULL) return;
    for (size_t w = 0; w < ASH_FABRIC_PATHS; w++)
        if (region->fabric->routes[w].transport != NULL)
            region->fabric->routes[w].ops->region_close(region->fabric->routes[w].transport, region);
    for (at = &region->fabric->regions; *at != region; at = &(*at)->next)
        ash_assert(*at != NULL);
    *at = region->next;
    if (region->memory != NULL) ash_segment_fini(region->memory);
    free(region->memory);
    free(region);
}

void *ash_region_data(const struct ash_region *region)
{
    return region->data;
}

void ash_region_key(const struct ash_region *region, struct ash_fabric_key *key_out)
{
    struct ash_wire_key wire = region->key;

    ash_wire_put_key(&wire, key_out);
}

struct ash_region *ash_fabric_region(const struct ash_fabric *fabric, uint64_t number)
{
    struct ash_region *region = fabric->regions;

    while (region != NULL && region->key.region != number)
        region = region->next;
    return region;
}

int ash_remote_open(struct ash_fabric *fabric, uint32_t number, const struct ash_fabric_key *key,
                    struct ash_remote **remote_out, struct ash_err *err)
{
    struct ash_peer *peer = ash_fabric_peer(fabric, number);
    struct ash_wire_key wire;
    struct ash_remote *remote;
    int rc;

    if (peer == NULL) return ash_err_set(err, -ENOTCONN, "peer %u is not known", number);
    rc = ash_wire_get_key(key, &wire, err);
    if (rc < 0) return ash_err_prefix(err, rc, "peer %u", number);
    if (wire.endpoint != peer->id)
        return ash_err_set(err, -ESTALE, "peer %u: the key is not its own, or from before it restarted", number);
    remote = calloc(1, sizeof(*remote));
    if (remote == NULL) return ash_err_set(err, -ENOMEM, "out of memory for a region of peer %u", number);
    remote->fabric = fabric;
    remote->ops = peer->ops;
    remote->peer = number;
    remote->key = wire;
    rc = peer->ops->remote_open(peer->transport, peer, remote, err);
    if (rc < 0) {
        free(remote);
        return ash_err_prefix(err, rc, "peer %u", number);
    }
    *remote_out = remote;
    return 0;
}

void ash_remote_close(struct ash_remote *remote)
{
    if (remote == NULL) return;
    remote->ops->remote_close(remote);
    free(remote);
}

/* ---- transfers --------------------------------------------------------------------------------------------------- */

static bool inside(size_t offset, size_t size_bytes, uint64_t whole)
{
    return offset <= whole && size_bytes <= whole - offset;
}

static int post(struct ash_fabric *fabric, const struct ash_transfer *transfer, bool write)
{
    const struct ash_remote *remote = transfer->remote;
    struct ash_peer *peer = ash_fabric_peer(fabric, remote->peer);
    int rc;

    ash_assert(transfer->local->fabric == fabric && remote->fabric == fabric);
    if (peer == NULL) return -ENOTCONN;
    if (peer->status < 0 || peer->id != remote->key.endpoint) return -ECONNRESET;
    if (!inside(transfer->local_offset, transfer->size_bytes, transfer->local->size_bytes) ||
        !inside(transfer->remote_offset, transfer->size_bytes, remote->key.size_bytes))
        return -ERANGE;
    if (fabric->under_way == ASH_FABRIC_UNDER_WAY_MAX) {
        peer->stats.stalls++;
        return -EAGAIN;
    }
    fabric->under_way++;
    rc = 0;
    if (transfer->size_bytes == 0)
        ash_fabric_done(peer, transfer->cookie, 0);
    else
        rc = peer->ops->post(peer->transport, peer, transfer, write);
    if (rc == 0) {
        peer->stats.messages++;
        peer->stats.bytes += transfer->size_bytes;
        return 0;
    }
    fabric->under_way--;
    if (rc == -EAGAIN) peer->stats.stalls++;
    return rc;
}

int ash_fabric_write(struct ash_fabric *fabric, const struct ash_transfer *transfer)
{
    return post(fabric, transfer, true);
}

int ash_fabric_read(struct ash_fabric *fabric, const struct ash_transfer *transfer)
{
    return post(fabric, transfer, false);
}

int ash_fabric_notify(struct ash_fabric *fabric, uint32_t number, uint64_t word)
{
    struct ash_peer *peer = ash_fabric_peer(fabric, number);
    int rc;

    if (peer == NULL) return -ENOTCONN;
    if (peer->status < 0) return -ECONNRESET;
    rc = peer->ops->notify(peer->transport, peer, word);
    if (rc == 0) peer->stats.messages++;
    if (rc == -EAGAIN) peer->stats.stalls++;
    return rc;
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

void ash_fabric_done(struct ash_peer *peer, uint64_t cookie, int status)
{
    struct ash_fabric *fabric = peer->fabric;
    size_t at = (fabric->done_first + fabric->done_count) % ASH_FABRIC_UNDER_WAY_MAX;

    ash_assert(fabric->done_count < fabric->under_way); /* so there is room */
    fabric->done[at] =
        (struct ash_fabric_event){.kind = ASH_FABRIC_DONE, .peer = peer->number, .word = cookie, .status = status};
    fabric->done_count++;
}

void ash_fabric_lost(struct ash_peer *peer, int status)
{
    ash_assert(status < 0);
    if (peer->status < 0) return;
    peer->status = status;
    peer->fabric->lost_count++;
}

static size_t take_done(struct ash_fabric *fabric, struct ash_fabric_event *events, size_t max)
{
    size_t count = 0;

    for (; count < max && fabric->done_count > 0; count++) {
        events[count] = fabric->done[fabric->done_first];
        fabric->done_first = (fabric->done_first + 1) % ASH_FABRIC_UNDER_WAY_MAX;
        fabric->done_count--;
        fabric->under_way--;
    }
    return count;
}

static size_t take_lost(struct ash_fabric *fabric, struct ash_fabric_event *events, size_t max)
{
    size_t count = 0;

    for (size_t i = 0; i < fabric->peer_room && count < max && fabric->lost_count > 0; i++) {
        struct ash_peer *peer = fabric->peers[i];

        if (peer == NULL || peer->status == 0 || peer->told) continue;
        events[count++] =
            (struct ash_fabric_event){.kind = ASH_FABRIC_LOST, .peer = peer->number, .status = peer->status};
        peer->told = true;
        fabric->lost_count--;
    }
    return count;
}

static void tick(struct ash_fabric *fabric, uint64_t now_ns)
{
    bool updates = now_ns / (TICK_NS * METRICS_TICKS) != fabric->tick_ns / (TICK_NS * METRICS_TICKS);

    fabric->tick_ns = now_ns;
    for (size_t w = 0; w < ASH_FABRIC_PATHS; w++)
        if (fabric->routes[w].transport != NULL) fabric->routes[w].ops->tick(fabric->routes[w].transport, now_ns);
    if (updates) ash_fabric_tell_metrics(fabric);
}

size_t ash_fabric_poll(struct ash_fabric *fabric, struct ash_fabric_event *events, size_t max)
{
    size_t count = take_done(fabric, events, max);
    struct timespec now;
    uint64_t now_ns;

    ash_assert(events != NULL || max == 0);
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now); /* cheap, and fine enough for ticks */
    now_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    if (now_ns - fabric->tick_ns >= TICK_NS) tick(fabric, now_ns);
    for (size_t w = 0; w < ASH_FABRIC_PATHS; w++)
        if (fabric->routes[w].transport != NULL)
            count += fabric->routes[w].ops->poll(fabric->routes[w].transport, events + count, max - count);
    count += take_done(fabric, events + count, max - count);
    if (fabric->lost_count > 0 && fabric->done_count == 0) count += take_lost(fabric, events + count, max - count);
    return count;
}

/* ---- sleep ------------------------------------------------------------------------------------------------------- */

int ash_fabric_wait_fd(struct ash_fabric *fabric)
{
    for (size_t w = 0; w < ASH_FABRIC_PATHS; w++)
        if (fabric->routes[w].transport != NULL && fabric->routes[w].ops->arm(fabric->routes[w].transport) < 0)
            return -1;
    return fabric->epoll_fd;
}

int ash_fabric_watch(struct ash_fabric *fabric, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data = {.fd = fd}};

    return epoll_ctl(fabric->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

void ash_fabric_unwatch(struct ash_fabric *fabric, int fd)
{
    epoll_ctl(fabric->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
}
