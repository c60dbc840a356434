/* Collectives over nodes that move data without adding it up: barrier, all-gather, broadcast. */
#include "collective/net/net_priv.h"

#include <errno.h>

#include "base/assert.h"
#include "base/math.h"

/* ---- barrier ----------------------------------------------------------------------------------------------------- */

/* The first ranks of all nodes exchange empty messages. */
static int exchange_empty(struct ash_net *net)
{
    const struct ash_net_view *view = net->view;
    const uint8_t *received;
    uint8_t *body;
    size_t buffer;
    int rc = ash_net_buffer(net, 0, &buffer, &body);

    for (size_t i = 1; i < view->map.nodes && rc == 0; i++)
        rc = ash_net_send(net, buffer, ash_net_rank_at(view, (view->node + i) % view->map.nodes, 0), 0);
    for (size_t i = 1; i < view->map.nodes && rc == 0; i++) {
        size_t rank = ash_net_rank_at(view, (view->node + i) % view->map.nodes, 0);

        rc = ash_net_receive(net, rank, NULL, &received);
        if (rc == 0) rc = ash_net_release(net, rank);
    }
    return rc;
}

int ash_net_barrier(struct ash_net *net, struct ash_err *err)
{
    int rc = ash_net_begin(net, (struct ash_coll_call){.kind = ASH_CALL_BARRIER}, 0, err);

    if (rc < 0) return rc;
    if (net->view->here == 0) rc = exchange_empty(net);
    if (rc < 0) return rc;
    return net->view->is_alone ? 0 : ash_net_node_barrier(net);
}

/* ---- all-gather -------------------------------------------------------------------------------------------------- */

struct gather {
    struct ash_net *net;
    const struct ash_net_view *view;
    const uint8_t *in;
    uint8_t *out;
    size_t size_bytes, block;
    size_t rows; /* ranks of a node for which one of this node's receives, at most */
};

static size_t gather_length(const struct gather *gather, size_t round)
{
    return ash_min(gather->size_bytes - round * gather->block, gather->block);
}

/* The place on node n that receives what rank r sends, for all ranks there. */
static size_t receiver_of(const struct ash_net_view *view, size_t n, size_t r)
{
    ash_assert(n < view->map.nodes);
    return view->map.place[r] % ash_net_ranks_on(view, n);
}

/* Where rank r's block is in the results of its receiver. */
static size_t row_of(const struct gather *gather, size_t r)
{
    const struct ash_net_view *view = gather->view;

    ash_assert(r < gather->net->opts.size);
    return view->map.node[r] * gather->rows + view->map.place[r] / ash_net_ranks_on(view, view->node);
}

/* Send this rank's block of a round to every other node, and copy it in for its own node. */
static int send_block(const struct gather *gather, size_t round)
{
    const struct ash_net_view *view = gather->view;
    struct ash_net *net = gather->net;
    size_t length = gather_length(gather, round), buffer;
    const uint8_t *from = gather->in + round * gather->block;
    uint8_t *body;
    int rc = ash_net_buffer(net, 0, &buffer, &body);

    if (rc < 0) return rc;
    ash_net_copy(body, from, length);
    if (!view->is_alone) ash_net_copy(net->shared[view->here]->bounce[round % ASH_NET_SLOTS], from, length);
    for (size_t i = 1; i < view->map.nodes && rc == 0; i++) {
        size_t n = (view->node + i) % view->map.nodes;

        rc = ash_net_send(net, buffer, ash_net_rank_at(view, n, receiver_of(view, n, net->opts.rank)), length);
    }
    return rc;
}

/* Receive what other nodes sent in a round, into out or, for the node, into the results. */
static int receive_blocks(const struct gather *gather, size_t round)
{
    const struct ash_net_view *view = gather->view;
    struct ash_net *net = gather->net;
    size_t length = gather_length(gather, round);
    int rc = 0;

    for (size_t r = 0; r < net->opts.size && rc == 0; r++) {
        const uint8_t *body;

        if (view->map.node[r] == view->node || receiver_of(view, view->node, r) != view->here) continue;
        rc = ash_net_receive(net, r, NULL, &body);
        if (rc < 0) break;
        if (view->is_alone)
            ash_net_copy(gather->out + r * gather->size_bytes + round * gather->block, body, length);
        else
            ash_net_copy(net->shared[view->here]->result[round % ASH_NET_SLOTS] + row_of(gather, r) * gather->block,
                         body, length);
        rc = ash_net_release(net, r);
    }
    return rc;
}

