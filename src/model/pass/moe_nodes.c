/* Rows on their way to experts on other nodes. A token whose experts are on several ranks of another node crosses to it
 * once: its sender gives it to the rank in its own place there, with a list of the pairs that it is for, and that rank
 * deals it out to its neighbours. What experts made of it goes back pair by pair: a token adds its experts in the order
 * of their scores, so sums over the experts of one node would be other sums. */
#include "model/pass/pass_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- life -------------------------------------------------------------------------------------------------------- */

bool ash_moe_crosses(const struct ash_pass *pass)
{
    return pass->ep.node_of != NULL && pass->model->config.expert.experts > 0;
}

static size_t most_pairs(const struct ash_pass *pass)
{
    return ash_pass_most_rows(pass) * pass->model->config.expert.choices;
}

size_t ash_moe_nodes_bytes(const struct ash_pass *pass)
{
    size_t pairs = most_pairs(pass), row = pass->model->config.hidden + 2; /* with its place in a list and its weight */

    return ash_moe_crosses(pass) ? pairs * (2 * row * sizeof(float) + 4 * sizeof(int32_t)) : 0;
}

/* Number the nodes as they come, and the ranks on each. */
static void find_nodes(struct ash_pass *pass)
{
    struct ash_moe_nodes *nodes = &pass->exchange.nodes;
    const uint32_t *node_of = pass->ep.node_of;
    uint32_t at = 0;

    for (size_t r = 0; r < pass->ep.size; r++) {
        size_t same = 0;

        while (node_of[same] != node_of[r])
            same++;
        nodes->node[r] = same < r ? nodes->node[same] : (uint32_t)nodes->count++;
    }
    for (size_t n = 0; n < nodes->count; n++) {
        nodes->first[n] = at;
        for (size_t r = 0; r < pass->ep.size; r++) {
            if (nodes->node[r] != n) continue;
            nodes->place[r] = at - nodes->first[n];
            nodes->ranks[at++] = (uint32_t)r;
        }
    }
    nodes->first[nodes->count] = at;
}

int ash_moe_nodes_open(struct ash_pass *pass, struct ash_err *err)
{
    struct ash_moe_nodes *nodes = &pass->exchange.nodes;
    size_t size = pass->ep.size, pairs = most_pairs(pass), row = pass->model->config.hidden + 2;
    int rc;

    if (!ash_moe_crosses(pass)) return 0;
    nodes->node = calloc(4 * size + 1, sizeof(*nodes->node));
    nodes->unique = calloc(3 * size, sizeof(*nodes->unique));
    nodes->order = malloc((3 * pairs + ash_pass_most_rows(pass)) * sizeof(*nodes->order));
    if (nodes->node == NULL || nodes->unique == NULL || nodes->order == NULL)
        return ash_err_set(err, -ENOMEM, "out of memory for the exchange of experts' tokens between nodes");
    nodes->place = nodes->node + size;
    nodes->ranks = nodes->place + size;
    nodes->first = nodes->ranks + size;
    nodes->send = nodes->unique + size;
    nodes->recv = nodes->send + size;
    nodes->index = nodes->order + pairs;
    nodes->chosen = nodes->index + pairs;
    nodes->mark = nodes->chosen + pairs;
    find_nodes(pass);
    rc = ash_buffer_init(&nodes->rows, pass->exec->memory, pairs * sizeof(int32_t), "lists of tokens", err);
    if (rc == 0) rc = ash_moe_reserve(pass, &nodes->out.memory, &nodes->out.capacity, pairs * row, 1, err);
    if (rc == 0) rc = ash_moe_reserve(pass, &nodes->in.memory, &nodes->in.capacity, pairs * row, 1, err);
    return rc;
}

void ash_moe_nodes_close(struct ash_pass *pass)
{
    struct ash_moe_nodes *nodes = &pass->exchange.nodes;

    ash_buffer_fini(&nodes->rows);
    ash_buffer_fini(&nodes->out.memory);
    ash_buffer_fini(&nodes->in.memory);
    free(nodes->node);
    free(nodes->unique);
    free(nodes->order);
}

/* ---- who and what ------------------------------------------------------------------------------------------------ */

static size_t ranks_on(const struct ash_moe_nodes *nodes, size_t node)
{
    return nodes->first[node + 1] - nodes->first[node];
}

