/* Attention where the tokens of a sequence are dealt out along cp: before attention each rank has its own rows of all
 * heads, for attention it gets all rows of its share of the heads, and its output goes back the same way. So attention
 * itself runs unchanged over whole documents, and no sum over keys is cut. Ranks hold rows in the order of their
 * numbers: what comes from all of them, one behind the other, is the rows of the batch in order.
 *
 * The heads of a rank are taken in two parts, if there are so many: while attention is at work on one, the rows of the
 * other are on their way, there or back.
 *
 * Where the ranks share memory nothing moves: the rows of all lie beside each other in memory that all see, each rank
 * writes its own, and attention reads and writes the columns of its heads there. They meet before it and behind it. Who
 * has come to a meeting is through with what others have written for him since the one before, so each array can be
 * written again behind the next. */
#include "model/pass/pass_priv.h"

/* Columns of a row that belong to some key-value heads and their query heads: q, then k, then v. */
static size_t qkv_width(const struct ash_pass *pass, size_t kv_heads)
{
    const struct ash_model_config *c = &pass->model->config;

    return kv_heads * (c->heads / c->kv_heads * c->head_dim + c->head_dim + pass->v_dim);
}

static size_t out_width(const struct ash_pass *pass, size_t kv_heads)
{
    const struct ash_model_config *c = &pass->model->config;

    return kv_heads * (c->heads / c->kv_heads) * pass->v_dim;
}

struct ash_range ash_pass_rows_of(const struct ash_pass *pass, size_t cp_rank)
{
    return ash_slice_deal(pass->batch->rows, ASH_K_GROUP, cp_rank, pass->cp.size);
}

struct ash_range ash_attn_heads_of(const struct ash_pass *pass, size_t cp_rank)
{
    return ash_slice_deal(pass->model->config.kv_heads, 1, cp_rank, pass->cp.size);
}

size_t ash_attn_parts(const struct ash_pass *pass)
{
    bool two = pass->cp.size > 1 && !pass->cp.near && pass->model->config.kv_heads >= 2 * pass->cp.size;

    return two ? ASH_ATTN_PARTS : 1;
}

/* Of a rank's key-value heads, those of a part. */
static struct ash_range part_heads(const struct ash_pass *pass, size_t cp_rank, size_t part)
{
    struct ash_range all = ash_attn_heads_of(pass, cp_rank),
                     some = ash_slice_deal(all.count, 1, part, ash_attn_parts(pass));

    return (struct ash_range){all.first + some.first, some.count};
}

/* Of this rank's, those before a part's. */
static size_t heads_before(const struct ash_pass *pass, size_t part)
{
    return part_heads(pass, pass->cp.rank, part).first - ash_attn_heads_of(pass, pass->cp.rank).first;
}

/* ---- what attention runs on -------------------------------------------------------------------------------------- */

static struct ash_attn_view view_alone(struct ash_pass *pass, size_t layer)
{
    const struct ash_model_config *c = &pass->model->config;
    const struct ash_attn_acts *acts = &pass->layers[layer].attn;
    const struct ash_scratch *s = &pass->scratch;

    return (struct ash_attn_view){.rows = pass->rows,
                                  .heads = c->heads,
                                  .kv_heads = c->kv_heads,
                                  .one_row = c->attn == ASH_ATTN_GROUPED,
                                  .q_stride = pass->q_stride,
                                  .k_stride = pass->k_stride,
                                  .v_stride = pass->v_stride,
                                  .out_stride = c->heads * pass->v_dim,
                                  .q = acts->q,
                                  .k = acts->k,
                                  .v = acts->v,
                                  .out = acts->out,
                                  .lse = acts->lse,
                                  .dout = s->dattn,
                                  .dq = s->dq,
                                  .dk = s->dk,
                                  .dv = s->dv};
}

