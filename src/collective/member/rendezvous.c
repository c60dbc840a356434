/* The first rank collects hellos (who, of which job, with which payload) and answers all of them when the last has
 * come, or with the reason why not. Whatever else connects to the port is refused and costs half a second at most. */
#include "collective/member/rendezvous.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/interrupt.h"

#define MAGIC 0x52485341u /* "ASHR" */
#define VERSION 1u
#define HELLO_S 0.5
#define SLICE_NS 20000000ull    /* between checks for stop requests and lost ranks */
#define CONNECT_NS 200000000ull /* the same while connecting: a host that is far away needs some time to answer */
#define REASON_BYTES ASH_ERR_TEXT_BYTES
#define MISSING_SHOWN 8

struct hello {
    uint32_t magic, version;
    uint64_t job;
    uint32_t epoch, rank, size, payload_bytes;
};

struct answer {
    uint32_t magic;
    int32_t status; /* 0: the payloads follow */
    char reason[REASON_BYTES];
};

static bool gives_up(const struct ash_rendezvous *r)
{
    return r->gives_up != NULL && atomic_load(r->gives_up);
}

/* Wait until a descriptor can be read, or has a connection to accept. */
static int wait_for(const struct ash_rendezvous *r, int fd, uint64_t deadline_ns)
{
    for (;;) {
        uint64_t until_ns = ash_clock_ns() + SLICE_NS;
        int rc = ash_socket_wait(fd, until_ns < deadline_ns ? until_ns : deadline_ns);

        if (rc != -ETIMEDOUT) return rc;
        if (gives_up(r)) return -ECONNRESET;
        if (ash_interrupt_ends_wait(0)) return -EINTR;
        if (ash_clock_ns() >= deadline_ns) return -ETIMEDOUT;
    }
}

/* Connect to the first rank, which may not listen yet. */
static int connect_first(const struct ash_rendezvous *r, struct ash_err *err)
{
    for (;;) {
        uint64_t until_ns = ash_clock_ns() + CONNECT_NS;
        int fd = ash_socket_connect(r->host, r->port, until_ns < r->deadline_ns ? until_ns : r->deadline_ns, err);

        if (fd >= 0 || ash_clock_ns() >= r->deadline_ns || fd == -ENOENT) return fd;
        if (gives_up(r)) return ash_err_set(err, -ECONNRESET, "a rank was lost before all had met");
        if (ash_interrupt_ends_wait(0))
            return ash_err_set(err, -EINTR, "told to stop while it tried to connect to %s, port %d", r->host, r->port);
    }
}

static int unknown_host(const struct ash_rendezvous *r, struct ash_err *err)
{
    return ash_err_set(err, -ENOENT,
                       "the ranks meet at '%s', a name that rank %zu cannot resolve: set MASTER_ADDR to an address of "
                       "the first node",
                       r->host, r->rank);
}

/* Does this name mean nothing here, not even as this host's own? Then other hosts hardly know it either. */
static bool is_unknown(const char *host)
{
    char address[ASH_SOCKET_ADDR_BYTES], own[256] = "";

    if (ash_socket_address_towards(host, address, sizeof(address)) != -ENOENT) return false;
    return gethostname(own, sizeof(own) - 1) < 0 || strcmp(own, host) != 0;
}

int ash_rendezvous_open(struct ash_rendezvous *r, int listen_fd, struct ash_err *err)
{
    int rc;

    ash_assert(r->rank < r->size);
    r->deadline_ns = ash_deadline_in(r->timeout_s);
    if (r->rank == 0) {
        if (is_unknown(r->host)) return unknown_host(r, err);
        r->fd = listen_fd >= 0 ? dup(listen_fd) : ash_socket_listen(ash_socket_job_host(r->host), r->port, err);
        if (r->fd < 0) return ash_err_prefix(err, r->fd, "rank 0 cannot listen for the others");
        snprintf(r->own_address, sizeof(r->own_address), "%s", r->host);
        return 0;
    }
    r->fd = connect_first(r, err);
    if (r->fd == -ENOENT) return unknown_host(r, err);
    if (r->fd < 0) return ash_err_prefix(err, r->fd, "rank %zu cannot reach rank 0", r->rank);
    rc = ash_socket_own_address(r->fd, r->own_address, sizeof(r->own_address));
    return rc == 0 ? 0 : ash_err_set(err, rc, "rank %zu has no address: %s", r->rank, strerror(-rc));
}

