/* The path between machines: libfabric's reliable datagrams. Memory is registered once on every rail; messages carry
 * notifications only and travel on the first. */
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "fabric/ofi/ofi_priv.h"

#define STRIPE_BYTES ((size_t)256 * 1024)
#define SILENCE_MS 5000
#define FLUSH_NS 1000000000ull
#define BATCH 16

static struct ash_ofi *ofi_of(struct ash_transport *transport)
{
    return (struct ash_ofi *)(void *)transport;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

static void ofi_close(struct ash_transport *transport)
{
    struct ash_ofi *ofi = ofi_of(transport);

    for (size_t r = 0; r < ofi->rail_count; r++)
        ash_rail_close(&ofi->rails[r]);
    ash_heartbeat_close(ofi);
    if (ofi->kick_fd >= 0) close(ofi->kick_fd);
    ash_pool_close(ofi->ops);
    ash_pool_close(ofi->parts);
    ash_pool_close(ofi->notifications);
    free(ofi->eager_buffers);
    free(ofi->links);
    free(ofi->busy);
    free(ofi->early);
    free(ofi);
}

static int open_rails(struct ash_ofi *ofi, const struct ash_fabric_opts *opts, struct ash_err *err)
{
    struct fi_info *infos[ASH_FABRIC_RAILS_MAX];
    size_t count = 0;
    int rc = ash_ofi_find(opts, infos, &count, err);

    if (rc < 0) return rc;
    ash_ofi_host_ip(infos[0], ofi->ip);
    for (size_t r = 0; r < count; r++) {
        if (rc < 0) {
            ash_libfabric.freeinfo(infos[r]);
            continue;
        }
        rc = ash_rail_open(&ofi->rails[ofi->rail_count++], infos[r], err);
    }
    return rc;
}

static int open_eager_buffers(struct ash_ofi *ofi, struct ash_err *err)
{
    size_t count = ASH_OFI_EAGER_SENDS + ASH_OFI_EAGER_RECVS;
    int rc;

    ofi->eager_buffers = calloc(count, sizeof(*ofi->eager_buffers));
    if (ofi->eager_buffers == NULL) return ash_err_set(err, -ENOMEM, "out of memory for messages");
    rc = ash_rail_register(&ofi->rails[0], ofi->eager_buffers, count * sizeof(*ofi->eager_buffers), 0,
                           &ofi->rails[0].eager_mr);
    if (rc < 0) return ash_err_set(err, -EIO, "memory cannot be registered: %s", ash_libfabric.strerror(-rc));
    for (size_t i = 0; i < ASH_OFI_EAGER_SENDS; i++) {
        ofi->eager_buffers[i].next = ofi->free_eager;
        ofi->free_eager = &ofi->eager_buffers[i];
    }
    for (size_t i = 0; i < ASH_OFI_EAGER_RECVS; i++)
        ash_inbox_give(ofi, &ofi->eager_buffers[ASH_OFI_EAGER_SENDS + i]);
    return 0;
}

static int ofi_open(struct ash_fabric *fabric, const struct ash_fabric_opts *opts, struct ash_transport **transport_out,
                    struct ash_err *err)
{
    struct ash_ofi *ofi = calloc(1, sizeof(*ofi));
    int rc;