/* All rows where they lie, and the columns of this rank's heads. */
static struct ash_attn_view view_together(struct ash_pass *pass, size_t layer)
{
    const struct ash_model_config *c = &pass->model->config;
    const struct ash_attn_acts *acts = &pass->layers[layer].attn;
    const struct ash_scratch *s = &pass->scratch;
    struct ash_range kv = ash_attn_heads_of(pass, pass->cp.rank);
    size_t group = c->heads / c->kv_heads, q = kv.first * group * c->head_dim, k = kv.first * c->head_dim,
           v = kv.first * pass->v_dim, out = out_width(pass, kv.first);
    struct ash_attn_view view = view_alone(pass, layer);

    view.rows = pass->batch->rows;
    view.heads = kv.count * group;
    view.kv_heads = kv.count;
    view.q = acts->spread.q + q;
    view.k = acts->spread.k + k;
    view.v = acts->spread.v + v;
    view.out = acts->spread.out + out;
    view.lse = acts->spread.lse;
    if (s->dspread.q == NULL) return view;
    view.dq = s->dspread.q + q;
    view.dk = s->dspread.k + k;
    view.dv = s->dspread.v + v;
    view.dout = s->dspread.out + out;
    return view;
}

/* All rows of the heads of a part: parts lie one behind the other. */
struct ash_attn_view ash_attn_view(struct ash_pass *pass, size_t layer, size_t part)
{
    const struct ash_model_config *c = &pass->model->config;
    const struct ash_attn_acts *acts = &pass->layers[layer].attn;
    const struct ash_scratch *s = &pass->scratch;

    if (pass->cp.size == 1) return view_alone(pass, layer);
    if (pass->cp.near) return view_together(pass, layer);
    size_t rows = pass->batch->rows, before = heads_before(pass, part), group = c->heads / c->kv_heads;
    size_t kv_heads = part_heads(pass, pass->cp.rank, part).count, heads = kv_heads * group;
    size_t k = heads * c->head_dim, v = k + kv_heads * c->head_dim, stride = qkv_width(pass, kv_heads);
    size_t at = rows * qkv_width(pass, before), out_at = rows * out_width(pass, before);
    struct ash_attn_view view = {.rows = rows,
                                 .heads = heads,
                                 .kv_heads = kv_heads,
                                 .one_row = true,
                                 .q_stride = stride,
                                 .k_stride = stride,
                                 .v_stride = stride,
                                 .out_stride = heads * pass->v_dim,
                                 .q = acts->spread.q + at,
                                 .k = acts->spread.q + at + k,
                                 .v = acts->spread.q + at + v,
                                 .out = acts->spread.out + out_at};
    if (s->dspread.q == NULL) return view;
    view.lse = acts->spread.lse + rows * before * group;
    view.dout = s->dspread.out + out_at;
    view.dq = s->dspread.q + at;
    view.dk = s->dspread.q + at + k;
    view.dv = s->dspread.q + at + v;
    return view;
}

/* dk and dv are sums; where they are columns of dq's rows, all of it starts at zero. In memory that all see, each rank
 * clears its rows. */
void ash_attn_clear_sums(struct ash_pass *pass, size_t layer)
{
    struct ash_attn_view view = view_alone(pass, layer);
    size_t spread = pass->batch->rows * qkv_width(pass, ash_attn_heads_of(pass, pass->cp.rank).count);

    if (pass->cp.size > 1 && !pass->cp.near) {
        ash_exec_zero(pass->exec, pass->scratch.dspread.q, spread * sizeof(float));
        return;
    }
    ash_exec_zero(pass->exec, view.dq, view.rows * view.q_stride * sizeof(float));
    if (view.one_row) return;
    ash_exec_zero(pass->exec, view.dk, view.rows * view.k_stride * sizeof(float));
    ash_exec_zero(pass->exec, view.dv, view.rows * view.v_stride * sizeof(float));
}

