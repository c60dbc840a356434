/* attn_ulysses: attention itself runs unchanged over whole documents, and no sum over keys is cut. Ranks hold rows
 * in the order of their numbers: what comes from all of them, one after the other, is the rows of the batch in
 * order.
 *
 * The heads of a rank are taken in two chunks, if there are enough: while attention computes one, the rows of the
 * other are in flight, there or back.
 *
 * Where the ranks share memory nothing moves: the rows of all lie side by side in memory that all see, each rank
 * writes its own, and attention reads and writes the columns of its heads there. They meet before attention and
 * after it. A rank that has come to a barrier is through with what others have written for it since the one before,
 * so each array can be written again after the next. */
#include "model/pass/attn_ulysses.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "model/pass/copy.h"
#include "model/pass/grads_shared.h"
#include "model/pass/split.h"

int ash_ulysses_open(struct ash_ulysses *ulysses, const struct ash_axes *axes, struct ash_err *err)
{
    *ulysses = (struct ash_ulysses){0};
    ulysses->to_heads = calloc(ASH_ULYSSES_CHUNKS * axes->cp.size, sizeof(*ulysses->to_heads));
    ulysses->to_rows = calloc(ASH_ULYSSES_CHUNKS * axes->cp.size, sizeof(*ulysses->to_rows));
    if (ulysses->to_heads != NULL && ulysses->to_rows != NULL) return 0;
    ash_ulysses_close(ulysses);
    return ash_err_set(err, -ENOMEM, "out of memory for the exchanges of %zu ranks", axes->cp.size);
}

void ash_ulysses_close(struct ash_ulysses *ulysses)
{
    free(ulysses->to_heads);
    free(ulysses->to_rows);
    memset(ulysses, 0, sizeof(*ulysses));
}

/* ---- rows and heads of a rank ------------------------------------------------------------------------------------ */

/* Columns of a row that belong to some key-value heads and their query heads: q, then k, then v. */
static size_t qkv_width(const struct ash_pass_step *step, size_t kv_heads)
{
    const struct ash_model_config *c = &step->model->config;

    return kv_heads * (c->heads / c->kv_heads * c->head_dim + c->head_dim + step->acts->v_dim);
}

static size_t out_width(const struct ash_pass_step *step, size_t kv_heads)
{
    const struct ash_model_config *c = &step->model->config;

    return kv_heads * (c->heads / c->kv_heads) * step->acts->v_dim;
}

/* Key-value heads that a rank runs attention for. */
static struct ash_range heads_of(const struct ash_pass_step *step, size_t cp_rank)
{
    return ash_split_heads_cp(step->model, step->axes, cp_rank);
}

/* Do rows move? Not without a cp axis, nor where all ranks see them. */
static bool moves_rows(const struct ash_pass_step *step)
{
    return step->axes->cp.size > 1 && !step->axes->cp.same_node;
}

size_t ash_ulysses_chunks(const struct ash_pass_step *step)
{
    bool has_two = moves_rows(step) && step->model->config.kv_heads >= 2 * step->axes->cp.size;

    return has_two ? ASH_ULYSSES_CHUNKS : 1;
}

/* Of a rank's key-value heads, those of a chunk. */
static struct ash_range chunk_heads(const struct ash_pass_step *step, size_t cp_rank, size_t chunk)
{
    struct ash_range all = heads_of(step, cp_rank),
                     some = ash_range_split(all.count, 1, chunk, ash_ulysses_chunks(step));

    ash_assert(cp_rank < step->axes->cp.size);
    ash_assert(chunk < ash_ulysses_chunks(step));
    return (struct ash_range){all.first + some.first, some.count};
}

/* ---- what attention runs on -------------------------------------------------------------------------------------- */

static struct ash_attn_view view_own_rows(const struct ash_pass_step *step, size_t layer)
{
    const struct ash_model_config *c = &step->model->config;
    const struct ash_acts *acts = step->acts;
    const struct ash_attn_acts *attn = &acts->layers[layer].attn;
    const struct ash_attn_rows *rows = &attn->rows, *d = &acts->scratch.dattn;