/* Copy the blocks that the ranks of this node have: their own and those they received. */
static int share_blocks(const struct gather *gather, size_t round)
{
    const struct ash_net_view *view = gather->view;
    struct ash_net *net = gather->net;
    size_t length = gather_length(gather, round), slot = round % ASH_NET_SLOTS;
    int rc = ash_net_node_barrier(net);

    for (size_t r = 0; r < net->opts.size && rc == 0; r++) {
        const uint8_t *from =
            view->map.node[r] == view->node
                ? net->shared[view->map.place[r]]->bounce[slot]
                : net->shared[receiver_of(view, view->node, r)]->result[slot] + row_of(gather, r) * gather->block;

        if (r != net->opts.rank)
            ash_net_copy(gather->out + r * gather->size_bytes + round * gather->block, from, length);
    }
    return rc;
}

static size_t rows_of(const struct ash_net_view *view)
{
    size_t here = ash_net_ranks_on(view, view->node), rows = 1;

    for (size_t n = 0; n < view->map.nodes; n++)
        rows = ash_max(rows, ash_div_up(ash_net_ranks_on(view, n), here));
    return rows;
}

int ash_net_all_gather(struct ash_net *net, const void *in, void *out, size_t size_bytes, struct ash_err *err)
{
    struct ash_coll_call call = {.kind = ASH_CALL_ALL_GATHER, .size_bytes = size_bytes};
    struct gather gather = {
        .net = net, .in = in, .out = out, .size_bytes = size_bytes, .block = ASH_MAILBOX_BODY_BYTES};
    int rc = ash_net_begin(net, call, size_bytes, err);
    uint8_t *own = (uint8_t *)out + net->opts.rank * size_bytes;
    size_t rounds, rows;

    if (rc < 0) return rc;
    gather.view = net->view;
    gather.rows = rows_of(gather.view);
    rows = gather.view->map.nodes * ash_div_up(net->opts.size, gather.view->map.least); /* of any rank */
    if (gather.block * rows > ASH_NET_RESULT_BYTES) gather.block = ASH_NET_RESULT_BYTES / rows / 64 * 64;
    if (size_bytes > 0 && own != in) memmove(own, in, size_bytes); /* at its source, its owner may still read it */
    ash_assert(gather.block > 0);
    rounds = size_bytes == 0 ? 1 : ash_div_up(size_bytes, gather.block);
    for (size_t t = 0; t < rounds + 1 && rc == 0; t++) {
        if (t < rounds) rc = send_block(&gather, t);
        if (rc == 0 && t >= 1) rc = receive_blocks(&gather, t - 1);
        if (rc == 0 && t >= 1 && !gather.view->is_alone) rc = share_blocks(&gather, t - 1);
    }
    return rc;
}

/* ---- broadcast --------------------------------------------------------------------------------------------------- */

struct cast {
    struct ash_net *net;
    const struct ash_net_view *view;
    uint8_t *data;
    size_t size_bytes, block, root, node; /* node: the root's */
};

static size_t cast_length(const struct cast *cast, size_t round)
{
    return ash_min(cast->size_bytes - round * cast->block, cast->block);
}

static size_t cast_begin(const struct cast *cast, size_t length, size_t cell)
{
    ash_assert(cell <= cast->view->map.least);
    return length * cell / cast->view->map.least;
}

/* The cell that this rank forwards in a round, or none. */
static bool cast_cell(const struct cast *cast, size_t round, size_t *cell_out)
{
    for (size_t cell = 0; cell < cast->view->map.least; cell++)
        if (ash_net_forwarder(cast->view, cast->view->node, cell, round) == cast->view->here) {
            *cell_out = cell;
            return true;
        }
    return false;
}

static size_t cast_rank(const struct cast *cast, size_t node, size_t cell, size_t round)
{
    return ash_net_rank_at(cast->view, node, ash_net_forwarder(cast->view, node, cell, round));
}

/* Before the first round the receivers send an empty message, so that mismatched calls are noticed. */
static int announce(const struct cast *cast)
{
    const struct ash_net_view *view = cast->view;
    const uint8_t *received;
    uint8_t *body;
    size_t cell, buffer;
    int rc = 0;

    if (!cast_cell(cast, 0, &cell)) return 0;
    if (view->node != cast->node) {
        rc = ash_net_buffer(cast->net, 0, &buffer, &body);
        return rc < 0 ? rc : ash_net_send(cast->net, buffer, cast_rank(cast, cast->node, cell, 0), 0);
    }
    for (size_t n = 0; n < view->map.nodes && rc == 0; n++) {
        if (n == view->node) continue;
        rc = ash_net_receive(cast->net, cast_rank(cast, n, cell, 0), NULL, &received);
        if (rc == 0) rc = ash_net_release(cast->net, cast_rank(cast, n, cell, 0));
    }
    return rc;
}