void ash_attn_place(struct ash_pass *pass)
{
    size_t first = pass->cp.near ? ash_pass_rows_of(pass, pass->cp.rank).first : 0,
           width = out_width(pass, pass->model->config.kv_heads);
    struct ash_scratch *s = &pass->scratch;

    for (size_t i = 0; pass->cp.near && i < pass->model->config.layers; i++) {
        struct ash_attn_acts *acts = &pass->layers[i].attn;

        acts->q = acts->spread.q + first * pass->q_stride;
        acts->k = acts->spread.k + first * pass->k_stride;
        acts->v = acts->spread.v + first * pass->v_stride;
        acts->out = acts->spread.out + first * width;
    }
    if (!pass->cp.near || !pass->opts.backward) return;
    s->dq = s->dspread.q + first * pass->q_stride;
    s->dk = s->dspread.k + first * pass->k_stride;
    s->dv = s->dspread.v + first * pass->v_stride;
    s->dattn = s->dspread.out + first * width;
    if (pass->shares_sums && s->dqk_raw_all != NULL)
        s->dqk_raw = s->dqk_raw_all +
                     first * (pass->model->config.heads + pass->model->config.kv_heads) * pass->model->config.head_dim;
}

/* ---- between rows and heads -------------------------------------------------------------------------------------- */

void ash_pass_copy_columns(struct ash_pass *pass, size_t rows, size_t cols, const float *src, size_t src_row,
                           float *dst, size_t dst_row)
{
    struct ash_copy_args args = {.rows = rows,
                                 .blocks = 1,
                                 .cols = cols,
                                 .src = src,
                                 .src_row = src_row,
                                 .dst = dst,
                                 .dst_dtype = ASH_F32,
                                 .dst_row = dst_row};

    pass->exec->ops->row->copy(pass->exec, &args);
}

typedef size_t width_fn(const struct ash_pass *pass, size_t kv_heads);

/* An exchange of a part's rows: floats that go to each rank, and come from it, where a row of some key-value heads has
 * width(heads); on the way back the two change places. packed: where a rank's own rows of all heads lie, rank by rank.
 * The parts' places are as far apart as those of q, k and v. */
struct trip {
    size_t *there, *back;
    float *packed;
};

static struct trip plan_trip(struct ash_pass *pass, size_t part, width_fn *width)
{
    struct trip trip = {pass->cp_there + part * pass->cp.size, pass->cp_back + part * pass->cp.size,
                        pass->scratch.packed};
    size_t own = width(pass, part_heads(pass, pass->cp.rank, part).count);

    for (size_t r = 0; r < pass->cp.size; r++) {
        struct ash_range heads = part_heads(pass, r, part);

        trip.there[r] = pass->rows * width(pass, heads.count);
        trip.back[r] = ash_pass_rows_of(pass, r).count * own;
        trip.packed += pass->rows * qkv_width(pass, heads.first - ash_attn_heads_of(pass, r).first);
    }
    return trip;
}

/* Where q, k and v (or their gradients) are on the side of the rows. */
struct row_side {
    float *q, *k, *v;
};

/* Copy between rows and the packed columns of each rank's heads of a part. */
static void pack_qkv(struct ash_pass *pass, size_t part, struct row_side side, bool unpack)
{
    const struct ash_model_config *c = &pass->model->config;
    struct trip trip = plan_trip(pass, part, qkv_width);
    size_t group = c->heads / c->kv_heads;
    float *packed = trip.packed;

    for (size_t r = 0; r < pass->cp.size; packed += trip.there[r++]) {
        struct ash_range heads = part_heads(pass, r, part);
        size_t q = heads.count * group * c->head_dim, k = heads.count * c->head_dim, v = heads.count * pass->v_dim;
        const struct {
            float *rows, *packed;
            size_t stride, cols;
        } parts[3] = {{side.q + heads.first * group * c->head_dim, packed, pass->q_stride, q},
                      {side.k + heads.first * c->head_dim, packed + q, pass->k_stride, k},
                      {side.v + heads.first * pass->v_dim, packed + q + k, pass->v_stride, v}};
        for (size_t i = 0; i < 3; i++) {
            if (unpack)
                ash_pass_copy_columns(pass, pass->rows, parts[i].cols, parts[i].packed, q + k + v, parts[i].rows,
                                      parts[i].stride);
            else
                ash_pass_copy_columns(pass, pass->rows, parts[i].cols, parts[i].rows, parts[i].stride, parts[i].packed,
                                      q + k + v);
        }
    }
}