    ash_assert(layer < step->model->config.layers);
    return (struct ash_attn_view){.rows = step->rows,
                                  .heads = c->heads,
                                  .kv_heads = c->kv_heads,
                                  .is_one_row = c->attn == ASH_ATTN_GROUPED,
                                  .q_stride = acts->q_stride,
                                  .k_stride = acts->k_stride,
                                  .v_stride = acts->v_stride,
                                  .out_stride = c->heads * acts->v_dim,
                                  .q = rows->q,
                                  .k = rows->k,
                                  .v = rows->v,
                                  .out = rows->out,
                                  .lse = attn->lse,
                                  .dq = d->q,
                                  .dk = d->k,
                                  .dv = d->v,
                                  .dout = d->out};
}

/* All rows where they lie, and the columns of this rank's heads. */
static struct ash_attn_view view_shared_rows(const struct ash_pass_step *step, size_t layer)
{
    const struct ash_model_config *c = &step->model->config;
    const struct ash_attn_rows *all = &step->acts->layers[layer].attn.all, *d = &step->acts->scratch.dattn_all;
    struct ash_range kv = heads_of(step, step->axes->cp.rank);
    size_t group = c->heads / c->kv_heads, q = kv.first * group * c->head_dim, k = kv.first * c->head_dim,
           v = kv.first * step->acts->v_dim, out = out_width(step, kv.first);
    struct ash_attn_view view = view_own_rows(step, layer);

    view.rows = step->batch->rows;
    view.heads = kv.count * group;
    view.kv_heads = kv.count;
    view.q = all->q + q;
    view.k = all->k + k;
    view.v = all->v + v;
    view.out = all->out + out;
    if (d->q == NULL) return view;
    view.dq = d->q + q;
    view.dk = d->k + k;
    view.dv = d->v + v;
    view.dout = d->out + out;
    return view;
}

/* All rows of the heads of a chunk: chunks lie one after the other. */
static struct ash_attn_view view_moved_rows(const struct ash_pass_step *step, size_t layer, size_t chunk)
{
    const struct ash_model_config *c = &step->model->config;
    const struct ash_attn_acts *attn = &step->acts->layers[layer].attn;
    const struct ash_attn_rows *d = &step->acts->scratch.dattn_all;
    struct ash_range own = chunk_heads(step, step->axes->cp.rank, chunk);
    size_t rows = step->batch->rows, before = own.first - heads_of(step, step->axes->cp.rank).first;
    size_t group = c->heads / c->kv_heads, heads = own.count * group;
    size_t k = heads * c->head_dim, v = k + own.count * c->head_dim, stride = qkv_width(step, own.count);
    size_t at = rows * qkv_width(step, before), out_at = rows * out_width(step, before);
    struct ash_attn_view view = {.rows = rows,
                                 .heads = heads,
                                 .kv_heads = own.count,
                                 .is_one_row = true,
                                 .q_stride = stride,
                                 .k_stride = stride,
                                 .v_stride = stride,
                                 .out_stride = heads * step->acts->v_dim,
                                 .q = attn->all.q + at,
                                 .k = attn->all.q + at + k,
                                 .v = attn->all.q + at + v,
                                 .out = attn->all.out + out_at};

    ash_assert(layer < step->model->config.layers);
    if (d->q == NULL) return view;
    view.lse = attn->lse + rows * before * group;
    view.dq = d->q + at;
    view.dk = d->q + at + k;
    view.dv = d->q + at + v;
    view.dout = d->out + out_at;
    return view;
}

struct ash_attn_view ash_ulysses_view(const struct ash_pass_step *step, size_t layer, size_t chunk)
{
    ash_assert(layer < step->model->config.layers && chunk < ash_ulysses_chunks(step));
    if (step->axes->cp.size == 1) return view_own_rows(step, layer);
    return step->axes->cp.same_node ? view_shared_rows(step, layer) : view_moved_rows(step, layer, chunk);
}

/* dk and dv are sums; where they are columns of dq's rows, all of it starts at zero. In memory that all see, each rank
 * clears its rows. */
