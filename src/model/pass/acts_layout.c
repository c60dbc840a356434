/* acts_layout: sizes and places of activations. What backward needs is placed per layer; what it can recompute, and
 * everything in a pass without backward, is placed once and reused by all layers. The layout runs twice: first only to
 * measure, then with memory.
 *
 * Memory is in four spaces, by who sees it:
 *
 *     PRIVATE  this rank                                       sums over tp read it where tp ranks share memory
 *     TP       ranks of tp that share memory                   rows of the stream, side by side
 *     CP       ranks of cp that share memory, one per tp rank  rows of attention and feed-forward
 *     NODE     both                                            rows of the stream of the whole batch */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "model/pass/acts.h"
#include "model/pass/reduce.h"
#include "model/pass/reduce_shm.h"
#include "model/pass/split.h"

#define ALIGN_BYTES ((size_t)64)
#define HEAD_ROWS_MIN ASH_K_GROUP

/* Aim for the logits of a few rows. Each piece of a backward pass reads and writes the whole output matrix's gradient,
 * so there pieces are larger. */
#define HEAD_LOGITS_BYTES ((size_t)16 << 20)
#define HEAD_LOGITS_BACKWARD_BYTES ((size_t)64 << 20)
#define HEAD_LOGITS_ORDERED_BYTES ((size_t)512 << 20) /* along cp: pieces would wait for all of the rank before */

enum space { PRIVATE, TP, CP, NODE, SPACES };

/* One space: what is kept per layer, and after it what layers reuse. With base NULL it only measures. */
struct space_memory {
    char *kept, *reused; /* where each begins */
    size_t kept_bytes, reused_bytes, reused_peak_bytes;
};

struct layout {
    const struct ash_model *model;
    const struct ash_pass_opts *opts;
    const struct ash_axes *axes;
    struct ash_acts *acts;
    struct space_memory spaces[SPACES];
    size_t rows, own, batch_rows; /* of this rank; of the stream that it keeps; of the whole batch: at most */
};

bool ash_acts_keeps(const struct ash_pass_opts *opts, enum ash_keep keep)
{
    if (!opts->backward) return false;
    switch (opts->recompute) {
    case ASH_RECOMPUTE_NONE:
        return true;
    case ASH_RECOMPUTE_SELECTIVE:
        return keep != ASH_KEEP_CHEAP;
    default:
        return keep == ASH_KEEP_INPUT;
    }
}

/* ---- placing ----------------------------------------------------------------------------------------------------- */

static void *place(char *base, size_t *used_bytes, size_t size_bytes)
{
    char *at = base == NULL ? NULL : base + *used_bytes;

    *used_bytes += ash_round_up(size_bytes, ALIGN_BYTES);
    return at;
}

/* For the life of the pass. */
static void *keep_bytes(struct layout *l, enum space space, size_t size_bytes)
{
    return place(l->spaces[space].kept, &l->spaces[space].kept_bytes, size_bytes);
}

/* For one layer at a time. */
static void *reuse_bytes(struct layout *l, enum space space, size_t size_bytes)
{
    return place(l->spaces[space].reused, &l->spaces[space].reused_bytes, size_bytes);
}

static float *keep_floats(struct layout *l, enum space space, size_t count)
{
    return keep_bytes(l, space, count * sizeof(float));
}

static int32_t *keep_ints(struct layout *l, size_t count)
{
    return keep_bytes(l, PRIVATE, count * sizeof(int32_t));
}

/* An activation of a layer, for as long as its kind asks. */
static void *act_bytes(struct layout *l, enum space space, enum ash_keep keep, size_t size_bytes)
{
    return ash_acts_keeps(l->opts, keep) ? keep_bytes(l, space, size_bytes) : reuse_bytes(l, space, size_bytes);
}

static float *act_in(struct layout *l, enum space space, enum ash_keep keep, size_t count)
{
    return act_bytes(l, space, keep, count * sizeof(float));
}