void ash_rendezvous_close(struct ash_rendezvous *r)
{
    if (r->fd > 0) close(r->fd);
    r->fd = -1;
}

/* ---- the first rank ---------------------------------------------------------------------------------------------- */

struct coordinator {
    struct ash_rendezvous *r;
    size_t payload_bytes;
    char *payloads;
    int *joiners; /* by rank; -1: not here yet */
    size_t here;
};

static void send_answer(int fd, int status, const char *reason, const void *payloads, size_t payloads_bytes,
                        uint64_t deadline_ns)
{
    struct answer text = {.magic = MAGIC, .status = status};

    snprintf(text.reason, sizeof(text.reason), "%s", reason);
    if (ash_socket_send(fd, &text, sizeof(text), deadline_ns) == 0 && payloads != NULL)
        ash_socket_send(fd, payloads, payloads_bytes, deadline_ns); /* one that has gone is the watch's business */
}

/* Why this rank may not join, or NULL. */
static const char *refuse(const struct coordinator *coordinator, const struct hello *hello)
{
    const struct ash_rendezvous *r = coordinator->r;

    if (hello->version != VERSION) return "it is another version of this program";
    if (hello->job != r->job) return "it belongs to another job";
    if (hello->epoch != r->epoch) return "it belongs to another epoch of the job";
    if (hello->size != r->size) return "it expects another number of ranks";
    if (hello->rank == 0 || hello->rank >= r->size) return "its rank is not one of this job";
    if (hello->payload_bytes != coordinator->payload_bytes) return "its payload has another size";
    return coordinator->joiners[hello->rank] >= 0 ? "its rank is taken by another process" : NULL;
}

/* Remember at which address a rank has connected, rather one that leads out of this host. */
static void note_address(struct ash_rendezvous *r, int fd)
{
    char address[ASH_SOCKET_ADDR_BYTES];
    bool inner;

    if (ash_socket_own_address(fd, address, sizeof(address)) < 0) return;
    inner = strncmp(address, "127.", 4) == 0 || strcmp(address, "::1") == 0;
    if (!inner || r->met_address[0] == '\0') memcpy(r->met_address, address, sizeof(address));
}

/* Admit one joining rank, or refuse it. Returns 0, or -EEXIST where two claim one rank. */
static int admit(struct coordinator *coordinator, int fd, struct ash_err *err)
{
    uint64_t deadline_ns = ash_deadline_in(HELLO_S);
    struct hello hello;
    const char *reason;

    if (ash_socket_recv(fd, &hello, sizeof(hello), deadline_ns) < 0 || hello.magic != MAGIC) {
        close(fd); /* not a rank */
        return 0;
    }
    reason = refuse(coordinator, &hello);
    if (reason != NULL) {
        bool taken = hello.rank > 0 && hello.rank < coordinator->r->size && hello.job == coordinator->r->job &&
                     hello.epoch == coordinator->r->epoch && coordinator->joiners[hello.rank] >= 0;

        send_answer(fd, -EPERM, reason, NULL, 0, deadline_ns);
        close(fd);
        return taken ? ash_err_set(err, -EEXIST, "two processes claim rank %u", hello.rank) : 0;
    }
    if (ash_socket_recv(fd, coordinator->payloads + hello.rank * coordinator->payload_bytes, coordinator->payload_bytes,
                        deadline_ns) < 0) {
        close(fd);
        return 0;
    }
    note_address(coordinator->r, fd);
    ash_assert(coordinator->joiners[hello.rank] < 0 && coordinator->here < coordinator->r->size); /* refuse() looked */
    coordinator->joiners[hello.rank] = fd;
    coordinator->here++;
    return 0;
}

static int say_missing(const struct coordinator *coordinator, int code, struct ash_err *err)
{
    char list[128] = "";
    size_t used = 0, shown = 0, missing = coordinator->r->size - coordinator->here;

    for (size_t rank = 1; rank < coordinator->r->size && shown < MISSING_SHOWN; rank++)
        if (coordinator->joiners[rank] < 0) {
            used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%zu", shown > 0 ? ", " : "", rank);
            shown++;
        }
    if (code == -EINTR)
        return ash_err_set(err, code, "told to stop while %zu of %zu ranks had not joined: %s%s", missing,
                           coordinator->r->size, list, missing > shown ? ", ..." : "");
    return ash_err_set(err, code, "%zu of %zu ranks have not joined within %.0f s: %s%s", missing, coordinator->r->size,
                       coordinator->r->timeout_s, list, missing > shown ? ", ..." : "");
}

