/* moe_nodes: across to other nodes, then inside this one. What experts made of a token goes back pair by pair: a token
 * adds its experts in the order of their scores, so sums over the experts of one node would be other sums. */
#include "model/pass/moe_nodes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "model/pass/split.h"

/* ---- life -------------------------------------------------------------------------------------------------------- */

bool ash_moe_crosses_nodes(const struct ash_model *model, const struct ash_axes *axes)
{
    return axes->ep.node_of != NULL && model->config.expert.experts > 0;
}

/* Floats of a row with its place in a list and its weight. */
static size_t row_floats(const struct ash_model *model)
{
    return model->config.hidden + 2;
}

size_t ash_moe_nodes_bytes(const struct ash_model *model, const struct ash_pass_opts *opts, const struct ash_axes *axes)
{
    size_t pairs = ash_moe_max_pairs(model, opts, axes);

    if (!ash_moe_crosses_nodes(model, axes)) return 0;
    return pairs * (2 * row_floats(model) * sizeof(float) + 4 * sizeof(int32_t));
}

/* Number the nodes as they come, and the ranks on each. */
static void find_nodes(struct ash_moe_nodes *nodes, const struct ash_axis *ep)
{
    uint32_t at = 0;

    for (size_t r = 0; r < ep->size; r++) {
        size_t same = 0;

        while (ep->node_of[same] != ep->node_of[r])
            same++;
        nodes->node[r] = same < r ? nodes->node[same] : (uint32_t)nodes->count++;
    }
    for (size_t n = 0; n < nodes->count; n++) {
        nodes->first[n] = at;
        for (size_t r = 0; r < ep->size; r++) {
            if (nodes->node[r] != n) continue;
            nodes->place[r] = at - nodes->first[n];
            nodes->ranks[at++] = (uint32_t)r;
        }
    }
    nodes->first[nodes->count] = at;
}

static int open_lists(struct ash_moe_nodes *nodes, size_t ranks, size_t pairs, size_t rows)
{
    nodes->node = calloc(ranks, sizeof(*nodes->node));
    nodes->place = calloc(ranks, sizeof(*nodes->place));
    nodes->ranks = calloc(ranks, sizeof(*nodes->ranks));
    nodes->first = calloc(ranks + 1, sizeof(*nodes->first));
    nodes->unique = calloc(ranks, sizeof(*nodes->unique));
    nodes->send = calloc(ranks, sizeof(*nodes->send));
    nodes->recv = calloc(ranks, sizeof(*nodes->recv));
    nodes->order = calloc(pairs, sizeof(*nodes->order));
    nodes->index = calloc(pairs, sizeof(*nodes->index));
    nodes->chosen = calloc(pairs, sizeof(*nodes->chosen));
    nodes->mark = calloc(rows, sizeof(*nodes->mark));
    if (nodes->node == NULL || nodes->place == NULL || nodes->ranks == NULL || nodes->first == NULL) return -ENOMEM;
    if (nodes->unique == NULL || nodes->send == NULL || nodes->recv == NULL) return -ENOMEM;
    if (nodes->order == NULL || nodes->index == NULL || nodes->chosen == NULL || nodes->mark == NULL) return -ENOMEM;
    return 0;
}

int ash_moe_nodes_open(struct ash_moe_nodes *nodes, const struct ash_model *model, const struct ash_exec *exec,
                       const struct ash_pass_opts *opts, const struct ash_axes *axes, struct ash_err *err)
{
    size_t pairs = ash_moe_max_pairs(model, opts, axes);
    int rc;

    *nodes = (struct ash_moe_nodes){0};
    if (!ash_moe_crosses_nodes(model, axes)) return 0;
    rc = open_lists(nodes, axes->ep.size, pairs, ash_split_max_rows(opts, axes));
    if (rc < 0) return ash_err_set(err, rc, "out of memory for the exchange of experts' tokens between nodes");
    find_nodes(nodes, &axes->ep);
    rc = ash_buffer_init(&nodes->rows, exec->memory, pairs * sizeof(int32_t), "lists of tokens", err);
    if (rc < 0) return rc;
    rc = ash_moe_reserve(&nodes->out, exec, pairs * row_floats(model), 1, err);
    if (rc < 0) return rc;
    return ash_moe_reserve(&nodes->in, exec, pairs * row_floats(model), 1, err);
}

