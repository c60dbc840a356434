/* A peer on this node: mapping its box, finding each other's slots, and noticing that it is gone. The kernel says when
 * a process has ended (pidfd), however it ended; an endpoint that is closed in order says so itself. */
#include "fabric/shm/shm_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/array.h"

#define SWEEP_NS 100000000u

bool ash_shm_alive(const struct ash_shm_link *link)
{
    struct pollfd pidfd = {.fd = link->pidfd, .events = POLLIN};

    return poll(&pidfd, 1, 0) == 0;
}

void ash_shm_wake(struct ash_shm_link *link)
{
    if (atomic_load(&link->box->armed) == 0 || link->wake_fd < 0) return;
    if (atomic_exchange(&link->box->armed, 0) != 0 && write(link->wake_fd, "", 1) < 0)
        atomic_store(&link->box->armed, 1); /* a full pipe wakes it too; the next one tries again */
}

/* ---- coming ------------------------------------------------------------------------------------------------------ */

/* The kernel copies between the two processes if it finds the peer's id where the peer says that it is. */
static bool probe_single_copy(const struct ash_shm_link *link)
{
    uint64_t word = 0;
    struct iovec local = {.iov_base = &word, .iov_len = sizeof(word)},
                 remote = {.iov_base = (void *)(uintptr_t)link->token, .iov_len = sizeof(word)};

    return link->shm->single_copy && process_vm_readv(link->pid, &local, 1, &remote, 1, 0) == (ssize_t)sizeof(word) &&
           word == link->peer->id;
}

static int map_box(struct ash_shm_link *link, const struct ash_segment_key *key, struct ash_err *err)
{
    char path[64];
    int rc = ash_segment_map(&link->segment, key, err);

    if (rc < 0) return rc;
    link->box = link->segment.data;
    if (link->segment.size_bytes < sizeof(struct ash_box) || link->box->magic != ASH_BOX_MAGIC ||
        link->box->id != link->peer->id)
        return ash_err_set(err, -EPROTO, "process %d has shared memory of another kind than its address says",
                           (int)link->pid);
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)link->pid, (int)link->box->wake_fd);
    link->wake_fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC); /* both ends: no SIGPIPE when the peer has closed its.
                                                                    Without it the peer is not woken, only found */
    link->out = ash_box_claim(link->box, ash_fabric_id(link->shm->fabric), getpid());
    if (link->out == NULL)
        return ash_err_set(err, -ENOSPC, "%d endpoints send to process %d already: that is the limit", ASH_BOX_SLOTS,
                           (int)link->pid);
    return 0;
}

static int add_link(struct ash_shm *shm, struct ash_shm_link *link)
{
    if (ash_array_reserve(&shm->links, &shm->link_room, shm->link_count + 1, sizeof(*shm->links)) < 0) return -ENOMEM;
    shm->links[shm->link_count++] = link;
    return 0;
}

static void close_link(struct ash_shm_link *link)
{
    if (link->out != NULL) {
        atomic_store(&link->out->closed, 1);
        ash_shm_wake(link);
    }
    if (link->wake_fd >= 0) close(link->wake_fd);
    if (link->pidfd >= 0) close(link->pidfd);
    ash_segment_fini(&link->segment);
    free(link);
}

/* Was it closed by its sender, with nothing left in it? */
static bool is_left(const struct ash_box_slot *slot)
{
    struct ash_box_cursor cursor = {.next = atomic_load(&slot->taken)};
    enum ash_box_kind kind;
    uint64_t word;

    return atomic_load(&slot->closed) != 0 && !ash_box_peek(slot, &cursor, &kind, &word);
}

/* Slots of senders that are no peers here and have ended, or left, are made free. */
static void sweep_slots(struct ash_shm *shm)
{
    for (size_t i = 0; i < ASH_BOX_SLOTS; i++) {
        struct ash_box_slot *slot = &shm->box->slots[i];
        uint64_t owner = atomic_load(&slot->owner);
        int32_t pid = atomic_load(&slot->pid);

        if (owner == 0 || pid == 0 || ash_fabric_peer_of(shm->fabric, owner) != NULL) continue;
        if (is_left(slot) || (kill(pid, 0) < 0 && errno == ESRCH)) ash_box_free(slot);
    }
}