static float *act(struct layout *l, enum ash_keep keep, size_t count)
{
    return act_in(l, PRIVATE, keep, count);
}

static int32_t *act_ints(struct layout *l, enum ash_keep keep, size_t count)
{
    return act_bytes(l, PRIVATE, keep, count * sizeof(int32_t));
}

/* A column further right in the same rows. */
static float *columns_on(float *base, size_t columns)
{
    return base == NULL ? NULL : base + columns;
}

/* ---- layers ------------------------------------------------------------------------------------------------------ */

static void lay_norm(struct layout *l, struct ash_norm_acts *norm)
{
    const struct ash_model_config *c = &l->model->config;

    if (l->axes->shared_grads)
        norm->out_all = act_in(l, NODE, ASH_KEEP_CHEAP, l->batch_rows * c->hidden);
    else if (l->axes->tp.same_node)
        norm->out_all = act_in(l, TP, ASH_KEEP_CHEAP, l->rows * c->hidden);
    else
        norm->out = act(l, ASH_KEEP_CHEAP, l->own * c->hidden);
    norm->rstd = act(l, ASH_KEEP_COSTLY, l->own);
    norm->mean = c->norm == ASH_NORM_LAYER ? act(l, ASH_KEEP_COSTLY, l->own) : NULL;
}

/* Along cp attention reads other rows, by heads: of all ranks where they lie, or after an exchange. */
static float *act_qkv(struct layout *l, size_t width)
{
    if (l->axes->cp.same_node) return act_in(l, CP, ASH_KEEP_COSTLY, l->batch_rows * width);
    if (l->axes->cp.size > 1) return reuse_bytes(l, PRIVATE, l->rows * width * sizeof(float));
    return act(l, ASH_KEEP_COSTLY, l->rows * width);
}

static void lay_grouped(struct layout *l, struct ash_attn_acts *a)
{
    const struct ash_model_config *c = &l->model->config;
    size_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;

    a->rows.q = act_qkv(l, q + 2 * kv);
    a->rows.k = columns_on(a->rows.q, q);
    a->rows.v = columns_on(a->rows.k, kv);
    if (!c->qk_norm) return;
    a->qk_raw = act(l, ASH_KEEP_COSTLY, l->rows * (q + kv));
    a->q_rstd = act(l, ASH_KEEP_COSTLY, l->rows * c->heads);
    a->k_rstd = act(l, ASH_KEEP_COSTLY, l->rows * c->kv_heads);
}

static void lay_latent(struct layout *l, struct ash_attn_acts *a)
{
    const struct ash_model_config *c = &l->model->config;

    a->rows.q = act_qkv(l, l->acts->q_stride);
    a->rows.k = act_qkv(l, l->acts->k_stride);
    a->rows.v = act_qkv(l, l->acts->v_stride);
    if (c->q_rank != 0) {
        a->q_low = act(l, ASH_KEEP_COSTLY, l->rows * c->q_rank);
        a->q_low_norm = act(l, ASH_KEEP_COSTLY, l->rows * c->q_rank);
        a->q_low_rstd = act(l, ASH_KEEP_COSTLY, l->rows);
    }
    a->kv_low = act(l, ASH_KEEP_COSTLY, l->rows * (c->kv_rank + c->rope_dim));
    a->kv_low_norm = act(l, ASH_KEEP_COSTLY, l->rows * c->kv_rank);
    a->kv_low_rstd = act(l, ASH_KEEP_COSTLY, l->rows);
    /* copied into k and v at once */
    a->kv_up = reuse_bytes(l, PRIVATE, l->rows * c->heads * (c->nope_dim + c->v_dim) * sizeof(float));
}

/* Columns of q, k and v of some key-value heads. */
static size_t qkv_width(const struct layout *l, size_t kv_heads)
{
    const struct ash_model_config *c = &l->model->config;

    return kv_heads * ((c->heads / c->kv_heads + 1) * c->head_dim + l->acts->v_dim);
}