static size_t here(const struct ash_pass *pass)
{
    return ranks_on(&pass->exchange.nodes, pass->exchange.nodes.node[pass->ep.rank]);
}

/* Does rank `from` give rank `to` its rows for all of that one's node? */
static bool relays(const struct ash_moe_nodes *nodes, size_t from, size_t to)
{
    return nodes->node[from] != nodes->node[to] &&
           nodes->place[to] == nodes->place[from] % ranks_on(nodes, nodes->node[to]);
}

/* Does the rank in this place of this node deal out the rows of a source? */
static bool deals(const struct ash_pass *pass, size_t place, size_t source)
{
    return pass->exchange.nodes.place[source] % here(pass) == place;
}

/* The rank in a place of a node. */
static size_t rank_at(const struct ash_moe_nodes *nodes, size_t node, size_t place)
{
    return nodes->ranks[nodes->first[node] + place];
}

/* Pairs of this rank's batch that go to one of a node's ranks. */
static struct ash_range pairs_to(const struct ash_pass *pass, size_t layer, size_t node, size_t place)
{
    return ash_moe_pairs_of(pass, layer, rank_at(&pass->exchange.nodes, node, place), pass->tp.rank);
}

static size_t pairs_to_node(const struct ash_pass *pass, size_t layer, size_t node)
{
    size_t pairs = 0;

    for (size_t place = 0; place < ranks_on(&pass->exchange.nodes, node); place++)
        pairs += pairs_to(pass, layer, node, place).count;
    return pairs;
}

/* Tokens of which any pair goes to a node, in the order of pairs; returns how many. */
static size_t choose_for(struct ash_pass *pass, size_t layer, size_t node, int32_t *chosen)
{
    struct ash_moe_nodes *nodes = &pass->exchange.nodes;
    size_t count = 0;

    memset(nodes->mark, -1, pass->rows * sizeof(*nodes->mark));
    for (size_t place = 0; place < ranks_on(nodes, node); place++) {
        struct ash_range pairs = pairs_to(pass, layer, node, place);

        for (size_t p = pairs.first; p < pairs.first + pairs.count; p++) {
            int32_t token = nodes->order[p];

            if (nodes->mark[token] < 0) {
                nodes->mark[token] = (int32_t)count;
                chosen[count++] = token;
            }
            nodes->index[p] = nodes->mark[token];
        }
    }
    return count;
}

void ash_moe_nodes_choose(struct ash_pass *pass, size_t layer)
{
    struct ash_moe_nodes *nodes = &pass->exchange.nodes;
    const struct ash_moe_acts *moe = &pass->layers[layer].moe;
    size_t pairs = moe->offsets[pass->model->config.expert.experts], all = 0;

    if (pairs > 0) pass->exec->memory->copy(nodes->order, moe->order, pairs * sizeof(int32_t));
    for (size_t n = 0; n < nodes->count; n++) {
        nodes->unique[n] = n != nodes->node[pass->ep.rank] ? choose_for(pass, layer, n, nodes->chosen + all) : 0;
        all += nodes->unique[n];
    }
    if (all > 0) pass->exec->memory->copy(nodes->rows.data, nodes->chosen, all * sizeof(int32_t));
}

/* ---- counts ------------------------------------------------------------------------------------------------------ */

size_t ash_moe_nodes_words(const struct ash_pass *pass, size_t from, size_t to)
{
    const struct ash_moe_nodes *nodes = &pass->exchange.nodes;

    if (!ash_moe_crosses(pass) || !relays(nodes, from, to)) return 0;
    return 1 + ranks_on(nodes, nodes->node[to]);
}

void ash_moe_nodes_tell(const struct ash_pass *pass, size_t layer, size_t to, uint32_t *told)
{
    const struct ash_moe_nodes *nodes = &pass->exchange.nodes;
    size_t node = nodes->node[to];

    told[0] = (uint32_t)nodes->unique[node];
    for (size_t place = 0; place < ranks_on(nodes, node); place++)
        told[1 + place] = (uint32_t)pairs_to(pass, layer, node, place).count;
}

size_t ash_moe_nodes_relayed(const struct ash_pass *pass)
{
    return ash_moe_crosses(pass) ? 1 + here(pass) : 0;
}

