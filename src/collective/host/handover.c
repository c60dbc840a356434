/* Descriptors between the ranks of a node. All have a socket before any connects, and all have sent before any accepts:
 * so nothing here waits, but where the ranks meet in calls, whose waits are bounded. A random word tells the ranks of
 * this group from others that find the socket. */
#include "collective/host/handover.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/assert.h"
#include "collective/host/control.h"

/* Where a rank is found. */
struct card {
    struct sockaddr_un name;
    uint64_t name_bytes, word;
};

/* The first that goes over a connection. */
struct hello {
    uint64_t word, rank;
};

/* A socket that listens; the system finds a name that no other has. */
static int open_socket(size_t ranks, struct card *card_out, struct ash_err *err)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    socklen_t bytes = sizeof(name);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool is_ready = fd >= 0 && bind(fd, (struct sockaddr *)&name, sizeof(name.sun_family)) == 0 &&
                    listen(fd, (int)ranks) == 0 && getsockname(fd, (struct sockaddr *)&name, &bytes) == 0 &&
                    getrandom(&card_out->word, sizeof(card_out->word), 0) == sizeof(card_out->word);

    if (!is_ready) {
        ash_err_set(err, -ENOTSUP, "a socket for the ranks of this node cannot be had: %s", strerror(errno));
        if (fd >= 0) close(fd);
        return -1;
    }
    card_out->name = name;
    card_out->name_bytes = bytes;
    return fd;
}

static int give(const struct ash_local *local, const struct card *card, const struct ash_handover_ops *ops, void *ctx,
                struct ash_err *err)
{
    struct hello hello = {card->word, local->rank};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), rc = 0;

    if (fd < 0 || connect(fd, (const struct sockaddr *)&card->name, (socklen_t)card->name_bytes) < 0 ||
        send(fd, &hello, sizeof(hello), MSG_NOSIGNAL) != sizeof(hello))
        rc = ash_err_set(err, -ENOTSUP, "a rank of this node cannot be reached over a socket: %s", strerror(errno));
    if (rc == 0) rc = ops->send(ctx, fd, err);
    if (fd >= 0) close(fd);
    return rc;
}

/* Where others come to this rank. */
struct inlet {
    int listener;
    uint64_t word;
    size_t rank, ranks;
};

/* Take from one who has connected; strangers do not count. Returns 1, 0 for a stranger, or a negative
 * errno. */
static int take_one(const struct inlet *inlet, const struct ash_handover_ops *ops, void *ctx, bool *has_come,
                    struct ash_err *err)
{
    struct hello hello = {0};
    int fd = accept4(inlet->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK), rc = 0;

    if (fd < 0) return ash_err_set(err, -ENOTSUP, "a rank of this node has not connected: %s", strerror(errno));
    if (recv(fd, &hello, sizeof(hello), MSG_WAITALL) == sizeof(hello) && hello.word == inlet->word &&
        hello.rank < inlet->ranks && hello.rank != inlet->rank && !has_come[hello.rank])
        rc = ops->receive(ctx, hello.rank, fd, err);
    else
        hello.rank = inlet->ranks;
    close(fd);
    if (rc < 0 || hello.rank == inlet->ranks) return rc;
    has_come[hello.rank] = true;
    return 1;
}

static int take_all(const struct inlet *inlet, const struct ash_handover_ops *ops, void *ctx, struct ash_err *err)
{
    bool has_come[ASH_LOCAL_RANKS_MAX] = {false};
    int rc = 0;

    for (size_t left = inlet->ranks - 1; rc >= 0 && left > 0; left -= (size_t)(rc > 0))
        rc = take_one(inlet, ops, ctx, has_come, err);
    return rc < 0 ? rc : 0;
}

/* Can all ranks go on? Returns 0, -ENOTSUP or the communicator's error. own_rc: what this rank has come to. */
static int agree(struct ash_local *local, int own_rc, struct ash_err *err)
{
    struct ash_err met = {0};
    uint8_t all = 0;
    int rc = ash_local_agree(local, (struct ash_coll_call){.kind = ASH_CALL_BARRIER}, own_rc == 0, &all, &met);

    if (rc < 0) {
        if (err != NULL) *err = met;
        return rc;
    }
    if (all != 0) return 0;
    return own_rc < 0 ? -ENOTSUP : ash_err_set(err, -ENOTSUP, "another rank of this node cannot share its memory");
}

int ash_handover(struct ash_local *local, const struct ash_handover_ops *ops, void *ctx, bool has_one,
                 struct ash_err *err)
{
    struct card own = {.word = 0}, *cards = calloc(local->size, sizeof(*cards));
    int listener = has_one && cards != NULL ? open_socket(local->size, &own, err) : -1, rc;

    rc = agree(local, listener >= 0 ? 0 : -ENOTSUP, err);
    if (rc == 0) rc = ash_local_all_gather(local, &own, cards, sizeof(own), err);
    if (rc == 0) {
        int own_rc = 0;

        for (size_t r = 0; r < local->size && own_rc == 0; r++)
            if (r != local->rank) own_rc = give(local, &cards[r], ops, ctx, err);
        rc = agree(local, own_rc, err);
    }
    if (rc == 0) {
        struct inlet inlet = {listener, own.word, local->rank, local->size};

        rc = agree(local, take_all(&inlet, ops, ctx, err), err);
    }
    if (listener >= 0) close(listener);
    free(cards);
    return rc;
}