/* Rows of the whole batch along cp: of all heads where they lie, or of this rank's part of the heads. */
static void lay_attn_all(struct layout *l, struct ash_attn_acts *a)
{
    const struct ash_model_config *c = &l->model->config;
    size_t kv_heads = ash_split_heads_cp(l->model, l->axes, l->axes->cp.rank).count;
    size_t heads = kv_heads * (c->heads / c->kv_heads);

    if (l->axes->cp.same_node) {
        a->all = a->rows;
        a->all.out = act_in(l, CP, ASH_KEEP_COSTLY, l->batch_rows * c->heads * l->acts->v_dim);
    } else {
        a->all.q = act(l, ASH_KEEP_COSTLY, l->batch_rows * qkv_width(l, kv_heads));
        a->all.out = act(l, ASH_KEEP_COSTLY, l->batch_rows * heads * l->acts->v_dim);
    }
    a->lse = l->opts->backward ? act(l, ASH_KEEP_COSTLY, l->batch_rows * heads) : NULL;
}

static void lay_attn(struct layout *l, struct ash_attn_acts *a)
{
    const struct ash_model_config *c = &l->model->config;

    lay_norm(l, &a->norm);
    if (c->attn == ASH_ATTN_LATENT)
        lay_latent(l, a);
    else
        lay_grouped(l, a);
    if (!l->axes->cp.same_node) a->rows.out = act(l, ASH_KEEP_COSTLY, l->rows * c->heads * l->acts->v_dim);
    if (l->axes->cp.size > 1)
        lay_attn_all(l, a);
    else
        a->lse = l->opts->backward ? act(l, ASH_KEEP_COSTLY, l->rows * c->heads) : NULL;
}

static void lay_inner(struct layout *l, struct ash_ffn_acts *ffn, size_t rows, size_t width)
{
    ffn->gate = l->model->config.mlp == ASH_MLP_GATED ? act(l, ASH_KEEP_COSTLY, rows * width) : NULL;
    ffn->up = act(l, ASH_KEEP_COSTLY, rows * width);
}

static void lay_expert(struct layout *l, struct ash_ffn_acts *ffn, size_t rows, size_t width)
{
    lay_inner(l, ffn, rows, width);
    ffn->hidden = act(l, ASH_KEEP_CHEAP, rows * width);
}

/* A feed-forward of all tokens. */
static void lay_ffn(struct layout *l, struct ash_ffn_acts *ffn, size_t width)
{
    if (!l->axes->shared_grads) {
        lay_expert(l, ffn, l->rows, width);
        return;
    }
    lay_inner(l, ffn, l->rows, width);
    ffn->hidden = ffn->hidden_all = act_in(l, CP, ASH_KEEP_CHEAP, l->batch_rows * width);
}

static void lay_moe(struct layout *l, struct ash_moe_acts *moe)
{
    const struct ash_model_config *c = &l->model->config;
    size_t pairs = l->rows * c->expert.choices;

    moe->logits = act(l, ASH_KEEP_COSTLY, l->rows * c->expert.experts);
    moe->index = act_ints(l, ASH_KEEP_COSTLY, pairs);
    moe->weight = act(l, ASH_KEEP_COSTLY, pairs);
    moe->order = act_ints(l, ASH_KEEP_COSTLY, pairs);
    moe->flat = act_ints(l, ASH_KEEP_COSTLY, pairs);
    moe->where = act_ints(l, ASH_KEEP_COSTLY, pairs);
    moe->y = act_in(l, ash_split_shares_pairs(l->model, l->axes) ? TP : PRIVATE, ASH_KEEP_COSTLY, pairs * c->hidden);
    if (l->axes->ep.size > 1) {
        moe->x = reuse_bytes(l, PRIVATE, pairs * c->hidden * sizeof(float)); /* sent at once; see moe_exchange.h */
    } else {
        moe->x = act(l, ASH_KEEP_CHEAP, pairs * c->hidden);
        lay_expert(l, &moe->expert, pairs, c->expert.ffn);
    }
    if (c->expert.shared_ffn != 0) lay_ffn(l, &moe->shared, c->expert.shared_ffn);
}

