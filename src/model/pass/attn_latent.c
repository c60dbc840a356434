/* Latent attention's projections (deepseek): q and kv through low-rank bottlenecks with norms, keys with a part that
 * carries positions and is shared by all heads. Keys and values are expanded per head before attention, in training and
 * serving alike. */
#include "model/pass/attn_qkv.h"

#include "base/assert.h"
#include "model/pass/copy.h"
#include "model/pass/linear_grads.h"
#include "model/pass/parallel_linear.h"
#include "model/pass/reduce.h"
#include "model/pass/rope.h"
#include "model/pass/split.h"
#include "model/pass/stream.h"

#define LATENT_NORM_EPS 1e-6f /* the reference library uses its default here, whatever rms_norm_eps says */

/* The norm of compressed rows x [rows, stride], of which it takes cols columns. */
struct low_norm {
    int32_t weight;
    float *x;
    size_t stride, cols;
    float *rstd; /* [rows] */
};

static struct low_norm q_norm(const struct ash_pass_step *step, size_t layer)
{
    const struct ash_attn_acts *a = &step->acts->layers[layer].attn;
    size_t rank = step->model->config.q_rank;

    return (struct low_norm){step->model->layers[layer].param[ASH_ROLE_Q_DOWN_NORM], a->q_low, rank, rank,
                             a->q_low_rstd};
}

static struct low_norm kv_norm(const struct ash_pass_step *step, size_t layer)
{
    const struct ash_attn_acts *a = &step->acts->layers[layer].attn;
    const struct ash_model_config *c = &step->model->config;

    return (struct low_norm){step->model->layers[layer].param[ASH_ROLE_KV_DOWN_NORM], a->kv_low,
                             c->kv_rank + c->rope_dim, c->kv_rank, a->kv_low_rstd};
}

/* Norms run over all rows in the forward pass (all ranks have the compressed rows), over own rows in the backward
 * pass. */
static struct ash_norm_args low_norm_args(const struct ash_pass_step *step, const struct low_norm *norm,
                                          struct ash_range rows)
{
    return (struct ash_norm_args){.rows = rows.count,
                                  .groups = 1,
                                  .cols = norm->cols,
                                  .x_stride = norm->stride,
                                  .y_stride = norm->cols,
                                  .x = norm->x + rows.first * norm->stride,
                                  .weight = ash_model_vector(step->model, norm->weight),
                                  .eps = LATENT_NORM_EPS,
                                  .rstd = norm->rstd + rows.first,
                                  .round_bf16 = step->model->round_bf16,
                                  .seq_rows = step->seq_rows,
                                  .seq_first = rows.first % step->seq_rows};
}

/* y [rows, cols]. */
static void low_norm_forward(const struct ash_pass_step *step, struct low_norm norm, float *y)
{
    struct ash_norm_args args = low_norm_args(step, &norm, (struct ash_range){0, step->rows});

    args.y = y;
    step->exec->ops->norm->rms_forward(step->exec, &args);
}

/* From dy [own rows, cols] to own rows of dx, [rows, stride] like x. */
static void low_norm_backward(const struct ash_pass_step *step, struct ash_grad_sink *sink, struct low_norm norm,
                              const float *dy, float *dx)
{
    struct ash_norm_args args = low_norm_args(step, &norm, step->own);

    args.dy = dy;
    args.dx = dx + step->own.first * norm.stride;
    args.dweight = ash_grad_acquire(sink, norm.weight, ASH_GRAD_STREAM);
    step->exec->ops->norm->rms_backward(step->exec, &args);
    ash_grad_release(sink, norm.weight, ASH_GRAD_STREAM);
}

static void linear(const struct ash_pass_step *step, int32_t weight, int32_t bias, struct ash_rows_from x,
                   struct ash_rows_to y)
{
    ash_linear_forward(step, weight, bias,
                       &(struct ash_linear_io){
                           .rows = step->rows, .x = x.data, .x_stride = x.stride, .y = y.data, .y_stride = y.stride});
}

/* The gradients of a layer that all ranks have whole, over all rows of x [rows, C] and dy. */
static void linear_grads(const struct ash_pass_step *step, struct ash_grad_sink *sink, int32_t weight, int32_t bias,
                         const float *x, struct ash_rows_from dy)
{
    ash_linear_backward(step, sink, weight, bias,
                        &(struct ash_linear_io){.rows = step->rows,
                                                .x = x,
                                                .x_stride = step->model->config.hidden,
                                                .dy = dy.data,
                                                .dy_stride = dy.stride,
                                                .seq_rows = step->seq_rows});
}

