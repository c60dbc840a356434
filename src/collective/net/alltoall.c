/* All-to-all over nodes. Flat: every rank sends to every other one. Hierarchical, with aggregation: the ranks of a node
 * copy what they have for a rank of another node into shared memory, the rank in the same place as the receiver
 * aggregates it, and one message goes from there to the receiver. A node sends as many messages as there are receivers,
 * each of its ranks its share of them, and nothing has to be forwarded on arrival. Inside a node each rank reads its
 * own part.
 *
 * No rank knows what others send to others, so each node chooses for itself and its first message tells the choice.
 * The call runs in rounds with at most one message from a rank to another in each, sent in one round and received in
 * the next: the slowest rank never waits for those ahead of it. */
#include "collective/net/alltoall_priv.h"

#include <errno.h>
#include <stdio.h>

#include "base/assert.h"
#include "record/metrics.h"

#define HELP "bytes of all-to-alls that this process sent to others: intra-node, inter-node"

static struct ash_metric intra_node_bytes = {
    .name = "ashlar_all_to_all_bytes_total", .labels = "path=\"intra_node\"", .help = HELP, .type = ASH_METRIC_COUNTER};
static struct ash_metric inter_node_bytes = {
    .name = "ashlar_all_to_all_bytes_total", .labels = "path=\"inter_node\"", .help = HELP, .type = ASH_METRIC_COUNTER};

/* ---- sizes ------------------------------------------------------------------------------------------------------- */

/* Where each rank's bytes begin in `in` and `out`. */
static void find_offsets(struct ash_alltoall *exchange)
{
    size_t from = 0, to = 0;

    for (size_t r = 0; r < exchange->net->opts.size; r++) {
        exchange->send_at[r] = from;
        exchange->recv_at[r] = to;
        from += exchange->send_bytes[r];
        to += exchange->recv_bytes[r];
    }
}

int ash_alltoall_disagree(const struct ash_alltoall *exchange, size_t r, uint64_t bytes)
{
    const struct ash_net_opts *opts = &exchange->net->opts;
    char why[ASH_ERR_TEXT_BYTES];

    ash_assert(r < exchange->net->opts.size);
    snprintf(why, sizeof(why), "all-to-all: rank %u sends %llu bytes to rank %u, which expects %zu", opts->members[r],
             (unsigned long long)bytes, opts->members[opts->rank], exchange->recv_bytes[r]);
    return ash_net_fail(exchange->net, -EPROTO, r, why);
}

/* The vote of the rank that sends most counts. All ranks of the node read the same rows, so they agree. */
static bool count_votes(const struct ash_alltoall *exchange)
{
    size_t size = exchange->net->opts.size, most = 0, voter = 0;

    for (size_t place = 0; place < ash_net_ranks_on(exchange->view, exchange->view->node); place++) {
        size_t bytes = 0;

        for (size_t r = 0; r < size; r++)
            bytes += ash_alltoall_bytes(exchange, place, r);
        if (bytes > most) {
            most = bytes;
            voter = place;
        }
    }
    return ash_alltoall_row(exchange, voter)[0] != 0;
}

/* Publish what this rank sends, before the call is compared. */
static void write_row(struct ash_alltoall *exchange)
{
    uint64_t *row = ash_alltoall_row(exchange, exchange->view->here);
    size_t total = 0;

    for (size_t r = 0; r < exchange->net->opts.size; r++) {
        row[1 + r] = exchange->send_bytes[r];
        total += exchange->send_bytes[r];
    }
    row[0] = !ash_net_flat(exchange->net, ASH_CALL_ALL_TO_ALL, total);
}

/* Read what each rank of this node sends to each rank, and choose this node's algorithm. */
static int read_rows(struct ash_alltoall *exchange)
{
    size_t size = exchange->net->opts.size, rank = exchange->net->opts.rank;

    for (size_t place = 0; place < ash_net_ranks_on(exchange->view, exchange->view->node); place++) {
        size_t r = ash_net_rank_at(exchange->view, exchange->view->node, place);

        if (r != rank && ash_alltoall_bytes(exchange, place, rank) != exchange->recv_bytes[r])
            return ash_alltoall_disagree(exchange, r, ash_alltoall_bytes(exchange, place, rank));
        for (size_t to = 0; to < size; to++)
            exchange->all[to] += ash_alltoall_bytes(exchange, place, to);
    }
    exchange->aggregates = !exchange->view->is_alone && count_votes(exchange);
    return 0;
}

/* ---- pairs ------------------------------------------------------------------------------------------------------- */

/* Bytes of a pair in a round; the first round has a message of every pair, if an empty one. False: no message. */
static bool in_round(size_t pair_bytes, size_t round, size_t *size_out)
{
    size_t from = round * ASH_MAILBOX_BODY_BYTES;

    if (round > 0 && from >= pair_bytes) return false;
    *size_out = pair_bytes - from < ASH_MAILBOX_BODY_BYTES ? pair_bytes - from : ASH_MAILBOX_BODY_BYTES;
    return true;
}

static int send_pairs(struct ash_alltoall *exchange, size_t round)
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
        *(exchange->view->map.node[r] == exchange->view->node ? &exchange->intra_node : &exchange->inter_node) += size;
        rc = ash_net_send(net, buffer, r, size);
    }
    return rc;
}

