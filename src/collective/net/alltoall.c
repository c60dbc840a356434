/* All-to-all over nodes. Flat: every rank sends to every other one. Hierarchical, with aggregation: the ranks of a node
 * copy what they have for a rank of another node into shared memory, the rank in the same place as the receiver
 * aggregates it, and one message goes from there to the receiver. A node sends as many messages as there are receivers,
 * each of its ranks its share of them, and nothing has to be forwarded on arrival. Inside a node everyone reads its
 * own.
 *
 * How much others send to others is known to nobody, so each node chooses for itself and its first message tells the
 * choice. All go through rounds with at most one message from a rank to another in each, sent in one round and
 * received in the next: whoever is furthest behind never waits for those ahead of it. */
#include "collective/net/net_priv.h"

#include <errno.h>
#include <stdio.h>

#include "base/metrics.h"

#define WORD sizeof(uint64_t)
#define HELP "bytes of all-to-alls that this process sent to others: intra-node, inter-node"

static struct ash_metric intra_node_bytes = {
    .name = "ashlar_all_to_all_bytes_total", .labels = "path=\"intra_node\"", .help = HELP, .type = ASH_METRIC_COUNTER};
static struct ash_metric inter_node_bytes = {
    .name = "ashlar_all_to_all_bytes_total", .labels = "path=\"inter_node\"", .help = HELP, .type = ASH_METRIC_COUNTER};

struct exchange {
    struct ash_net *net;
    const struct ash_net_view *view; /* as the ranks are placed */
    const uint8_t *in;
    uint8_t *out;
    const size_t *send_bytes, *recv_bytes;
    size_t send_at[ASH_SHARES_RANKS_MAX], recv_at[ASH_SHARES_RANKS_MAX];
    bool aggregates;                       /* this node does */
    size_t row;                            /* which of its two rows in shared memory everyone here uses */
    size_t all[ASH_SHARES_RANKS_MAX];      /* bytes that this node has for each rank, but what that has for itself */
    size_t gone[ASH_SHARES_RANKS_MAX];     /* of these, in earlier rounds */
    size_t slot;                           /* of the arenas, in this round */
    bool aggregated[ASH_SHARES_RANKS_MAX]; /* each other node does; known after its first message */
    size_t came[ASH_SHARES_RANKS_MAX];     /* from each node that does, so far; and what is still to come */
    size_t coming[ASH_SHARES_RANKS_MAX];
    size_t inside, across; /* bytes that this rank has brought to others */
};

/* ---- sizes ------------------------------------------------------------------------------------------------------- */

static void find_places(struct exchange *exchange)
{
    size_t from = 0, to = 0;

    for (size_t r = 0; r < exchange->net->opts.size; r++) {
        exchange->send_at[r] = from;
        exchange->recv_at[r] = to;
        from += exchange->send_bytes[r];
        to += exchange->recv_bytes[r];
    }
}

static int disagree(const struct exchange *exchange, size_t r, uint64_t bytes)
{
    const struct ash_net_opts *opts = &exchange->net->opts;
    char why[ASH_ERR_TEXT_BYTES];

    snprintf(why, sizeof(why), "all-to-all: rank %u sends %llu bytes to rank %u, which expects %zu", opts->members[r],
             (unsigned long long)bytes, opts->members[opts->rank], exchange->recv_bytes[r]);
    return ash_net_fail(exchange->net, -EPROTO, r, why);
}

/* A rank's row: its vote, and what it sends to each rank. Those of two calls lie beside each other, so that a rank may
 * write its next one while others still read. */
static uint64_t *row_of(const struct exchange *exchange, size_t place)
{
    return exchange->net->shared[place]->row[exchange->row];
}

/* What the rank in a place of this node sends to rank r of another, or of this one. */
static size_t bytes_of(const struct exchange *exchange, size_t place, size_t r)
{
    const struct ash_net_view *view = exchange->view;

    if (ash_net_rank_at(view, view->node, place) == r) return 0; /* it keeps that */
    return (size_t)row_of(exchange, place)[1 + r];
}