/* dnorm = (add: +=) dy W over own rows; dy has all. */
static void linear_input_grad(const struct ash_pass_step *step, int32_t weight, const float *dy, size_t out, bool add)
{
    ash_linear_input_grad(step, weight,
                          &(struct ash_linear_io){.rows = step->own.count,
                                                  .first = step->own.first,
                                                  .dy = dy + step->own.first * out,
                                                  .dy_stride = out,
                                                  .dx = step->acts->scratch.dnorm,
                                                  .dx_stride = step->model->config.hidden,
                                                  .dx_add = add});
}

/* Back through a layer whose outputs are heads, over all rows of x and dy; dx [own rows, x.stride]. */
static void heads_backward(const struct ash_pass_step *step, struct ash_grad_sink *sink, int32_t weight,
                           struct ash_rows_from x, struct ash_rows_from dy, float *dx)
{
    ash_column_parallel_backward(
        step, sink,
        &(struct ash_column_parallel){.rows = step->rows,
                                      .in = x.stride,
                                      .seq_rows = step->seq_rows,
                                      .x = x.data,
                                      .dx = dx,
                                      .count = 1,
                                      .outputs[0] = {weight, ASH_NO_PARAM, dy.data, dy.stride, NULL}});
}

static void forward_q(const struct ash_pass_step *step, size_t layer, const float *x)
{
    const struct ash_model_config *c = &step->model->config;
    const int32_t *p = step->model->layers[layer].param;
    struct ash_attn_acts *a = &step->acts->layers[layer].attn;
    struct ash_rows_from in = {x, c->hidden}, low = {a->q_low_norm, c->q_rank};
    struct ash_rows_to q = {a->rows.q, step->acts->q_stride};

    ash_assert(layer < step->model->config.layers);
    if (c->q_rank == 0) {
        linear(step, p[ASH_ROLE_Q], ASH_NO_PARAM, in, q);
    } else {
        linear(step, p[ASH_ROLE_Q_DOWN], p[ASH_ROLE_Q_DOWN_BIAS], in, (struct ash_rows_to){a->q_low, c->q_rank});
        low_norm_forward(step, q_norm(step, layer), a->q_low_norm);
        linear(step, p[ASH_ROLE_Q_UP], ASH_NO_PARAM, low, q);
    }
    ash_rope_apply(step, q.data + c->nope_dim, (struct ash_rope_heads){c->heads, c->head_dim, q.stride, NULL, layer},
                   false);
}

/* Columns of each head: the first element, floats between rows and between heads (0: heads share them). */
struct head_columns {
    float *data;
    size_t row, head;
};

static void copy_heads(const struct ash_pass_step *step, size_t cols, struct head_columns from, struct head_columns to)
{
    struct ash_copy_args args = {.rows = step->rows,
                                 .blocks = step->model->config.heads,
                                 .cols = cols,
                                 .src = from.data,
                                 .src_row = from.row,
                                 .src_block = from.head,
                                 .dst = to.data,
                                 .dst_dtype = ASH_F32,
                                 .dst_row = to.row,
                                 .dst_block = to.head};

    step->exec->ops->row->copy(step->exec, &args);
}

/* Where the parts of keys and values that are not shared lie: in k and v, and in what the up-projection gives. */
static struct head_columns key_columns(const struct ash_pass_step *step, float *k)
{
    return (struct head_columns){k, step->acts->k_stride, step->model->config.head_dim};
}

static struct head_columns value_columns(const struct ash_pass_step *step, float *v)
{
    return (struct head_columns){v, step->acts->v_stride, step->model->config.v_dim};
}

static struct head_columns up_columns(const struct ash_pass_step *step, float *kv_up)
{
    const struct ash_model_config *c = &step->model->config;
    size_t up = c->nope_dim + c->v_dim;

    return (struct head_columns){kv_up, c->heads * up, up};
}

static void forward_kv(const struct ash_pass_step *step, size_t layer, const float *x)
{
    const struct ash_model_config *c = &step->model->config;
    const int32_t *p = step->model->layers[layer].param;
    struct ash_attn_acts *a = &step->acts->layers[layer].attn;
    size_t low = c->kv_rank + c->rope_dim;
    struct head_columns up = up_columns(step, a->kv_up), up_values = up_columns(step, a->kv_up + c->nope_dim);

    ash_assert(layer < step->model->config.layers);
    linear(step, p[ASH_ROLE_KV_DOWN], p[ASH_ROLE_KV_DOWN_BIAS], (struct ash_rows_from){x, c->hidden},
           (struct ash_rows_to){a->kv_low, low});
    low_norm_forward(step, kv_norm(step, layer), a->kv_low_norm);
    ash_rope_apply(step, a->kv_low + c->kv_rank, (struct ash_rope_heads){1, c->rope_dim, low, NULL, layer}, false);
    linear(step, p[ASH_ROLE_KV_UP], ASH_NO_PARAM, (struct ash_rows_from){a->kv_low_norm, c->kv_rank},
           (struct ash_rows_to){up.data, up.row});
    copy_heads(step, c->nope_dim, up, key_columns(step, a->rows.k));
    copy_heads(step, c->rope_dim, (struct head_columns){a->kv_low + c->kv_rank, low, 0},
               key_columns(step, a->rows.k + c->nope_dim));
    copy_heads(step, c->v_dim, up_values, value_columns(step, a->rows.v));
}