void ash_ulysses_zero_grads(const struct ash_pass_step *step, size_t layer)
{
    struct ash_attn_view view = view_own_rows(step, layer);
    size_t moved = step->batch->rows * qkv_width(step, heads_of(step, step->axes->cp.rank).count);

    if (moves_rows(step)) {
        ash_exec_zero(step->exec, step->acts->scratch.dattn_all.q, moved * sizeof(float));
        return;
    }
    ash_exec_zero(step->exec, view.dq, view.rows * view.q_stride * sizeof(float));
    if (view.is_one_row) return;
    ash_exec_zero(step->exec, view.dk, view.rows * view.k_stride * sizeof(float));
    ash_exec_zero(step->exec, view.dv, view.rows * view.v_stride * sizeof(float));
}

/* ---- between rows and heads -------------------------------------------------------------------------------------- */

typedef size_t width_fn(const struct ash_pass_step *step, size_t kv_heads);

/* An exchange of a chunk's rows: floats to and from each rank, where a row of some key-value heads has width(heads).
 * packed: where a rank's own rows of all heads lie, rank by rank; chunks are as far apart as those of q, k and v. */
struct transfer {
    size_t *to_heads, *to_rows;
    float *packed;
};

static struct transfer plan_transfer(const struct ash_pass_step *step, size_t chunk, width_fn *width)
{
    const struct ash_axis *cp = &step->axes->cp;
    struct transfer transfer = {step->ulysses->to_heads + chunk * cp->size, step->ulysses->to_rows + chunk * cp->size,
                                step->acts->scratch.packed};
    size_t own = width(step, chunk_heads(step, cp->rank, chunk).count);

    ash_assert(chunk < ash_ulysses_chunks(step));
    for (size_t r = 0; r < cp->size; r++) {
        struct ash_range heads = chunk_heads(step, r, chunk);

        transfer.to_heads[r] = step->rows * width(step, heads.count);
        transfer.to_rows[r] = ash_split_rows_cp(step->axes, step->batch->rows, r).count * own;
        transfer.packed += step->rows * qkv_width(step, heads.first - heads_of(step, r).first);
    }
    return transfer;
}

/* Copy between columns of rows and packed ones of another stride. */
static void pack_columns(const struct ash_pass_step *step, size_t cols, struct ash_rows_to rows,
                         struct ash_rows_to packed, bool unpack)
{
    struct ash_rows_to from = unpack ? packed : rows, to = unpack ? rows : packed;

    ash_copy_columns(step->exec, step->rows, cols, (struct ash_rows_from){from.data, from.stride}, to);
}

/* Copy between rows and the packed columns of each rank's heads of a chunk. */
static void pack_qkv(const struct ash_pass_step *step, size_t chunk, const struct ash_attn_rows *rows, bool unpack)
{
    const struct ash_model_config *c = &step->model->config;
    const struct ash_acts *acts = step->acts;
    struct transfer transfer = plan_transfer(step, chunk, qkv_width);
    size_t group = c->heads / c->kv_heads;
    float *packed = transfer.packed;

    for (size_t r = 0; r < step->axes->cp.size; packed += transfer.to_heads[r++]) {
        struct ash_range heads = chunk_heads(step, r, chunk);
        size_t q = heads.count * group * c->head_dim, k = heads.count * c->head_dim, v = heads.count * acts->v_dim;
        size_t width = q + k + v;

        pack_columns(step, q, (struct ash_rows_to){rows->q + heads.first * group * c->head_dim, acts->q_stride},
                     (struct ash_rows_to){packed, width}, unpack);
        pack_columns(step, k, (struct ash_rows_to){rows->k + heads.first * c->head_dim, acts->k_stride},
                     (struct ash_rows_to){packed + q, width}, unpack);
        pack_columns(step, v, (struct ash_rows_to){rows->v + heads.first * acts->v_dim, acts->v_stride},
                     (struct ash_rows_to){packed + q + k, width}, unpack);
    }
}

static void pack_out(const struct ash_pass_step *step, size_t chunk, float *out, bool unpack)
{
    struct transfer transfer = plan_transfer(step, chunk, out_width);
    size_t stride = out_width(step, step->model->config.kv_heads);
    float *packed = transfer.packed;

    for (size_t r = 0; r < step->axes->cp.size; packed += transfer.to_heads[r++]) {
        struct ash_range heads = chunk_heads(step, r, chunk);
        size_t cols = out_width(step, heads.count);

        pack_columns(step, cols, (struct ash_rows_to){out + out_width(step, heads.first), stride},
                     (struct ash_rows_to){packed, cols}, unpack);
    }
}