static void lay_layer(struct layout *l, size_t index)
{
    const struct ash_model_config *c = &l->model->config;
    struct ash_layer_acts *acts = &l->acts->layers[index];
    size_t starts[SPACES];

    for (size_t i = 0; i < SPACES; i++)
        starts[i] = l->spaces[i].reused_bytes;
    acts->in = act(l, ASH_KEEP_INPUT, l->own * c->hidden);
    acts->mid = l->opts->backward ? act(l, ASH_KEEP_COSTLY, l->own * c->hidden) : acts->in;
    lay_attn(l, &acts->attn);
    lay_norm(l, &acts->ffn_norm);
    if (c->sparse[index])
        lay_moe(l, &acts->moe);
    else
        lay_ffn(l, &acts->ffn, c->ffn);
    for (size_t i = 0; i < SPACES; i++) {
        l->spaces[i].reused_peak_bytes = ash_max(l->spaces[i].reused_peak_bytes, l->spaces[i].reused_bytes);
        l->spaces[i].reused_bytes = starts[i];
    }
}

/* ---- scratch ----------------------------------------------------------------------------------------------------- */

/* Gradients of q, k, v and attention's output, of this rank's rows; or, where ranks of cp share memory, of all. */
static void lay_attn_gradients(struct layout *l)
{
    const struct ash_model_config *c = &l->model->config;
    struct ash_acts *acts = l->acts;
    struct ash_scratch *s = &acts->scratch;
    enum space space = l->axes->cp.same_node ? CP : PRIVATE;
    size_t rows = l->axes->cp.same_node ? l->batch_rows : l->rows;

    s->dattn.out = keep_floats(l, space, rows * c->heads * acts->v_dim);
    s->dattn.q = keep_floats(l, space, rows * acts->q_stride);
    if (c->attn == ASH_ATTN_GROUPED) {
        s->dattn.k = columns_on(s->dattn.q, c->heads * c->head_dim);
        s->dattn.v = columns_on(s->dattn.k, c->kv_heads * c->head_dim);
    } else {
        s->dattn.k = keep_floats(l, space, rows * acts->k_stride);
        s->dattn.v = keep_floats(l, space, rows * acts->v_stride);
    }
    if (l->axes->cp.same_node) {
        s->dattn_all = s->dattn;
    } else if (l->axes->cp.size > 1) {
        size_t kv_heads = ash_split_heads_cp(l->model, l->axes, l->axes->cp.rank).count;

        s->dattn_all.q = keep_floats(l, PRIVATE, l->batch_rows * qkv_width(l, kv_heads));
        s->dattn_all.out = keep_floats(l, PRIVATE, l->batch_rows * kv_heads * (c->heads / c->kv_heads) * acts->v_dim);
    }
}

/* Of what the projections to q, k and v make on the way. */
static void lay_qkv_gradients(struct layout *l)
{
    const struct ash_model_config *c = &l->model->config;
    struct ash_scratch *s = &l->acts->scratch;
    bool is_shared = l->axes->shared_grads;

    if (c->qk_norm)
        s->dqk_raw = s->dqk_raw_all =
            keep_floats(l, is_shared ? CP : PRIVATE,
                        (is_shared ? l->batch_rows : l->rows) * (c->heads + c->kv_heads) * c->head_dim);
    if (c->attn != ASH_ATTN_LATENT) return;
    s->dq_low = keep_floats(l, PRIVATE, l->rows * c->q_rank);
    s->dq_low_norm = keep_floats(l, PRIVATE, l->own * c->q_rank);
    s->dkv_low = keep_floats(l, PRIVATE, l->rows * (c->kv_rank + c->rope_dim));
    s->dkv_low_norm = keep_floats(l, PRIVATE, l->own * c->kv_rank);
    s->dkey = keep_floats(l, PRIVATE, l->own * c->rope_dim);
    s->dkv_up = keep_floats(l, PRIVATE, l->rows * c->heads * (c->nope_dim + c->v_dim));
}

