/* Sums over nodes. Every round takes a block of elements through four steps, each a round after the one before it:
 * contribute (parts go into the node's memory, partial sums are made there and sent), reduce (partial sums of all nodes
 * become the sum, or a share of it that is sent to the others), gather (the shares of other nodes are received), copy
 * (the node's ranks copy the sum). */
#include "collective/net/net_priv.h"

#include <errno.h>

#include "base/assert.h"
#include "base/bf16.h"
#include "base/math.h"

struct sum {
    struct ash_net *net;
    const struct ash_net_view *view;
    const struct ash_reduce_plan *plan;
    const struct ash_shares *shares;
    const void *const *parts;
    uint8_t *out;
    size_t count, block, most; /* elements in all and of a round; most: parts of any rank */
    size_t width, wire_width;  /* of an element, and of one that crosses */
    enum ash_coll_dtype dtype, wire;
    enum ash_coll_op op;
    bool direct;   /* every rank reduces all that its node needs, instead of a share */
    size_t stride; /* elements between the targets of a reduce-scatter; 0: all-reduce */
};

/* ---- parts and pieces -------------------------------------------------------------------------------------------- */

/* Elements of round `round`. */
static size_t round_length(const struct sum *sum, size_t round)
{
    size_t left = sum->count - round * sum->block;

    return ash_min(left, sum->block);
}

/* Copy this rank's parts of a round to where its node finds them. A reduce-scatter has a run for every rank. */
static void copy_in(const struct sum *sum, size_t round)
{
    const struct ash_net *net = sum->net;
    uint8_t *to = net->shared[sum->view->here]->bounce[round % ASH_NET_SLOTS];
    size_t rank = net->opts.rank, own = sum->shares->first[rank + 1] - sum->shares->first[rank],
           runs = sum->stride > 0 ? net->opts.size : 1, length = round_length(sum, round) * sum->width;

    for (size_t i = 0; i < own; i++)
        for (size_t run = 0; run < runs; run++)
            ash_net_copy(to + (i * runs + run) * sum->block * sum->width,
                         (const uint8_t *)sum->parts[i] + (run * sum->stride + round * sum->block) * sum->width,
                         length);
}

/* Where element `at` of run `run` of rank r's part i is, in this round. */
static const uint8_t *part_at(const struct sum *sum, size_t r, size_t i, size_t round, size_t run, size_t at)
{
    const struct ash_net *net = sum->net;
    size_t runs = sum->stride > 0 ? net->opts.size : 1;

    ash_assert(r < sum->net->opts.size);
    if (sum->view->is_alone)
        return (const uint8_t *)sum->parts[i] + (run * sum->stride + round * sum->block + at) * sum->width;
    return net->shared[sum->view->map.place[r]]->bounce[round % ASH_NET_SLOTS] +
           ((i * runs + run) * sum->block + at) * sum->width;
}

/* Join elements at ... at + length - 1 of the pieces of this node, one after the other, into to. */
static void reduce_partials(const struct sum *sum, size_t round, size_t run, size_t at, size_t length, uint8_t *to)
{
    const void *parts[ASH_TREE_PARTS_MAX];
    struct ash_tree tree;
    size_t r = 0;

    for (size_t p = 0; p < sum->plan->tree.part_count; p++) {
        const struct ash_partial_sum *partial = &sum->plan->partials[p];

        if (partial->node != sum->view->node) continue;
        for (size_t i = 0; i < partial->count; i++) {
            size_t part = partial->first + i;

            while (part >= sum->shares->first[r + 1])
                r++;
            ash_assert(r < sum->net->opts.size && part >= sum->shares->first[r]);
            parts[i] = part_at(sum, r, part - sum->shares->first[r], round, run, at);
        }
        ash_reduce_plan_subtree(&sum->shares->tree, partial, &tree);
        if (sum->wire != sum->dtype)
            ash_coll_reduce_wide(sum->op, &tree, parts, length, (float *)(void *)to);
        else
            ash_coll_reduce(sum->dtype, sum->op, &tree, parts, length, to);
        to += length * sum->wire_width;
    }
}

