/* Where a pass's activations live: one block of memory, laid out once for the largest batch.
 * What backward needs is placed per layer; what it can recompute, and everything in a pass without backward, is placed
 * once and shared by all layers. */
#include "model/pass/pass_priv.h"

#include <errno.h>
#include <stdlib.h>

#define ALIGN_BYTES ((size_t)64)
#define HEAD_ROWS_MIN ASH_K_GROUP

/* Aim for the logits of a few rows. Each piece of a backward pass reads and writes the whole output matrix's gradient,
 * so there pieces are larger. */
#define HEAD_LOGITS_BYTES ((size_t)16 << 20)
#define HEAD_LOGITS_BACKWARD_BYTES ((size_t)64 << 20)
#define HEAD_LOGITS_TURNS_BYTES ((size_t)512 << 20) /* along cp: pieces would wait for all of the rank before */

/* Places things one behind the other. With base NULL it only measures. */
struct placer {
    char *base;
    size_t used_bytes;
};

struct layout {
    struct ash_pass *pass;
    struct placer kept, shared;
    struct placer common, common_shared; /* the same in memory that ranks along tp see together */
    struct placer heads, heads_shared;   /* and that ranks along cp do */
    struct placer all, all_shared;       /* and that both do, rows of the whole batch as wide as the stream */
    size_t shared_peak, common_shared_peak, heads_shared_peak, all_shared_peak;
    size_t rows, own; /* of a batch on this rank; of the stream that it keeps */
};