/* Of the stream, and of a norm over it. */
static void lay_stream_gradients(struct layout *l)
{
    struct ash_scratch *s = &l->acts->scratch;
    size_t hidden = l->model->config.hidden;

    for (size_t i = 0; l->axes->shared_grads && i < ASH_DX_BUFFERS; i++)
        s->dx_buffers[i] = act_in(l, NODE, ASH_KEEP_INPUT, l->batch_rows * hidden);
    if (l->axes->tp.same_node) {
        if (!l->axes->shared_grads) s->dx_all = keep_floats(l, TP, l->rows * hidden);
        s->dnorm_all = keep_floats(l, TP, l->rows * hidden);
    } else {
        if (!l->axes->shared_grads) s->dx = keep_floats(l, PRIVATE, l->own * hidden);
        s->dnorm = keep_floats(l, PRIVATE, l->own * hidden);
    }
}

static void lay_ffn_gradients(struct layout *l)
{
    const struct ash_model_config *c = &l->model->config;
    struct ash_scratch *s = &l->acts->scratch;
    size_t wide = ash_max(c->ffn, c->expert.shared_ffn);
    enum space space = l->axes->shared_grads ? CP : PRIVATE;
    size_t rows = l->axes->shared_grads ? l->batch_rows : l->rows;

    s->dffn.gate = c->mlp == ASH_MLP_GATED ? keep_floats(l, space, rows * wide) : NULL;
    s->dffn.up = keep_floats(l, space, rows * wide);
    s->dffn.hidden = keep_floats(l, PRIVATE, l->rows * wide);
}

static void lay_moe_gradients(struct layout *l)
{
    const struct ash_model_config *c = &l->model->config;
    struct ash_scratch *s = &l->acts->scratch;
    size_t pairs = l->rows * c->expert.choices;

    if (c->expert.experts == 0) return;
    if (l->axes->ep.size == 1) {
        s->dexpert.gate = keep_floats(l, PRIVATE, pairs * c->expert.ffn);
        s->dexpert.up = keep_floats(l, PRIVATE, pairs * c->expert.ffn);
        s->dexpert.hidden = keep_floats(l, PRIVATE, pairs * c->expert.ffn);
    }
    s->dpair = keep_floats(l, ash_split_shares_pairs(l->model, l->axes) ? TP : PRIVATE, pairs * c->hidden);
    s->pair_weight = keep_floats(l, PRIVATE, pairs);
    s->dweight = keep_floats(l, PRIVATE, pairs);
    s->dlogits = keep_floats(l, PRIVATE, l->rows * c->expert.experts);
}

/* What ranks of tp pass to each other in reductions. */
static void lay_reductions(struct layout *l)
{
    const struct ash_model_config *c = &l->model->config;
    const size_t cols[] = {c->hidden, c->q_rank, c->kv_rank, c->rope_dim, ASH_LANES}; /* of sums over the ranks */
    size_t tile = 0, posted_bytes = l->axes->tp.size * ASH_PROJECT_OUTS_MAX * sizeof(*l->acts->posted[0]);

    for (size_t i = 0; i < sizeof(cols) / sizeof(cols[0]); i++)
        if (cols[i] > 0) tile = ash_max(tile, ash_reduce_tile_floats(l->own, cols[i]));
    if (!l->axes->tp.same_node) {
        l->acts->scratch.tile = keep_floats(l, PRIVATE, tile);
        return;
    }
    for (size_t i = 0; i < 2; i++)
        l->acts->posted[i] = keep_bytes(l, TP, posted_bytes);
    l->acts->shared_losses = keep_floats(l, TP, l->rows);
}