/* One round on the root's node: share the block, and send this rank's cell to the other nodes. */
static int cast_send(const struct cast *cast, size_t round)
{
    const struct ash_net_view *view = cast->view;
    struct ash_net *net = cast->net;
    size_t length = cast_length(cast, round), slot = round % ASH_NET_SLOTS, cell, begin, size, buffer;
    uint8_t *block = cast->data + round * cast->block, *body;
    int rc = 0;

    if (!view->is_alone) {
        uint8_t *staged = net->shared[view->map.place[cast->root]]->bounce[slot];

        if (net->opts.rank == cast->root) ash_net_copy(staged, block, length);
        rc = ash_net_node_barrier(net);
        if (rc == 0 && net->opts.rank != cast->root) ash_net_copy(block, staged, length);
    }
    if (rc < 0 || !cast_cell(cast, round, &cell)) return rc;
    begin = cast_begin(cast, length, cell);
    size = cast_begin(cast, length, cell + 1) - begin;
    rc = ash_net_buffer(net, 0, &buffer, &body);
    if (rc < 0) return rc;
    ash_net_copy(body, block + begin, size);
    for (size_t i = 1; i < view->map.nodes && rc == 0; i++)
        rc = ash_net_send(net, buffer, cast_rank(cast, (view->node + i) % view->map.nodes, cell, round), size);
    return rc;
}

/* One round on another node: receive this rank's cell, and copy all cells. */
static int cast_receive(const struct cast *cast, size_t round)
{
    const struct ash_net_view *view = cast->view;
    struct ash_net *net = cast->net;
    size_t length = cast_length(cast, round), slot = round % ASH_NET_SLOTS, cell;
    uint8_t *block = cast->data + round * cast->block;
    const uint8_t *body;
    int rc = 0;

    if (cast_cell(cast, round, &cell)) {
        size_t begin = cast_begin(cast, length, cell), size = cast_begin(cast, length, cell + 1) - begin,
               rank = cast_rank(cast, cast->node, cell, round);

        rc = ash_net_receive(net, rank, NULL, &body);
        if (rc < 0) return rc;
        ash_net_copy(view->is_alone ? block + begin : net->shared[view->here]->result[slot] + begin, body, size);
        rc = ash_net_release(net, rank);
        if (rc < 0) return rc;
    }
    if (view->is_alone) return 0;
    rc = ash_net_node_barrier(net);
    for (cell = 0; cell < view->map.least && rc == 0; cell++) {
        size_t begin = cast_begin(cast, length, cell), size = cast_begin(cast, length, cell + 1) - begin;

        ash_net_copy(block + begin, net->shared[ash_net_forwarder(view, view->node, cell, round)]->result[slot] + begin,
                     size);
    }
    return rc;
}

int ash_net_broadcast(struct ash_net *net, void *data, size_t size_bytes, size_t root, struct ash_err *err)
{
    struct ash_coll_call call = {.kind = ASH_CALL_BROADCAST, .root = (uint16_t)root, .size_bytes = size_bytes};
    struct cast cast = {.net = net, .data = data, .size_bytes = size_bytes, .root = root};
    size_t rounds;
    int rc;

    if (root >= net->opts.size)
        return ash_err_set(err, -EINVAL, "a broadcast from rank %zu of %zu", root, net->opts.size);
    rc = ash_net_begin(net, call, size_bytes, err);
    if (rc < 0) return rc;
    cast.view = net->view;
    cast.node = cast.view->map.node[root];
    cast.block = (ASH_MAILBOX_BODY_BYTES - 1) * cast.view->map.least; /* cuts may be uneven by one */
    cast.block = ash_min(cast.block, ASH_NET_RESULT_BYTES);
    ash_assert(cast.block > 0 && cast.block <= ASH_NET_BOUNCE_BYTES);
    rounds = size_bytes == 0 ? 1 : ash_div_up(size_bytes, cast.block);
    rc = announce(&cast);
    for (size_t t = 0; t < rounds && rc == 0; t++)
        rc = cast.view->node == cast.node ? cast_send(&cast, t) : cast_receive(&cast, t);
    return rc;
}