/* What this rank was told by a source that it deals out for. */
static const uint32_t *relayed_of(const struct ash_pass *pass, size_t layer, size_t source)
{
    return pass->layers[layer].moe.relayed + source * ash_moe_nodes_relayed(pass);
}

static size_t relayed_pairs(const struct ash_pass *pass, size_t layer, size_t source)
{
    size_t pairs = 0;

    for (size_t place = 0; place < here(pass); place++)
        pairs += relayed_of(pass, layer, source)[1 + place];
    return pairs;
}

/* ---- across ------------------------------------------------------------------------------------------------------ */

/* Make room; what was there may be gone. Without memory this rank is lost to the others. */
static float *room(struct ash_pass *pass, struct ash_floats *floats, const size_t *counts, size_t size)
{
    size_t all = 0;
    int rc;

    for (size_t i = 0; i < size; i++)
        all += counts[i];
    rc = ash_moe_reserve(pass, &floats->memory, &floats->capacity, all, 1, &pass->failure);
    if (rc < 0 && pass->failed == 0) pass->failed = rc;
    return rc < 0 ? NULL : floats->memory.data;
}

/* Floats that one rank gives another for a node: rows, the lists of pairs for its ranks, their weights. */
static void count_across(struct ash_pass *pass, size_t layer, bool weighed)
{
    struct ash_exchange *exchange = &pass->exchange;
    const struct ash_moe_nodes *nodes = &exchange->nodes;
    size_t hidden = pass->model->config.hidden, lists = weighed ? 2 : 1;

    for (size_t r = 0; r < pass->ep.size; r++) {
        exchange->send[r] = exchange->recv[r] = 0;
        if (relays(nodes, pass->ep.rank, r))
            exchange->send[r] =
                nodes->unique[nodes->node[r]] * hidden + pairs_to_node(pass, layer, nodes->node[r]) * lists;
        if (relays(nodes, r, pass->ep.rank))
            exchange->recv[r] = relayed_of(pass, layer, r)[0] * hidden + relayed_pairs(pass, layer, r) * lists;
    }
}

/* Lay out what goes to a node; rows: the first of its tokens. */
static void pack(struct ash_pass *pass, size_t layer, size_t node, const float *x, bool weighed, const int32_t *rows,
                 float *out)
{
    const struct ash_moe_nodes *nodes = &pass->exchange.nodes;
    const struct ash_memory_ops *memory = pass->exec->memory;
    const struct ash_row_ops *row = pass->exec->ops->row;
    const struct ash_moe_acts *moe = &pass->layers[layer].moe;
    size_t hidden = pass->model->config.hidden, pairs = pairs_to_node(pass, layer, node);

    row->gather(pass->exec, x, hidden, rows, nodes->unique[node], out);
    out += nodes->unique[node] * hidden;
    for (size_t place = 0; place < ranks_on(nodes, node); place++) {
        struct ash_range run = pairs_to(pass, layer, node, place);

        if (run.count == 0) continue;
        memory->copy(out, nodes->index + run.first, run.count * sizeof(float)); /* numbers travel as bits of floats */
        if (weighed) row->gather(pass->exec, moe->weight, 1, moe->flat + run.first, run.count, out + pairs);
        out += run.count;
    }
}

/* Every token to each other node once. */
static void cross(struct ash_pass *pass, size_t layer, const float *x, bool weighed)
{
    struct ash_exchange *exchange = &pass->exchange;
    struct ash_moe_nodes *nodes = &exchange->nodes;
    float *out, *in;

    count_across(pass, layer, weighed);
    out = room(pass, &nodes->out, exchange->send, pass->ep.size);
    in = room(pass, &nodes->in, exchange->recv, pass->ep.size);
    if (pass->failed < 0) return;
    for (size_t r = 0; r < pass->ep.size; out += exchange->send[r++]) {
        const int32_t *rows = nodes->rows.data;

        if (exchange->send[r] == 0) continue;
        for (size_t n = 0; n < nodes->node[r]; n++)
            rows += nodes->unique[n];
        pack(pass, layer, nodes->node[r], x, weighed, rows, out);
    }
    ash_share_exchange(pass, &pass->ep, nodes->out.memory.data, exchange->send, in, exchange->recv);
}

/* ---- inside ------------------------------------------------------------------------------------------------------ */