    if (ofi == NULL) return ash_err_set(err, -ENOMEM, "out of memory for a network");
    ofi->fabric = fabric;
    ofi->stripe_bytes = opts->stripe_bytes > 0 ? (size_t)opts->stripe_bytes : STRIPE_BYTES;
    ofi->silence_ns = (uint64_t)(opts->silence_ms > 0 ? opts->silence_ms : SILENCE_MS) * 1000000u;
    ofi->listen_fd = ofi->heartbeat_epoll = -1;
    ofi->kick_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    rc = ofi->kick_fd < 0 ? ash_err_set(err, -errno, "an event descriptor cannot be had: %s", strerror(errno)) : 0;
    if (rc < 0) goto fail;
    rc = ash_pool_open("transfers", sizeof(struct ash_ofi_op), ASH_OFI_OPS, &ofi->ops, err);
    if (rc < 0) goto fail;
    rc = ash_pool_open("parts of transfers", sizeof(struct ash_ofi_part), ASH_OFI_PARTS, &ofi->parts, err);
    if (rc < 0) goto fail;
    rc = ash_pool_open("notifications", sizeof(struct ash_ofi_notification), ASH_OFI_NOTIFICATIONS, &ofi->notifications,
                       err);
    if (rc < 0) goto fail;
    rc = ash_ofi_load(opts->provider, err);
    if (rc < 0) goto fail;
    rc = open_rails(ofi, opts, err);
    if (rc < 0) goto fail;
    rc = open_eager_buffers(ofi, err);
    if (rc < 0) goto fail;
    rc = ash_heartbeat_open(ofi, err);
    if (rc < 0) goto fail;
    ash_fabric_watch(fabric, ofi->kick_fd);
    for (size_t r = 0; r < ofi->rail_count; r++)
        if (ofi->rails[r].wait_fd >= 0) ash_fabric_watch(fabric, ofi->rails[r].wait_fd);
    *transport_out = (struct ash_transport *)(void *)ofi;
    return 0;

fail:
    ofi_close((struct ash_transport *)(void *)ofi);
    return rc;
}

static void ofi_describe(const struct ash_transport *transport, struct ash_wire_addr *addr)
{
    const struct ash_ofi *ofi = (const struct ash_ofi *)(const void *)transport;

    snprintf(addr->provider, sizeof(addr->provider), "%s", ofi->rails[0].info->fabric_attr->prov_name);
    addr->heartbeat_port = ofi->port;
    memcpy(addr->heartbeat_ip, ofi->ip, sizeof(addr->heartbeat_ip));
    for (size_t r = 0; r < ofi->rail_count; r++)
        if (ash_wire_add_rail(addr, ofi->rails[r].addr, ofi->rails[r].addr_bytes) < 0) break; /* others do without */
    addr->has_ofi = addr->rail_count > 0;
}

/* ---- peers ------------------------------------------------------------------------------------------------------- */

static int make_room(struct ash_ofi *ofi)
{
    size_t room = ofi->link_room, wanted = ofi->link_count + 1; /* of both lists */

    if (ash_array_reserve(&ofi->busy, &room, wanted, sizeof(struct ash_ofi_link *)) < 0) return -ENOMEM;
    return ash_array_reserve(&ofi->links, &ofi->link_room, wanted, sizeof(struct ash_ofi_link *));
}

static bool is_loopback(const uint8_t ip[16])
{
    struct in6_addr addr;

    memcpy(&addr, ip, sizeof(addr));
    return IN6_IS_ADDR_V4MAPPED(&addr) ? ip[12] == 127 : IN6_IS_ADDR_LOOPBACK(&addr);
}

static int ofi_link_open(struct ash_transport *transport, struct ash_peer *peer, const struct ash_wire_addr *addr,
                         struct ash_err *err)
{
    struct ash_ofi *ofi = ofi_of(transport);
    struct ash_ofi_link *link;
    size_t size;

