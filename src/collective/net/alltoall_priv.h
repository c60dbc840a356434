/* alltoall_priv - the state of one all-to-all (alltoall.c), and its aggregation (alltoall_aggregate.c). */
#ifndef ASH_COLLECTIVE_NET_ALLTOALL_PRIV_H
#define ASH_COLLECTIVE_NET_ALLTOALL_PRIV_H

#include "collective/net/net_priv.h"

/* One call of one rank. */
struct ash_alltoall {
    struct ash_net *net;
    const struct ash_net_view *view; /* as the ranks are placed */
    const uint8_t *in;
    uint8_t *out;
    const size_t *send_bytes, *recv_bytes;
    size_t send_at[ASH_SHARES_RANKS_MAX], recv_at[ASH_SHARES_RANKS_MAX];
    bool aggregates;                        /* this node aggregates */
    size_t row;                             /* which of their two rows in shared memory the ranks of this node use */
    size_t all[ASH_SHARES_RANKS_MAX];       /* bytes that this node has for each rank, without the rank's own */
    size_t sent[ASH_SHARES_RANKS_MAX];      /* of these, in earlier rounds */
    size_t slot;                            /* of the bounce buffers, in this round */
    bool aggregated[ASH_SHARES_RANKS_MAX];  /* by node: it aggregates; known after its first message */
    size_t received[ASH_SHARES_RANKS_MAX];  /* by node that aggregates: bytes so far */
    size_t remaining[ASH_SHARES_RANKS_MAX]; /* by node that aggregates: bytes that are still to come */
    size_t intra_node, inter_node;          /* bytes that this rank has moved to others */
};

/* A rank's row: its vote, and its byte count for each rank. There are two, for alternate calls, so that a rank may
 * write its next one while others still read. */
static inline uint64_t *ash_alltoall_row(const struct ash_alltoall *exchange, size_t place)
{
    return exchange->net->shared[place]->row[exchange->row];
}

/* Bytes that the rank in a place of this node sends to rank r, of any node; 0 for itself. */
static inline size_t ash_alltoall_bytes(const struct ash_alltoall *exchange, size_t place, size_t r)
{
    const struct ash_net_view *view = exchange->view;

    if (ash_net_rank_at(view, view->node, place) == r) return 0;
    return (size_t)ash_alltoall_row(exchange, place)[1 + r];
}

/* Rank r sends `bytes` to this one, which expects another number: returns the error that ends the call for all
 * ranks. */
int ash_alltoall_disagree(const struct ash_alltoall *exchange, size_t r, uint64_t bytes);

/* alltoall_aggregate.c: send this rank's aggregates of a round, and read what its node has for it. All ranks of the
 * node call it. Returns 0 or a negative errno. */
int ash_alltoall_send_aggregates(struct ash_alltoall *exchange, size_t round);
/* Receive the aggregate of a round from a node that aggregates. Returns 0, or -EPROTO where sizes differ, or what the
 * wait returned. */
int ash_alltoall_receive_aggregate(struct ash_alltoall *exchange, size_t round, size_t node);

#endif