static int receive_pair(const struct ash_alltoall *exchange, size_t round, size_t r)
{
    const struct ash_net_head *head;
    const uint8_t *body;
    size_t size;
    int rc;

    ash_assert(r < exchange->net->opts.size);
    if (r == exchange->net->opts.rank || !in_round(exchange->recv_bytes[r], round, &size)) return 0;
    rc = ash_net_receive(exchange->net, r, &head, &body);
    if (rc < 0) return rc;
    if (head->pair_bytes != exchange->recv_bytes[r]) return ash_alltoall_disagree(exchange, r, head->pair_bytes);
    ash_net_copy(exchange->out + exchange->recv_at[r] + round * ASH_MAILBOX_BODY_BYTES, body, size);
    return ash_net_release(exchange->net, r);
}

/* ---- rounds ------------------------------------------------------------------------------------------------------ */

/* Every rank receives first from the rank that would aggregate for it; how that was sent is the choice of its node. */
static int receive_first(struct ash_alltoall *exchange, size_t node)
{
    const struct ash_net_head *head;
    const uint8_t *body;
    int rc =
        ash_net_receive(exchange->net, ash_net_sender(exchange->view, node, exchange->net->opts.rank), &head, &body);

    ash_assert(node < exchange->view->map.nodes);
    if (rc < 0) return rc;
    exchange->aggregated[node] = head->is_flat == 0;
    for (size_t place = 0; !exchange->aggregated[node] && place < ash_net_ranks_on(exchange->view, node); place++)
        exchange->net->silent[ash_net_rank_at(exchange->view, node, place)] = false;
    return 0;
}

static int receive_node(struct ash_alltoall *exchange, size_t round, size_t node)
{
    const struct ash_net_view *view = exchange->view;
    int rc = round == 0 && node != view->node ? receive_first(exchange, node) : 0;

    ash_assert(node < exchange->view->map.nodes);
    if (rc == 0 && exchange->aggregated[node])
        return round == 0 || exchange->remaining[node] > 0 ? ash_alltoall_receive_aggregate(exchange, round, node) : 0;
    for (size_t place = 0; place < ash_net_ranks_on(view, node) && rc == 0; place++)
        rc = receive_pair(exchange, round, ash_net_rank_at(view, node, place));
    return rc;
}

static int receive_round(struct ash_alltoall *exchange, size_t round)
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
static bool sends(const struct ash_alltoall *exchange, size_t round)
{
    size_t size;

    for (size_t r = 0; r < exchange->net->opts.size; r++)
        if (exchange->aggregates ? exchange->sent[r] < exchange->all[r]
                                 : r != exchange->net->opts.rank && in_round(exchange->send_bytes[r], round, &size))
            return true;
    return round == 0;
}

/* Does this rank still expect something that was sent in a round? */
static bool receives(const struct ash_alltoall *exchange, size_t round)
{
    const struct ash_net_view *view = exchange->view;
    size_t size;

    for (size_t r = 0; r < exchange->net->opts.size; r++) {
        size_t node = view->map.node[r];

        if (r == exchange->net->opts.rank || (node == view->node && exchange->aggregates)) continue;
        if (exchange->aggregated[node] ? exchange->remaining[node] > 0
                                       : in_round(exchange->recv_bytes[r], round, &size))
            return true;
    }
    return false;
}

/* Who need not send anything to this rank, as far as it knows yet. */
static void mark_silent(struct ash_alltoall *exchange)
{
    const struct ash_net_view *view = exchange->view;
    size_t rank = exchange->net->opts.rank;

    for (size_t r = 0; r < exchange->net->opts.size; r++)
        exchange->net->silent[r] =
            view->map.node[r] == view->node ? exchange->aggregates : ash_net_sender(view, view->map.node[r], rank) != r;
}

static int run_rounds(struct ash_alltoall *exchange)
{
    int rc = 0;

    mark_silent(exchange);
    for (size_t t = 0; rc == 0; t++) {
        bool sending = sends(exchange, t), receiving = t > 0 && receives(exchange, t - 1);

        if (!sending && !receiving && t > 0) break;
        if (sending) rc = exchange->aggregates ? ash_alltoall_send_aggregates(exchange, t) : send_pairs(exchange, t);
        if (rc == 0 && receiving) rc = receive_round(exchange, t - 1);
    }
    return rc;
}

int ash_net_all_to_all(struct ash_net *net, const void *in, const size_t *send_bytes, void *out,
                       const size_t *recv_bytes, struct ash_err *err)
{
    struct ash_alltoall exchange = {.net = net,
                                    .view = &net->placed,
                                    .in = in,
                                    .out = out,
                                    .send_bytes = send_bytes,
                                    .recv_bytes = recv_bytes,
                                    .row = net->call.number % 2};
    size_t rank = net->opts.rank;
    int rc;

    ash_assert(net->opts.size <= ASH_SHARES_RANKS_MAX && send_bytes != NULL && recv_bytes != NULL);
    write_row(&exchange);
    rc = ash_net_begin(net, (struct ash_coll_call){.kind = ASH_CALL_ALL_TO_ALL}, 0, err);
    if (rc < 0) return rc;
    if (send_bytes[rank] != recv_bytes[rank]) return ash_alltoall_disagree(&exchange, rank, send_bytes[rank]);
    find_offsets(&exchange);
    rc = read_rows(&exchange);
    net->view = exchange.aggregates ? &net->placed : &net->flat;
    if (rc < 0) return rc;
    ash_net_copy(exchange.out + exchange.recv_at[rank], exchange.in + exchange.send_at[rank], send_bytes[rank]);
    rc = run_rounds(&exchange);
    ash_metric_add(&intra_node_bytes, (double)exchange.intra_node);
    ash_metric_add(&inter_node_bytes, (double)exchange.inter_node);
    return rc;
}
