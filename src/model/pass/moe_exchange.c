/* The pairs of tokens and experts on their way: where experts are dealt out, a pair goes to the rank that has its
 * expert, and what the expert made of it comes back. Along ep ranks have different batches, so rows are exchanged,
 * counts first; no pair is ever left out, the inbox grows instead. Between nodes a row goes once, whatever pairs it is
 * for (moe_nodes.c). Along tp they have the same rows, so each rank takes
 * the pairs of its own experts, and the results are gathered. Experts are dealt out in order, so the pairs of a rank,
 * sorted by expert, are neighbours. */
#include "model/pass/pass_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define INBOX_STEP ((size_t)16) /* pairs: keeps what lies behind aligned */

/* Flags of a rank's batch, told behind its counts. */
enum { FILLED = 1, GOES_ON = 2 };

static bool exchanges(const struct ash_pass *pass)
{
    return pass->ep.size > 1 && pass->model->config.expert.experts > 0;
}

/* ---- the inbox --------------------------------------------------------------------------------------------------- */

/* With selective recomputation hidden is made again, one layer at a time. */
static bool inbox_has_hidden(const struct ash_pass *pass)
{
    return ash_pass_keeps(pass, ASH_KEEP_CHEAP) || !ash_pass_keeps(pass, ASH_KEEP_COSTLY);
}

/* Floats of a pair. */
static size_t inbox_width(const struct ash_pass *pass)
{
    const struct ash_model_config *c = &pass->model->config;

    return c->hidden + (inbox_has_hidden(pass) ? 3 : 2) * c->expert.ffn;
}

static size_t rest_width(const struct ash_pass *pass)
{
    const struct ash_model_config *c = &pass->model->config;

    return c->hidden + (inbox_has_hidden(pass) ? 3 : 4) * c->expert.ffn;
}

int ash_moe_reserve(struct ash_pass *pass, struct ash_buffer *buffer, size_t *capacity, size_t pairs, size_t width,
                    struct ash_err *err)
{
    size_t most = (pairs + pairs / 4 + INBOX_STEP) / INBOX_STEP * INBOX_STEP;
    int rc;

    if (pairs <= *capacity) return 0;
    ash_buffer_fini(buffer);
    *capacity = 0;
    rc = ash_buffer_init(buffer, pass->exec->memory, most * width * sizeof(float), "the tokens of other ranks", err);
    if (rc == 0) *capacity = most;
    return rc;
}

static int reserve_inbox(struct ash_pass *pass, struct ash_inbox *inbox, size_t pairs, struct ash_err *err)
{
    const struct ash_model_config *c = &pass->model->config;
    int rc = ash_moe_reserve(pass, &inbox->memory, &inbox->capacity, pairs, inbox_width(pass), err);

    if (rc < 0) return rc;
    inbox->x = inbox->memory.data;
    inbox->expert.gate = inbox->x + inbox->capacity * c->hidden;
    inbox->expert.up = inbox->expert.gate + inbox->capacity * c->expert.ffn;
    inbox->expert.hidden = inbox_has_hidden(pass) ? inbox->expert.up + inbox->capacity * c->expert.ffn : NULL;
    return 0;
}

static int reserve_rest(struct ash_pass *pass, size_t pairs, struct ash_err *err)
{
    struct ash_exchange *exchange = &pass->exchange;
    size_t hidden = pass->model->config.hidden, ffn = pass->model->config.expert.ffn;
    int rc = ash_moe_reserve(pass, &exchange->memory, &exchange->capacity, pairs, rest_width(pass), err);

    if (rc < 0) return rc;
    exchange->y = exchange->memory.data;
    exchange->d.gate = exchange->y + exchange->capacity * hidden;
    exchange->d.up = exchange->d.gate + exchange->capacity * ffn;
    exchange->d.hidden = exchange->d.up + exchange->capacity * ffn;
    exchange->hidden = inbox_has_hidden(pass) ? NULL : exchange->d.hidden + exchange->capacity * ffn;
    return 0;
}

static struct ash_inbox *inbox_of(struct ash_pass *pass, size_t layer)
{
    return ash_pass_keeps(pass, ASH_KEEP_COSTLY) ? &pass->layers[layer].moe.inbox : &pass->exchange.inbox;
}