static void pack_out(struct ash_pass *pass, size_t part, float *out, bool unpack)
{
    struct trip trip = plan_trip(pass, part, out_width);
    size_t stride = out_width(pass, pass->model->config.kv_heads);
    float *packed = trip.packed;

    for (size_t r = 0; r < pass->cp.size; packed += trip.there[r++]) {
        struct ash_range heads = part_heads(pass, r, part);
        size_t cols = out_width(pass, heads.count);
        float *rows = out + out_width(pass, heads.first);
        if (unpack)
            ash_pass_copy_columns(pass, pass->rows, cols, packed, cols, rows, stride);
        else
            ash_pass_copy_columns(pass, pass->rows, cols, rows, stride, packed, cols);
    }
}

/* Does nothing set out: is there nobody to exchange with, or do all see it? */
static bool stays(const struct ash_pass *pass)
{
    return pass->cp.near || pass->cp.size == 1;
}

/* What has been packed goes to the heads, at `heads` of each rank; what is there comes back. */
static void set_out(struct ash_pass *pass, size_t part, width_fn *width, float *heads, bool back)
{
    struct trip trip = plan_trip(pass, part, width);

    if (back)
        ash_share_exchange_start(pass, &pass->cp, heads, trip.back, trip.packed, trip.there, &pass->cp_started[part]);
    else
        ash_share_exchange_start(pass, &pass->cp, trip.packed, trip.there, heads, trip.back, &pass->cp_started[part]);
}

void ash_attn_await(struct ash_pass *pass, size_t part)
{
    ash_share_exchange_wait(pass, &pass->cp, pass->cp_started[part]);
    pass->cp_started[part] = NULL;
}

/* ---- around attention -------------------------------------------------------------------------------------------- */

void ash_attn_spread(struct ash_pass *pass, size_t layer)
{
    const struct ash_attn_acts *acts = &pass->layers[layer].attn;

    if (pass->cp.near) ash_share_meet_heads(pass);
    for (size_t part = 0; !stays(pass) && part < ash_attn_parts(pass); part++) {
        pack_qkv(pass, part, (struct row_side){acts->q, acts->k, acts->v}, false);
        set_out(pass, part, qkv_width, ash_attn_view(pass, layer, part).q, false);
    }
}

void ash_attn_return(struct ash_pass *pass, size_t layer, size_t part)
{
    if (!stays(pass)) set_out(pass, part, out_width, ash_attn_view(pass, layer, part).out, true);
}

void ash_attn_collect(struct ash_pass *pass, size_t layer)
{
    if (pass->cp.near) ash_share_meet_heads(pass);
    for (size_t part = 0; !stays(pass) && part < ash_attn_parts(pass); part++) {
        ash_attn_await(pass, part);
        pack_out(pass, part, pass->layers[layer].attn.out, true);
    }
}

/* The gradients of a part are at the same place for every layer. */
void ash_attn_spread_back(struct ash_pass *pass)
{
    if (pass->cp.near) ash_share_meet_beside(pass, 1); /* the output's own product is for the next meeting */
    for (size_t part = 0; !stays(pass) && part < ash_attn_parts(pass); part++) {
        pack_out(pass, part, pass->scratch.dattn, false);
        set_out(pass, part, out_width, ash_attn_view(pass, 0, part).dout, false);
    }
}

void ash_attn_return_back(struct ash_pass *pass, size_t part)
{
    if (!stays(pass)) set_out(pass, part, qkv_width, ash_attn_view(pass, 0, part).dq, true);
}

void ash_attn_collect_back(struct ash_pass *pass)
{
    struct ash_scratch *s = &pass->scratch;

    if (pass->cp.near) ash_share_meet_beside(pass, 0);
    for (size_t part = 0; !stays(pass) && part < ash_attn_parts(pass); part++) {
        ash_attn_await(pass, part);
        pack_qkv(pass, part, (struct row_side){s->dq, s->dk, s->dv}, true);
    }
}