int ash_shm_link_open(struct ash_transport *transport, struct ash_peer *peer, const struct ash_wire_addr *addr,
                      struct ash_err *err)
{
    struct ash_shm *shm = (struct ash_shm *)(void *)transport;
    struct ash_shm_link *link = calloc(1, sizeof(*link));
    int rc;

    if (link == NULL) return ash_err_set(err, -ENOMEM, "out of memory for a peer");
    *link = (struct ash_shm_link){
        .shm = shm, .peer = peer, .pid = addr->box.pid, .pidfd = -1, .wake_fd = -1, .token = addr->token};
    link->pidfd = (int)syscall(SYS_pidfd_open, link->pid, 0); /* before the box: then it is this process's for sure */
    rc = link->pidfd < 0 ? ash_err_set(err, errno == ESRCH || errno == EINVAL ? -ESRCH : -errno,
                                       "process %d cannot be watched: %s", (int)link->pid, strerror(errno))
                         : map_box(link, &addr->box, err);
    if (rc == 0 && add_link(shm, link) < 0) rc = ash_err_set(err, -ENOMEM, "out of memory for a peer");
    if (rc < 0) {
        close_link(link);
        return rc;
    }
    ash_fabric_watch(shm->fabric, link->pidfd);
    link->single_copy = probe_single_copy(link);
    peer->link = link;
    sweep_slots(shm);
    ash_shm_bind(shm);
    return 0;
}

void ash_shm_bind(struct ash_shm *shm)
{
    shm->claims = atomic_load(&shm->box->claims);
    for (size_t i = 0; i < shm->link_count; i++) {
        struct ash_shm_link *link = shm->links[i];

        if (link->in != NULL) continue;
        link->in = ash_box_find(shm->box, link->peer->id);
        if (link->in != NULL) link->in_cursor.next = atomic_load(&link->in->taken);
    }
}

/* ---- going ------------------------------------------------------------------------------------------------------- */

void ash_shm_link_close(struct ash_transport *transport, struct ash_peer *peer)
{
    struct ash_shm *shm = (struct ash_shm *)(void *)transport;
    struct ash_shm_link *link = peer->link;
    size_t at = 0;

    ash_bounce_fail(link, -ECONNRESET);
    if (link->in != NULL && (link->dying != 0 || !ash_shm_alive(link))) ash_box_free(link->in);
    while (shm->links[at] != link)
        at++;
    shm->links[at] = shm->links[--shm->link_count];
    peer->link = NULL;
    close_link(link);
}

/* The peer dropped this endpoint and may have added it again: continue with its newer slot. */
static void follow(struct ash_shm_link *link)
{
    enum ash_box_kind kind;
    uint64_t word;

    if (atomic_load(&link->in->closed) == 0 || ash_box_peek(link->in, &link->in_cursor, &kind, &word)) return;
    ash_box_free(link->in);
    link->in = NULL;
    ash_shm_bind(link->shm);
}

void ash_shm_tick(struct ash_transport *transport, uint64_t now_ns)
{
    struct ash_shm *shm = (struct ash_shm *)(void *)transport;

    if (now_ns - shm->swept_ns >= SWEEP_NS) { /* an endpoint that many read from may never add a peer */
        shm->swept_ns = now_ns;
        sweep_slots(shm);
    }
    for (size_t i = 0; i < shm->link_count; i++) {
        struct ash_shm_link *link = shm->links[i];

        if (link->dying != 0) continue;
        if (atomic_load(&link->box->closed) != 0)
            link->dying = -ESHUTDOWN;
        else if (!ash_shm_alive(link))
            link->dying = -ECONNRESET;
        else if (link->in != NULL)
            follow(link);
        if (link->dying != 0) ash_fabric_unwatch(shm->fabric, link->pidfd); /* or the descriptor stays readable */
    }
}