static int coordinate(struct ash_rendezvous *r, size_t payload_bytes, char *payloads, struct ash_err *err)
{
    struct coordinator coordinator = {.r = r, .payload_bytes = payload_bytes, .payloads = payloads, .here = 1};
    int rc = 0;

    coordinator.joiners = malloc(r->size * sizeof(*coordinator.joiners));
    if (coordinator.joiners == NULL) return ash_err_set(err, -ENOMEM, "out of memory to join %zu ranks", r->size);
    for (size_t i = 0; i < r->size; i++)
        coordinator.joiners[i] = -1;
    while (rc == 0 && coordinator.here < r->size) {
        int fd = wait_for(r, r->fd, r->deadline_ns);

        if (fd == 0) fd = ash_socket_accept(r->fd, ash_deadline_in(HELLO_S));
        if (fd == -ETIMEDOUT || fd == -EINTR)
            rc = say_missing(&coordinator, fd, err);
        else
            rc = fd < 0 ? ash_err_set(err, fd, "rank 0 cannot accept the others: %s", strerror(-fd))
                        : admit(&coordinator, fd, err);
    }
    for (size_t i = 1; i < r->size; i++) {
        if (coordinator.joiners[i] < 0) continue;
        if (rc == 0)
            send_answer(coordinator.joiners[i], 0, "", payloads, r->size * payload_bytes, r->deadline_ns);
        else
            send_answer(coordinator.joiners[i], rc, err != NULL ? err->text : "the others have not joined", NULL, 0,
                        ash_deadline_in(HELLO_S));
        close(coordinator.joiners[i]);
    }
    free(coordinator.joiners);
    return rc;
}

/* ---- the others -------------------------------------------------------------------------------------------------- */

static int join(struct ash_rendezvous *r, const void *payload, size_t payload_bytes, char *payloads,
                struct ash_err *err)
{
    struct hello hello = {.magic = MAGIC,
                          .version = VERSION,
                          .job = r->job,
                          .epoch = r->epoch,
                          .rank = (uint32_t)r->rank,
                          .size = (uint32_t)r->size,
                          .payload_bytes = (uint32_t)payload_bytes};
    uint64_t deadline_ns = r->deadline_ns + (uint64_t)(HELLO_S * 1e9); /* so that rank 0 can name who is missing */
    struct answer reply;
    int rc = ash_socket_send(r->fd, &hello, sizeof(hello), deadline_ns);

    if (rc == 0) rc = ash_socket_send(r->fd, payload, payload_bytes, deadline_ns);
    if (rc == 0) rc = wait_for(r, r->fd, deadline_ns);
    if (rc == 0) rc = ash_socket_recv(r->fd, &reply, sizeof(reply), deadline_ns);
    if (rc < 0) return ash_err_set(err, rc, "rank %zu waited for rank 0 to admit it: %s", r->rank, strerror(-rc));
    if (reply.magic != MAGIC)
        return ash_err_set(err, -EPROTO, "%s, port %d, is not the first rank of a job", r->host, r->port);
    reply.reason[REASON_BYTES - 1] = '\0';
    if (reply.status != 0)
        return ash_err_set(err, reply.status < 0 ? reply.status : -EPROTO, "rank 0 refused rank %zu: %s", r->rank,
                           reply.reason);
    rc = ash_socket_recv(r->fd, payloads, r->size * payload_bytes, deadline_ns);
    return rc == 0 ? 0
                   : ash_err_set(err, rc, "rank %zu lost rank 0 while it read the list of ranks: %s", r->rank,
                                 strerror(-rc));
}

int ash_rendezvous_exchange(struct ash_rendezvous *r, const void *payload, size_t payload_bytes, void *payloads_out,
                            struct ash_err *err)
{
    ash_assert(payload_bytes <= ASH_RENDEZVOUS_PAYLOAD_MAX);
    if (r->rank != 0) return join(r, payload, payload_bytes, payloads_out, err);
    memcpy(payloads_out, payload, payload_bytes);
    return coordinate(r, payload_bytes, payloads_out, err);
}
