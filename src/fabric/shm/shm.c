/* The path between processes of one machine. Regions that the fabric allocated are mapped, so a transfer is one copy by
 * the poster and done when the call returns; other memory is copied by the kernel, or in chunks where it refuses. */
#include "fabric/shm/shm_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/math.h"
#include "fabric/shm/copy.h"

static struct ash_shm *shm_of(struct ash_transport *transport)
{
    return (struct ash_shm *)(void *)transport;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

static void shm_close(struct ash_transport *transport)
{
    struct ash_shm *shm = shm_of(transport);

    for (size_t i = 0; i < 2; i++)
        if (shm->wake_pipe[i] >= 0) close(shm->wake_pipe[i]);
    ash_segment_fini(&shm->segment);
    ash_pool_close(shm->moves);
    free(shm->links);
    free(shm);
}

static int shm_open_box(struct ash_shm *shm, struct ash_err *err)
{
    int rc = ash_segment_create(&shm->segment, sizeof(struct ash_box), "ashlar-box", err);

    if (rc < 0) return rc;
    shm->box = shm->segment.data;
    shm->box->magic = ASH_BOX_MAGIC;
    shm->box->id = shm->token;
    if (pipe2(shm->wake_pipe, O_CLOEXEC | O_NONBLOCK) < 0)
        return ash_err_set(err, -errno, "a pipe cannot be opened: %s", strerror(errno));
    shm->box->wake_fd = shm->wake_pipe[1];
    return ash_fabric_watch(shm->fabric, shm->wake_pipe[0]);
}

static int shm_open(struct ash_fabric *fabric, const struct ash_fabric_opts *opts, struct ash_transport **transport_out,
                    struct ash_err *err)
{
    struct ash_shm *shm = calloc(1, sizeof(*shm));
    int rc;

