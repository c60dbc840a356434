/* moe_exchange: counts, then rows, then what experts made of them. Between nodes a row goes once, whatever pairs it is
 * for (moe_nodes.h). */
#include "model/pass/moe_exchange.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "model/pass/moe_nodes.h"
#include "model/pass/split.h"

/* Flags of a rank's batch, sent after its counts. */
enum { HAS_ROWS = 1, MORE_FOLLOW = 2 };

static bool exchanges(const struct ash_model *model, const struct ash_axes *axes)
{
    return axes->ep.size > 1 && model->config.expert.experts > 0;
}

/* ---- the inbox --------------------------------------------------------------------------------------------------- */

/* With selective recomputation hidden is recomputed, one layer at a time. */
static bool inbox_has_hidden(const struct ash_pass_opts *opts)
{
    return ash_acts_keeps(opts, ASH_KEEP_CHEAP) || !ash_acts_keeps(opts, ASH_KEEP_COSTLY);
}

/* Floats of a pair in an inbox. */
static size_t inbox_width(const struct ash_model_config *c, const struct ash_pass_opts *opts)
{
    return c->hidden + (inbox_has_hidden(opts) ? 3 : 2) * c->expert.ffn;
}

/* And in the rest. */
static size_t rest_width(const struct ash_model_config *c, const struct ash_pass_opts *opts)
{
    return c->hidden + (inbox_has_hidden(opts) ? 3 : 4) * c->expert.ffn;
}

static int reserve_inbox(struct ash_moe_inbox *inbox, const struct ash_model_config *c, const struct ash_exec *exec,
                         const struct ash_pass_opts *opts, size_t pairs, struct ash_err *err)
{
    int rc = ash_moe_reserve(&inbox->pairs, exec, pairs, inbox_width(c, opts), err);
    size_t capacity = inbox->pairs.capacity;

    if (rc < 0) return rc;
    inbox->x = inbox->pairs.memory.data;
    inbox->expert.gate = inbox->x + capacity * c->hidden;
    inbox->expert.up = inbox->expert.gate + capacity * c->expert.ffn;
    inbox->expert.hidden = inbox_has_hidden(opts) ? inbox->expert.up + capacity * c->expert.ffn : NULL;
    return 0;
}

static int reserve_rest(struct ash_moe_exchange *moe, const struct ash_model_config *c, const struct ash_exec *exec,
                        const struct ash_pass_opts *opts, size_t pairs, struct ash_err *err)
{
    int rc = ash_moe_reserve(&moe->pairs, exec, pairs, rest_width(c, opts), err);
    size_t capacity = moe->pairs.capacity, ffn = c->expert.ffn;

    if (rc < 0) return rc;
    moe->y = moe->pairs.memory.data;
    moe->d.gate = moe->y + capacity * c->hidden;
    moe->d.up = moe->d.gate + capacity * ffn;
    moe->d.hidden = moe->d.up + capacity * ffn;
    moe->hidden = inbox_has_hidden(opts) ? NULL : moe->d.hidden + capacity * ffn;
    return 0;
}

static struct ash_moe_inbox *inbox_of(struct ash_moe_exchange *moe, const struct ash_pass_opts *opts, size_t layer)
{
    return ash_acts_keeps(opts, ASH_KEEP_COSTLY) ? &moe->routes[layer].inbox : &moe->inbox;
}