void ash_moe_nodes_close(struct ash_moe_nodes *nodes)
{
    ash_buffer_fini(&nodes->rows);
    ash_buffer_fini(&nodes->out.memory);
    ash_buffer_fini(&nodes->in.memory);
    free(nodes->node);
    free(nodes->place);
    free(nodes->ranks);
    free(nodes->first);
    free(nodes->unique);
    free(nodes->send);
    free(nodes->recv);
    free(nodes->order);
    free(nodes->index);
    free(nodes->chosen);
    free(nodes->mark);
    memset(nodes, 0, sizeof(*nodes));
}

/* ---- who and what ------------------------------------------------------------------------------------------------ */

static size_t ranks_on(const struct ash_moe_nodes *nodes, size_t node)
{
    size_t count = nodes->first[node + 1] - nodes->first[node];

    ash_assert(count > 0);
    return count;
}

static size_t here(const struct ash_pass_step *step)
{
    return ranks_on(&step->moe->nodes, step->moe->nodes.node[step->axes->ep.rank]);
}

/* Does rank `from` send rank `to` its rows for all of that one's node? */
static bool forwards_to(const struct ash_moe_nodes *nodes, size_t from, size_t to)
{
    return nodes->node[from] != nodes->node[to] &&
           nodes->place[to] == nodes->place[from] % ranks_on(nodes, nodes->node[to]);
}

/* Does the rank in this place of this node forward the rows of a source? */
static bool forwards_for(const struct ash_pass_step *step, size_t place, size_t source)
{
    return step->moe->nodes.place[source] % here(step) == place;
}

/* The rank in a place of a node. */
static size_t rank_at(const struct ash_moe_nodes *nodes, size_t node, size_t place)
{
    return nodes->ranks[nodes->first[node] + place];
}

/* Pairs of this rank's batch that go to one of a node's ranks. */
static struct ash_range pairs_to(const struct ash_pass_step *step, size_t layer, size_t node, size_t place)
{
    return ash_moe_pairs_of(step, layer, rank_at(&step->moe->nodes, node, place), step->axes->tp.rank);
}

static size_t pairs_to_node(const struct ash_pass_step *step, size_t layer, size_t node)
{
    size_t pairs = 0;

    for (size_t place = 0; place < ranks_on(&step->moe->nodes, node); place++)
        pairs += pairs_to(step, layer, node, place).count;
    return pairs;
}

