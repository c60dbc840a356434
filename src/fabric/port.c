/* The public transfer library: an endpoint whose peers are found by their descriptions. A process is
 * forgotten with the last memory of it that was attached. */
#include "fabric/port_priv.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/math.h"
#include "fabric/transport.h"

#define MAGIC 0x44485341u /* "ASHD" */
#define VERSION 1
#define SLEEP_MS 100.0 /* an endpoint sleeps no longer */

/* A description as it travels. */
struct description {
    uint32_t magic;
    uint16_t version;
    uint8_t has_memory, has_versions;
    uint64_t size_bytes;
    struct ash_fabric_key key;
    struct ash_fabric_addr addr;
    uint16_t zero[3];
    uint64_t hash; /* of all before */
};
_Static_assert(sizeof(struct description) <= ASH_PORT_DESCRIPTION_BYTES, "a description fits");

/* ---- life -------------------------------------------------------------------------------------------------------- */

void ash_port_opts_init(struct ash_port_opts *opts)
{
    *opts = (struct ash_port_opts){.size = sizeof(*opts)};
}

static int read_opts(const struct ash_port_opts *given, struct ash_fabric_opts *opts_out, struct ash_err *err)
{
    static const char *const paths[] = {"auto", "shm", "ofi"};
    struct ash_port_opts opts;
    int path = 0;

    ash_port_opts_init(&opts);
    if (given != NULL && (given->size < sizeof(given->size) || given->size > sizeof(opts)))
        return ash_err_set(err, -EINVAL, "options of %zu bytes: initialise them with ash_port_opts_init", given->size);
    if (given != NULL) memcpy(&opts, given, given->size);
    while (opts.path != NULL && path < (int)ASH_COUNT(paths) && strcmp(opts.path, paths[path]) != 0)
        path++;
    if (path == (int)ASH_COUNT(paths))
        return ash_err_set(err, -EINVAL, "path '%.50s': it is auto, shm or ofi", opts.path);
    if (!(opts.silence_s >= 0 && opts.silence_s < 1e6))
        return ash_err_set(err, -EINVAL, "silence_s: %g is no number of seconds", opts.silence_s);
    *opts_out = (struct ash_fabric_opts){.path = path,
                                         .provider = opts.provider,
                                         .interface = opts.interface,
                                         .silence_ms = (int64_t)(1000 * opts.silence_s)};
    return 0;
}

int ash_port_open(const struct ash_port_opts *given, struct ash_port **port_out, struct ash_err *err)
{
    struct ash_fabric_opts opts;
    struct ash_port *port;
    int rc = read_opts(given, &opts, err);

    if (rc < 0) return rc;
    port = calloc(1, sizeof(*port));
    if (port == NULL) return ash_err_set(err, -ENOMEM, "out of memory for a port");
    rc = ash_pool_open("transfers", sizeof(struct ash_port_op), ASH_FABRIC_UNDER_WAY_MAX, &port->posts, err);
    if (rc == 0) rc = ash_fabric_open(&opts, &port->fabric, err);
    if (rc < 0) {
        ash_port_close(port);
        return rc;
    }
    ash_fabric_get_addr(port->fabric, &port->addr);
    *port_out = port;
    return 0;
}