size_t ash_moe_exchange_bytes(const struct ash_model *model, const struct ash_pass_opts *opts,
                              const struct ash_axes *axes)
{
    const struct ash_model_config *c = &model->config;
    size_t pairs = ash_moe_max_pairs(model, opts, axes), inboxes = 0;

    if (!exchanges(model, axes)) return 0;
    for (size_t i = 0; i < c->layers; i++)
        inboxes += c->sparse[i];
    if (!ash_acts_keeps(opts, ASH_KEEP_COSTLY)) inboxes = 1;
    return (inboxes * inbox_width(c, opts) + rest_width(c, opts)) * pairs * sizeof(float) +
           ash_moe_nodes_bytes(model, opts, axes);
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

/* Experts are split over the ranks of ep and tp; or, without ep, all are everywhere. Or over ranks that gather. */
static int check_slice(const struct ash_model *model, const struct ash_axes *axes, struct ash_err *err)
{
    const struct ash_slice *slice = &model->slice;
    size_t size = axes->ep.size * axes->tp.size, rank = axes->ep.rank * axes->tp.size + axes->tp.rank;

    if (model->config.expert.experts == 0) return 0;
    if (slice->expert_size == 1 && axes->ep.size == 1) return 0;
    if (slice->gathers && slice->expert_size == axes->outs.size && slice->expert_rank == axes->outs.rank) return 0;
    if (slice->expert_size == size && slice->expert_rank == rank) return 0;
    return ash_err_set(err, -EINVAL,
                       "the model's slice has the experts of rank %zu of %zu, but the pass is rank %zu of %zu",
                       slice->expert_rank, slice->expert_size, rank, size);
}

static int open_lists(struct ash_moe_exchange *moe, const struct ash_model *model, const struct ash_axes *axes,
                      struct ash_err *err)
{
    size_t sources = axes->ep.size,
           words = model->experts.count + 1 + ash_moe_nodes_max_words(&moe->nodes, axes->ep.rank);

    moe->layer_count = model->config.layers;
    moe->routes = calloc(moe->layer_count, sizeof(*moe->routes));
    moe->tp_counts = calloc(axes->tp.size, sizeof(*moe->tp_counts));
    moe->sources = calloc(sources, sizeof(*moe->sources));
    moe->weights = calloc(model->config.expert.experts + 1, sizeof(*moe->weights));
    moe->send = calloc(sources, sizeof(*moe->send));
    moe->recv = calloc(sources, sizeof(*moe->recv));
    moe->sent = calloc(model->config.expert.experts + 3 * sources, sizeof(*moe->sent));
    moe->received = calloc(sources * words, sizeof(*moe->received));
    if (moe->routes == NULL || moe->tp_counts == NULL || moe->sources == NULL || moe->weights == NULL ||
        moe->send == NULL || moe->recv == NULL || moe->sent == NULL || moe->received == NULL)
        return ash_err_set(err, -ENOMEM, "out of memory for the exchange of experts' tokens");
    return 0;
}

static int open_route(struct ash_moe_exchange *moe, const struct ash_model *model, const struct ash_axes *axes,
                      size_t layer, struct ash_err *err)
{
    struct ash_moe_route *route = &moe->routes[layer];

    route->offsets = calloc(model->config.expert.experts + 1, sizeof(*route->offsets));
    route->starts = calloc(axes->ep.size * model->experts.count + 1, sizeof(*route->starts));
    route->forwarded =
        calloc(axes->ep.size * ash_moe_nodes_max_words(&moe->nodes, axes->ep.rank) + 1, sizeof(*route->forwarded));
    if (route->offsets == NULL || route->starts == NULL || route->forwarded == NULL)
        return ash_err_set(err, -ENOMEM, "out of memory for expert offsets");
    return 0;
}

int ash_moe_open(struct ash_moe_exchange *moe, const struct ash_model *model, const struct ash_exec *exec,
                 const struct ash_pass_opts *opts, const struct ash_axes *axes, struct ash_err *err)
{
    const struct ash_model_config *c = &model->config;
    size_t pairs = ash_moe_max_pairs(model, opts, axes);
    int rc = check_slice(model, axes, err);

    *moe = (struct ash_moe_exchange){0};
    if (rc < 0) return rc;
    rc = ash_moe_nodes_open(&moe->nodes, model, exec, opts, axes, err);
    if (rc < 0) return rc;
    rc = open_lists(moe, model, axes, err);
    if (rc < 0) return rc;
    for (size_t i = 0; i < c->layers; i++) {
        if (!c->sparse[i]) continue;
        rc = open_route(moe, model, axes, i, err);
        if (rc < 0) return rc;
        if (!exchanges(model, axes)) continue;
        rc = reserve_inbox(inbox_of(moe, opts, i), c, exec, opts, pairs, err);
        if (rc < 0) return rc;
    }
    return exchanges(model, axes) ? reserve_rest(moe, c, exec, opts, pairs, err) : 0;
}

void ash_moe_close(struct ash_moe_exchange *moe)
{
    for (size_t i = 0; moe->routes != NULL && i < moe->layer_count; i++) {
        free(moe->routes[i].offsets);
        free(moe->routes[i].starts);
        free(moe->routes[i].forwarded);
        ash_buffer_fini(&moe->routes[i].inbox.pairs.memory);
    }
    ash_buffer_fini(&moe->inbox.pairs.memory);
    ash_buffer_fini(&moe->pairs.memory);
    ash_moe_nodes_close(&moe->nodes);
    free(moe->routes);
    free(moe->sources);
    free(moe->weights);
    free(moe->send);
    free(moe->recv);
    free(moe->tp_counts);
    free(moe->sent);
    free(moe->received);
    memset(moe, 0, sizeof(*moe));
}

/* ---- gradients of experts, by source ----------------------------------------------------------------------------- */

int ash_moe_check_grads(const struct ash_model *model, const struct ash_axes *axes, float *const *source_expert_grads,
                        struct ash_err *err)
{
    if (model->adapters != NULL) return 0; /* experts are frozen */
    for (size_t r = 0; exchanges(model, axes) && r < axes->ep.size; r++)
        if (r != axes->ep.rank && (source_expert_grads == NULL || source_expert_grads[r] == NULL))
            return ash_err_set(err, -EINVAL, "the gradients of experts over rank %zu's batch have no place to go", r);
    return 0;
}

struct ash_grad_sink ash_moe_source_sink(const struct ash_pass_step *step, const struct ash_grad_sink *sink,
                                         size_t source)
{
    struct ash_grad_sink source_sink = *sink;

    ash_assert(source < step->axes->ep.size);
    source_sink.expert_grads = sink->source_expert_grads != NULL ? sink->source_expert_grads[source] : NULL;
    return source_sink;
}

bool ash_moe_source_has_rows(const struct ash_pass_step *step, size_t source)
{
    ash_assert(source < step->axes->ep.size);
    return step->axes->ep.size == 1 || step->moe->sources[source].has_rows;
}

/* This rank's own batch is one of them; where its experts' gradients have no place of their own, they are among
 * grads. */
void ash_moe_carry_grads(const struct ash_pass_step *step, struct ash_grad_sink *sink)
{
    bool is_followed = step->rows > 0 && (step->batch->flags & ASH_BATCH_MORE_FOLLOW) != 0;

    for (size_t r = 0; r < step->axes->ep.size; r++) {
        const struct ash_moe_source *source = &step->moe->sources[r];
        struct ash_grad_sink source_sink = ash_moe_source_sink(step, sink, r);
        bool is_own = source_sink.expert_grads == NULL;

        if (is_own ? is_followed && r == step->axes->ep.rank : source->has_rows && source->more_follow)
            ash_grad_carry_experts(&source_sink);
    }
}

/* ---- counts ------------------------------------------------------------------------------------------------------ */

/* Send every rank how many pairs its experts get from here and whether there is a batch at all; receive the same. */
static void exchange_counts(const struct ash_pass_step *step, size_t layer)
{
    struct ash_moe_exchange *moe = step->moe;
    const struct ash_axis *ep = &step->axes->ep;
    const size_t *offsets = moe->routes[layer].offsets;
    size_t own = step->model->experts.count, words = own + 1 + ash_moe_nodes_max_words(&moe->nodes, ep->rank), at = 0;
    uint32_t flags = step->rows == 0                                     ? 0u
                     : (step->batch->flags & ASH_BATCH_MORE_FOLLOW) != 0 ? HAS_ROWS | MORE_FOLLOW
                                                                         : HAS_ROWS;

    ash_assert(layer < step->model->config.layers);
    for (size_t r = 0; r < ep->size; r++) {
        struct ash_range experts = ash_split_experts(step->model, step->axes, r, step->axes->tp.rank);
        size_t more = ash_moe_nodes_words(&moe->nodes, ep->rank, r);

        for (size_t e = experts.first; e < ash_range_end(experts); e++)
            moe->sent[at++] = (uint32_t)(offsets[e + 1] - offsets[e]);
        moe->sent[at++] = flags;
        if (more > 0) ash_moe_nodes_fill(step, layer, r, moe->sent + at);
        at += more;
        moe->send[r] = experts.count + 1 + more;
        moe->recv[r] = own + 1 + ash_moe_nodes_words(&moe->nodes, r, ep->rank);
    }
    memset(moe->received, 0, ep->size * words * sizeof(*moe->received)); /* of a lost rank */
    /* counts travel as the bits of floats: an exchange moves them, it does not look */
    ash_axes_all_to_all(step->axes, ep, (const float *)moe->sent, moe->send, (float *)moe->received, moe->recv);
}

/* Read the received counts: offsets of each rank's pairs of each expert in the inbox, and its batch. */
static void read_counts(const struct ash_pass_step *step, size_t layer)
{
    struct ash_moe_exchange *moe = step->moe;
    struct ash_moe_route *route = &moe->routes[layer];
    const uint32_t *words = moe->received;
    size_t own = step->model->experts.count, ranks = step->axes->ep.size, me = step->axes->ep.rank, at = 0;
    size_t max_words = ash_moe_nodes_max_words(&moe->nodes, me);

    ash_assert(layer < step->model->config.layers);
    for (size_t r = 0; r < ranks; r++) {
        size_t more = ash_moe_nodes_words(&moe->nodes, r, me);

        for (size_t e = 0; e < own; e++) {
            route->starts[r * own + e] = at;
            at += words[e];
        }
        moe->sources[r] = (struct ash_moe_source){.has_rows = (words[own] & HAS_ROWS) != 0,
                                                  .more_follow = (words[own] & MORE_FOLLOW) != 0};
        words += own + 1;
        if (more > 0) memcpy(route->forwarded + r * max_words, words, more * sizeof(*words));
        words += more;
    }
    route->starts[ranks * own] = at;
}

/* Without memory for the received rows, this rank is lost to the others. */
static void reserve_for(const struct ash_pass_step *step, size_t layer)
{
    struct ash_moe_exchange *moe = step->moe;
    const struct ash_model_config *c = &step->model->config;
    size_t all = step->axes->ep.size * step->model->experts.count, *starts = moe->routes[layer].starts;
    struct ash_err err = {0};
    int rc = reserve_inbox(inbox_of(moe, step->opts, layer), c, step->exec, step->opts, starts[all], &err);

    ash_assert(layer < step->model->config.layers);
    if (rc == 0) rc = reserve_rest(moe, c, step->exec, step->opts, starts[all], &err);
    if (rc == 0) return;
    ash_axes_fail(step->axes, rc, &err);
    memset(starts, 0, (all + 1) * sizeof(*starts));
}

/* Floats of rows that are sent to each rank and received from it; for combine, the other way round. */
static void set_row_counts(const struct ash_pass_step *step, size_t layer)
{
    const size_t *starts = step->moe->routes[layer].starts;
    size_t hidden = step->model->config.hidden, own = step->model->experts.count;

    ash_assert(layer < step->model->config.layers);
    for (size_t r = 0; r < step->axes->ep.size; r++) {
        step->moe->send[r] = ash_moe_pairs_of(step, layer, r, step->axes->tp.rank).count * hidden;
        step->moe->recv[r] = (starts[(r + 1) * own] - starts[r * own]) * hidden;
    }
}

/* ---- dispatch ---------------------------------------------------------------------------------------------------- */

struct ash_expert_work ash_moe_work(const struct ash_pass_step *step, size_t layer)
{
    struct ash_moe_exchange *moe = step->moe;
    const struct ash_moe_acts *acts = &step->acts->layers[layer].moe;
    struct ash_expert_work work = {.sources = step->axes->ep.size, .experts = step->model->experts.count};
    struct ash_moe_inbox *inbox;

    ash_assert(layer < step->model->config.layers);
    if (!exchanges(step->model, step->axes)) {
        work.starts = moe->routes[layer].offsets + step->model->experts.first;
        work.x = acts->x;
        work.y = acts->y;
        work.acts = acts->expert;
        work.dy = step->acts->scratch.dpair;
        work.dacts = step->acts->scratch.dexpert;
        return work;
    }
    inbox = inbox_of(moe, step->opts, layer);
    work.starts = moe->routes[layer].starts;
    work.x = inbox->x;
    work.y = work.dy = moe->y;
    work.acts = inbox->expert;
    if (work.acts.hidden == NULL) work.acts.hidden = moe->hidden;
    work.dacts = moe->d;
    return work;
}

/* Rows of x to the inboxes of the ranks that have their pairs' experts: this rank's is at `to`. out: room for all. */
static void send_rows(const struct ash_pass_step *step, size_t layer, const float *x, bool weighted, float *out,
                      float *to)
{
    float *at = out;

    if (ash_moe_crosses_nodes(step->model, step->axes)) {
        ash_moe_nodes_dispatch(step, layer, x, weighted, to);
        return;
    }
    set_row_counts(step, layer);
    for (size_t r = 0; r < step->axes->ep.size; at += step->moe->send[r++])
        ash_moe_gather_rows(step, layer, x, ash_moe_pairs_of(step, layer, r, step->axes->tp.rank), weighted, at);
    ash_axes_all_to_all(step->axes, &step->axes->ep, out, step->moe->send, to, step->moe->recv);
}

/* The same where all experts are along tp. */
static void gather_own_rows(const struct ash_pass_step *step, size_t layer, const float *x, bool weighted, float *out)
{
    struct ash_range pairs = ash_moe_pairs_of(step, layer, 0, step->axes->tp.rank);

    ash_moe_gather_rows(step, layer, x, pairs, weighted, out + pairs.first * step->model->config.hidden);
}

void ash_moe_dispatch(const struct ash_pass_step *step, size_t layer, const float *x)
{
    struct ash_moe_acts *moe = &step->acts->layers[layer].moe;

    ash_assert(layer < step->model->config.layers);
    if (!exchanges(step->model, step->axes)) {
        gather_own_rows(step, layer, x, step->model->config.expert.scales_input, moe->x);
        return;
    }
    if (ash_moe_crosses_nodes(step->model, step->axes)) ash_moe_nodes_choose(step, layer);
    exchange_counts(step, layer);
    read_counts(step, layer);
    reserve_for(step, layer);
    send_rows(step, layer, x, false, moe->x, inbox_of(step->moe, step->opts, layer)->x);
}

void ash_moe_dispatch_grads(const struct ash_pass_step *step, size_t layer, const float *dy)
{
    ash_assert(layer < step->model->config.layers);
    if (!exchanges(step->model, step->axes)) {
        gather_own_rows(step, layer, dy, !step->model->config.expert.scales_input, step->acts->scratch.dpair);
        return;
    }
    if (ash_moe_crosses_nodes(step->model, step->axes)) ash_moe_nodes_choose(step, layer);
    send_rows(step, layer, dy, true, step->acts->layers[layer].moe.x, step->moe->y);
}

/* ---- combine ----------------------------------------------------------------------------------------------------- */

/* Give every rank of ep the rows of its batch's pairs; those of this one's go to their places in pairs. */
static void send_back(const struct ash_pass_step *step, size_t layer, float *pairs)
{
    size_t hidden = step->model->config.hidden;
    bool is_sorted = ash_split_expert_parts(step->model, step->axes) == 1; /* all pairs are received, in order */
    const float *received = step->acts->layers[layer].moe.x;

    ash_assert(layer < step->model->config.layers);
    set_row_counts(step, layer);
    ash_axes_all_to_all(step->axes, &step->axes->ep, step->moe->y, step->moe->recv,
                        is_sorted ? pairs : step->acts->layers[layer].moe.x, step->moe->send);
    for (size_t r = 0; !is_sorted && r < step->axes->ep.size; received += step->moe->send[r++])
        step->exec->memory->copy(pairs + ash_moe_pairs_of(step, layer, r, step->axes->tp.rank).first * hidden, received,
                                 step->moe->send[r] * sizeof(float));
}

/* All ranks of tp get what each has: of every rank of ep, one run of neighbours. Where they share memory they meet,
 * also where pairs are everywhere: others must have read what this rank writes next. */
static void gather_pairs(const struct ash_pass_step *step, size_t layer, float *pairs)
{
    const struct ash_axis *tp = &step->axes->tp;
    size_t hidden = step->model->config.hidden, *counts = step->moe->tp_counts;

    if (tp->same_node) {
        ash_axes_barrier_tp(step->axes);
        return;
    }
    for (size_t r = 0; ash_split_expert_parts(step->model, step->axes) > 1 && r < step->axes->ep.size; r++) {
        for (size_t t = 0; t < tp->size; t++)
            counts[t] = ash_moe_pairs_of(step, layer, r, t).count * hidden;
        ash_axes_all_gather(step->axes, tp, pairs + ash_moe_pairs_of(step, layer, r, 0).first * hidden, counts);
    }
}

void ash_moe_combine(const struct ash_pass_step *step, size_t layer)
{
    if (exchanges(step->model, step->axes)) send_back(step, layer, step->acts->layers[layer].moe.y);
    gather_pairs(step, layer, step->acts->layers[layer].moe.y);
}

void ash_moe_combine_grads(const struct ash_pass_step *step, size_t layer)
{
    if (exchanges(step->model, step->axes)) send_back(step, layer, step->acts->scratch.dpair);
    gather_pairs(step, layer, step->acts->scratch.dpair);
}