/* Floats from and to the ranks of this node. */
static void count_inside(struct ash_pass *pass, size_t layer)
{
    struct ash_moe_nodes *nodes = &pass->exchange.nodes;
    const size_t *starts = pass->layers[layer].moe.starts;
    size_t hidden = pass->model->config.hidden, own = pass->model->experts.count, me = pass->ep.rank;

    memset(nodes->send, 0, 2 * pass->ep.size * sizeof(*nodes->send)); /* and recv */
    for (size_t s = 0; s < pass->ep.size; s++)
        for (size_t place = 0; place < here(pass); place++) {
            if (relays(nodes, s, me)) nodes->send[place] += relayed_of(pass, layer, s)[1 + place] * hidden;
            if (s == me) nodes->send[place] += pairs_to(pass, layer, nodes->node[me], place).count * hidden;
            if (deals(pass, place, s)) nodes->recv[place] += (starts[(s + 1) * own] - starts[s * own]) * hidden;
        }
}

/* The pairs of a source on another node for the rank in a place of this one. from: what the source sent. */
static size_t unpack(struct ash_pass *pass, size_t layer, size_t source, size_t place, const float *from, bool weighed,
                     float *out)
{
    const struct ash_row_ops *row = pass->exec->ops->row;
    const uint32_t *relayed = relayed_of(pass, layer, source);
    size_t hidden = pass->model->config.hidden, pairs = relayed_pairs(pass, layer, source), count = relayed[1 + place];
    const float *lists = from + relayed[0] * hidden;
    const int32_t *index;

    for (size_t before = 0; before < place; before++)
        lists += relayed[1 + before];
    index = (const int32_t *)(const void *)lists;
    if (count > 0 && weighed)
        row->combine(pass->exec, from, hidden, index, lists + pairs, 1, count, false, out);
    else if (count > 0)
        row->gather(pass->exec, from, hidden, index, count, out);
    return count * hidden;
}

/* Rows for the ranks of this node: those of this rank's batch, and those of the sources that it deals out for. */
static void deal(struct ash_pass *pass, size_t layer, const float *x, bool weighed, float *out)
{
    struct ash_exchange *exchange = &pass->exchange;
    const struct ash_moe_nodes *nodes = &exchange->nodes;
    size_t me = pass->ep.rank;

    for (size_t place = 0; place < here(pass); place++) {
        const float *from = nodes->in.memory.data;

        for (size_t s = 0; s < pass->ep.size; from += exchange->recv[s++]) {
            if (s == me) {
                struct ash_range pairs = pairs_to(pass, layer, nodes->node[me], place);

                ash_moe_lay_rows(pass, layer, x, pairs, weighed, out);
                out += pairs.count * pass->model->config.hidden;
            } else if (relays(nodes, s, me)) {
                out += unpack(pass, layer, s, place, from, weighed, out);
            }
        }
    }
}

/* What came from the ranks of this node, by source. */
static void sort_sources(struct ash_pass *pass, size_t layer, const float *came, float *to)
{
    const size_t *starts = pass->layers[layer].moe.starts;
    size_t hidden = pass->model->config.hidden, own = pass->model->experts.count;

    for (size_t place = 0; place < here(pass); place++)
        for (size_t s = 0; s < pass->ep.size; s++) {
            size_t count = (starts[(s + 1) * own] - starts[s * own]) * hidden;

            if (!deals(pass, place, s) || count == 0) continue;
            pass->exec->memory->copy(to + starts[s * own] * hidden, came, count * sizeof(float));
            came += count;
        }
}

void ash_moe_nodes_dispatch(struct ash_pass *pass, size_t layer, const float *x, bool weighed, float *to)
{
    struct ash_moe_nodes *nodes = &pass->exchange.nodes;
    float *out, *in;

    cross(pass, layer, x, weighed);
    if (pass->failed < 0) return; /* lists that never came are no lists */
    count_inside(pass, layer);
    out = room(pass, &nodes->out, nodes->send, here(pass));
    if (pass->failed < 0) return;
    deal(pass, layer, x, weighed, out);
    if (here(pass) == 1) {
        sort_sources(pass, layer, out, to);
        return;
    }
    in = room(pass, &nodes->in, nodes->recv, here(pass)); /* what came across has been dealt out */
    ash_share_exchange(pass, pass->ep.here, out, nodes->send, in, nodes->recv);
    if (pass->failed == 0) sort_sources(pass, layer, in, to);
}