/* Join the pieces of all nodes: pieces[n] are those of node n, one after the other. */
static void reduce_nodes(const struct sum *sum, const uint8_t *const *pieces, size_t length, uint8_t *out)
{
    const struct ash_reduce_plan *plan = sum->plan;
    const void *parts[ASH_TREE_PARTS_MAX];
    float wide[256];

    for (size_t at = 0; at < length;) {
        size_t step = sum->wire != sum->dtype && length - at > 256 ? 256 : length - at;

        for (size_t p = 0; p < plan->tree.part_count; p++)
            parts[p] = pieces[plan->partials[p].node] + (plan->partials[p].index * length + at) * sum->wire_width;
        if (sum->wire == sum->dtype) {
            ash_coll_reduce(sum->dtype, sum->op, &plan->tree, parts, step, out);
        } else {
            ash_coll_reduce(sum->wire, sum->op, &plan->tree, parts, step, wide);
            for (size_t i = 0; i < step; i++)
                ((uint16_t *)(void *)out)[at + i] = ash_f32_to_bf16(wide[i]);
        }
        at += step;
    }
}

/* Receive pieces from a rank of every other node (who(n)), join them with this node's own and let them go. */
static int reduce_received(const struct sum *sum, const size_t *who, const uint8_t *own, size_t length, uint8_t *out)
{
    const uint8_t *pieces[ASH_SHARES_RANKS_MAX];
    int rc = 0;

    for (size_t n = 0; n < sum->view->map.nodes && rc == 0; n++) {
        if (n == sum->view->node)
            pieces[n] = own;
        else
            rc = ash_net_receive(sum->net, who[n], NULL, &pieces[n]);
    }
    if (rc == 0) reduce_nodes(sum, pieces, length, out);
    for (size_t n = 0; n < sum->view->map.nodes && rc == 0; n++)
        if (n != sum->view->node) rc = ash_net_release(sum->net, who[n]);
    return rc;
}

/* ---- all-reduce -------------------------------------------------------------------------------------------------- */

/* A round's block is cut into as many cells as ranks of a node carry; a cell into as many shares as there are nodes,
 * unless every rank reduces all of it. Returns the first element, relative to the block. */
static size_t cell_begin(const struct sum *sum, size_t length, size_t cell)
{
    ash_assert(cell <= sum->view->map.least);
    return length * cell / sum->view->map.least;
}

static size_t share_begin(const struct sum *sum, size_t length, size_t cell, size_t node)
{
    size_t begin = cell_begin(sum, length, cell), end = cell_begin(sum, length, cell + 1);

    ash_assert(node <= sum->view->map.nodes);
    return begin + (end - begin) * node / sum->view->map.nodes;
}

/* The cell that this rank carries in a round, or none. */
static bool own_cell(const struct sum *sum, size_t round, size_t *cell_out)
{
    for (size_t cell = 0; cell < sum->view->map.least; cell++)
        if (ash_net_forwarder(sum->view, sum->view->node, cell, round) == sum->view->here) {
            *cell_out = cell;
            return true;
        }
    return false;
}

/* Who carries the cell on each node. */
static void find_forwarders(const struct sum *sum, size_t round, size_t cell, size_t *who)
{
    ash_assert(cell < sum->view->map.least);
    for (size_t n = 0; n < sum->view->map.nodes; n++)
        who[n] = ash_net_rank_at(sum->view, n, ash_net_forwarder(sum->view, n, cell, round));
}

/* Where this rank leaves the sum of element `at` of a round. */
static uint8_t *result_at(const struct sum *sum, size_t round, size_t at)
{
    ash_assert(at <= sum->block);
    if (sum->view->is_alone) return sum->out + (round * sum->block + at) * sum->width;
    return sum->net->shared[sum->view->here]->result[round % ASH_NET_SLOTS] + at * sum->width;
}

static uint8_t *own_partials(const struct sum *sum, size_t round)
{
    return sum->net->own + round % 2 * ASH_MAILBOX_SLOT_BYTES;
}

