/* net - collectives between ranks of which not all share memory. Hierarchical: a node first reduces or gathers
 * through shared memory, and then every byte crosses once, each local rank carrying its share. Flat: every rank
 * exchanges with every other one, as if each were alone on its node. The bits are those of one node
 * (collective/net/reduce_plan.h). All ranks make the same calls in the same order; calls are compared inside a node
 * and across. The state of the group (ash_local_check) is that of its part on this node: errors of either end both.
 * One owner thread. */
#ifndef ASH_COLLECTIVE_NET_NET_H
#define ASH_COLLECTIVE_NET_NET_H

#include "base/node_map.h"
#include "collective/host/local.h"
#include "collective/net/mailbox.h"

enum ash_net_algorithm { ASH_NET_AUTO, ASH_NET_HIERARCHICAL, ASH_NET_FLAT };

struct ash_net;

/* The calls, on a struct ash_net (net_ops.c), and channels between nodes (net_channel.c). */
extern const struct ash_coll_ops ash_net_ops;
extern const struct ash_channel_ops ash_net_channel_ops;

/* The mailboxes of a group over several nodes: of its calls, of messages between two ranks, and of channels that are
 * offered and accepted. */
enum { ASH_NET_CALLS, ASH_NET_MESSAGES, ASH_NET_OFFERS, ASH_NET_ACCEPTS, ASH_NET_MAILBOXES };

#define ASH_NET_CONTROL_SLOTS 8 /* offers, or answers, of one rank to another that may wait to be read */
#define ASH_NET_MESSAGE_BYTES ((size_t)64 * 1024) /* of a message, or a piece of one */

struct ash_net_mailboxes {
    struct ash_mailbox *mailboxes[ASH_NET_MAILBOXES];
};
/* What the other ranks need to send to them. Plain data. */
struct ash_net_address {
    struct ash_mailbox_address mailboxes[ASH_NET_MAILBOXES];
};

/* Open mailboxes for size ranks, of which this is rank `rank`; members[r] is rank r's number in the root group. */
int ash_net_mailboxes_open(struct ash_progress *progress, size_t rank, size_t size, const uint32_t *members,
                           struct ash_net_mailboxes *mailboxes, struct ash_net_address *address_out,
                           struct ash_err *err);
/* Zeroed ones: a no-op. */
void ash_net_mailboxes_close(struct ash_net_mailboxes *mailboxes);

struct ash_net_opts {
    struct ash_progress *progress;
    struct ash_net_mailboxes mailboxes;      /* of this group; taken over, also on failure */
    const struct ash_net_address *addresses; /* [size] of all ranks, borrowed during open */
    struct ash_local *local;                 /* the ranks of this node, connected; borrowed */
    size_t rank, size;
    const uint32_t *members;          /* [size] numbers in the root group */
    const struct ash_node_map *nodes; /* of its ranks; borrowed during open */
    enum ash_net_algorithm algorithm;
    struct ash_cost cost;          /* by which ASH_NET_AUTO chooses; equal on all ranks */
    struct ash_wait_limits limits; /* how long a rank may be late for a call */
};

/* All ranks of the group call it, like what follows. */
int ash_net_open(const struct ash_net_opts *opts, struct ash_net **net_out, struct ash_err *err);
/* Waits a second at most until the others close too, so that the last messages arrive. NULL is a no-op. */
void ash_net_close(struct ash_net *net);

/* As ash_group_barrier. */
int ash_net_barrier(struct ash_net *net, struct ash_err *err);
/* As ash_group_all_reduce_parts. */
int ash_net_all_reduce(struct ash_net *net, const void *const *parts, const struct ash_shares *shares, void *out,
                       size_t count, enum ash_coll_dtype dtype, enum ash_coll_op op, struct ash_err *err);
/* As ash_group_reduce_scatter_parts; -E2BIG if there are too many parts for a message. */
int ash_net_reduce_scatter(struct ash_net *net, const void *const *parts, const struct ash_shares *shares, void *out,
                           size_t count, enum ash_coll_dtype dtype, enum ash_coll_op op, struct ash_err *err);
/* As ash_group_all_gather. */
int ash_net_all_gather(struct ash_net *net, const void *in, void *out, size_t size_bytes, struct ash_err *err);
/* As ash_group_broadcast. */
int ash_net_broadcast(struct ash_net *net, void *data, size_t size_bytes, size_t root, struct ash_err *err);
/* As ash_group_all_to_all. */
int ash_net_all_to_all(struct ash_net *net, const void *in, const size_t *send_bytes, void *out,
                       const size_t *recv_bytes, struct ash_err *err);

#endif