/* Send the packed rows to `heads` of each rank. */
static void start_to_heads(const struct ash_pass_step *step, size_t chunk, width_fn *width, float *heads)
{
    struct transfer transfer = plan_transfer(step, chunk, width);

    ash_axes_all_to_all_start(step->axes, &step->axes->cp, transfer.packed, transfer.to_heads, heads, transfer.to_rows,
                              &step->ulysses->started[chunk]);
}

/* And back. */
static void start_to_rows(const struct ash_pass_step *step, size_t chunk, width_fn *width, const float *heads)
{
    struct transfer transfer = plan_transfer(step, chunk, width);

    ash_axes_all_to_all_start(step->axes, &step->axes->cp, heads, transfer.to_rows, transfer.packed, transfer.to_heads,
                              &step->ulysses->started[chunk]);
}

void ash_ulysses_wait(const struct ash_pass_step *step, size_t chunk)
{
    ash_assert(chunk < ASH_ULYSSES_CHUNKS);
    ash_axes_all_to_all_wait(step->axes, &step->axes->cp, step->ulysses->started[chunk]);
    step->ulysses->started[chunk] = NULL;
}

/* ---- around attention -------------------------------------------------------------------------------------------- */

void ash_ulysses_scatter_heads(const struct ash_pass_step *step, size_t layer)
{
    ash_assert(layer < step->model->config.layers);
    if (step->axes->cp.same_node) ash_axes_barrier_cp(step->axes);
    for (size_t chunk = 0; moves_rows(step) && chunk < ash_ulysses_chunks(step); chunk++) {
        pack_qkv(step, chunk, &step->acts->layers[layer].attn.rows, false);
        start_to_heads(step, chunk, qkv_width, ash_ulysses_view(step, layer, chunk).q);
    }
}

void ash_ulysses_gather_heads(const struct ash_pass_step *step, size_t layer, size_t chunk)
{
    if (moves_rows(step)) start_to_rows(step, chunk, out_width, ash_ulysses_view(step, layer, chunk).out);
}

void ash_ulysses_gather_heads_wait(const struct ash_pass_step *step, size_t layer)
{
    ash_assert(layer < step->model->config.layers);
    if (step->axes->cp.same_node) ash_axes_barrier_cp(step->axes);
    for (size_t chunk = 0; moves_rows(step) && chunk < ash_ulysses_chunks(step); chunk++) {
        ash_ulysses_wait(step, chunk);
        pack_out(step, chunk, step->acts->layers[layer].attn.rows.out, true);
    }
}

/* The gradients of a chunk are at the same place for every layer. */
void ash_ulysses_scatter_grads(const struct ash_pass_step *step, struct ash_grad_sink *sink)
{
    /* the product that was published last, the output's, is for the next barrier */
    if (step->axes->cp.same_node) ash_shared_grads_barrier(sink, 1);
    for (size_t chunk = 0; moves_rows(step) && chunk < ash_ulysses_chunks(step); chunk++) {
        pack_out(step, chunk, step->acts->scratch.dattn.out, false);
        start_to_heads(step, chunk, out_width, ash_ulysses_view(step, 0, chunk).dout);
    }
}

void ash_ulysses_gather_grads(const struct ash_pass_step *step, size_t chunk)
{
    if (moves_rows(step)) start_to_rows(step, chunk, qkv_width, ash_ulysses_view(step, 0, chunk).dq);
}

void ash_ulysses_gather_grads_wait(const struct ash_pass_step *step, struct ash_grad_sink *sink)
{
    if (step->axes->cp.same_node) ash_shared_grads_barrier(sink, 0);
    for (size_t chunk = 0; moves_rows(step) && chunk < ash_ulysses_chunks(step); chunk++) {
        ash_ulysses_wait(step, chunk);
        pack_qkv(step, chunk, &step->acts->scratch.dattn, true);
    }
}