void ash_port_close(struct ash_port *port)
{
    if (port == NULL) return;
    for (size_t i = 0; i < port->peer_count; i++)
        ash_assert(port->peers[i].remotes == 0);
    ash_fabric_close(port->fabric);
    ash_pool_close(port->posts);
    free(port->peers);
    free(port);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static int open_memory(struct ash_port *port, void *data, size_t region_bytes, struct ash_port_memory **memory_out,
                       struct ash_err *err)
{
    struct ash_port_memory *memory = calloc(1, sizeof(*memory));
    int rc;

    if (memory == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    memory->port = port;
    rc = data != NULL ? ash_region_register(port->fabric, data, region_bytes, &memory->region, err)
                      : ash_region_alloc(port->fabric, region_bytes, &memory->region, err);
    if (rc < 0) {
        free(memory);
        return rc;
    }
    memory->size_bytes = region_bytes;
    *memory_out = memory;
    return 0;
}

int ash_port_register(struct ash_port *port, void *data, size_t size_bytes, struct ash_port_memory **memory_out,
                      struct ash_err *err)
{
    return open_memory(port, data, size_bytes, memory_out, err);
}

int ash_port_register_versions(struct ash_port *port, size_t size_bytes, struct ash_port_memory **memory_out,
                               struct ash_err *err)
{
    int rc = open_memory(port, NULL, ash_port_versions_bytes(size_bytes), memory_out, err);

    if (rc < 0) return rc;
    (*memory_out)->size_bytes = size_bytes;
    (*memory_out)->has_versions = true;
    return 0;
}

void ash_port_memory_close(struct ash_port_memory *memory)
{
    if (memory == NULL) return;
    ash_assert(!memory->is_taking);
    ash_region_close(memory->region);
    free(memory);
}

void ash_port_describe(const struct ash_port *port, const struct ash_port_memory *memory,
                       struct ash_port_description *description_out)
{
    struct description description;

    memset(&description, 0, sizeof(description));
    description.magic = MAGIC;
    description.version = VERSION;
    description.addr = port->addr;
    if (memory != NULL) {
        ash_assert(memory->port == port);
        description.has_memory = 1;
        description.has_versions = memory->has_versions;
        description.size_bytes = memory->size_bytes;
        ash_region_key(memory->region, &description.key);
    }
    description.hash = ash_hash_bytes(&description, offsetof(struct description, hash), 0);
    memset(description_out, 0, sizeof(*description_out));
    memcpy(description_out->bytes, &description, sizeof(description));
}

/* ---- others' memory ---------------------------------------------------------------------------------------------- */

static int read_description(const struct ash_port_description *given, struct description *description_out,
                            struct ash_wire_addr *addr_out, struct ash_err *err)
{
    struct description description;
    struct ash_wire_key key;
    size_t wanted;
    int rc;

    memcpy(&description, given->bytes, sizeof(description));
    if (description.magic != MAGIC) return ash_err_set(err, -EPROTO, "these bytes do not describe memory");
    if (description.version != VERSION)
        return ash_err_set(err, -EPROTO, "memory is described by version %u of this library, and this is %d",
                           description.version, VERSION);
    if (description.hash != ash_hash_bytes(&description, offsetof(struct description, hash), 0))
        return ash_err_set(err, -EPROTO, "the description of memory is damaged");
    rc = ash_wire_get_addr(&description.addr, addr_out, err);
    if (rc < 0) return rc;
    if (description.has_memory == 0) {
        description.size_bytes = 0;
    } else {
        rc = ash_wire_get_key(&description.key, &key, err);
        if (rc < 0) return rc;
        wanted = description.has_versions ? ash_port_versions_bytes(description.size_bytes) : description.size_bytes;
        if (wanted == 0 || wanted > key.size_bytes || key.endpoint != addr_out->id)
            return ash_err_set(err, -EPROTO, "the description of memory contradicts itself");
    }
    *description_out = description;
    return 0;
}

/* The number of the process with this endpoint, which is made known if it is not. Returns it or a negative errno. */
static int find_peer(struct ash_port *port, uint64_t id, const struct ash_fabric_addr *addr, struct ash_err *err)
{
    size_t number = port->peer_count;
    int rc;

    for (size_t i = port->peer_count; i-- > 0;) {
        if (port->peers[i].id == id) return (int)i;
        if (port->peers[i].id == 0) number = i;
    }
    if (ash_array_reserve(&port->peers, &port->peer_capacity, number + 1, sizeof(*port->peers)) < 0)
        return ash_err_set(err, -ENOMEM, "out of memory for another process");
    rc = ash_fabric_add_peer(port->fabric, (uint32_t)number, addr, err);
    if (rc < 0) return rc;
    port->peers[number] = (struct ash_port_peer){.id = id};
    port->peer_count = ash_max(port->peer_count, number + 1);
    return (int)number;
}

static void leave_peer(struct ash_port *port, uint32_t number)
{
    struct ash_port_peer *peer = &port->peers[number];

    if (peer->remotes > 0) return;
    ash_fabric_drop_peer(port->fabric, number);
    peer->id = 0;
}

int ash_port_attach(struct ash_port *port, const struct ash_port_description *given,
                    struct ash_port_remote **remote_out, struct ash_err *err)
{
    struct ash_port_remote *remote = calloc(1, sizeof(*remote));
    struct description description;
    struct ash_wire_addr addr;
    int number = -1, rc;

    if (remote == NULL) return ash_err_set(err, -ENOMEM, "out of memory for another process");
    rc = read_description(given, &description, &addr, err);
    if (rc == 0) rc = number = find_peer(port, addr.id, &description.addr, err);
    if (rc >= 0 && description.has_memory != 0)
        rc = ash_remote_open(port->fabric, (uint32_t)number, &description.key, &remote->remote, err);
    if (rc < 0) {
        if (number >= 0) leave_peer(port, (uint32_t)number);
        free(remote);
        return rc == -ESRCH ? ash_err_set(err, rc, "the process that described this memory is gone") : rc;
    }
    port->peers[number].remotes++;
    remote->port = port;
    remote->peer = addr.id;
    remote->number = (uint32_t)number;
    remote->size_bytes = description.size_bytes;
    remote->has_versions = description.has_versions != 0;
    *remote_out = remote;
    return 0;
}

void ash_port_detach(struct ash_port_remote *remote)
{
    struct ash_port_peer *peer;

    if (remote == NULL) return;
    peer = &remote->port->peers[remote->number];
    ash_assert(peer->remotes > 0);
    peer->remotes--;
    leave_peer(remote->port, remote->number); /* which ends its transfers */
    ash_remote_close(remote->remote);
    free(remote);
}

size_t ash_port_remote_bytes(const struct ash_port_remote *remote)
{
    return remote->size_bytes;
}

uint64_t ash_port_remote_peer(const struct ash_port_remote *remote)
{
    return remote->peer;
}

/* ---- transfers --------------------------------------------------------------------------------------------------- */

int ash_port_post(struct ash_port *port, const struct ash_port_transfer *given)
{
    struct ash_port_transfer transfer = {0};
    struct ash_transfer post;
    struct ash_port_op *op;
    int rc;

    if (given->size < sizeof(given->size) || given->size > sizeof(transfer)) return -EINVAL;
    memcpy(&transfer, given, given->size);
    if (transfer.local == NULL || transfer.remote == NULL || transfer.remote->remote == NULL) return -EINVAL;
    if (transfer.local->has_versions || transfer.remote->has_versions) return -EINVAL;
    op = ash_pool_get(port->posts, NULL);
    if (op == NULL) return -EAGAIN;
    *op = (struct ash_port_op){.stage = ASH_PORT_PLAIN, .cookie = transfer.cookie};
    post = (struct ash_transfer){.local = transfer.local->region,
                                 .local_offset = transfer.local_offset,
                                 .remote = transfer.remote->remote,
                                 .remote_offset = transfer.remote_offset,
                                 .size_bytes = transfer.size_bytes,
                                 .cookie = (uintptr_t)op};
    rc = transfer.direction == ASH_PORT_WRITE ? ash_fabric_write(port->fabric, &post)
                                              : ash_fabric_read(port->fabric, &post);
    if (rc < 0) ash_pool_put(port->posts, op);
    return rc == -ENOTCONN ? -ECONNRESET : rc;
}

int ash_port_notify(struct ash_port *port, struct ash_port_remote *remote, uint64_t word)
{
    int rc = ash_fabric_notify(port->fabric, remote->number, word);

    return rc == -ENOTCONN ? -ECONNRESET : rc;
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

/* Returns whether the user hears of it. */
static bool take_event(struct ash_port *port, const struct ash_fabric_event *event, struct ash_port_event *event_out)
{
    struct ash_port_op *op;
    int status = event->status;

    *event_out = (struct ash_port_event){.status = status, .word = event->word};
    event_out->peer = event->peer < port->peer_count ? port->peers[event->peer].id : 0;
    event_out->kind = event->kind == ASH_FABRIC_NOTIFIED ? ASH_PORT_NOTIFIED : ASH_PORT_LOST;
    if (event->kind != ASH_FABRIC_DONE) return true;
    op = (struct ash_port_op *)(uintptr_t)event->word;
    if (op->stage != ASH_PORT_PLAIN && !ash_port_continue_take(port, op, event->status, &status)) return false;
    event_out->kind = ASH_PORT_DONE;
    event_out->status = status;
    event_out->word = op->cookie;
    ash_pool_put(port->posts, op);
    return true;
}

size_t ash_port_poll(struct ash_port *port, struct ash_port_event *events, size_t max)
{
    struct ash_fabric_event taken[16];
    size_t count = 0, got = 1;

    while (count < max && got > 0) {
        got = ash_fabric_poll(port->fabric, taken, ash_min(ASH_COUNT(taken), max - count));
        for (size_t i = 0; i < got; i++)
            count += take_event(port, &taken[i], &events[count]);
    }
    return count;
}

size_t ash_port_wait(struct ash_port *port, struct ash_port_event *events, size_t max, double timeout_s)
{
    uint64_t begin_ns = ash_clock_ns();

    for (;;) {
        struct pollfd fd = {.events = POLLIN};
        size_t count;
        double left_ms;

        fd.fd = ash_fabric_wait_fd(port->fabric);
        count = ash_port_poll(port, events, max);
        left_ms = 1000 * timeout_s - 1e-6 * (double)(ash_clock_ns() - begin_ns);
        if (count > 0 || left_ms <= 0 || max == 0) return count;
        if (fd.fd >= 0) (void)poll(&fd, 1, (int)ash_min(left_ms + 1, SLEEP_MS));
    }
}