size_t ash_moe_inbox_bytes(const struct ash_pass *pass)
{
    const struct ash_model_config *c = &pass->model->config;
    size_t pairs = ash_pass_most_rows(pass) * c->expert.choices, inboxes = 0;

    if (!exchanges(pass)) return 0;
    for (size_t i = 0; i < c->layers; i++)
        inboxes += c->sparse[i];
    if (!ash_pass_keeps(pass, ASH_KEEP_COSTLY)) inboxes = 1;
    return (inboxes * inbox_width(pass) + rest_width(pass)) * pairs * sizeof(float) + ash_moe_nodes_bytes(pass);
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

/* Experts are dealt to the ranks of ep and tp; or, without ep, all are everywhere. */
static int check_slice(const struct ash_pass *pass, struct ash_err *err)
{
    const struct ash_slice *slice = &pass->model->slice;
    size_t size = pass->ep.size * pass->tp.size, rank = pass->ep.rank * pass->tp.size + pass->tp.rank;

    if (pass->model->config.expert.experts == 0) return 0;
    if (slice->expert_size == 1 && pass->ep.size == 1) return 0;
    if (slice->expert_size == size && slice->expert_rank == rank) return 0;
    return ash_err_set(err, -EINVAL,
                       "the model's slice has the experts of rank %zu of %zu, but the pass is rank %zu of %zu",
                       slice->expert_rank, slice->expert_size, rank, size);
}

static int open_exchange(struct ash_pass *pass, struct ash_err *err)
{
    const struct ash_model_config *c = &pass->model->config;
    struct ash_exchange *exchange = &pass->exchange;
    size_t sources = pass->ep.size, own = pass->model->experts.count;
    int rc = ash_moe_nodes_open(pass, err);

    if (rc < 0) return rc;
    exchange->parts = calloc(pass->tp.size, sizeof(*exchange->parts));
    exchange->served = calloc(sources, sizeof(*exchange->served));
    exchange->send = calloc(sources, sizeof(*exchange->send));
    exchange->recv = calloc(sources, sizeof(*exchange->recv));
    exchange->told = calloc(c->expert.experts + 3 * sources, sizeof(*exchange->told));
    exchange->heard = calloc(sources * (own + 1 + ash_moe_nodes_relayed(pass)), sizeof(*exchange->heard));
    if (exchange->parts == NULL || exchange->served == NULL || exchange->send == NULL || exchange->recv == NULL ||
        exchange->told == NULL || exchange->heard == NULL)
        return ash_err_set(err, -ENOMEM, "out of memory for the exchange of experts' tokens");
    return exchanges(pass) ? reserve_rest(pass, ash_pass_most_rows(pass) * c->expert.choices, err) : 0;
}

static int open_layer(struct ash_pass *pass, size_t layer, struct ash_err *err)
{
    const struct ash_expert_config *x = &pass->model->config.expert;
    struct ash_moe_acts *moe = &pass->layers[layer].moe;

    moe->offsets = calloc(x->experts + 1, sizeof(*moe->offsets));
    moe->starts = calloc(pass->ep.size * pass->model->experts.count + 1, sizeof(*moe->starts));
    moe->relayed = calloc(pass->ep.size * ash_moe_nodes_relayed(pass) + 1, sizeof(*moe->relayed));
    if (moe->offsets == NULL || moe->starts == NULL || moe->relayed == NULL)
        return ash_err_set(err, -ENOMEM, "out of memory for expert offsets");
    if (!exchanges(pass)) return 0;
    return reserve_inbox(pass, inbox_of(pass, layer), ash_pass_most_rows(pass) * x->choices, err);
}

int ash_moe_open(struct ash_pass *pass, struct ash_err *err)
{
    const struct ash_model_config *c = &pass->model->config;
    int rc;

    if ((rc = check_slice(pass, err)) < 0) return rc;
    if ((rc = open_exchange(pass, err)) < 0) return rc;
    for (size_t i = 0; i < c->layers; i++)
        if (c->sparse[i] && (rc = open_layer(pass, i, err)) < 0) return rc;
    return 0;
}

void ash_moe_close(struct ash_pass *pass)
{
    struct ash_exchange *exchange = &pass->exchange;

    for (size_t i = 0; pass->layers != NULL && i < pass->model->config.layers; i++) {
        free(pass->layers[i].moe.offsets);
        free(pass->layers[i].moe.starts);
        free(pass->layers[i].moe.relayed);
        ash_buffer_fini(&pass->layers[i].moe.inbox.memory);
    }
    ash_buffer_fini(&exchange->inbox.memory);
    ash_buffer_fini(&exchange->memory);
    ash_moe_nodes_close(pass);
    free(exchange->served);
    free(exchange->send);
    free(exchange->recv);
    free(exchange->parts);
    free(exchange->told);
    free(exchange->heard);
}

int ash_pass_set_expert_grads(struct ash_pass *pass, float *const *sums, struct ash_err *err)
{
    if (pass->ep.size == 1) return ash_err_set(err, -EINVAL, "the pass shares its experts with nobody");
    for (size_t r = 0; r < pass->ep.size; r++)
        pass->exchange.served[r].sums = sums[r];
    return ash_moe_check_sums(pass, err);
}

int ash_moe_check_sums(const struct ash_pass *pass, struct ash_err *err)
{
    for (size_t r = 0; exchanges(pass) && r < pass->ep.size; r++)
        if (r != pass->ep.rank && pass->exchange.served[r].sums == NULL)
            return ash_err_set(err, -EINVAL, "the gradients of experts over rank %zu's batch have no place to go", r);
    return 0;
}

/* ---- which pairs go where ---------------------------------------------------------------------------------------- */

/* Ranks of tp among which experts are dealt out. */
static size_t tp_parts(const struct ash_pass *pass)
{
    return pass->model->slice.expert_size > 1 ? pass->tp.size : 1;
}

/* The experts that rank (ep, tp) has, and their pairs among the batch's. */
static struct ash_range experts_of(const struct ash_pass *pass, size_t ep_rank, size_t tp_rank)
{
    size_t parts = tp_parts(pass), rank = ep_rank * parts + (parts > 1 ? tp_rank : 0);

    return ash_slice_deal(pass->model->config.expert.experts, 1, rank, pass->model->slice.expert_size);
}

struct ash_range ash_moe_pairs_of(const struct ash_pass *pass, size_t layer, size_t ep_rank, size_t tp_rank)
{
    const size_t *offsets = pass->layers[layer].moe.offsets;
    struct ash_range experts = experts_of(pass, ep_rank, tp_rank);

    return (struct ash_range){offsets[experts.first], offsets[experts.first + experts.count] - offsets[experts.first]};
}

/* Tell every rank how many pairs its experts get from here and whether there is a batch at all; hear the same from all.
 */
static void exchange_counts(struct ash_pass *pass, size_t layer)
{
    struct ash_exchange *exchange = &pass->exchange;
    const size_t *offsets = pass->layers[layer].moe.offsets;
    size_t own = pass->model->experts.count, at = 0;
    uint32_t flags = pass->rows == 0 ? 0u : pass->batch->goes_on ? FILLED | GOES_ON : FILLED;

    for (size_t r = 0; r < pass->ep.size; r++) {
        struct ash_range experts = experts_of(pass, r, pass->tp.rank);
        size_t more = ash_moe_nodes_words(pass, pass->ep.rank, r);

        for (size_t e = experts.first; e < experts.first + experts.count; e++)
            exchange->told[at++] = (uint32_t)(offsets[e + 1] - offsets[e]);
        exchange->told[at++] = flags;
        if (more > 0) ash_moe_nodes_tell(pass, layer, r, exchange->told + at);
        at += more;
        exchange->send[r] = experts.count + 1 + more;
        exchange->recv[r] = own + 1 + ash_moe_nodes_words(pass, r, pass->ep.rank);
    }
    memset(exchange->heard, 0, /* what a lost rank says */
           pass->ep.size * (own + 1 + ash_moe_nodes_relayed(pass)) * sizeof(*exchange->heard));
    /* counts travel as the bits of floats: an exchange moves them, it does not look */
    ash_share_exchange(pass, &pass->ep, (const float *)exchange->told, exchange->send, (float *)exchange->heard,
                       exchange->recv);
}

/* Read what was heard: where each rank's pairs of each expert start in the inbox, and what its batch is. */
static void read_counts(struct ash_pass *pass, size_t layer)
{
    struct ash_moe_acts *moe = &pass->layers[layer].moe;
    const uint32_t *heard = pass->exchange.heard;
    size_t own = pass->model->experts.count, relayed = ash_moe_nodes_relayed(pass), at = 0;

    for (size_t r = 0; r < pass->ep.size; r++) {
        struct ash_served *served = &pass->exchange.served[r];
        size_t more = ash_moe_nodes_words(pass, r, pass->ep.rank);

        for (size_t e = 0; e < own; e++) {
            moe->starts[r * own + e] = at;
            at += heard[e];
        }
        served->filled = (heard[own] & FILLED) != 0;
        served->goes_on = (heard[own] & GOES_ON) != 0;
        heard += own + 1;
        if (more > 0) memcpy(moe->relayed + r * relayed, heard, more * sizeof(*heard));
        heard += more;
    }
    moe->starts[pass->ep.size * own] = at;
}

/* Without memory for what comes, this rank is lost to the others. */
static void reserve_for(struct ash_pass *pass, size_t layer)
{
    struct ash_moe_acts *moe = &pass->layers[layer].moe;
    size_t all = pass->ep.size * pass->model->experts.count;
    int rc = reserve_inbox(pass, inbox_of(pass, layer), moe->starts[all], &pass->failure);

    if (rc == 0) rc = reserve_rest(pass, moe->starts[all], &pass->failure);
    if (rc == 0) return;
    if (pass->failed == 0) pass->failed = rc;
    memset(moe->starts, 0, (all + 1) * sizeof(*moe->starts));
}

/* Floats of rows that go to each rank and come from it; the same on the way back, the other way round. */
static void set_row_counts(struct ash_pass *pass, size_t layer)
{
    const size_t *starts = pass->layers[layer].moe.starts;
    size_t hidden = pass->model->config.hidden, own = pass->model->experts.count;

    for (size_t r = 0; r < pass->ep.size; r++) {
        pass->exchange.send[r] = ash_moe_pairs_of(pass, layer, r, pass->tp.rank).count * hidden;
        pass->exchange.recv[r] = (starts[(r + 1) * own] - starts[r * own]) * hidden;
    }
}

/* ---- the way there ----------------------------------------------------------------------------------------------- */

struct ash_expert_work ash_moe_work(struct ash_pass *pass, size_t layer)
{
    struct ash_moe_acts *moe = &pass->layers[layer].moe;
    struct ash_expert_work work = {.sources = pass->ep.size, .experts = pass->model->experts.count};

    if (!exchanges(pass)) {
        work.starts = moe->offsets + pass->model->experts.first;
        work.x = moe->x;
        work.y = moe->y;
        work.acts = moe->expert;
        work.dy = pass->scratch.dpair;
        work.dacts = pass->scratch.dexpert;
        return work;
    }
    struct ash_inbox *inbox = inbox_of(pass, layer);
    work.starts = moe->starts;
    work.x = inbox->x;
    work.y = work.dy = pass->exchange.y;
    work.acts = inbox->expert;
    if (work.acts.hidden == NULL) work.acts.hidden = pass->exchange.hidden;
    work.dacts = pass->exchange.d;
    return work;
}

void ash_moe_lay_rows(struct ash_pass *pass, size_t layer, const float *x, struct ash_range pairs, bool weighed,
                      float *out)
{
    const struct ash_row_ops *row = pass->exec->ops->row;
    const struct ash_moe_acts *moe = &pass->layers[layer].moe;
    size_t hidden = pass->model->config.hidden;
    float *weight = pass->scratch.pair_weight;

    if (pairs.count == 0) return;
    if (!weighed) {
        row->gather(pass->exec, x, hidden, moe->order + pairs.first, pairs.count, out);
        return;
    }
    row->gather(pass->exec, moe->weight, 1, moe->flat + pairs.first, pairs.count, weight);
    row->combine(pass->exec, x, hidden, moe->order + pairs.first, weight, 1, pairs.count, false, out);
}

/* Rows of x to the inboxes of the ranks that have their pairs' experts: this rank's is at `to`. out: room for all. */
static void send_rows(struct ash_pass *pass, size_t layer, const float *x, bool weighed, float *out, float *to)
{
    float *at = out;

    if (ash_moe_crosses(pass)) {
        ash_moe_nodes_dispatch(pass, layer, x, weighed, to);
        return;
    }
    set_row_counts(pass, layer);
    for (size_t r = 0; r < pass->ep.size; at += pass->exchange.send[r++])
        ash_moe_lay_rows(pass, layer, x, ash_moe_pairs_of(pass, layer, r, pass->tp.rank), weighed, at);
    ash_share_exchange(pass, &pass->ep, out, pass->exchange.send, to, pass->exchange.recv);
}

/* The same where all experts are along tp. */
static void lay_own_rows(struct ash_pass *pass, size_t layer, const float *x, bool weighed, float *out)
{
    struct ash_range pairs = ash_moe_pairs_of(pass, layer, 0, pass->tp.rank);

    ash_moe_lay_rows(pass, layer, x, pairs, weighed, out + pairs.first * pass->model->config.hidden);
}

void ash_moe_dispatch(struct ash_pass *pass, size_t layer, const float *x)
{
    struct ash_moe_acts *moe = &pass->layers[layer].moe;

    if (!exchanges(pass)) {
        lay_own_rows(pass, layer, x, false, moe->x);
        return;
    }
    if (ash_moe_crosses(pass)) ash_moe_nodes_choose(pass, layer);
    exchange_counts(pass, layer);
    read_counts(pass, layer);
    reserve_for(pass, layer);
    send_rows(pass, layer, x, false, moe->x, inbox_of(pass, layer)->x);
}

void ash_moe_dispatch_back(struct ash_pass *pass, size_t layer, const float *dy)
{
    if (!exchanges(pass)) {
        lay_own_rows(pass, layer, dy, true, pass->scratch.dpair);
        return;
    }
    if (ash_moe_crosses(pass)) ash_moe_nodes_choose(pass, layer);
    send_rows(pass, layer, dy, true, pass->layers[layer].moe.x, pass->exchange.y);
}

/* ---- and back ---------------------------------------------------------------------------------------------------- */

/* Give every rank of ep the rows of its batch's pairs; those of this one's go to their places in pairs. */
static void send_back(struct ash_pass *pass, size_t layer, float *pairs)
{
    size_t hidden = pass->model->config.hidden;
    bool sorted = tp_parts(pass) == 1; /* what comes is all pairs, in order */
    const float *came = pass->layers[layer].moe.x;

    set_row_counts(pass, layer);
    ash_share_exchange(pass, &pass->ep, pass->exchange.y, pass->exchange.recv,
                       sorted ? pairs : pass->layers[layer].moe.x, pass->exchange.send);
    for (size_t r = 0; !sorted && r < pass->ep.size; came += pass->exchange.send[r++])
        pass->exec->memory->copy(pairs + ash_moe_pairs_of(pass, layer, r, pass->tp.rank).first * hidden, came,
                                 pass->exchange.send[r] * sizeof(float));
}

bool ash_moe_pairs_common(const struct ash_pass *pass)
{
    return pass->tp.near && tp_parts(pass) > 1;
}

/* All ranks of tp get what each has: of every rank of ep, one run of neighbours. */
static void gather_pairs(struct ash_pass *pass, size_t layer, float *pairs)
{
    size_t hidden = pass->model->config.hidden;

    if (pass->tp
            .near) { /* where pairs are everywhere, too: others must be through with what this rank goes on to write */
        ash_share_meet(pass, ASH_SHARE_POSTS, ++pass->common.posts);
        return;
    }
    for (size_t r = 0; tp_parts(pass) > 1 && r < pass->ep.size; r++) {
        for (size_t t = 0; t < pass->tp.size; t++)
            pass->exchange.parts[t] = ash_moe_pairs_of(pass, layer, r, t).count * hidden;
        ash_share_gather(pass, &pass->tp, pairs + ash_moe_pairs_of(pass, layer, r, 0).first * hidden,
                         pass->exchange.parts);
    }
}

void ash_moe_collect(struct ash_pass *pass, size_t layer)
{
    if (exchanges(pass)) send_back(pass, layer, pass->layers[layer].moe.y);
    gather_pairs(pass, layer, pass->layers[layer].moe.y);
}

void ash_moe_collect_back(struct ash_pass *pass, size_t layer)
{
    if (exchanges(pass)) send_back(pass, layer, pass->scratch.dpair);
    gather_pairs(pass, layer, pass->scratch.dpair);
}
