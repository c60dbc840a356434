/* watch - who is still there. A thread in every process keeps a connection to its neighbours in a binary tree of ranks:
 * a process that dies is noticed by its neighbours at once (the kernel closes its sockets), one that hangs or
 * whose network is cut after silent_s without a heartbeat. The rank that notices sends it to its other neighbours, so
 * all know within a few hops. Every neighbour of the lost rank notices by itself, so the tree needs no repair. */
#ifndef ASH_COLLECTIVE_MEMBER_WATCH_H
#define ASH_COLLECTIVE_MEMBER_WATCH_H

#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "base/socket.h"

#define ASH_WATCH_NAME_BYTES 64

/* One rank: how others reach it and name it. Plain data. */
struct ash_watch_member {
    char address[ASH_SOCKET_ADDR_BYTES];
    char host[ASH_WATCH_NAME_BYTES];
    int32_t pid, port;
};

struct ash_watch_opts {
    size_t rank, size;
    uint64_t job;
    uint32_t epoch;
    int listen_fd;                          /* what members[rank].port leads to; stays the caller's */
    const struct ash_watch_member *members; /* [size], borrowed */
    double silent_s;
    /* Called once, from the watching thread, for the first loss that this rank notices or receives: -ECONNRESET,
     * or the code of who gave up. */
    void (*on_loss)(void *ctx, size_t rank, int code, const char *why);
    void *ctx;
};

struct ash_watch;

/* Returns when all neighbours are there, or one of them is known not to come (on_loss has then been called). */
int ash_watch_open(const struct ash_watch_opts *opts, struct ash_watch **watch_out, struct ash_err *err);
/* Send the neighbours a farewell, so that they report no loss, and end the thread. NULL is a no-op. */
void ash_watch_close(struct ash_watch *watch);
/* Send all ranks that this one gives up: because of which rank (maybe itself), with what error, and why. The first time
 * counts. Returns at once. Any thread. */
void ash_watch_abort(struct ash_watch *watch, size_t rank, int code, const char *why);

#endif