void ash_attn_latent_forward(const struct ash_pass_step *step, size_t layer, const float *x)
{
    struct ash_attn_acts *a = &step->acts->layers[layer].attn;
    const struct ash_row_ops *row = step->exec->ops->row;

    ash_assert(x != NULL && step->model->config.attn == ASH_ATTN_LATENT);
    forward_q(step, layer, x);
    forward_kv(step, layer, x);
    if (step->model->round_bf16) row->round_bf16(step->exec, a->rows.q, step->rows * step->acts->q_stride, a->rows.q);
    if (step->kv_dtype != ASH_BF16) return;
    row->round_bf16(step->exec, a->rows.k, step->rows * step->acts->k_stride, a->rows.k);
    row->round_bf16(step->exec, a->rows.v, step->rows * step->acts->v_stride, a->rows.v);
}

/* The key that heads share gets the sum of their gradients: here over those of one rank. */
static void accumulate_shared_key(const struct ash_pass_step *step, void *ctx, const struct ash_operand *operand,
                                  struct ash_range rows, bool overwrite, float *sums)
{
    const struct ash_model_config *c = &step->model->config;
    size_t kv_heads = ash_split_heads_tp(step->model, step->axes, operand->rank).count;
    struct ash_copy_args args = {.rows = rows.count,
                                 .blocks = kv_heads * (c->heads / c->kv_heads),
                                 .cols = c->rope_dim,
                                 .src = operand->x,
                                 .src_row = operand->x_stride,
                                 .src_block = c->head_dim,
                                 .dst = sums,
                                 .dst_dtype = ASH_F32,
                                 .dst_row = c->rope_dim,
                                 .add = true};

    (void)ctx;
    if (overwrite) step->exec->memory->zero(sums, rows.count * c->rope_dim * sizeof(float));
    step->exec->ops->row->copy(step->exec, &args);
}

static void backward_shared_key(const struct ash_pass_step *step)
{
    const struct ash_model_config *c = &step->model->config;
    struct ash_scratch *s = &step->acts->scratch;
    size_t low = c->kv_rank + c->rope_dim;
    struct ash_reduction reduction = {
        .rows = {0, step->rows},
        .cols = c->rope_dim,
        .chunk_count = 1,
        .chunks[0] = {.rank = step->axes->tp.rank, .x = s->dattn.k + c->nope_dim, .x_stride = step->acts->k_stride},
        .accumulate = accumulate_shared_key,
        .out = s->dkey};
    struct ash_copy_args copy = {.rows = step->own.count,
                                 .blocks = 1,
                                 .cols = c->rope_dim,
                                 .src = s->dkey,
                                 .src_row = c->rope_dim,
                                 .dst = s->dkv_low + step->own.first * low + c->kv_rank,
                                 .dst_dtype = ASH_F32,
                                 .dst_row = low};

    if (step->axes->tp.size > 1)
        ash_reduce(step, &reduction);
    else
        accumulate_shared_key(step, NULL, reduction.chunks, reduction.rows, true, s->dkey);
    step->exec->ops->row->copy(step->exec, &copy);
}

/* dkv_low of all rows, from the gradients of k and v. */
static void backward_kv(const struct ash_pass_step *step, struct ash_grad_sink *sink, size_t layer, const float *x)
{
    const struct ash_model_config *c = &step->model->config;
    const int32_t *p = step->model->layers[layer].param;
    struct ash_attn_acts *a = &step->acts->layers[layer].attn;
    struct ash_scratch *s = &step->acts->scratch;
    size_t low = c->kv_rank + c->rope_dim;
    struct head_columns dup = up_columns(step, s->dkv_up), dup_values = up_columns(step, s->dkv_up + c->nope_dim);

    ash_assert(layer < step->model->config.layers);
    copy_heads(step, c->nope_dim, key_columns(step, s->dattn.k), dup);
    copy_heads(step, c->v_dim, value_columns(step, s->dattn.v), dup_values);
    backward_shared_key(step);
    heads_backward(step, sink, p[ASH_ROLE_KV_UP], (struct ash_rows_from){a->kv_low_norm, c->kv_rank},
                   (struct ash_rows_from){dup.data, dup.row}, s->dkv_low_norm);
    low_norm_backward(step, sink, kv_norm(step, layer), s->dkv_low_norm, s->dkv_low);
    ash_stream_gather_rows(step, (struct ash_range){0, step->rows}, s->dkv_low, low);
    ash_rope_apply(step, s->dkv_low + c->kv_rank, (struct ash_rope_heads){1, c->rope_dim, low, NULL, layer}, true);
    linear_grads(step, sink, p[ASH_ROLE_KV_DOWN], p[ASH_ROLE_KV_DOWN_BIAS], x, (struct ash_rows_from){s->dkv_low, low});
}