static int contribute_whole(const struct sum *sum, size_t round, size_t cell, const size_t *who)
{
    size_t length = round_length(sum, round), begin = cell_begin(sum, length, cell),
           size = cell_begin(sum, length, cell + 1) - begin, own = 0, buffer;
    uint8_t *body;
    int rc = ash_net_buffer(sum->net, 0, &buffer, &body);

    ash_assert(cell < sum->view->map.least);
    if (rc < 0) return rc;
    for (size_t p = 0; p < sum->plan->tree.part_count; p++)
        own += sum->plan->partials[p].node == sum->view->node;
    reduce_partials(sum, round, 0, begin, size, own_partials(sum, round));
    ash_net_copy(body, own_partials(sum, round), own * size * sum->wire_width);
    for (size_t i = 1; i < sum->view->map.nodes && rc == 0; i++)
        rc = ash_net_send(sum->net, buffer, who[(sum->view->node + i) % sum->view->map.nodes],
                          own * size * sum->wire_width);
    return rc;
}

static int contribute_shares(const struct sum *sum, size_t round, size_t cell, const size_t *who)
{
    size_t length = round_length(sum, round), own = 0;
    int rc = 0;

    ash_assert(cell < sum->view->map.least);
    for (size_t p = 0; p < sum->plan->tree.part_count; p++)
        own += sum->plan->partials[p].node == sum->view->node;
    for (size_t i = 0; i < sum->view->map.nodes && rc == 0; i++) {
        size_t n = (sum->view->node + i) % sum->view->map.nodes, begin = share_begin(sum, length, cell, n),
               size = share_begin(sum, length, cell, n + 1) - begin, buffer;
        uint8_t *body = own_partials(sum, round);

        if (i > 0) rc = ash_net_buffer(sum->net, 0, &buffer, &body);
        if (rc == 0) reduce_partials(sum, round, 0, begin, size, body);
        if (rc == 0 && i > 0) rc = ash_net_send(sum->net, buffer, who[n], own * size * sum->wire_width);
    }
    return rc;
}

static int contribute(const struct sum *sum, size_t round)
{
    size_t who[ASH_SHARES_RANKS_MAX], cell;
    int rc = 0;

    if (!sum->view->is_alone) {
        copy_in(sum, round);
        rc = ash_net_node_barrier(sum->net);
    }
    if (rc < 0 || !own_cell(sum, round, &cell)) return rc;
    find_forwarders(sum, round, cell, who);
    return sum->direct ? contribute_whole(sum, round, cell, who) : contribute_shares(sum, round, cell, who);
}

static int reduce(const struct sum *sum, size_t round)
{
    size_t who[ASH_SHARES_RANKS_MAX], cell, length = round_length(sum, round), begin, size, buffer;
    uint8_t *body;
    int rc;

    if (!own_cell(sum, round, &cell)) return 0;
    find_forwarders(sum, round, cell, who);
    begin = sum->direct ? cell_begin(sum, length, cell) : share_begin(sum, length, cell, sum->view->node);
    size =
        (sum->direct ? cell_begin(sum, length, cell + 1) : share_begin(sum, length, cell, sum->view->node + 1)) - begin;
    rc = reduce_received(sum, who, own_partials(sum, round), size, result_at(sum, round, begin));
    if (rc < 0 || sum->direct) return rc;
    rc = ash_net_buffer(sum->net, 0, &buffer, &body);
    if (rc == 0) ash_net_copy(body, result_at(sum, round, begin), size * sum->width);
    for (size_t i = 1; i < sum->view->map.nodes && rc == 0; i++)
        rc = ash_net_send(sum->net, buffer, who[(sum->view->node + i) % sum->view->map.nodes], size * sum->width);
    return rc;
}

