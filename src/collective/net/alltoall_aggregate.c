/* Aggregation of all-to-alls: what the ranks of a node have for one receiver becomes one message. All ranks of a node
 * know all its sizes, so they cut rounds and bounce buffers alike without a message. */
#include "collective/net/alltoall_priv.h"

#include <errno.h>

#include "base/assert.h"
#include "base/math.h"

#define WORD sizeof(uint64_t)

/* An aggregate for rank r: what the ranks of a node have for it, one after the other. Each receiver's begins with
 * another rank, so that in a round all ranks copy about as much. */
static size_t place_of(size_t i, const struct ash_net_view *view, size_t node, size_t r)
{
    return (i + view->map.place[r]) % ash_net_ranks_on(view, node);
}

/* Bytes that [begin, begin + size) and [first, first + length) of an aggregate share; *from_out: where they start,
 * relative to begin. */
static size_t overlap(size_t begin, size_t size, size_t first, size_t length, size_t *from_out)
{
    size_t low = ash_max(begin, first), high = ash_min(begin + size, first + length);

    *from_out = low - begin;
    return high > low ? high - low : 0;
}

/* Bytes in front of an aggregate's piece: its length, and at first how much each rank has in the aggregate. */
static size_t front_bytes(const struct ash_net_view *view, size_t node, size_t round)
{
    return WORD * (1 + (round == 0 ? ash_net_ranks_on(view, node) : 0));
}

/* Bytes of the aggregate for rank r in a round of messages of up to `room` bytes. */
static size_t piece_bytes(const struct ash_alltoall *exchange, size_t round, size_t room, size_t r)
{
    size_t left = exchange->all[r] - exchange->sent[r],
           front = front_bytes(exchange->view, exchange->view->node, round), most = room > front ? room - front : 0;

    ash_assert(exchange->sent[r] <= exchange->all[r]);
    return ash_min(left, most);
}

/* The i-th of all ranks in the order in which this node serves them: its own last. */
static size_t served(const struct ash_net_view *view, size_t i)
{
    size_t count = view->map.first[view->map.nodes], begin = view->map.first[view->node + 1];

    return view->map.ranks[(begin + i) % count];
}

/* One rank's part of one piece. */
struct part {
    size_t from, bytes; /* of what the rank sends to the receiver */
    size_t bounce_at;   /* where in its bounce buffer; SIZE_MAX: it aggregates this itself */
};

/* The parts of all ranks here, one by one, of the piece for rank r. used[place]: bytes of each bounce buffer that are
 * taken. */
static void cut_piece(const struct ash_alltoall *exchange, size_t r, size_t length, size_t *used, struct part *parts)
{
    const struct ash_net_view *view = exchange->view;
    size_t forwarder = view->map.place[ash_net_sender(view, view->node, r)], begin = 0;

    for (size_t i = 0; i < ash_net_ranks_on(view, view->node); i++) {
        size_t place = place_of(i, view, view->node, r), size = ash_alltoall_bytes(exchange, place, r);

        parts[i].bytes = overlap(begin, size, exchange->sent[r], length, &parts[i].from);
        parts[i].bounce_at = place != forwarder ? used[place] : SIZE_MAX;
        if (place != forwarder) used[place] += parts[i].bytes;
        begin += size;
    }
}

/* Bytes that the fullest bounce buffer holds in a round of messages of up to room bytes. */
static size_t fullest_bounce(const struct ash_alltoall *exchange, size_t round, size_t room)
{
    size_t used[ASH_SHARES_RANKS_MAX] = {0}, most = 0;
    struct part parts[ASH_SHARES_RANKS_MAX];

    for (size_t r = 0; r < exchange->net->opts.size; r++)
        cut_piece(exchange, r, piece_bytes(exchange, round, room, r), used, parts);
    for (size_t place = 0; place < ash_net_ranks_on(exchange->view, exchange->view->node); place++)
        if (used[place] > most) most = used[place];
    return most;
}

/* Copy a part of this rank to its bounce buffer, unless it aggregates that itself. */
static void copy_in_part(const struct ash_alltoall *exchange, size_t r, const struct part *part)
{
    uint8_t *bounce = exchange->net->shared[exchange->view->here]->bounce[exchange->slot];

    if (part->bounce_at == SIZE_MAX) return;
    ash_net_copy(bounce + part->bounce_at, exchange->in + exchange->send_at[r] + part->from, part->bytes);
}

/* Where the rank that aggregates reads a part. */
static const uint8_t *part_data(const struct ash_alltoall *exchange, size_t r, size_t place, const struct part *part)
{
    if (part->bounce_at == SIZE_MAX) return exchange->in + exchange->send_at[r] + part->from;
    return exchange->net->shared[place]->bounce[exchange->slot] + part->bounce_at;
}

/* Read what the others of this node have for this rank. */
static void read_parts(struct ash_alltoall *exchange, const struct part *parts)
{
    const struct ash_net_view *view = exchange->view;
    size_t rank = exchange->net->opts.rank;

    for (size_t i = 0; i < ash_net_ranks_on(view, view->node); i++) {
        size_t place = place_of(i, view, view->node, rank), from = ash_net_rank_at(view, view->node, place);

        if (parts[i].bytes == 0) continue;
        memcpy(exchange->out + exchange->recv_at[from] + parts[i].from, part_data(exchange, rank, place, &parts[i]),
               parts[i].bytes);
        exchange->intra_node += parts[i].bytes;
    }
}