    if (shm == NULL) return ash_err_set(err, -ENOMEM, "out of memory for shared memory");
    shm->fabric = fabric;
    shm->token = ash_fabric_id(fabric);
    shm->single_copy = opts->single_copy != ASH_FABRIC_COPY_NEVER;
    shm->wake_pipe[0] = shm->wake_pipe[1] = -1;
    rc = ash_pool_open("transfers", sizeof(struct ash_shm_move), ASH_SHM_MOVES, &shm->moves, err);
    if (rc == 0) rc = shm_open_box(shm, err);
    if (rc < 0) {
        shm_close((struct ash_transport *)(void *)shm);
        return rc;
    }
    *transport_out = (struct ash_transport *)(void *)shm;
    return 0;
}

/* Posted messages are in the peers' memory already; those that execute chunks are notified that no one waits any
 * more. */
static void shm_flush(struct ash_transport *transport)
{
    atomic_store(&shm_of(transport)->box->closed, 1);
}

static void shm_describe(const struct ash_transport *transport, struct ash_wire_addr *addr)
{
    const struct ash_shm *shm = (const struct ash_shm *)(const void *)transport;

    addr->has_shm = ash_segment_get_key(&shm->segment, &addr->box) == 0;
    addr->token = (uintptr_t)&shm->token;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static int shm_region_open(struct ash_transport *transport, struct ash_region *region, struct ash_err *err)
{
    struct ash_segment_key key;
    int rc;

    (void)transport;
    if (region->memory == NULL) return 0;
    rc = ash_segment_get_key(region->memory, &key);
    if (rc < 0) return ash_err_set(err, rc, "shared memory has no key: %s", strerror(-rc));
    region->key.is_segment = 1;
    region->key.pid = key.pid;
    region->key.fd = key.fd;
    region->key.device = key.device;
    region->key.inode = key.inode;
    return 0;
}

static void shm_region_close(struct ash_transport *transport, struct ash_region *region)
{
    (void)transport;
    (void)region;
}

static int shm_remote_open(struct ash_transport *transport, struct ash_peer *peer, struct ash_remote *remote,
                           struct ash_err *err)
{
    const struct ash_shm_link *link = peer->link;
    const struct ash_wire_key *key = &remote->key;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct ash_segment_key segment_key = {.pid = key->pid,
                                          .fd = key->fd,
                                          .device = key->device,
                                          .inode = key->inode,
                                          .size_bytes = ash_round_up(key->size_bytes, page)};
    struct ash_segment *segment;
    int rc;

    (void)transport;
    if (!key->is_segment) return 0;
    if (key->pid != link->pid) return ash_err_set(err, -EPROTO, "the key is of another process");
    segment = calloc(1, sizeof(*segment));
    if (segment == NULL) return ash_err_set(err, -ENOMEM, "out of memory for a region");
    rc = ash_segment_map(segment, &segment_key, err);
    if (rc < 0) {
        free(segment);
        return rc;
    }
    remote->state = segment;
    remote->direct = segment->data;
    return 0;
}

static void shm_remote_close(struct ash_remote *remote)
{
    if (remote->state == NULL) return;
    ash_segment_fini(remote->state);
    free(remote->state);
}

/* ---- transfers --------------------------------------------------------------------------------------------------- */

/* The kernel copies between local memory and address `remote` of the peer. */
static int copy_by_kernel(const struct ash_shm_link *link, uint8_t *local, uint64_t remote, size_t size_bytes,
                          bool write)
{
    size_t done = 0;

    if (!ash_shm_alive(link)) return -ECONNRESET; /* its number may be another process's soon */
    while (done < size_bytes) {
        struct iovec here = {.iov_base = local + done, .iov_len = size_bytes - done},
                     there = {.iov_base = (void *)(uintptr_t)(remote + done), .iov_len = size_bytes - done};
        ssize_t got = write ? process_vm_writev(link->pid, &here, 1, &there, 1, 0)
                            : process_vm_readv(link->pid, &here, 1, &there, 1, 0);

        if (got <= 0) return got == 0 || errno == ESRCH ? -ECONNRESET : -errno;
        done += (size_t)got;
    }
    return 0;
}

static int shm_post(struct ash_transport *transport, struct ash_peer *peer, const struct ash_transfer *transfer,
                    bool write)
{
    struct ash_shm_link *link = peer->link;
    uint8_t *local = (uint8_t *)transfer->local->data + transfer->local_offset, *direct = transfer->remote->direct;
    int rc = 0;

    (void)transport;
    if (link->dying != 0) return -ECONNRESET;
    if (direct != NULL && write)
        ash_copy(direct + transfer->remote_offset, local, transfer->size_bytes);
    else if (direct != NULL)
        ash_copy(local, direct + transfer->remote_offset, transfer->size_bytes);
    else if (!link->single_copy)
        return ash_bounce_post(link, transfer, write);
    else
        rc = copy_by_kernel(link, local, transfer->remote->key.base + transfer->remote_offset, transfer->size_bytes,
                            write);
    if (rc == -ECONNRESET) return rc;
    ash_fabric_done(peer, transfer->cookie, rc);
    return 0;
}

static int shm_notify(struct ash_transport *transport, struct ash_peer *peer, uint64_t word)
{
    struct ash_shm_link *link = peer->link;

    (void)transport;
    if (link->dying != 0) return -ECONNRESET;
    if (link->moves != NULL && ash_bounce_pending(link)) return -EAGAIN;
    if (!ash_box_put(link->out, &link->out_cursor, ASH_BOX_NOTIFY, word)) return -EAGAIN;
    ash_shm_wake(link);
    return 0;
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

/* Take what a peer has put into its slot. */
static size_t drain(struct ash_shm_link *link, struct ash_fabric_event *events, size_t max)
{
    uint64_t before = link->in_cursor.next, word;
    enum ash_box_kind kind;
    size_t count = 0;

    while (count < max && ash_box_peek(link->in, &link->in_cursor, &kind, &word)) {
        link->in_cursor.next++;
        if (kind == ASH_BOX_NOTIFY)
            events[count++] =
                (struct ash_fabric_event){.kind = ASH_FABRIC_NOTIFIED, .peer = link->peer->number, .word = word};
        else
            ash_bounce_serve(link, word, link->in_cursor.next);
    }
    if (link->in_cursor.next != before)
        atomic_store_explicit(&link->in->taken, link->in_cursor.next, memory_order_release);
    return count;
}

static size_t poll_link(struct ash_shm_link *link, struct ash_fabric_event *events, size_t max)
{
    enum ash_box_kind kind;
    uint64_t word;
    size_t count = 0;

    if (link->peer->status < 0) return 0;
    if (link->moves != NULL) ash_bounce_progress(link);
    if (link->in != NULL) count = drain(link, events, max);
    if (link->dying != 0 && (link->in == NULL || !ash_box_peek(link->in, &link->in_cursor, &kind, &word))) {
        ash_bounce_fail(link, -ECONNRESET);
        ash_fabric_lost(link->peer, link->dying);
    }
    return count;
}

static void disarm(struct ash_shm *shm)
{
    char bytes[64];

    shm->armed = false;
    atomic_store(&shm->box->armed, 0);
    while (read(shm->wake_pipe[0], bytes, sizeof(bytes)) == (ssize_t)sizeof(bytes))
        ;
}

static size_t shm_poll(struct ash_transport *transport, struct ash_fabric_event *events, size_t max)
{
    struct ash_shm *shm = shm_of(transport);
    size_t count = 0;

    if (atomic_load_explicit(&shm->box->claims, memory_order_relaxed) != shm->claims) ash_shm_bind(shm);
    for (size_t i = 0; i < shm->link_count; i++) /* each time another is first, so that none starves */
        count += poll_link(shm->links[(shm->turn + i) % shm->link_count], events + count, max - count);
    shm->turn++;
    if (shm->armed && (count > 0 || atomic_load(&shm->box->armed) == 0)) disarm(shm);
    return count;
}

static int shm_arm(struct ash_transport *transport)
{
    struct ash_shm *shm = shm_of(transport);

    shm->armed = true;
    atomic_store(&shm->box->armed, 1);
    return 0;
}

const struct ash_transport_ops ash_shm_ops = {
    .size = sizeof(ash_shm_ops),
    .path = ASH_FABRIC_SHM,
    .name = "shm",
    .open = shm_open,
    .flush = shm_flush,
    .close = shm_close,
    .describe = shm_describe,
    .link_open = ash_shm_link_open,
    .link_close = ash_shm_link_close,
    .region_open = shm_region_open,
    .region_close = shm_region_close,
    .remote_open = shm_remote_open,
    .remote_close = shm_remote_close,
    .post = shm_post,
    .notify = shm_notify,
    .poll = shm_poll,
    .tick = ash_shm_tick,
    .arm = shm_arm,
};