/* What else they exchange: rows of the stream, parts of losses, looked-up rows, heads. */
static void lay_exchanges(struct layout *l)
{
    const struct ash_model_config *c = &l->model->config, *whole = &l->model->whole;
    struct ash_scratch *s = &l->acts->scratch;
    struct ash_batch_block *block = &l->acts->block;
    size_t all_heads = (whole->heads + whole->kv_heads) * c->head_dim;

    lay_reductions(l);
    s->x_gathered = keep_floats(l, PRIVATE, l->rows * c->hidden);
    if (l->opts->backward && !l->axes->tp.same_node) s->dy_gathered = keep_floats(l, PRIVATE, l->rows * c->hidden);
    s->top = keep_floats(l, PRIVATE, l->rows * 2);
    s->lanes = keep_floats(l, PRIVATE, l->rows * ASH_LANES);
    block->held_ids = keep_ints(l, l->rows);
    block->held_rows = keep_ints(l, l->rows);
    block->own_index = keep_ints(l, l->own);
    if (!l->opts->backward || !c->qk_norm) return;
    s->qk.send = keep_floats(l, PRIVATE, l->rows * 2 * (c->heads + c->kv_heads) * c->head_dim);
    s->qk.recv = keep_floats(l, PRIVATE, l->own * 2 * all_heads);
    s->qk.raw = keep_floats(l, PRIVATE, l->own * all_heads);
    s->qk.grad = keep_floats(l, PRIVATE, l->own * all_heads);
    s->qk.rstd = keep_floats(l, PRIVATE, l->own * whole->heads);
}

/* ---- the head ---------------------------------------------------------------------------------------------------- */

/* The final norm, and logits: where all of a rank's are there at once, the others can see them. */
static void lay_head(struct layout *l)
{
    struct ash_acts *acts = l->acts;
    struct ash_norm_acts *norm = &acts->final_norm;
    size_t hidden = l->model->config.hidden, vocab = l->model->vocab.count;

    if (l->axes->shared_grads && l->rows <= acts->head_rows)
        acts->scratch.logits_all = keep_floats(l, CP, l->batch_rows * vocab);
    else
        acts->scratch.logits = keep_floats(l, PRIVATE, acts->head_rows * vocab);
    if (l->axes->shared_grads)
        norm->out_all = act_in(l, NODE, ASH_KEEP_INPUT, l->batch_rows * hidden);
    else if (l->axes->tp.same_node)
        norm->out_all = keep_floats(l, TP, l->rows * hidden);
    else
        norm->out = keep_floats(l, PRIVATE, l->own * hidden);
    norm->rstd = keep_floats(l, PRIVATE, l->own);
    norm->mean = keep_floats(l, PRIVATE, l->own);
}