/* Receive the shares that other nodes have reduced. */
static int gather(const struct sum *sum, size_t round)
{
    size_t who[ASH_SHARES_RANKS_MAX], cell, length = round_length(sum, round);
    int rc = 0;

    if (sum->direct || !own_cell(sum, round, &cell)) return 0;
    find_forwarders(sum, round, cell, who);
    for (size_t n = 0; n < sum->view->map.nodes && rc == 0; n++) {
        size_t begin = share_begin(sum, length, cell, n), size = share_begin(sum, length, cell, n + 1) - begin;
        const uint8_t *body;

        if (n == sum->view->node) continue;
        rc = ash_net_receive(sum->net, who[n], NULL, &body);
        if (rc < 0) return rc;
        ash_net_copy(result_at(sum, round, begin), body, size * sum->width);
        rc = ash_net_release(sum->net, who[n]);
    }
    return rc;
}

/* Copy what the ranks of this node have carried. */
static int copy_out(const struct sum *sum, size_t round)
{
    const struct ash_net *net = sum->net;
    size_t length = round_length(sum, round);
    int rc;

    if (sum->view->is_alone) return 0;
    rc = ash_net_node_barrier(sum->net);
    for (size_t cell = 0; cell < sum->view->map.least && rc == 0; cell++) {
        size_t begin = cell_begin(sum, length, cell), end = cell_begin(sum, length, cell + 1),
               forwarder = ash_net_forwarder(sum->view, sum->view->node, cell, round);

        ash_net_copy(sum->out + (round * sum->block + begin) * sum->width,
                     net->shared[forwarder]->result[round % ASH_NET_SLOTS] + begin * sum->width,
                     (end - begin) * sum->width);
    }
    return rc;
}

/* Every step is one k-chunk later than the one before it, so that the network is busy while a node reduces. */
static int run_rounds(const struct sum *sum)
{
    size_t rounds = sum->count == 0 ? 1 : ash_div_up(sum->count, sum->block), last = sum->direct ? 1 : 2;
    int rc = 0;

    for (size_t t = 0; t < rounds + last && rc == 0; t++) {
        if (t < rounds) rc = contribute(sum, t);
        if (rc == 0 && t >= 1 && t - 1 < rounds) rc = reduce(sum, t - 1);
        if (rc == 0 && t >= last && t - last < rounds) rc = gather(sum, t - last);
        if (rc == 0 && t >= last && t - last < rounds) rc = copy_out(sum, t - last);
    }
    return rc;
}

/* Common to both kinds of sums. plan: room for one. */
static struct sum make_sum(struct ash_net *net, const void *const *parts, const struct ash_shares *shares, void *out,
                           size_t count, enum ash_coll_dtype dtype, enum ash_coll_op op, struct ash_reduce_plan *plan)
{
    const struct ash_net_view *view = net->view;
    struct sum sum = {.net = net,
                      .view = view,
                      .plan = &view->even,
                      .shares = shares,
                      .parts = parts,
                      .out = out,
                      .count = count,
                      .most = ash_shares_most(shares, net->opts.size),
                      .dtype = dtype,
                      .wire = dtype,
                      .op = op};

    ash_assert(shares->first[net->opts.size] == shares->tree.part_count);
    if (shares != &net->even) {
        ash_reduce_plan_init(plan, shares, net->opts.size, view->map.node);
        sum.plan = plan;
    }
    if (dtype == ASH_COLL_BF16 && sum.plan->deep) sum.wire = ASH_COLL_F32; /* rounded once, at the root */
    sum.width = ash_coll_dtype_bytes(dtype);
    sum.wire_width = ash_coll_dtype_bytes(sum.wire);
    return sum;
}