/* The vote of the rank that sends most counts: all here see the same, whatever made them vote so. */
static bool count_votes(const struct exchange *exchange)
{
    size_t size = exchange->net->opts.size, most = 0, voter = 0;

    for (size_t place = 0; place < ash_net_ranks_on(exchange->view, exchange->view->node); place++) {
        size_t bytes = 0;

        for (size_t r = 0; r < size; r++)
            bytes += bytes_of(exchange, place, r);
        if (bytes > most) {
            most = bytes;
            voter = place;
        }
    }
    return row_of(exchange, voter)[0] != 0;
}

/* Publish what this rank sends, before the call is compared. */
static void write_row(struct exchange *exchange)
{
    uint64_t *row = row_of(exchange, exchange->view->here);
    size_t total = 0;

    for (size_t r = 0; r < exchange->net->opts.size; r++) {
        row[1 + r] = exchange->send_bytes[r];
        total += exchange->send_bytes[r];
    }
    row[0] = !ash_net_flat(exchange->net, ASH_CALL_ALL_TO_ALL, total);
}

/* Look at what all here send to whom, and choose this node's algorithm. */
static int read_rows(struct exchange *exchange)
{
    size_t size = exchange->net->opts.size, rank = exchange->net->opts.rank;

    for (size_t place = 0; place < ash_net_ranks_on(exchange->view, exchange->view->node); place++) {
        size_t r = ash_net_rank_at(exchange->view, exchange->view->node, place);

        if (r != rank && bytes_of(exchange, place, rank) != exchange->recv_bytes[r])
            return disagree(exchange, r, bytes_of(exchange, place, rank));
        for (size_t to = 0; to < size; to++)
            exchange->all[to] += bytes_of(exchange, place, to);
    }
    exchange->aggregates = !exchange->view->is_alone && count_votes(exchange);
    return 0;
}

/* ---- aggregation ------------------------------------------------------------------------------------------------- */

/* An aggregate for rank r: what the ranks of a node have for it, one after the other. Each receiver's begins with
 * another rank, so that in a round all have about as much to bring. */
static size_t place_of(size_t i, const struct ash_net_view *view, size_t node, size_t r)
{
    return (i + view->map.place[r]) % ash_net_ranks_on(view, node);
}

/* Bytes of what lies at begin ... begin + size of an aggregate that are among first ... first + length; from where
 * on. */
static size_t overlap(size_t begin, size_t size, size_t first, size_t length, size_t *from_out)
{
    size_t low = begin > first ? begin : first, high = begin + size < first + length ? begin + size : first + length;

    *from_out = low - begin;
    return high > low ? high - low : 0;
}

/* Bytes in front of an aggregate's piece: its length, and at first how much each rank has in the aggregate. */
static size_t front_bytes(const struct ash_net_view *view, size_t node, size_t round)
{
    return WORD * (1 + (round == 0 ? ash_net_ranks_on(view, node) : 0));
}

