/* Latent attention's projections (deepseek): q and kv through low-rank bottlenecks with norms, keys with a part that
 * carries positions and is shared by all heads. Keys and values are expanded per head before attention, in training and
 * serving alike. */
#include "model/pass/attn_qkv.h"

#include "base/assert.h"
#include "model/pass/linear_grads.h"
#include "model/pass/parallel_linear.h"
#include "model/pass/reduce.h"
#include "model/pass/rope.h"
#include "model/pass/split.h"
#include "model/pass/stream.h"

#define LATENT_NORM_EPS 1e-6f /* the reference library uses its default here, whatever rms_norm_eps says */

/* Norms run over all rows in the forward pass (everyone has the compressed rows), over own rows in the backward pass. */
static struct ash_norm_args low_norm_args(const struct ash_pass_step *step, int32_t weight, const float *x,
                                          size_t x_stride, size_t cols, float *y, float *rstd)
{
    return (struct ash_norm_args){.rows = step->rows,
                                  .groups = 1,
                                  .cols = cols,
                                  .x_stride = x_stride,
                                  .y_stride = cols,
                                  .x = x,
                                  .weight = ash_model_vector(step->model, weight),
                                  .eps = LATENT_NORM_EPS,
                                  .y = y,
                                  .rstd = rstd};
}

static void linear(const struct ash_pass_step *step, int32_t weight, int32_t bias, const float *x, size_t in, float *y,
                   size_t out)
{
    ash_linear_forward(step->model, step->exec, weight, bias,
                       &(struct ash_linear_io){.rows = step->rows, .x = x, .x_stride = in, .y = y, .y_stride = out});
}

/* The gradients of a layer that everyone has all of, over all rows; x and dy likewise. */
static void linear_grads(const struct ash_pass_step *step, struct ash_grad_sink *sink, int32_t weight, int32_t bias,
                         const float *x, const float *dy, size_t out)
{
    size_t in = step->model->config.hidden;

    ash_linear_backward(
        step, sink, weight, bias,
        &(struct ash_linear_io){
            .rows = step->rows, .x = x, .x_stride = in, .dy = dy, .dy_stride = out, .seq_rows = step->seq_rows});
}

/* dnorm = (add: +=) dy W over own rows; dy has all. */
static void linear_input_grad(const struct ash_pass_step *step, int32_t weight, const float *dy, size_t out, bool add)
{
    ash_linear_input_grad(step->model, step->exec, weight,
                          &(struct ash_linear_io){.rows = step->own.count,
                                                  .dy = dy + step->own.first * out,
                                                  .dy_stride = out,
                                                  .dx = step->acts->scratch.dnorm,
                                                  .dx_stride = step->model->config.hidden,
                                                  .dx_add = add});
}

/* Back through a layer whose outputs are heads: x is [rows, in], dx [own rows, in]. */
static void heads_backward(const struct ash_pass_step *step, struct ash_grad_sink *sink, int32_t weight, const float *x,
                           size_t in, const float *dy, size_t out, float *dx)
{
    ash_column_parallel_backward(step, sink,
                                 &(struct ash_column_parallel){.rows = step->rows,
                                                               .in = in,
                                                               .seq_rows = step->seq_rows,
                                                               .x = x,
                                                               .dx = dx,
                                                               .count = 1,
                                                               .outputs[0] = {weight, ASH_NO_PARAM, dy, out}});
}

/* Back through the norm of compressed rows: from dy [own rows, cols] to own rows of dx, [rows, stride] like x. */
static void norm_backward(const struct ash_pass_step *step, struct ash_grad_sink *sink, int32_t weight, const float *x,
                          size_t stride, size_t cols, float *rstd, const float *dy, float *dx)
{
    size_t first = step->own.first;
    struct ash_norm_args norm = low_norm_args(step, weight, x + first * stride, stride, cols, NULL, rstd + first);

    norm.rows = step->own.count;
    norm.dy = dy;
    norm.dx = dx + first * stride;
    norm.dweight = ash_grad_acquire(sink, weight, ASH_GRAD_STREAM);
    step->exec->ops->norm->rms_backward(step->exec, &norm);
    ash_grad_release(sink, weight, ASH_GRAD_STREAM);
}

static void forward_q(const struct ash_pass_step *step, size_t layer, const float *x)
{
    const struct ash_model_config *c = &step->model->config;
    const int32_t *p = step->model->layers[layer].param;
    struct ash_attn_acts *a = &step->acts->layers[layer].attn;

    if (c->q_rank == 0) {
        linear(step, p[ASH_ROLE_Q], ASH_NO_PARAM, x, c->hidden, a->rows.q, step->acts->q_stride);
    } else {
        linear(step, p[ASH_ROLE_Q_DOWN], p[ASH_ROLE_Q_DOWN_BIAS], x, c->hidden, a->q_low, c->q_rank);
        struct ash_norm_args norm =
            low_norm_args(step, p[ASH_ROLE_Q_DOWN_NORM], a->q_low, c->q_rank, c->q_rank, a->q_low_norm, a->q_low_rstd);
        step->exec->ops->norm->rms_forward(step->exec, &norm);
        linear(step, p[ASH_ROLE_Q_UP], ASH_NO_PARAM, a->q_low_norm, c->q_rank, a->rows.q, step->acts->q_stride);
    }
    ash_rope_apply(step, a->rows.q + c->nope_dim, (struct ash_rope_heads){c->heads, c->head_dim, step->acts->q_stride},
                   false);
}