static void *place(struct placer *placer, size_t size_bytes)
{
    char *at = placer->base == NULL ? NULL : placer->base + placer->used_bytes;

    placer->used_bytes += (size_bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
    return at;
}

bool ash_pass_keeps(const struct ash_pass *pass, enum ash_keep keep)
{
    if (!pass->opts.backward) return false;
    switch (pass->opts.recompute) {
    case ASH_RECOMPUTE_NONE:
        return true;
    case ASH_RECOMPUTE_SELECTIVE:
        return keep != ASH_KEEP_CHEAP;
    default:
        return keep == ASH_KEEP_INPUT;
    }
}

static float *take(struct layout *layout, enum ash_keep keep, size_t count)
{
    struct placer *placer = ash_pass_keeps(layout->pass, keep) ? &layout->kept : &layout->shared;

    return place(placer, count * sizeof(float));
}

/* Rows of all ranks along tp, as wide as the stream, where those share memory. */
static float *take_common(struct layout *layout, enum ash_keep keep, size_t rows)
{
    const struct ash_pass *pass = layout->pass;
    struct placer *placer = ash_pass_keeps(pass, keep) ? &layout->common : &layout->common_shared;

    return place(placer, rows * pass->model->config.hidden * sizeof(float));
}

/* The same of all ranks along tp and cp, of the whole batch. */
static float *take_all(struct layout *layout, enum ash_keep keep)
{
    const struct ash_pass *pass = layout->pass;
    struct placer *placer = ash_pass_keeps(pass, keep) ? &layout->all : &layout->all_shared;

    return place(placer, pass->opts.max_rows * pass->model->config.hidden * sizeof(float));
}

/* A column further right in the same rows. */
static float *columns_on(float *base, size_t columns)
{
    return base == NULL ? NULL : base + columns;
}

static void lay_norm(struct layout *l, struct ash_norm_acts *norm)
{
    const struct ash_model_config *c = &l->pass->model->config;

    if (l->pass->shares_sums)
        norm->all = take_all(l, ASH_KEEP_CHEAP);
    else if (l->pass->tp.near)
        norm->all = take_common(l, ASH_KEEP_CHEAP, l->rows);
    else
        norm->out = take(l, ASH_KEEP_CHEAP, l->own * c->hidden);
    norm->rstd = take(l, ASH_KEEP_COSTLY, l->own);
    norm->mean = c->norm == ASH_NORM_LAYER ? take(l, ASH_KEEP_COSTLY, l->own) : NULL;
}

/* All rows of the batch, where ranks along cp share memory; each gets its own of them with a batch (ash_attn_place). */
static float *take_spread(struct layout *l, enum ash_keep keep, size_t width)
{
    struct placer *placer = ash_pass_keeps(l->pass, keep) ? &l->heads : &l->heads_shared;

    return place(placer, l->pass->opts.max_rows * width * sizeof(float));
}

/* Along cp attention reads other rows, by heads, and these are on their way only. */
static float *take_qkv(struct layout *l, size_t width)
{
    return l->pass->cp.near       ? take_spread(l, ASH_KEEP_COSTLY, width)
           : l->pass->cp.size > 1 ? place(&l->shared, l->rows * width * sizeof(float))
                                  : take(l, ASH_KEEP_COSTLY, l->rows * width);
}

static void lay_grouped(struct layout *l, struct ash_attn_acts *a)
{
    const struct ash_model_config *c = &l->pass->model->config;
    size_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;

    a->q = take_qkv(l, q + 2 * kv);
    a->k = columns_on(a->q, q);
    a->v = columns_on(a->k, kv);
    if (!c->qk_norm) return;
    a->qk_raw = take(l, ASH_KEEP_COSTLY, l->rows * (q + kv));
    a->q_rstd = take(l, ASH_KEEP_COSTLY, l->rows * c->heads);
    a->k_rstd = take(l, ASH_KEEP_COSTLY, l->rows * c->kv_heads);
}

static void lay_latent(struct layout *l, struct ash_attn_acts *a)
{
    const struct ash_model_config *c = &l->pass->model->config;

    a->q = take_qkv(l, l->pass->q_stride);
    a->k = take_qkv(l, l->pass->k_stride);
    a->v = take_qkv(l, l->pass->v_stride);
    if (c->q_rank != 0) {
        a->q_low = take(l, ASH_KEEP_COSTLY, l->rows * c->q_rank);
        a->q_low_norm = take(l, ASH_KEEP_COSTLY, l->rows * c->q_rank);
        a->q_low_rstd = take(l, ASH_KEEP_COSTLY, l->rows);
    }
    a->kv_low = take(l, ASH_KEEP_COSTLY, l->rows * (c->kv_rank + c->rope_dim));
    a->kv_low_norm = take(l, ASH_KEEP_COSTLY, l->rows * c->kv_rank);
    a->kv_low_rstd = take(l, ASH_KEEP_COSTLY, l->rows);
    a->kv_up =
        place(&l->shared, l->rows * c->heads * (c->nope_dim + c->v_dim) * sizeof(float)); /* copied into k and v */
}

/* Columns of q, k and v of some key-value heads. */
static size_t qkv_width(const struct ash_pass *pass, size_t kv_heads)
{
    const struct ash_model_config *c = &pass->model->config;

    return kv_heads * ((c->heads / c->kv_heads + 1) * c->head_dim + pass->v_dim);
}

static void lay_spread(struct layout *l, struct ash_attn_acts *a)
{
    struct ash_pass *pass = l->pass;
    const struct ash_model_config *c = &pass->model->config;
    size_t kv_heads = ash_attn_heads_of(pass, pass->cp.rank).count, heads = kv_heads * (c->heads / c->kv_heads);
    size_t rows = pass->opts.max_rows;

    if (pass->cp.near) {
        a->spread.q = a->q;
        a->spread.k = a->k;
        a->spread.v = a->v;
        a->spread.out = take_spread(l, ASH_KEEP_COSTLY, c->heads * pass->v_dim);
    } else {
        a->spread.q = take(l, ASH_KEEP_COSTLY, rows * qkv_width(pass, kv_heads));
        a->spread.out = take(l, ASH_KEEP_COSTLY, rows * heads * pass->v_dim);
    }
    a->spread.lse = pass->opts.backward ? take(l, ASH_KEEP_COSTLY, rows * heads) : NULL;
}

static void lay_inner(struct layout *l, struct ash_ffn_acts *ffn, size_t rows, size_t width)
{
    ffn->gate = l->pass->model->config.mlp == ASH_MLP_GATED ? take(l, ASH_KEEP_COSTLY, rows * width) : NULL;
    ffn->up = take(l, ASH_KEEP_COSTLY, rows * width);
}

static void lay_expert(struct layout *l, struct ash_ffn_acts *ffn, size_t rows, size_t width)
{
    lay_inner(l, ffn, rows, width);
    ffn->hidden = take(l, ASH_KEEP_CHEAP, rows * width);
}

/* A feed-forward of all tokens. */
static void lay_ffn(struct layout *l, struct ash_ffn_acts *ffn, size_t width)
{
    if (!l->pass->shares_sums) {
        lay_expert(l, ffn, l->rows, width);
        return;
    }
    lay_inner(l, ffn, l->rows, width);
    ffn->hidden = ffn->hidden_all = take_spread(l, ASH_KEEP_CHEAP, width);
}

static void lay_moe(struct layout *l, struct ash_moe_acts *moe)
{
    const struct ash_model_config *c = &l->pass->model->config;
    size_t pairs = l->rows * c->expert.choices;

    moe->logits = take(l, ASH_KEEP_COSTLY, l->rows * c->expert.experts);
    moe->index = (int32_t *)take(l, ASH_KEEP_COSTLY, pairs);
    moe->weight = take(l, ASH_KEEP_COSTLY, pairs);
    moe->order = (int32_t *)take(l, ASH_KEEP_COSTLY, pairs);
    moe->flat = (int32_t *)take(l, ASH_KEEP_COSTLY, pairs);
    moe->where = (int32_t *)take(l, ASH_KEEP_COSTLY, pairs);
    moe->y = ash_moe_pairs_common(l->pass) ? take_common(l, ASH_KEEP_COSTLY, pairs)
                                           : take(l, ASH_KEEP_COSTLY, pairs * c->hidden);
    if (l->pass->ep.size > 1) {
        moe->x = place(&l->shared, pairs * c->hidden * sizeof(float)); /* on their way out; see moe_exchange.c */
    } else {
        moe->x = take(l, ASH_KEEP_CHEAP, pairs * c->hidden);
        lay_expert(l, &moe->expert, pairs, c->expert.ffn);
    }
    if (c->expert.shared_ffn != 0) lay_ffn(l, &moe->shared, c->expert.shared_ffn);
}

static void lay_layer(struct layout *l, size_t index)
{
    struct ash_pass *pass = l->pass;
    const struct ash_model_config *c = &pass->model->config;
    struct ash_layer_acts *acts = &pass->layers[index];
    size_t shared_start = l->shared.used_bytes, common_start = l->common_shared.used_bytes,
           heads_start = l->heads_shared.used_bytes, all_start = l->all_shared.used_bytes;

    acts->in = take(l, ASH_KEEP_INPUT, l->own * c->hidden);
    acts->mid = pass->opts.backward ? take(l, ASH_KEEP_COSTLY, l->own * c->hidden) : acts->in;
    lay_norm(l, &acts->attn.norm);
    if (c->attn == ASH_ATTN_LATENT)
        lay_latent(l, &acts->attn);
    else
        lay_grouped(l, &acts->attn);
    if (!pass->cp.near) acts->attn.out = take(l, ASH_KEEP_COSTLY, l->rows * c->heads * pass->v_dim);
    if (pass->cp.size > 1)
        lay_spread(l, &acts->attn);
    else
        acts->attn.lse = pass->opts.backward ? take(l, ASH_KEEP_COSTLY, l->rows * c->heads) : NULL;
    lay_norm(l, &acts->ffn_norm);
    if (c->sparse[index])
        lay_moe(l, &acts->moe);
    else
        lay_ffn(l, &acts->ffn, c->ffn);
    if (l->shared.used_bytes > l->shared_peak) l->shared_peak = l->shared.used_bytes;
    if (l->common_shared.used_bytes > l->common_shared_peak) l->common_shared_peak = l->common_shared.used_bytes;
    if (l->heads_shared.used_bytes > l->heads_shared_peak) l->heads_shared_peak = l->heads_shared.used_bytes;
    l->shared.used_bytes = shared_start;
    l->common_shared.used_bytes = common_start;
    if (l->all_shared.used_bytes > l->all_shared_peak) l->all_shared_peak = l->all_shared.used_bytes;
    l->heads_shared.used_bytes = heads_start;
    l->all_shared.used_bytes = all_start;
}

static size_t max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t round_up(size_t count, size_t multiple)
{
    return (count + multiple - 1) / multiple * multiple;
}

/* Gradients of q, k, v and attention's output, of this rank's rows; or, where ranks along cp share memory, of all. */
static void lay_attn_gradients(struct layout *l)
{
    struct ash_pass *pass = l->pass;
    const struct ash_model_config *c = &pass->model->config;
    struct ash_scratch *s = &pass->scratch;
    struct placer *p = &l->kept, *attn = pass->cp.near ? &l->heads : p;
    size_t rows = pass->cp.near ? pass->opts.max_rows : l->rows;
    size_t kv_heads = ash_attn_heads_of(pass, pass->cp.rank).count, heads = kv_heads * (c->heads / c->kv_heads);

    s->dattn = place(attn, rows * c->heads * pass->v_dim * sizeof(float));
    s->dq = place(attn, rows * pass->q_stride * sizeof(float));
    if (c->attn == ASH_ATTN_GROUPED) {
        s->dk = columns_on(s->dq, c->heads * c->head_dim);
        s->dv = columns_on(s->dk, c->kv_heads * c->head_dim);
        if (c->qk_norm)
            s->dqk_raw = s->dqk_raw_all =
                place(pass->shares_sums ? attn : p,
                      (pass->shares_sums ? rows : l->rows) * (c->heads + c->kv_heads) * c->head_dim * sizeof(float));
    } else {
        s->dk = place(attn, rows * pass->k_stride * sizeof(float));
        s->dv = place(attn, rows * pass->v_stride * sizeof(float));
        s->dq_low = place(p, l->rows * c->q_rank * sizeof(float));
        s->dq_low_norm = place(p, l->own * c->q_rank * sizeof(float));
        s->dkv_low = place(p, l->rows * (c->kv_rank + c->rope_dim) * sizeof(float));
        s->dkv_low_norm = place(p, l->own * c->kv_rank * sizeof(float));
        s->dkey = place(p, l->own * c->rope_dim * sizeof(float));
        s->dkv_up = place(p, l->rows * c->heads * (c->nope_dim + c->v_dim) * sizeof(float));
    }
    if (pass->cp.near) {
        s->dspread.q = s->dq;
        s->dspread.k = s->dk;
        s->dspread.v = s->dv;
        s->dspread.out = s->dattn;
    } else if (pass->cp.size > 1) {
        s->dspread.q = place(p, pass->opts.max_rows * qkv_width(pass, kv_heads) * sizeof(float));
        s->dspread.out = place(p, pass->opts.max_rows * heads * pass->v_dim * sizeof(float));
    }
}

/* Of the stream, and of a norm behind it. */
static void lay_stream_gradients(struct layout *l)
{
    struct ash_pass *pass = l->pass;
    struct ash_scratch *s = &pass->scratch;
    size_t hidden = pass->model->config.hidden;

    for (size_t i = 0; pass->shares_sums && i < ASH_DX_TURNS; i++)
        s->dx_turns[i] = take_all(l, ASH_KEEP_INPUT);
    if (pass->tp.near) {
        if (!pass->shares_sums) s->dx_rows = place(&l->common, l->rows * hidden * sizeof(float));
        s->dnorm_rows = place(&l->common, l->rows * hidden * sizeof(float));
    } else {
        if (!pass->shares_sums) s->dx = place(&l->kept, l->own * hidden * sizeof(float));
        s->dnorm = place(&l->kept, l->own * hidden * sizeof(float));
    }
}

static void lay_backward_scratch(struct layout *l)
{
    struct ash_pass *pass = l->pass;
    const struct ash_model_config *c = &pass->model->config;
    struct ash_scratch *s = &pass->scratch;
    size_t pairs = l->rows * c->expert.choices, wide = max_size(c->ffn, c->expert.shared_ffn);
    struct placer *p = &l->kept;

    struct placer *ffn = pass->shares_sums ? &l->heads : p;
    size_t ffn_rows = pass->shares_sums ? pass->opts.max_rows : l->rows;

    lay_stream_gradients(l);
    lay_attn_gradients(l);
    s->dffn.gate = c->mlp == ASH_MLP_GATED ? place(ffn, ffn_rows * wide * sizeof(float)) : NULL;
    s->dffn.up = place(ffn, ffn_rows * wide * sizeof(float));
    s->dffn.hidden = place(p, l->rows * wide * sizeof(float));
    if (c->expert.experts == 0) return;
    if (pass->ep.size == 1) {
        s->dexpert.gate = place(p, pairs * c->expert.ffn * sizeof(float));
        s->dexpert.up = place(p, pairs * c->expert.ffn * sizeof(float));
        s->dexpert.hidden = place(p, pairs * c->expert.ffn * sizeof(float));
    }
    s->dpair = place(ash_moe_pairs_common(pass) ? &l->common : p, pairs * c->hidden * sizeof(float));
    s->pair_weight = place(p, pairs * sizeof(float));
    s->dweight = place(p, pairs * sizeof(float));
    s->dlogits = place(p, l->rows * c->expert.experts * sizeof(float));
}

/* What tensor-parallel ranks pass to each other. */
static void lay_exchange(struct layout *l)
{
    struct ash_pass *pass = l->pass;
    const struct ash_model_config *c = &pass->model->config, *whole = &pass->model->whole;
    struct ash_scratch *s = &pass->scratch;
    struct placer *p = &l->kept;
    const size_t cols[] = {c->hidden, c->q_rank, c->kv_rank, c->rope_dim, ASH_LANES}; /* of sums that go round */
    size_t tile = 0;
    size_t all_heads = (whole->heads + whole->kv_heads) * c->head_dim;

    for (size_t i = 0; i < sizeof(cols) / sizeof(cols[0]); i++)
        if (cols[i] > 0) tile = max_size(tile, ash_chain_tile_most(l->own, cols[i]));
    for (size_t i = 0; pass->tp.near && i < 2; i++)
        pass->common.posted[i] =
            place(&l->common, pass->tp.size * ASH_PROJECT_OUTS_MAX * sizeof(*pass->common.posted[i]));
    if (pass->tp.near)
        pass->common.losses = place(&l->common, l->rows * sizeof(float));
    else
        s->tile = place(p, tile * sizeof(float));
    s->x_all = place(p, l->rows * c->hidden * sizeof(float));
    if (pass->opts.backward && !pass->tp.near) s->dy_all = place(p, l->rows * c->hidden * sizeof(float));
    s->top = place(p, l->rows * 2 * sizeof(float));
    s->lanes = place(p, l->rows * ASH_LANES * sizeof(float));
    pass->lookup.ids = place(p, l->rows * sizeof(int32_t));
    pass->lookup.rows = place(p, l->rows * sizeof(int32_t));
    pass->lookup.index = place(p, l->own * sizeof(int32_t));
    if (!pass->opts.backward || !c->qk_norm) return;
    s->heads.out = place(p, l->rows * 2 * (c->heads + c->kv_heads) * c->head_dim * sizeof(float));
    s->heads.in = place(p, l->own * 2 * all_heads * sizeof(float));
    s->heads.raw = place(p, l->own * all_heads * sizeof(float));
    s->heads.grad = place(p, l->own * all_heads * sizeof(float));
    s->heads.rstd = place(p, l->own * whole->heads * sizeof(float));
}

/* Where all of a rank's are there at once, the others can see them. */
static void lay_logits(struct layout *l)
{
    struct ash_pass *pass = l->pass;
    size_t vocab = pass->model->vocab.count;

    if (pass->shares_sums && l->rows <= pass->head_rows)
        pass->scratch.logits_all = place(&l->heads, pass->opts.max_rows * vocab * sizeof(float));
    else
        pass->scratch.logits = place(&l->kept, pass->head_rows * vocab * sizeof(float));
}

static void lay_all(struct layout *l)
{
    struct ash_pass *pass = l->pass;
    const struct ash_model_config *c = &pass->model->config;
    struct placer *p = &l->kept;

    pass->ids = place(p, l->rows * sizeof(int32_t));
    pass->targets = place(p, l->rows * sizeof(int32_t));
    pass->positions = place(p, l->rows * sizeof(int32_t));
    pass->all_losses = pass->losses = place(p, pass->opts.max_rows * sizeof(float));
    if (pass->cp.size > 1 && !pass->cp.near)
        pass->scratch.packed = place(p, l->rows * qkv_width(pass, c->kv_heads) * sizeof(float));
    pass->scratch.residual = place(p, l->own * c->hidden * sizeof(float));
    if (ash_pass_ends(pass)) lay_logits(l);
    if (pass->tp.size > 1) lay_exchange(l);
    for (size_t i = 0; i < c->layers; i++)
        lay_layer(l, i);
    /* without a backward pass the stream is one buffer that every layer updates in place */
    pass->final_in = pass->opts.backward ? place(p, l->own * c->hidden * sizeof(float)) : pass->layers[0].in;
    if (ash_pass_ends(pass)) {
        if (pass->shares_sums)
            pass->final_norm.all = take_all(l, ASH_KEEP_INPUT);
        else if (pass->tp.near)
            pass->final_norm.all = place(&l->common, l->rows * c->hidden * sizeof(float));
        else
            pass->final_norm.out = place(p, l->own * c->hidden * sizeof(float));
        pass->final_norm.rstd = place(p, l->own * sizeof(float));
        pass->final_norm.mean = place(p, l->own * sizeof(float));
    }
    if (pass->opts.backward) lay_backward_scratch(l);
}

/* Of a batch, on one rank: what ash_slice_deal gives at most. */
size_t ash_pass_most_rows(const struct ash_pass *pass)
{
    size_t groups = pass->opts.max_rows / ASH_K_GROUP;
    size_t rows = (groups + pass->cp.size - 1) / pass->cp.size * ASH_K_GROUP + ASH_K_GROUP;

    return pass->cp.size > 1 && rows < pass->opts.max_rows ? rows : pass->opts.max_rows;
}

/* Of the stream, on one rank of tp. */
static size_t own_rows(const struct ash_pass *pass)
{
    return (ash_pass_most_rows(pass) + pass->tp.size - 1) / pass->tp.size;
}

/* The largest batch in pieces of equal size, rounded up to a multiple of HEAD_ROWS_MIN. */
static size_t head_rows(const struct ash_pass *pass)
{
    size_t bytes = !pass->opts.backward ? HEAD_LOGITS_BYTES
                   : pass->cp.size > 1  ? HEAD_LOGITS_TURNS_BYTES
                                        : HEAD_LOGITS_BACKWARD_BYTES;
    size_t vocab = (pass->model->whole.vocab + pass->tp.size - 1) / pass->tp.size; /* the same on all ranks */
    size_t most = max_size(bytes / (vocab * sizeof(float)), HEAD_ROWS_MIN);
    size_t all = ash_pass_most_rows(pass), pieces = (all + most - 1) / most, rows = (all + pieces - 1) / pieces;

    if (pass->opts.head_rows != 0) return round_up(pass->opts.head_rows, ASH_K_GROUP);
    return round_up(rows, HEAD_ROWS_MIN);
}

static void set_strides(struct ash_pass *pass)
{
    const struct ash_model_config *c = &pass->model->config;

    if (c->attn == ASH_ATTN_GROUPED) {
        pass->v_dim = c->head_dim;
        pass->q_stride = pass->k_stride = pass->v_stride = (c->heads + 2 * c->kv_heads) * c->head_dim;
    } else {
        pass->v_dim = c->v_dim;
        pass->q_stride = pass->k_stride = c->heads * c->head_dim;
        pass->v_stride = c->heads * c->v_dim;
    }
    pass->head_rows = head_rows(pass);
}

static struct layout measure(struct ash_pass *pass)
{
    struct layout layout = {.pass = pass, .rows = ash_pass_most_rows(pass), .own = own_rows(pass)};

    set_strides(pass);
    lay_all(&layout);
    return layout;
}

/* What of it is in memory that ranks see together, along tp and along cp. */
static size_t common_bytes(const struct layout *layout)
{
    return layout->common.used_bytes + layout->common_shared_peak;
}

static size_t heads_bytes(const struct layout *layout)
{
    return layout->heads.used_bytes + layout->heads_shared_peak;
}

static size_t all_bytes(const struct layout *layout)
{
    return layout->all.used_bytes + layout->all_shared_peak;
}

/* Of the memory that ranks see together, a rank has its share. */
static size_t rank_bytes(const struct layout *layout)
{
    const struct ash_pass *pass = layout->pass;

    return layout->kept.used_bytes + layout->shared_peak + common_bytes(layout) / pass->tp.size +
           heads_bytes(layout) / pass->cp.size + all_bytes(layout) / pass->together.size;
}

size_t ash_pass_layout_bytes(struct ash_pass *pass)
{
    struct layout layout = measure(pass);

    return rank_bytes(&layout) + ash_moe_inbox_bytes(pass);
}

/* bytes becomes the most that any of those who share memory has. */
static int agree_on_most(struct ash_pass *pass, size_t *bytes, struct ash_err *err)
{
    const struct ash_axis *all = &pass->together;
    const size_t unit = (size_t)1 << 20; /* floats hold whole numbers up to there */
    size_t lines = *bytes / ALIGN_BYTES, most = 0, *counts = calloc(all->size, sizeof(*counts));
    float *halves = calloc(2 * all->size, sizeof(*halves));
    int rc = -ENOMEM;

    if (counts == NULL || halves == NULL) {
        ash_err_set(err, rc, "out of memory for %zu ranks", all->size);
        goto end;
    }
    for (size_t r = 0; r < all->size; r++)
        counts[r] = 2;
    halves[2 * all->rank] = (float)(lines / unit);
    halves[2 * all->rank + 1] = (float)(lines % unit);
    if ((rc = all->ops->gather(all->ctx, halves, counts, err)) < 0) goto end;
    for (size_t r = 0; r < all->size; r++)
        most = max_size(most, (size_t)halves[2 * r] * unit + (size_t)halves[2 * r + 1]);
    *bytes = most * ALIGN_BYTES;

end:
    free(counts);
    free(halves);
    return rc;
}

/* Where a rank's parts of the memory that all see begin: what it has with ranks along tp, with those along cp, with
 * all, and what others only read. */
struct parts {
    char *common, *heads, *all, *own;
};

/* Memory of this rank, which the others see where sums are made by rows, and of all. */
static int open_memory(struct ash_pass *pass, const struct layout *measured, struct parts *parts_out,
                       struct ash_err *err)
{
    const struct ash_axis *all = &pass->together;
    size_t own = measured->kept.used_bytes + measured->shared_peak, most = own, common = common_bytes(measured),
           heads = heads_bytes(measured), rows = all_bytes(measured), teams = all->size / pass->tp.size;
    int rc = 0;

    *parts_out = (struct parts){0};
    if (!pass->tp.near) {
        most = 0;
        rc = ash_buffer_init(&pass->memory, pass->exec->memory, own, "activations", err);
        parts_out->own = pass->memory.data;
    }
    if (rc < 0 || !(pass->tp.near || pass->cp.near)) return rc;
    if ((rc = agree_on_most(pass, &most, err)) < 0 || (rc = agree_on_most(pass, &heads, err)) < 0) return rc;
    rc = all->ops->common_open(all->ctx,
                               (teams * common + pass->tp.size * heads + rows + all->size * most) / sizeof(float),
                               &pass->common.memory, err);
    if (rc < 0) return rc;
    char *memory = (char *)pass->common.memory.data;
    parts_out->common = memory + all->rank / pass->tp.size * common;
    parts_out->heads = memory + teams * common + pass->tp.rank * heads;
    parts_out->all = memory + teams * common + pass->tp.size * heads;
    if (!pass->tp.near) return 0;
    parts_out->own = parts_out->all + rows + all->rank * most;
    pass->memory = (struct ash_buffer){.data = parts_out->own, .size_bytes = own};
    return 0;
}

static char *behind(char *base, size_t bytes)
{
    return base == NULL ? NULL : base + bytes;
}

int ash_pass_layout(struct ash_pass *pass, struct ash_err *err)
{
    struct layout measured = measure(pass);
    struct parts parts;
    int rc = open_memory(pass, &measured, &parts, err);

    if (rc < 0) return rc;
    struct layout real = {.pass = pass,
                          .rows = ash_pass_most_rows(pass),
                          .own = own_rows(pass),
                          .kept.base = parts.own,
                          .shared.base = parts.own + measured.kept.used_bytes,
                          .common.base = parts.common,
                          .common_shared.base = behind(parts.common, measured.common.used_bytes),
                          .heads.base = parts.heads,
                          .heads_shared.base = behind(parts.heads, measured.heads.used_bytes),
                          .all.base = parts.all,
                          .all_shared.base = behind(parts.all, measured.all.used_bytes)};
    lay_all(&real);
    pass->size_bytes = rank_bytes(&measured);
    return 0;
}