/* Send rank r the piece of a round: its length, in the first round the sizes, then the parts. */
static int send_aggregate(struct ash_alltoall *exchange, size_t round, size_t r, size_t length,
                          const struct part *parts)
{
    const struct ash_net_view *view = exchange->view;
    size_t here = ash_net_ranks_on(view, view->node), at = front_bytes(view, view->node, round), buffer;
    uint64_t word = length;
    uint8_t *body;
    int rc = ash_net_buffer(exchange->net, exchange->all[r], &buffer, &body);

    if (rc < 0) return rc;
    memcpy(body, &word, WORD);
    for (size_t place = 0; round == 0 && place < here; place++) {
        word = ash_alltoall_bytes(exchange, place, r);
        memcpy(body + (1 + place) * WORD, &word, WORD);
    }
    for (size_t i = 0; i < here; i++) {
        size_t place = place_of(i, view, view->node, r);

        ash_net_copy(body + at, part_data(exchange, r, place, &parts[i]), parts[i].bytes);
        at += parts[i].bytes;
        exchange->intra_node += place != view->here ? parts[i].bytes : 0;
    }
    ash_assert(at <= ASH_MAILBOX_BODY_BYTES); /* piece_bytes() left room */
    exchange->inter_node += at;
    return ash_net_send(exchange->net, buffer, r, at);
}

/* Walk over the pieces of a round, to copy in this rank's parts or to send and read aggregated ones. */
static int walk_round(struct ash_alltoall *exchange, size_t round, size_t room, bool copies_in)
{
    const struct ash_net_view *view = exchange->view;
    size_t used[ASH_SHARES_RANKS_MAX] = {0}, size = exchange->net->opts.size, here = ash_net_ranks_on(view, view->node);
    struct part parts[ASH_SHARES_RANKS_MAX];
    int rc = 0;

    for (size_t k = 0; k < size && rc == 0; k++) {
        size_t r = served(view, k), length = piece_bytes(exchange, round, room, r);

        if (length == 0 && round > 0) continue;
        cut_piece(exchange, r, length, used, parts);
        if (copies_in)
            copy_in_part(exchange, r, &parts[(view->here + here - view->map.place[r] % here) % here]);
        else if (r == exchange->net->opts.rank)
            read_parts(exchange, parts);
        else if (view->map.node[r] != view->node && ash_net_sender(view, view->node, r) == exchange->net->opts.rank)
            rc = send_aggregate(exchange, round, r, length, parts);
    }
    return rc;
}

int ash_alltoall_send_aggregates(struct ash_alltoall *exchange, size_t round)
{
    size_t room = ASH_MAILBOX_BODY_BYTES, most = fullest_bounce(exchange, round, room);
    int rc = 0;

    ash_assert(exchange->aggregates && exchange->net->opts.size <= ASH_SHARES_RANKS_MAX);
    while (most > ASH_NET_BOUNCE_BYTES) {
        room /= 2;
        most = fullest_bounce(exchange, round, room);
    }
    if (most > 0) {
        exchange->slot = (exchange->slot + 1) % ASH_NET_SLOTS;
        rc = walk_round(exchange, round, room, true);
        if (rc == 0) rc = ash_net_node_barrier(exchange->net);
    }
    if (rc == 0) rc = walk_round(exchange, round, room, false);
    for (size_t r = 0; r < exchange->net->opts.size; r++)
        exchange->sent[r] += piece_bytes(exchange, round, room, r);
    return rc;
}

/* The first message has the bytes that each rank of the node sends to this one: compare them. */
static int check_aggregate(struct ash_alltoall *exchange, size_t node, const uint64_t *bytes)
{
    ash_assert(node < exchange->view->map.nodes);
    for (size_t place = 0; place < ash_net_ranks_on(exchange->view, node); place++) {
        size_t r = ash_net_rank_at(exchange->view, node, place);

        if (bytes[place] != exchange->recv_bytes[r]) return ash_alltoall_disagree(exchange, r, bytes[place]);
        exchange->remaining[node] += exchange->recv_bytes[r];
    }
    return 0;
}

/* Copy a piece of a node's aggregate to where each of its ranks' bytes belong. */
static void scatter_aggregate(struct ash_alltoall *exchange, size_t node, size_t length, const uint8_t *data)
{
    const struct ash_net_view *view = exchange->view;
    size_t begin = 0, from;

    for (size_t i = 0; i < ash_net_ranks_on(view, node); i++) {
        size_t r = ash_net_rank_at(view, node, place_of(i, view, node, exchange->net->opts.rank)),
               bytes = overlap(begin, exchange->recv_bytes[r], exchange->received[node], length, &from);

        if (bytes > 0) memcpy(exchange->out + exchange->recv_at[r] + from, data, bytes);
        data += bytes;
        begin += exchange->recv_bytes[r];
    }
    exchange->received[node] += length;
    ash_assert(length <= exchange->remaining[node]);
    exchange->remaining[node] -= length;
}

int ash_alltoall_receive_aggregate(struct ash_alltoall *exchange, size_t round, size_t node)
{
    struct ash_net *net = exchange->net;
    size_t rank = ash_net_sender(exchange->view, node, net->opts.rank),
           front = front_bytes(exchange->view, node, round);
    const uint64_t *words;
    const uint8_t *body;
    int rc;

    ash_assert(node < exchange->view->map.nodes && exchange->aggregated[node]);
    rc = ash_net_receive(net, rank, NULL, &body);
    if (rc < 0) return rc;
    words = (const uint64_t *)(const void *)body;
    if (round == 0) rc = check_aggregate(exchange, node, words + 1);
    if (rc < 0) return rc;
    if (words[0] > exchange->remaining[node] || words[0] > ASH_MAILBOX_BODY_BYTES - front)
        return ash_net_fail(net, -EPROTO, rank, "all-to-all: an aggregate is longer than what is in it");
    scatter_aggregate(exchange, node, (size_t)words[0], body + front);
    return ash_net_release(net, rank);
}
