/* net_priv - a group over several nodes, as net.c, sums.c, moves.c and alltoall*.c see it. */
#ifndef ASH_COLLECTIVE_NET_NET_PRIV_H
#define ASH_COLLECTIVE_NET_NET_PRIV_H

#include <string.h>

#include "base/node_map.h"
#include "collective/net/net.h"
#include "collective/net/reduce_plan.h"

#define ASH_NET_SLOTS 3 /* rounds of a call that are in flight in a bounce buffer */
#define ASH_NET_BOUNCE_BYTES ((size_t)512 * 1024)
#define ASH_NET_RESULT_BYTES ((size_t)256 * 1024)

/* Memory of a rank that its node has mapped: its contribution to a round, and its results for the others. */
struct ash_net_shared {
    uint8_t bounce[ASH_NET_SLOTS][ASH_NET_BOUNCE_BYTES];
    uint8_t result[ASH_NET_SLOTS][ASH_NET_RESULT_BYTES];
    uint64_t row[2][1 + ASH_SHARES_RANKS_MAX]; /* of an all-to-all, every other call: see alltoall.c */
};

/* How the ranks of a group are taken to be placed: as they are, or each on another node. */
struct ash_net_view {
    bool is_alone;               /* this rank shares its node with none */
    size_t node, here;           /* this rank's node, and its place there */
    struct ash_node_map map;     /* map.least ranks of each node forward at a time */
    struct ash_reduce_plan even; /* of one part from each rank */
};

/* In front of every message. */
struct ash_net_head {
    struct ash_coll_call call;
    uint64_t is_flat, pair_bytes; /* is_flat: 0 or 1; pair_bytes: all-to-all */
};
_Static_assert(sizeof(struct ash_net_head) <= ASH_MAILBOX_HEAD_BYTES, "a head fits");

struct ash_net {
    struct ash_net_opts opts;
    struct ash_net_view placed, flat;
    const struct ash_net_view *view; /* of the present call */
    struct ash_coll_call call;       /* the present one, or the last */
    struct ash_net_mailboxes mailboxes;
    struct ash_mailbox *mailbox;  /* of calls */
    pthread_mutex_t control_lock; /* of what follows, and of reading answers to offers */
    struct ash_net_link *offered; /* channels that have been offered and not accepted yet, oldest first */
    struct ash_segment own_shared, peer_shared[ASH_LOCAL_RANKS_MAX];
    struct ash_net_shared *shared[ASH_LOCAL_RANKS_MAX]; /* of the ranks of this node */
    struct ash_shares even;
    uint8_t *own; /* partial sums of this rank's own, two rounds: 2 * ASH_MAILBOX_SLOT_BYTES */
    uint64_t arrived[ASH_SHARES_RANKS_MAX]; /* messages of each rank before this call */
    bool silent[ASH_SHARES_RANKS_MAX];      /* ranks that need not send to this one in this call */
    struct ash_err *err;                    /* of the present call */
    bool connected, leaving;
};

/* Ranks on a node; rank number `place` there. */
static inline size_t ash_net_ranks_on(const struct ash_net_view *view, size_t node)
{
    return ash_node_map_ranks_on(&view->map, node);
}

static inline size_t ash_net_rank_at(const struct ash_net_view *view, size_t node, size_t place)
{
    return ash_node_map_rank_at(&view->map, node, place);
}

/* Who on a node forwards share `cell` (of view->map.least) in a round: round-robin. */
static inline size_t ash_net_forwarder(const struct ash_net_view *view, size_t node, size_t cell, size_t round)
{
    return (cell + round) % ash_net_ranks_on(view, node);
}

/* Who on node n sends to rank r for all of it: the one in the same place. */
static inline size_t ash_net_sender(const struct ash_net_view *view, size_t n, size_t r)
{
    return ash_net_rank_at(view, n, view->map.place[r] % ash_net_ranks_on(view, n));
}

/* As memcpy, also of nothing from nowhere. */
static inline void ash_net_copy(void *to, const void *from, size_t size_bytes)
{
    if (size_bytes > 0) memcpy(to, from, size_bytes);
}

/* Is a call of size_bytes flat (every rank with every other one), by the settings or because it is cheaper? */
bool ash_net_flat(const struct ash_net *net, enum ash_call_kind kind, size_t size_bytes);
/* Is it cheaper to send every rank the whole result than its share? For an all-reduce whose nodes contribute `pieces`
 * partial sums each. */
bool ash_net_whole(const struct ash_net *net, size_t pieces, size_t size_bytes);
/* Begin a call: choose the algorithm, compare with the ranks of this node. */
int ash_net_begin(struct ash_net *net, struct ash_coll_call call, size_t size_bytes, struct ash_err *err);
/* Wait until all ranks of this node have called it. */
int ash_net_node_barrier(struct ash_net *net);
/* A buffer with its head written: body_out is for the message. */
int ash_net_buffer(struct ash_net *net, uint64_t pair_bytes, size_t *buffer_out, uint8_t **body_out);
/* Send a buffer with body_bytes after its head. Returns 0 or the group's error. */
int ash_net_send(struct ash_net *net, size_t buffer, size_t rank, size_t body_bytes);
/* The next message of a rank, which must belong to this call. */
int ash_net_receive(struct ash_net *net, size_t rank, const struct ash_net_head **head_out, const uint8_t **body_out);
/* The message is read. */
int ash_net_release(struct ash_net *net, size_t rank);
/* The call has failed: the end of the group. Returns the code. */
int ash_net_fail(struct ash_net *net, int code, size_t failed_rank, const char *why);

#endif