static void backward_low_q(const struct ash_pass_step *step, struct ash_grad_sink *sink, size_t layer, const float *x)
{
    const struct ash_model_config *c = &step->model->config;
    const int32_t *p = step->model->layers[layer].param;
    struct ash_attn_acts *a = &step->acts->layers[layer].attn;
    struct ash_scratch *s = &step->acts->scratch;

    ash_assert(layer < step->model->config.layers);
    heads_backward(step, sink, p[ASH_ROLE_Q_UP], (struct ash_rows_from){a->q_low_norm, c->q_rank},
                   (struct ash_rows_from){s->dattn.q, step->acts->q_stride}, s->dq_low_norm);
    low_norm_backward(step, sink, q_norm(step, layer), s->dq_low_norm, s->dq_low);
    ash_stream_gather_rows(step, (struct ash_range){0, step->rows}, s->dq_low, c->q_rank);
    linear_grads(step, sink, p[ASH_ROLE_Q_DOWN], p[ASH_ROLE_Q_DOWN_BIAS], x,
                 (struct ash_rows_from){s->dq_low, c->q_rank});
    linear_input_grad(step, p[ASH_ROLE_Q_DOWN], s->dq_low, c->q_rank, true);
}

/* dnorm where q is not compressed: what comes through kv (ctx: its chunk), then q's heads, rank by rank. */
static void accumulate_plain_q(const struct ash_pass_step *step, void *ctx, const struct ash_operand *operand,
                               struct ash_range rows, bool overwrite, float *sums)
{
    struct ash_linear_chunk kv = *(const struct ash_linear_chunk *)ctx;

    kv.x += rows.first * kv.x_stride;
    if (overwrite) ash_linear_chunk_add(step->model, step->exec, &kv, rows.count, true, sums);
    ash_operand_accumulate(step, NULL, operand, rows, false, sums);
}

static void backward_plain_q(const struct ash_pass_step *step, struct ash_grad_sink *sink, size_t layer, const float *x)
{
    const struct ash_model_config *c = &step->model->config;
    const int32_t *p = step->model->layers[layer].param;
    struct ash_scratch *s = &step->acts->scratch;
    size_t low = c->kv_rank + c->rope_dim, q_stride = step->acts->q_stride;
    struct ash_linear_chunk q = {p[ASH_ROLE_Q], true, {0, q_stride}, s->dattn.q, q_stride};
    struct ash_linear_chunk kv = {p[ASH_ROLE_KV_DOWN], true, {0, low}, s->dkv_low, low};
    struct ash_reduction reduction = {.rows = {0, step->rows},
                                      .cols = c->hidden,
                                      .chunk_count = 1,
                                      .chunks[0] = ash_operand_product(step, &q),
                                      .accumulate = accumulate_plain_q,
                                      .ctx = &kv,
                                      .out = s->dnorm};

    ash_assert(layer < step->model->config.layers);
    linear_grads(step, sink, p[ASH_ROLE_Q], ASH_NO_PARAM, x, (struct ash_rows_from){s->dattn.q, q_stride});
    if (step->axes->tp.size > 1)
        ash_reduce(step, &reduction);
    else
        accumulate_plain_q(step, &kv, reduction.chunks, reduction.rows, true, s->dnorm);
}

void ash_attn_latent_backward(const struct ash_pass_step *step, struct ash_grad_sink *sink, size_t layer,
                              const float *x)
{
    const struct ash_model_config *c = &step->model->config;
    const int32_t *p = step->model->layers[layer].param;
    struct ash_scratch *s = &step->acts->scratch;

    ash_assert(x != NULL && c->attn == ASH_ATTN_LATENT);
    backward_kv(step, sink, layer, x);
    ash_rope_apply(step, s->dattn.q + c->nope_dim,
                   (struct ash_rope_heads){c->heads, c->head_dim, step->acts->q_stride, NULL, layer}, true);
    if (c->q_rank == 0) {
        backward_plain_q(step, sink, layer, x);
        return;
    }
    linear_input_grad(step, p[ASH_ROLE_KV_DOWN], s->dkv_low, c->kv_rank + c->rope_dim, false);
    backward_low_q(step, sink, layer, x);
}