static void copy_blocks(const struct ash_pass_step *step, size_t cols, const float *src, size_t src_row,
                        size_t src_block, float *dst, size_t dst_row, size_t dst_block, bool add)
{
    struct ash_copy_args args = {.rows = step->rows,
                                 .blocks = step->model->config.heads,
                                 .cols = cols,
                                 .src = src,
                                 .src_row = src_row,
                                 .src_block = src_block,
                                 .dst = dst,
                                 .dst_dtype = ASH_F32,
                                 .dst_row = dst_row,
                                 .dst_block = dst_block,
                                 .add = add};

    step->exec->ops->row->copy(step->exec, &args);
}

static void forward_kv(const struct ash_pass_step *step, size_t layer, const float *x)
{
    const struct ash_model_config *c = &step->model->config;
    const int32_t *p = step->model->layers[layer].param;
    struct ash_attn_acts *a = &step->acts->layers[layer].attn;
    size_t low = c->kv_rank + c->rope_dim, up = c->nope_dim + c->v_dim;

    linear(step, p[ASH_ROLE_KV_DOWN], p[ASH_ROLE_KV_DOWN_BIAS], x, c->hidden, a->kv_low, low);
    struct ash_norm_args norm =
        low_norm_args(step, p[ASH_ROLE_KV_DOWN_NORM], a->kv_low, low, c->kv_rank, a->kv_low_norm, a->kv_low_rstd);
    step->exec->ops->norm->rms_forward(step->exec, &norm);
    ash_rope_apply(step, a->kv_low + c->kv_rank, (struct ash_rope_heads){1, c->rope_dim, low}, false);
    linear(step, p[ASH_ROLE_KV_UP], ASH_NO_PARAM, a->kv_low_norm, c->kv_rank, a->kv_up, c->heads * up);
    copy_blocks(step, c->nope_dim, a->kv_up, c->heads * up, up, a->rows.k, step->acts->k_stride, c->head_dim, false);
    copy_blocks(step, c->rope_dim, a->kv_low + c->kv_rank, low, 0, a->rows.k + c->nope_dim, step->acts->k_stride,
                c->head_dim, false);
    copy_blocks(step, c->v_dim, a->kv_up + c->nope_dim, c->heads * up, up, a->rows.v, step->acts->v_stride, c->v_dim,
                false);
}

void ash_attn_latent_forward(const struct ash_pass_step *step, size_t layer, const float *x)
{
    struct ash_attn_acts *a = &step->acts->layers[layer].attn;
    const struct ash_row_ops *row = step->exec->ops->row;

    forward_q(step, layer, x);
    forward_kv(step, layer, x);
    if (!step->model->round_bf16) return;
    row->round_bf16(step->exec, a->rows.q, step->rows * step->acts->q_stride, a->rows.q);
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
    size_t low = c->kv_rank + c->rope_dim, up = c->nope_dim + c->v_dim;

    copy_blocks(step, c->nope_dim, s->dattn.k, step->acts->k_stride, c->head_dim, s->dkv_up, c->heads * up, up, false);
    copy_blocks(step, c->v_dim, s->dattn.v, step->acts->v_stride, c->v_dim, s->dkv_up + c->nope_dim, c->heads * up, up,
                false);
    backward_shared_key(step);
    heads_backward(step, sink, p[ASH_ROLE_KV_UP], a->kv_low_norm, c->kv_rank, s->dkv_up, c->heads * up,
                   s->dkv_low_norm);
    norm_backward(step, sink, p[ASH_ROLE_KV_DOWN_NORM], a->kv_low, low, c->kv_rank, a->kv_low_rstd, s->dkv_low_norm,
                  s->dkv_low);
    ash_stream_gather_rows(step, (struct ash_range){0, step->rows}, s->dkv_low, low);
    ash_rope_apply(step, s->dkv_low + c->kv_rank, (struct ash_rope_heads){1, c->rope_dim, low}, true);
    linear_grads(step, sink, p[ASH_ROLE_KV_DOWN], p[ASH_ROLE_KV_DOWN_BIAS], x, s->dkv_low, low);
}

static void backward_low_q(const struct ash_pass_step *step, struct ash_grad_sink *sink, size_t layer, const float *x)
{
    const struct ash_model_config *c = &step->model->config;
    const int32_t *p = step->model->layers[layer].param;
    struct ash_attn_acts *a = &step->acts->layers[layer].attn;
    struct ash_scratch *s = &step->acts->scratch;

    heads_backward(step, sink, p[ASH_ROLE_Q_UP], a->q_low_norm, c->q_rank, s->dattn.q, step->acts->q_stride,
                   s->dq_low_norm);
    norm_backward(step, sink, p[ASH_ROLE_Q_DOWN_NORM], a->q_low, c->q_rank, c->q_rank, a->q_low_rstd, s->dq_low_norm,
                  s->dq_low);
    ash_stream_gather_rows(step, (struct ash_range){0, step->rows}, s->dq_low, c->q_rank);
    linear_grads(step, sink, p[ASH_ROLE_Q_DOWN], p[ASH_ROLE_Q_DOWN_BIAS], x, s->dq_low, c->q_rank);
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

    linear_grads(step, sink, p[ASH_ROLE_Q], ASH_NO_PARAM, x, s->dattn.q, q_stride);
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

    backward_kv(step, sink, layer, x);
    ash_rope_apply(step, s->dattn.q + c->nope_dim, (struct ash_rope_heads){c->heads, c->head_dim, step->acts->q_stride},
                   true);
    if (c->q_rank == 0) {
        backward_plain_q(step, sink, layer, x);
        return;
    }
    linear_input_grad(step, p[ASH_ROLE_KV_DOWN], s->dkv_low, c->kv_rank + c->rope_dim, false);
    backward_low_q(step, sink, layer, x);
}