int ash_net_all_reduce(struct ash_net *net, const void *const *parts, const struct ash_shares *shares, void *out,
                       size_t count, enum ash_coll_dtype dtype, enum ash_coll_op op, struct ash_err *err)
{
    size_t bytes = count * ash_coll_dtype_bytes(dtype), cell;
    struct ash_coll_call call = {.kind = ASH_CALL_ALL_REDUCE, .dtype = dtype, .op = op, .size_bytes = bytes};
    struct ash_reduce_plan plan;
    struct sum sum;
    int rc = ash_net_begin(net, call, bytes, err);

    if (rc < 0) return rc;
    sum = make_sum(net, parts, shares, out, count, dtype, op, &plan);
    sum.direct = ash_net_whole(net, sum.plan->most, bytes);
    cell = ASH_MAILBOX_BODY_BYTES / (sum.plan->most * sum.wire_width) * (sum.direct ? 1 : sum.view->map.nodes);
    sum.block = (cell - 1) * sum.view->map.least; /* cuts may be uneven by one element */
    if (!sum.view->is_alone) {
        sum.block = ash_min(sum.block, ASH_NET_BOUNCE_BYTES / (sum.most * sum.width));
        sum.block = ash_min(sum.block, ASH_NET_RESULT_BYTES / sum.width);
    }
    return run_rounds(&sum);
}

/* ---- reduce-scatter ---------------------------------------------------------------------------------------------- */

static int contribute_targets(const struct sum *sum, size_t round)
{
    size_t length = round_length(sum, round), own = 0, rank = sum->net->opts.rank, size = sum->net->opts.size;
    int rc;

    if (!sum->view->is_alone) {
        copy_in(sum, round);
        rc = ash_net_node_barrier(sum->net);
        if (rc < 0) return rc;
    }
    for (size_t p = 0; p < sum->plan->tree.part_count; p++)
        own += sum->plan->partials[p].node == sum->view->node;
    for (size_t i = 1; i < size; i++) {
        size_t r = (rank + i) % size, buffer;
        uint8_t *body;

        if (sum->view->map.node[r] == sum->view->node || ash_net_sender(sum->view, sum->view->node, r) != rank)
            continue;
        rc = ash_net_buffer(sum->net, 0, &buffer, &body);
        if (rc < 0) return rc;
        reduce_partials(sum, round, r, 0, length, body);
        rc = ash_net_send(sum->net, buffer, r, own * length * sum->wire_width);
        if (rc < 0) return rc;
    }
    reduce_partials(sum, round, rank, 0, length, own_partials(sum, round));
    return 0;
}

static int reduce_target(const struct sum *sum, size_t round)
{
    size_t who[ASH_SHARES_RANKS_MAX];

    for (size_t n = 0; n < sum->view->map.nodes; n++)
        who[n] = ash_net_sender(sum->view, n, sum->net->opts.rank);
    return reduce_received(sum, who, own_partials(sum, round), round_length(sum, round),
                           sum->out + round * sum->block * sum->width);
}

int ash_net_reduce_scatter(struct ash_net *net, const void *const *parts, const struct ash_shares *shares, void *out,
                           size_t count, enum ash_coll_dtype dtype, enum ash_coll_op op, struct ash_err *err)
{
    size_t bytes = count * ash_coll_dtype_bytes(dtype), rounds;
    struct ash_coll_call call = {.kind = ASH_CALL_REDUCE_SCATTER, .dtype = dtype, .op = op, .size_bytes = bytes};
    struct ash_reduce_plan plan;
    struct sum sum;
    int rc = ash_net_begin(net, call, bytes * net->opts.size, err);

    if (rc < 0) return rc;
    sum = make_sum(net, parts, shares, out, count, dtype, op, &plan);
    sum.stride = count > 0 ? count : 1;
    sum.block = ASH_MAILBOX_BODY_BYTES / (sum.plan->most * sum.wire_width);
    if (!sum.view->is_alone)
        sum.block = ash_min(sum.block, ASH_NET_BOUNCE_BYTES / (sum.most * net->opts.size * sum.width));
    if (sum.block == 0)
        return ash_err_set(err, -E2BIG, "a reduce-scatter of %zu parts from each of %zu ranks is too finely cut",
                           sum.most, net->opts.size);
    rounds = count == 0 ? 1 : ash_div_up(count, sum.block);
    for (size_t t = 0; t < rounds + 1 && rc == 0; t++) {
        if (t < rounds) rc = contribute_targets(&sum, t);
        if (rc == 0 && t >= 1) rc = reduce_target(&sum, t - 1);
    }
    return rc;
}