    if (strcmp(addr->provider, ofi->rails[0].info->fabric_attr->prov_name) != 0)
        return ash_err_set(err, -ENETUNREACH, "it uses libfabric provider %s and this process %s: set fabric.provider",
                           addr->provider, ofi->rails[0].info->fabric_attr->prov_name);
    if (is_loopback(addr->heartbeat_ip) != is_loopback(ofi->ip))
        return ash_err_set(err, -ENETUNREACH, "%s only loopback to be reached at: see fabric.interface",
                           is_loopback(ofi->ip) ? "this process has" : "it has");
    link = make_room(ofi) == 0 ? calloc(1, sizeof(*link)) : NULL;
    if (link == NULL) return ash_err_set(err, -ENOMEM, "out of memory for a peer");
    link->ofi = ofi;
    link->peer = peer;
    link->heartbeat_fd = -1;
    for (size_t r = 0; r < ofi->rail_count && r < addr->rail_count; r++) {
        const void *bytes = ash_wire_rail(addr, r, &size);

        if (size != ofi->rails[r].addr_bytes || fi_av_insert(ofi->rails[r].av, bytes, 1, &link->to[r], 0, NULL) != 1) {
            free(link);
            return ash_err_set(err, -EPROTO, "libfabric does not take the address of its rail %zu", r);
        }
        link->rail_count++;
    }
    ofi->links[ofi->link_count++] = link;
    ofi->early_changed = ofi->early_count > 0;
    peer->link = link;
    ash_heartbeat_watch(link, addr);
    return 0;
}

static void ofi_link_close(struct ash_transport *transport, struct ash_peer *peer)
{
    struct ash_ofi *ofi = ofi_of(transport);
    struct ash_ofi_link *link = peer->link;
    size_t at = 0, out = link->out, kept = 0;

    ash_flow_fail(link);
    ash_heartbeat_unwatch(link);
    for (size_t r = 0; out > 0 && r < link->rail_count; r++)
        fi_av_remove(ofi->rails[r].av, &link->to[r], 1, 0); /* stops transfers in flight */
    while (ofi->links[at] != link)
        at++;
    ofi->links[at] = ofi->links[--ofi->link_count];
    for (size_t i = 0; i < ofi->busy_count; i++)
        if (ofi->busy[i] != link) ofi->busy[kept++] = ofi->busy[i];
    ofi->busy_count = kept;
    peer->link = NULL;
    free(link);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static int ofi_region_open(struct ash_transport *transport, struct ash_region *region, struct ash_err *err)
{
    struct ash_ofi *ofi = ofi_of(transport);
    struct fid_mr **mrs = calloc(ASH_FABRIC_RAILS_MAX, sizeof(struct fid_mr *));

    if (mrs == NULL) return ash_err_set(err, -ENOMEM, "out of memory for a region");
    region->states[ASH_OFI_STATE] = mrs;
    for (size_t r = 0; r < ofi->rail_count; r++) {
        int rc = ash_rail_register(&ofi->rails[r], region->data, region->size_bytes, region->key.region, &mrs[r]);

        if (rc < 0)
            return ash_err_set(err, rc == -FI_ENOMEM ? -ENOMEM : -EIO, "%zu bytes cannot be registered with %s: %s",
                               region->size_bytes, ofi->rails[r].info->fabric_attr->prov_name,
                               ash_libfabric.strerror(-rc));
        region->key.rails[r] = fi_mr_key(mrs[r]);
        region->key.rail_count++;
    }
    return 0;
}

static void ofi_region_close(struct ash_transport *transport, struct ash_region *region)
{
    struct fid_mr **mrs = region->states[ASH_OFI_STATE];

    if (mrs == NULL) return;
    ash_flow_forget(ofi_of(transport), region);
    for (size_t r = 0; r < ASH_FABRIC_RAILS_MAX; r++)
        if (mrs[r] != NULL) fi_close(&mrs[r]->fid);
    free(mrs);
    region->states[ASH_OFI_STATE] = NULL;
}

static int ofi_remote_open(struct ash_transport *transport, struct ash_peer *peer, struct ash_remote *remote,
                           struct ash_err *err)
{
    const struct ash_ofi_link *link = peer->link;

    (void)transport;
    if (remote->key.rail_count < link->rail_count)
        return ash_err_set(err, -EPROTO, "the key has %u rails and the peer %zu", remote->key.rail_count,
                           link->rail_count);
    return 0;
}

/* It has no state. */
static void ofi_remote_close(struct ash_remote *remote)
{
    (void)remote;
}

/* ---- transfers --------------------------------------------------------------------------------------------------- */

static int ofi_post(struct ash_transport *transport, struct ash_peer *peer, const struct ash_transfer *transfer,
                    bool write)
{
    (void)transport;
    return ash_flow_post(peer->link, transfer, write);
}

static int ofi_notify(struct ash_transport *transport, struct ash_peer *peer, uint64_t word)
{
    (void)transport;
    return ash_flow_notify(peer->link, word);
}

/* ---- progress ---------------------------------------------------------------------------------------------------- */

static size_t ofi_poll(struct ash_transport *transport, struct ash_fabric_event *events, size_t max)
{
    struct ash_ofi *ofi = ofi_of(transport);
    size_t count;
    uint64_t word;

    if (ofi->kicked) ofi->kicked = read(ofi->kick_fd, &word, sizeof(word)) < 0;
    count = ash_inbox_poll(ofi, events, max);
    if (ofi->busy_count > 0) ash_flow_progress(ofi);
    return count;
}

static void ofi_tick(struct ash_transport *transport, uint64_t now_ns)
{
    struct ash_ofi *ofi = ofi_of(transport);

    ofi->now_ns = now_ns;
    ash_heartbeat_tick(ofi);
}

static int ofi_arm(struct ash_transport *transport)
{
    struct ash_ofi *ofi = ofi_of(transport);
    uint64_t one = 1;
    bool kick = ofi->busy_count > 0;

    for (size_t r = 0; r < ofi->rail_count; r++) {
        struct fid *fid = &ofi->rails[r].cq->fid;

        if (ofi->rails[r].wait_fd < 0) return -ENOTSUP;
        if (fi_trywait(ofi->rails[r].fabric, &fid, 1) != 0) kick = true;
    }
    if (kick) ofi->kicked = write(ofi->kick_fd, &one, sizeof(one)) > 0;
    return 0;
}

static bool all_sent(const struct ash_ofi *ofi)
{
    for (size_t i = 0; i < ofi->link_count; i++)
        if (ofi->links[i]->out > 0 || ofi->links[i]->queue != NULL || ofi->links[i]->notifications != NULL)
            return false;
    return true;
}

static void ofi_flush(struct ash_transport *transport)
{
    struct ash_ofi *ofi = ofi_of(transport);
    uint64_t limit = ash_clock_ns() + FLUSH_NS;
    struct ash_fabric_event events[BATCH];

    while (!all_sent(ofi) && ash_clock_ns() < limit)
        ofi_poll(transport, events, BATCH); /* what others say now comes too late */
}

const struct ash_transport_ops ash_ofi_ops = {
    .size = sizeof(ash_ofi_ops),
    .path = ASH_FABRIC_OFI,
    .name = "ofi",
    .open = ofi_open,
    .flush = ofi_flush,
    .close = ofi_close,
    .describe = ofi_describe,
    .link_open = ofi_link_open,
    .link_close = ofi_link_close,
    .region_open = ofi_region_open,
    .region_close = ofi_region_close,
    .remote_open = ofi_remote_open,
    .remote_close = ofi_remote_close,
    .post = ofi_post,
    .notify = ofi_notify,
    .poll = ofi_poll,
    .tick = ofi_tick,
    .arm = ofi_arm,
};