/* Bytes of the aggregate for rank r in a round of messages of up to `room` bytes. */
static size_t piece_bytes(const struct exchange *exchange, size_t round, size_t room, size_t r)
{
    size_t left = exchange->all[r] - exchange->gone[r],
           front = front_bytes(exchange->view, exchange->view->node, round), most = room > front ? room - front : 0;

    return left < most ? left : most;
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

/* The parts of all ranks here, one by one, of the piece for rank r. used[place]: bytes of each stage that are taken. */
static void cut_piece(const struct exchange *exchange, size_t r, size_t length, size_t *used, struct part *parts)
{
    const struct ash_net_view *view = exchange->view;
    size_t forwarder = view->map.place[ash_net_sender(view, view->node, r)], begin = 0;

    for (size_t i = 0; i < ash_net_ranks_on(view, view->node); i++) {
        size_t place = place_of(i, view, view->node, r), size = bytes_of(exchange, place, r);

        parts[i].bytes = overlap(begin, size, exchange->gone[r], length, &parts[i].from);
        parts[i].bounce_at = place != forwarder ? used[place] : SIZE_MAX;
        if (place != forwarder) used[place] += parts[i].bytes;
        begin += size;
    }
}

/* Bytes that the fullest_bounce stage holds in a round of messages of up to room bytes. */
static size_t fullest_bounce(const struct exchange *exchange, size_t round, size_t room)
{
    size_t used[ASH_SHARES_RANKS_MAX] = {0}, most = 0;
    struct part parts[ASH_SHARES_RANKS_MAX];

    for (size_t r = 0; r < exchange->net->opts.size; r++)
        cut_piece(exchange, r, piece_bytes(exchange, round, room, r), used, parts);
    for (size_t place = 0; place < ash_net_ranks_on(exchange->view, exchange->view->node); place++)
        if (used[place] > most) most = used[place];
    return most;
}

static void copy_in_part(const struct exchange *exchange, size_t r, const struct part *part)
{
    uint8_t *bounce = exchange->net->shared[exchange->view->here]->bounce[exchange->slot];

    if (part->bounce_at == SIZE_MAX) return;
    ash_net_copy(bounce + part->bounce_at, exchange->in + exchange->send_at[r] + part->from, part->bytes);
}

/* Where a part is to be read by whoever aggregates it. */
static const uint8_t *part_data(const struct exchange *exchange, size_t r, size_t place, const struct part *part)
{
    if (part->bounce_at == SIZE_MAX) return exchange->in + exchange->send_at[r] + part->from;
    return exchange->net->shared[place]->bounce[exchange->slot] + part->bounce_at;
}

/* What the others here have for this rank. */
static void read_parts(struct exchange *exchange, const struct part *parts)
{
    const struct ash_net_view *view = exchange->view;
    size_t rank = exchange->net->opts.rank;

    for (size_t i = 0; i < ash_net_ranks_on(view, view->node); i++) {
        size_t place = place_of(i, view, view->node, rank), from = ash_net_rank_at(view, view->node, place);

        if (parts[i].bytes == 0) continue;
        memcpy(exchange->out + exchange->recv_at[from] + parts[i].from, part_data(exchange, rank, place, &parts[i]),
               parts[i].bytes);
        exchange->inside += parts[i].bytes;
    }
}

static int send_aggregate(struct exchange *exchange, size_t round, size_t r, size_t length, const struct part *parts)
{
    const struct ash_net_view *view = exchange->view;
    size_t here = ash_net_ranks_on(view, view->node), at = front_bytes(view, view->node, round), buffer;
    uint64_t word = length;
    uint8_t *body;
    int rc = ash_net_buffer(exchange->net, exchange->all[r], &buffer, &body);

    if (rc < 0) return rc;
    memcpy(body, &word, WORD);
    for (size_t place = 0; round == 0 && place < here; place++) {
        word = bytes_of(exchange, place, r);
        memcpy(body + (1 + place) * WORD, &word, WORD);
    }
    for (size_t i = 0; i < here; i++) {
        size_t place = place_of(i, view, view->node, r);

        ash_net_copy(body + at, part_data(exchange, r, place, &parts[i]), parts[i].bytes);
        at += parts[i].bytes;
        exchange->inside += place != view->here ? parts[i].bytes : 0;
    }
    exchange->across += at;
    return ash_net_send(exchange->net, buffer, r, at);
}

/* Walk over the pieces of a round, to copy in this rank's parts or to send and read what it aggregates. */
static int walk_round(struct exchange *exchange, size_t round, size_t room, bool copies_in)
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

/* All here see the same sizes, so they cut rounds alike. */
static int send_aggregates(struct exchange *exchange, size_t round)
{
    size_t room = ASH_MAILBOX_BODY_BYTES, most = fullest_bounce(exchange, round, room);
    int rc = 0;

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
        exchange->gone[r] += piece_bytes(exchange, round, room, r);
    return rc;
}

/* The first message says what each rank of the node has for this one. */
static int check_aggregate(struct exchange *exchange, size_t node, const uint64_t *bytes)
{
    for (size_t place = 0; place < ash_net_ranks_on(exchange->view, node); place++) {
        size_t r = ash_net_rank_at(exchange->view, node, place);

        if (bytes[place] != exchange->recv_bytes[r]) return disagree(exchange, r, bytes[place]);
        exchange->coming[node] += exchange->recv_bytes[r];
    }
    return 0;
}

static void scatter_aggregate(struct exchange *exchange, size_t node, size_t length, const uint8_t *data)
{
    const struct ash_net_view *view = exchange->view;
    size_t begin = 0, from;

    for (size_t i = 0; i < ash_net_ranks_on(view, node); i++) {
        size_t r = ash_net_rank_at(view, node, place_of(i, view, node, exchange->net->opts.rank)),
               bytes = overlap(begin, exchange->recv_bytes[r], exchange->came[node], length, &from);

        if (bytes > 0) memcpy(exchange->out + exchange->recv_at[r] + from, data, bytes);
        data += bytes;
        begin += exchange->recv_bytes[r];
    }
    exchange->came[node] += length;
    exchange->coming[node] -= length;
}

static int receive_aggregate(struct exchange *exchange, size_t round, size_t node)
{
    struct ash_net *net = exchange->net;
    size_t rank = ash_net_sender(exchange->view, node, net->opts.rank),
           front = front_bytes(exchange->view, node, round);
    const uint64_t *words;
    const uint8_t *body;
    int rc = ash_net_receive(net, rank, NULL, &body);

    if (rc < 0) return rc;
    words = (const uint64_t *)(const void *)body;
    if (round == 0) rc = check_aggregate(exchange, node, words + 1);
    if (rc < 0) return rc;
    if (words[0] > exchange->coming[node] || words[0] > ASH_MAILBOX_BODY_BYTES - front)
        return ash_net_fail(net, -EPROTO, rank, "all-to-all: an aggregate is longer than what is in it");
    scatter_aggregate(exchange, node, (size_t)words[0], body + front);
    return ash_net_release(net, rank);
}

/* ---- one by one -------------------------------------------------------------------------------------------------- */

/* Bytes of a pair in a round; the first round has a message of every pair, if an empty one. False: no message. */
static bool in_round(size_t pair_bytes, size_t round, size_t *size_out)
{
    size_t from = round * ASH_MAILBOX_BODY_BYTES;

    if (round > 0 && from >= pair_bytes) return false;
    *size_out = pair_bytes - from < ASH_MAILBOX_BODY_BYTES ? pair_bytes - from : ASH_MAILBOX_BODY_BYTES;
    return true;
}

static int send_pairs(struct exchange *exchange, size_t round)
{
    struct ash_net *net = exchange->net;
    int rc = 0;

    for (size_t i = 1; i < net->opts.size && rc == 0; i++) {
        size_t r = (net->opts.rank + i) % net->opts.size, buffer, size;
        uint8_t *body;

        if (!in_round(exchange->send_bytes[r], round, &size)) continue;
        rc = ash_net_buffer(net, exchange->send_bytes[r], &buffer, &body);
        if (rc < 0) break;
        ash_net_copy(body, exchange->in + exchange->send_at[r] + round * ASH_MAILBOX_BODY_BYTES, size);
        *(exchange->view->map.node[r] == exchange->view->node ? &exchange->inside : &exchange->across) += size;
        rc = ash_net_send(net, buffer, r, size);
    }
    return rc;
}

static int receive_pair(const struct exchange *exchange, size_t round, size_t r)
{
    const struct ash_net_head *head;
    const uint8_t *body;
    size_t size;
    int rc;

    if (r == exchange->net->opts.rank || !in_round(exchange->recv_bytes[r], round, &size)) return 0;
    rc = ash_net_receive(exchange->net, r, &head, &body);
    if (rc < 0) return rc;
    if (head->pair_bytes != exchange->recv_bytes[r]) return disagree(exchange, r, head->pair_bytes);
    ash_net_copy(exchange->out + exchange->recv_at[r] + round * ASH_MAILBOX_BODY_BYTES, body, size);
    return ash_net_release(exchange->net, r);
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

/* Everyone receives first from the rank that would aggregate for it; how that was sent is the choice of its node. */
static int receive_first(struct exchange *exchange, size_t node)
{
    const struct ash_net_head *head;
    const uint8_t *body;
    int rc =
        ash_net_receive(exchange->net, ash_net_sender(exchange->view, node, exchange->net->opts.rank), &head, &body);

    if (rc < 0) return rc;
    exchange->aggregated[node] = head->is_flat == 0;
    for (size_t place = 0; !exchange->aggregated[node] && place < ash_net_ranks_on(exchange->view, node); place++)
        exchange->net->silent[ash_net_rank_at(exchange->view, node, place)] = false;
    return 0;
}

static int receive_node(struct exchange *exchange, size_t round, size_t node)
{
    const struct ash_net_view *view = exchange->view;
    int rc = round == 0 && node != view->node ? receive_first(exchange, node) : 0;

    if (rc == 0 && exchange->aggregated[node])
        return round == 0 || exchange->coming[node] > 0 ? receive_aggregate(exchange, round, node) : 0;
    for (size_t place = 0; place < ash_net_ranks_on(view, node) && rc == 0; place++)
        rc = receive_pair(exchange, round, ash_net_rank_at(view, node, place));
    return rc;
}

static int receive_round(struct exchange *exchange, size_t round)
{
    const struct ash_net_view *view = exchange->view;
    int rc = 0;

    for (size_t i = 1; i <= view->map.nodes && rc == 0; i++) {
        size_t node = (view->node + view->map.nodes - i) % view->map.nodes;

        if (node != view->node || !exchange->aggregates) rc = receive_node(exchange, round, node);
    }
    return rc;
}

/* Has this rank, or another of a node that aggregates, something to send in a round? */
static bool sends(const struct exchange *exchange, size_t round)
{
    size_t size;

    for (size_t r = 0; r < exchange->net->opts.size; r++)
        if (exchange->aggregates ? exchange->gone[r] < exchange->all[r]
                                 : r != exchange->net->opts.rank && in_round(exchange->send_bytes[r], round, &size))
            return true;
    return round == 0;
}

static bool takes(const struct exchange *exchange, size_t round)
{
    const struct ash_net_view *view = exchange->view;
    size_t size;

    for (size_t r = 0; r < exchange->net->opts.size; r++) {
        size_t node = view->map.node[r];

        if (r == exchange->net->opts.rank || (node == view->node && exchange->aggregates)) continue;
        if (exchange->aggregated[node] ? exchange->coming[node] > 0 : in_round(exchange->recv_bytes[r], round, &size))
            return true;
    }
    return false;
}

/* Who need not send anything to this rank, as far as it knows yet. */
static void expect(struct exchange *exchange)
{
    const struct ash_net_view *view = exchange->view;
    size_t rank = exchange->net->opts.rank;

    for (size_t r = 0; r < exchange->net->opts.size; r++)
        exchange->net->silent[r] =
            view->map.node[r] == view->node ? exchange->aggregates : ash_net_sender(view, view->map.node[r], rank) != r;
}

static int run_rounds(struct exchange *exchange)
{
    int rc = 0;

    expect(exchange);
    for (size_t t = 0; rc == 0; t++) {
        bool sending = sends(exchange, t), taking = t > 0 && takes(exchange, t - 1);

        if (!sending && !taking && t > 0) break;
        if (sending) rc = exchange->aggregates ? send_aggregates(exchange, t) : send_pairs(exchange, t);
        if (rc == 0 && taking) rc = receive_round(exchange, t - 1);
    }
    return rc;
}

int ash_net_all_to_all(struct ash_net *net, const void *in, const size_t *send_bytes, void *out,
                       const size_t *recv_bytes, struct ash_err *err)
{
    struct exchange exchange = {.net = net,
                                .view = &net->placed,
                                .in = in,
                                .out = out,
                                .send_bytes = send_bytes,
                                .recv_bytes = recv_bytes,
                                .row = net->call.number % 2};
    size_t rank = net->opts.rank;
    int rc;

    write_row(&exchange);
    rc = ash_net_begin(net, (struct ash_coll_call){.kind = ASH_CALL_ALL_TO_ALL}, 0, err);
    if (rc < 0) return rc;
    if (send_bytes[rank] != recv_bytes[rank]) return disagree(&exchange, rank, send_bytes[rank]);
    find_places(&exchange);
    rc = read_rows(&exchange);
    net->view = exchange.aggregates ? &net->placed : &net->flat;
    if (rc == 0)
        ash_net_copy(exchange.out + exchange.recv_at[rank], exchange.in + exchange.send_at[rank], send_bytes[rank]);
    if (rc == 0) rc = run_rounds(&exchange);
    ash_metric_add(&intra_node_bytes, (double)exchange.inside);
    ash_metric_add(&inter_node_bytes, (double)exchange.across);
    return rc;
}