/* Tokens of which any pair goes to a node, in the order of pairs; returns how many. */
static size_t choose_for(const struct ash_pass_step *step, size_t layer, size_t node, int32_t *chosen)
{
    struct ash_moe_nodes *nodes = &step->moe->nodes;
    size_t count = 0;

    memset(nodes->mark, -1, step->rows * sizeof(*nodes->mark));
    for (size_t place = 0; place < ranks_on(nodes, node); place++) {
        struct ash_range pairs = pairs_to(step, layer, node, place);

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

void ash_moe_nodes_choose(const struct ash_pass_step *step, size_t layer)
{
    struct ash_moe_nodes *nodes = &step->moe->nodes;
    const struct ash_moe_acts *moe = &step->acts->layers[layer].moe;
    size_t pairs = step->moe->routes[layer].offsets[step->model->config.expert.experts], all = 0;

    ash_assert(layer < step->model->config.layers);
    if (pairs > 0) step->exec->memory->copy(nodes->order, moe->order, pairs * sizeof(int32_t));
    for (size_t n = 0; n < nodes->count; n++) {
        nodes->unique[n] = n != nodes->node[step->axes->ep.rank] ? choose_for(step, layer, n, nodes->chosen + all) : 0;
        all += nodes->unique[n];
    }
    if (all > 0) step->exec->memory->copy(nodes->rows.data, nodes->chosen, all * sizeof(int32_t));
}

/* ---- counts ------------------------------------------------------------------------------------------------------ */

size_t ash_moe_nodes_words(const struct ash_moe_nodes *nodes, size_t from, size_t to)
{
    if (nodes->count == 0 || !forwards_to(nodes, from, to)) return 0;
    return 1 + ranks_on(nodes, nodes->node[to]);
}

void ash_moe_nodes_fill(const struct ash_pass_step *step, size_t layer, size_t to, uint32_t *words)
{
    const struct ash_moe_nodes *nodes = &step->moe->nodes;
    size_t node = nodes->node[to];

    words[0] = (uint32_t)nodes->unique[node];
    for (size_t place = 0; place < ranks_on(nodes, node); place++)
        words[1 + place] = (uint32_t)pairs_to(step, layer, node, place).count;
}

size_t ash_moe_nodes_max_words(const struct ash_moe_nodes *nodes, size_t rank)
{
    return nodes->count > 0 ? 1 + ranks_on(nodes, nodes->node[rank]) : 0;
}

/* The words of a source that this rank forwards for. */
static const uint32_t *forwarded_of(const struct ash_pass_step *step, size_t layer, size_t source)
{
    return step->moe->routes[layer].forwarded +
           source * ash_moe_nodes_max_words(&step->moe->nodes, step->axes->ep.rank);
}

static size_t forwarded_pairs(const struct ash_pass_step *step, size_t layer, size_t source)
{
    size_t pairs = 0;

    for (size_t place = 0; place < here(step); place++)
        pairs += forwarded_of(step, layer, source)[1 + place];
    return pairs;
}

/* ---- between nodes ----------------------------------------------------------------------------------------------- */

/* Make room; the former content may be lost. Without memory this rank is lost to the others. */
static float *room(const struct ash_pass_step *step, struct ash_growing *floats, const size_t *counts, size_t size)
{
    struct ash_err err = {0};
    size_t all = 0;
    int rc;

    for (size_t i = 0; i < size; i++)
        all += counts[i];
    rc = ash_moe_reserve(floats, step->exec, all, 1, &err);
    ash_axes_fail(step->axes, rc, &err);
    return rc < 0 ? NULL : floats->memory.data;
}

/* Floats that one rank sends another for a node: rows, the lists of pairs for its ranks, their weights. */
static void count_across(const struct ash_pass_step *step, size_t layer, bool weighted)
{
    struct ash_moe_exchange *exchange = step->moe;
    const struct ash_moe_nodes *nodes = &exchange->nodes;
    size_t hidden = step->model->config.hidden, lists = weighted ? 2 : 1;

    for (size_t r = 0; r < step->axes->ep.size; r++) {
        exchange->send[r] = exchange->recv[r] = 0;
        if (forwards_to(nodes, step->axes->ep.rank, r))
            exchange->send[r] =
                nodes->unique[nodes->node[r]] * hidden + pairs_to_node(step, layer, nodes->node[r]) * lists;
        if (forwards_to(nodes, r, step->axes->ep.rank))
            exchange->recv[r] = forwarded_of(step, layer, r)[0] * hidden + forwarded_pairs(step, layer, r) * lists;
    }
}

/* Lay out what goes to a node; rows: the first of its tokens. */
static void pack(const struct ash_pass_step *step, size_t layer, size_t node, const float *x, bool weighted,
                 const int32_t *rows, float *out)
{
    const struct ash_moe_nodes *nodes = &step->moe->nodes;
    const struct ash_memory_ops *memory = step->exec->memory;
    const struct ash_row_ops *row = step->exec->ops->row;
    const struct ash_moe_acts *moe = &step->acts->layers[layer].moe;
    size_t hidden = step->model->config.hidden, pairs = pairs_to_node(step, layer, node);

    ash_assert(layer < step->model->config.layers);
    row->gather(step->exec, x, hidden, rows, nodes->unique[node], out);
    out += nodes->unique[node] * hidden;
    for (size_t place = 0; place < ranks_on(nodes, node); place++) {
        struct ash_range run = pairs_to(step, layer, node, place);

        if (run.count == 0) continue;
        memory->copy(out, nodes->index + run.first, run.count * sizeof(float)); /* numbers travel as bits of floats */
        if (weighted) row->gather(step->exec, moe->weight, 1, moe->flat + run.first, run.count, out + pairs);
        out += run.count;
    }
}

/* Every token to each other node once. */
static void cross_nodes(const struct ash_pass_step *step, size_t layer, const float *x, bool weighted)
{
    struct ash_moe_exchange *exchange = step->moe;
    struct ash_moe_nodes *nodes = &exchange->nodes;
    float *out, *in;

    count_across(step, layer, weighted);
    out = room(step, &nodes->out, exchange->send, step->axes->ep.size);
    in = room(step, &nodes->in, exchange->recv, step->axes->ep.size);
    if (step->axes->failed < 0) return;
    for (size_t r = 0; r < step->axes->ep.size; out += exchange->send[r++]) {
        const int32_t *rows = nodes->rows.data;

        if (exchange->send[r] == 0) continue;
        for (size_t n = 0; n < nodes->node[r]; n++)
            rows += nodes->unique[n];
        pack(step, layer, nodes->node[r], x, weighted, rows, out);
    }
    ash_axes_all_to_all(step->axes, &step->axes->ep, nodes->out.memory.data, exchange->send, in, exchange->recv);
}

/* ---- inside a node ----------------------------------------------------------------------------------------------- */

/* Floats from and to the ranks of this node. */
static void count_inside(const struct ash_pass_step *step, size_t layer)
{
    struct ash_moe_nodes *nodes = &step->moe->nodes;
    const size_t *starts = step->moe->routes[layer].starts;
    size_t hidden = step->model->config.hidden, own = step->model->experts.count, me = step->axes->ep.rank;

    ash_assert(layer < step->model->config.layers);
    memset(nodes->send, 0, step->axes->ep.size * sizeof(*nodes->send));
    memset(nodes->recv, 0, step->axes->ep.size * sizeof(*nodes->recv));
    for (size_t s = 0; s < step->axes->ep.size; s++)
        for (size_t place = 0; place < here(step); place++) {
            if (forwards_to(nodes, s, me)) nodes->send[place] += forwarded_of(step, layer, s)[1 + place] * hidden;
            if (s == me) nodes->send[place] += pairs_to(step, layer, nodes->node[me], place).count * hidden;
            if (forwards_for(step, place, s)) nodes->recv[place] += (starts[(s + 1) * own] - starts[s * own]) * hidden;
        }
}

/* The pairs of a source on another node for the rank in a place of this one. from: what the source sent. */
static size_t unpack(const struct ash_pass_step *step, size_t layer, size_t source, size_t place, const float *from,
                     bool weighted, float *out)
{
    const struct ash_row_ops *row = step->exec->ops->row;
    const uint32_t *forwarded = forwarded_of(step, layer, source);
    size_t hidden = step->model->config.hidden, pairs = forwarded_pairs(step, layer, source),
           count = forwarded[1 + place];
    const float *lists = from + forwarded[0] * hidden;
    const int32_t *index;

    for (size_t before = 0; before < place; before++)
        lists += forwarded[1 + before];
    index = (const int32_t *)(const void *)lists;
    if (count > 0 && weighted)
        row->combine(step->exec, &(struct ash_slots_args){.rows = count,
                                                          .slots = 1,
                                                          .cols = hidden,
                                                          .y = from,
                                                          .where = index,
                                                          .weight = lists + pairs,
                                                          .out = out});
    else if (count > 0)
        row->gather(step->exec, from, hidden, index, count, out);
    return count * hidden;
}

/* Rows for the ranks of this node: those of this rank's batch, and those of the sources that it forwards for. */
static void forward_rows(const struct ash_pass_step *step, size_t layer, const float *x, bool weighted, float *out)
{
    struct ash_moe_exchange *exchange = step->moe;
    const struct ash_moe_nodes *nodes = &exchange->nodes;
    size_t me = step->axes->ep.rank;

    for (size_t place = 0; place < here(step); place++) {
        const float *from = nodes->in.memory.data;

        for (size_t s = 0; s < step->axes->ep.size; from += exchange->recv[s++]) {
            if (s == me) {
                struct ash_range pairs = pairs_to(step, layer, nodes->node[me], place);

                ash_moe_gather_rows(step, layer, x, pairs, weighted, out);
                out += pairs.count * step->model->config.hidden;
            } else if (forwards_to(nodes, s, me)) {
                out += unpack(step, layer, s, place, from, weighted, out);
            }
        }
    }
}

/* Sort the rows from the ranks of this node by source. */
static void sort_sources(const struct ash_pass_step *step, size_t layer, const float *received, float *to)
{
    const size_t *starts = step->moe->routes[layer].starts;
    size_t hidden = step->model->config.hidden, own = step->model->experts.count;

    ash_assert(layer < step->model->config.layers);
    for (size_t place = 0; place < here(step); place++)
        for (size_t s = 0; s < step->axes->ep.size; s++) {
            size_t count = (starts[(s + 1) * own] - starts[s * own]) * hidden;

            if (!forwards_for(step, place, s) || count == 0) continue;
            step->exec->memory->copy(to + starts[s * own] * hidden, received, count * sizeof(float));
            received += count;
        }
}

void ash_moe_nodes_dispatch(const struct ash_pass_step *step, size_t layer, const float *x, bool weighted, float *to)
{
    struct ash_moe_nodes *nodes = &step->moe->nodes;
    float *out, *in;

    cross_nodes(step, layer, x, weighted);
    if (step->axes->failed < 0) return; /* lists that never came are no lists */
    count_inside(step, layer);
    out = room(step, &nodes->out, nodes->send, here(step));
    if (step->axes->failed < 0) return;
    forward_rows(step, layer, x, weighted, out);
    if (here(step) == 1) {
        sort_sources(step, layer, out, to);
        return;
    }
    in = room(step, &nodes->in, nodes->recv, here(step)); /* rows from other nodes have been forwarded */
    ash_axes_all_to_all(step->axes, step->axes->ep.node_ranks, out, nodes->send, in, nodes->recv);
    if (step->axes->failed == 0) sort_sources(step, layer, in, to);
}