/* The largest batch in pieces of equal size, rounded up to a multiple of HEAD_ROWS_MIN. */
static size_t head_rows(const struct layout *l)
{
    size_t bytes = !l->opts->backward     ? HEAD_LOGITS_BYTES
                   : l->axes->cp.size > 1 ? HEAD_LOGITS_ORDERED_BYTES
                                          : HEAD_LOGITS_BACKWARD_BYTES;
    size_t vocab = ash_div_up(l->model->whole.vocab, l->axes->tp.size); /* the same on all ranks */
    size_t most = ash_max(bytes / (vocab * sizeof(float)), HEAD_ROWS_MIN);

    if (l->opts->head_rows != 0) return ash_round_up(l->opts->head_rows, ASH_K_GROUP);
    return ash_round_up(ash_div_up(l->rows, ash_div_up(l->rows, most)), HEAD_ROWS_MIN);
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

static void set_strides(struct layout *l)
{
    const struct ash_model_config *c = &l->model->config;
    struct ash_acts *acts = l->acts;

    if (c->attn == ASH_ATTN_GROUPED) {
        acts->v_dim = c->head_dim;
        acts->q_stride = acts->k_stride = acts->v_stride = (c->heads + 2 * c->kv_heads) * c->head_dim;
    } else {
        acts->v_dim = c->v_dim;
        acts->q_stride = acts->k_stride = c->heads * c->head_dim;
        acts->v_stride = c->heads * c->v_dim;
    }
    acts->head_rows = head_rows(l);
}

static void lay_batch(struct layout *l)
{
    struct ash_batch_block *block = &l->acts->block;

    block->ids = keep_ints(l, l->rows);
    block->targets = keep_ints(l, l->rows);
    block->positions = keep_ints(l, l->rows);
    l->acts->losses = keep_floats(l, PRIVATE, l->batch_rows);
}

static void lay_all(struct layout *l)
{
    const struct ash_model_config *c = &l->model->config;
    struct ash_acts *acts = l->acts;

    set_strides(l);
    lay_batch(l);
    if (l->axes->cp.size > 1 && !l->axes->cp.same_node)
        acts->scratch.packed = keep_floats(l, PRIVATE, l->rows * qkv_width(l, c->kv_heads));
    acts->scratch.residual = keep_floats(l, PRIVATE, l->own * c->hidden);
    if (l->axes->tp.size > 1) lay_exchanges(l);
    for (size_t i = 0; i < c->layers; i++)
        lay_layer(l, i);
    /* without a backward pass the stream is one buffer that every layer updates in place */
    acts->final_in = l->opts->backward ? keep_floats(l, PRIVATE, l->own * c->hidden) : acts->layers[0].in;
    if (ash_split_has_head(l->model)) lay_head(l);
    if (!l->opts->backward) return;
    lay_stream_gradients(l);
    lay_attn_gradients(l);
    lay_qkv_gradients(l);
    lay_ffn_gradients(l);
    lay_moe_gradients(l);
}

static struct layout layout_of(const struct ash_model *model, const struct ash_pass_opts *opts,
                               const struct ash_axes *axes, struct ash_acts *acts)
{
    return (struct layout){.model = model,
                           .opts = opts,
                           .axes = axes,
                           .acts = acts,
                           .rows = ash_split_max_rows(opts, axes),
                           .own = ash_split_max_own_rows(opts, axes),
                           .batch_rows = opts->max_rows};
}

static size_t space_bytes(const struct layout *l, enum space space)
{
    return l->spaces[space].kept_bytes + l->spaces[space].reused_peak_bytes;
}

/* Of the memory that ranks share, a rank has its part. */
static size_t rank_bytes(const struct layout *l)
{
    return space_bytes(l, PRIVATE) + space_bytes(l, TP) / l->axes->tp.size + space_bytes(l, CP) / l->axes->cp.size +
           space_bytes(l, NODE) / l->axes->node.size;
}

int ash_acts_measure(const struct ash_model *model, const struct ash_pass_opts *opts, const struct ash_axes *axes,
                     size_t *bytes_out, struct ash_err *err)
{
    struct ash_acts acts = {0};
    struct layout l = layout_of(model, opts, axes, &acts);

    acts.layers = calloc(model->config.layers, sizeof(*acts.layers));
    if (acts.layers == NULL) return ash_err_set(err, -ENOMEM, "out of memory to measure a pass");
    lay_all(&l);
    *bytes_out = rank_bytes(&l);
    free(acts.layers);
    return 0;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* *bytes becomes the most that any of those who share memory has. */
static int agree_on_most(const struct ash_axis *node, size_t *bytes, struct ash_err *err)
{
    const size_t unit = (size_t)1 << 20; /* floats hold whole numbers up to there */
    size_t lines = *bytes / ALIGN_BYTES, most = 0, *counts = calloc(node->size, sizeof(*counts));
    float *halves = calloc(2 * node->size, sizeof(*halves));
    int rc = -ENOMEM;

    if (counts == NULL || halves == NULL) {
        ash_err_set(err, rc, "out of memory for %zu ranks", node->size);
        goto end;
    }
    for (size_t r = 0; r < node->size; r++)
        counts[r] = 2;
    halves[2 * node->rank] = (float)(lines / unit);
    halves[2 * node->rank + 1] = (float)(lines % unit);
    rc = node->ops->all_gather(node->ctx, halves, counts, err);
    if (rc < 0) goto end;
    for (size_t r = 0; r < node->size; r++)
        most = ash_max(most, (size_t)halves[2 * r] * unit + (size_t)halves[2 * r + 1]);
    *bytes = most * ALIGN_BYTES;

end:
    free(counts);
    free(halves);
    return rc;
}

/* The memory of the ranks of a node: TP of each tp group, CP of each tp rank, NODE, then PRIVATE of each rank where
 * those of tp see it. base_out[space]: where this rank's begins; NULL where it is not there. */
static int open_shared(const struct layout *measured, struct ash_axes *axes, char *base_out[SPACES],
                       struct ash_err *err)
{
    const struct ash_axis *node = &axes->node;
    size_t own = axes->tp.same_node ? space_bytes(measured, PRIVATE) : 0, tp = space_bytes(measured, TP),
           cp = space_bytes(measured, CP), all = space_bytes(measured, NODE), groups = node->size / axes->tp.size;
    int rc = agree_on_most(node, &own, err);
    char *memory;

    if (rc < 0) return rc;
    rc = agree_on_most(node, &cp, err);
    if (rc < 0) return rc;
    rc = node->ops->shared_open(node->ctx, (groups * tp + axes->tp.size * cp + all + node->size * own) / sizeof(float),
                                &axes->shared, err);
    if (rc < 0) return rc;
    memory = (char *)axes->shared.data;
    base_out[TP] = memory + node->rank / axes->tp.size * tp;
    base_out[CP] = memory + groups * tp + axes->tp.rank * cp;
    base_out[NODE] = memory + groups * tp + axes->tp.size * cp;
    if (axes->tp.same_node) base_out[PRIVATE] = base_out[NODE] + all + node->rank * own;
    return 0;
}

static int open_memory(const struct layout *measured, struct ash_acts *acts, const struct ash_exec *exec,
                       struct ash_axes *axes, char *base_out[SPACES], struct ash_err *err)
{
    int rc;

    if (!axes->tp.same_node) {
        rc = ash_buffer_init(&acts->memory, exec->memory, space_bytes(measured, PRIVATE), "activations", err);
        if (rc < 0) return rc;
        base_out[PRIVATE] = acts->memory.data;
    }
    if (!axes->tp.same_node && !axes->cp.same_node) return 0;
    return open_shared(measured, axes, base_out, err);
}

int ash_acts_open(struct ash_acts *acts, const struct ash_model *model, const struct ash_exec *exec,
                  const struct ash_pass_opts *opts, struct ash_axes *axes, struct ash_err *err)
{
    struct layout measured = layout_of(model, opts, axes, acts), real = measured;
    char *base[SPACES] = {NULL};
    int rc;

    *acts = (struct ash_acts){0};
    acts->layers = calloc(model->config.layers, sizeof(*acts->layers));
    if (acts->layers == NULL)
        return ash_err_set(err, -ENOMEM, "out of memory for a pass over %zu rows", opts->max_rows);
    lay_all(&measured);
    rc = open_memory(&measured, acts, exec, axes, base, err);
    if (rc < 0) return rc;
    for (size_t i = 0; i < SPACES; i++) {
        if (base[i] == NULL) continue;
        real.spaces[i].kept = base[i];
        real.spaces[i].reused = base[i] + measured.spaces[i].kept_bytes;
    }
    lay_all(&real);
    for (size_t i = 0; i < SPACES; i++)
        ash_assert(space_bytes(&real, i) == space_bytes(&measured, i));
    acts->size_bytes = rank_bytes(&measured);
    return 0;
}

void ash_acts_close(struct ash_acts *acts)
{
    ash_buffer_fini(&acts->memory);
    free(acts->layers);
    memset(acts, 0, sizeof(*acts));
}
