/* Latent attention's projections (deepseek): q and kv through low-rank bottlenecks with norms, keys with a part that
 * carries positions and is shared by all heads. Keys and values are expanded per head before attention, in training and
 * serving alike. */
#include "model/pass/pass_priv.h"

#define LATENT_NORM_EPS 1e-6f /* the reference library uses its default here, whatever rms_norm_eps says */

/* Norms run over all rows on the way in (everyone has the compressed rows), over own rows on the way back. */
static struct ash_norm_args low_norm_args(struct ash_pass *pass, int32_t weight, const float *x, size_t x_stride,
                                          size_t cols, float *y, float *rstd)
{
    return (struct ash_norm_args){.rows = pass->rows,
                                  .groups = 1,
                                  .cols = cols,
                                  .x_stride = x_stride,
                                  .y_stride = cols,
                                  .x = x,
                                  .weight = ash_model_vector(pass->model, weight),
                                  .eps = LATENT_NORM_EPS,
                                  .y = y,
                                  .rstd = rstd};
}

static void linear(struct ash_pass *pass, int32_t weight, int32_t bias, const float *x, size_t in, float *y, size_t out)
{
    ash_linear_forward(pass->model, pass->exec, weight, bias,
                       &(struct ash_linear_io){.rows = pass->rows, .x = x, .x_stride = in, .y = y, .y_stride = out});
}

/* The gradients of a layer that everyone has all of, over all rows; x and dy likewise. */
static void linear_grads(struct ash_pass *pass, int32_t weight, int32_t bias, const float *x, const float *dy,
                         size_t out)
{
    size_t in = pass->model->config.hidden;

    ash_pass_linear_backward(
        pass, weight, bias,
        &(struct ash_linear_io){
            .rows = pass->rows, .x = x, .x_stride = in, .dy = dy, .dy_stride = out, .seq_rows = pass->seq_rows});
}

/* dnorm = (add: +=) dy W over own rows; dy has all. */
static void linear_input_grad(struct ash_pass *pass, int32_t weight, const float *dy, size_t out, bool add)
{
    ash_linear_input_grad(pass->model, pass->exec, weight,
                          &(struct ash_linear_io){.rows = pass->own.count,
                                                  .dy = dy + pass->own.first * out,
                                                  .dy_stride = out,
                                                  .dx = pass->scratch.dnorm,
                                                  .dx_stride = pass->model->config.hidden,
                                                  .dx_add = add});
}

/* Back through a layer whose outputs are heads: x is [rows, in], dx [own rows, in]. */
static void heads_back(struct ash_pass *pass, int32_t weight, const float *x, size_t in, const float *dy, size_t out,
                       float *dx)
{
    ash_columns_backward(pass, &(struct ash_columns){.rows = pass->rows,
                                                     .in = in,
                                                     .seq_rows = pass->seq_rows,
                                                     .x = x,
                                                     .dx = dx,
                                                     .count = 1,
                                                     .columns[0] = {weight, ASH_NO_PARAM, dy, out}});
}

/* Back through the norm of compressed rows: from dy [own rows, cols] to own rows of dx, [rows, stride] like x. */
static void norm_back(struct ash_pass *pass, int32_t weight, const float *x, size_t stride, size_t cols, float *rstd,
                      const float *dy, float *dx)
{
    size_t first = pass->own.first;
    struct ash_norm_args norm = low_norm_args(pass, weight, x + first * stride, stride, cols, NULL, rstd + first);

    norm.rows = pass->own.count;
    norm.dy = dy;
    norm.dx = dx + first * stride;
    norm.dweight = ash_grad_begin(pass, weight, ASH_GRAD_STREAM);
    pass->exec->ops->norm->rms_backward(pass->exec, &norm);
    ash_grad_end(pass, weight, ASH_GRAD_STREAM);
}

static void forward_q(struct ash_pass *pass, size_t layer, const float *x)
{
    const struct ash_model_config *c = &pass->model->config;
    const int32_t *p = pass->model->layers[layer].param;
    struct ash_attn_acts *a = &pass->layers[layer].attn;

    if (c->q_rank == 0) {
        linear(pass, p[ASH_ROLE_Q], ASH_NO_PARAM, x, c->hidden, a->q, pass->q_stride);
    } else {
        linear(pass, p[ASH_ROLE_Q_DOWN], p[ASH_ROLE_Q_DOWN_BIAS], x, c->hidden, a->q_low, c->q_rank);
        struct ash_norm_args norm =
            low_norm_args(pass, p[ASH_ROLE_Q_DOWN_NORM], a->q_low, c->q_rank, c->q_rank, a->q_low_norm, a->q_low_rstd);
        pass->exec->ops->norm->rms_forward(pass->exec, &norm);
        linear(pass, p[ASH_ROLE_Q_UP], ASH_NO_PARAM, a->q_low_norm, c->q_rank, a->q, pass->q_stride);
    }
    ash_pass_rope(pass, a->q + c->nope_dim, c->heads, c->head_dim, pass->q_stride, false);
}

static void copy_blocks(struct ash_pass *pass, size_t cols, const float *src, size_t src_row, size_t src_block,
                        float *dst, size_t dst_row, size_t dst_block, bool add)
{
    struct ash_copy_args args = {.rows = pass->rows,
                                 .blocks = pass->model->config.heads,
                                 .cols = cols,
                                 .src = src,
                                 .src_row = src_row,
                                 .src_block = src_block,
                                 .dst = dst,
                                 .dst_dtype = ASH_F32,
                                 .dst_row = dst_row,
                                 .dst_block = dst_block,
                                 .add = add};

    pass->exec->ops->row->copy(pass->exec, &args);
}

static void forward_kv(struct ash_pass *pass, size_t layer, const float *x)
{
    const struct ash_model_config *c = &pass->model->config;
    const int32_t *p = pass->model->layers[layer].param;
    struct ash_attn_acts *a = &pass->layers[layer].attn;
    size_t low = c->kv_rank + c->rope_dim, up = c->nope_dim + c->v_dim;

    linear(pass, p[ASH_ROLE_KV_DOWN], p[ASH_ROLE_KV_DOWN_BIAS], x, c->hidden, a->kv_low, low);
    struct ash_norm_args norm =
        low_norm_args(pass, p[ASH_ROLE_KV_DOWN_NORM], a->kv_low, low, c->kv_rank, a->kv_low_norm, a->kv_low_rstd);
    pass->exec->ops->norm->rms_forward(pass->exec, &norm);
    ash_pass_rope(pass, a->kv_low + c->kv_rank, 1, c->rope_dim, low, false);
    linear(pass, p[ASH_ROLE_KV_UP], ASH_NO_PARAM, a->kv_low_norm, c->kv_rank, a->kv_up, c->heads * up);
    copy_blocks(pass, c->nope_dim, a->kv_up, c->heads * up, up, a->k, pass->k_stride, c->head_dim, false);
    copy_blocks(pass, c->rope_dim, a->kv_low + c->kv_rank, low, 0, a->k + c->nope_dim, pass->k_stride, c->head_dim,
                false);
    copy_blocks(pass, c->v_dim, a->kv_up + c->nope_dim, c->heads * up, up, a->v, pass->v_stride, c->v_dim, false);
}

void ash_attn_latent_forward(struct ash_pass *pass, size_t layer, const float *x)
{
    struct ash_attn_acts *a = &pass->layers[layer].attn;
    const struct ash_row_ops *row = pass->exec->ops->row;

    forward_q(pass, layer, x);
    forward_kv(pass, layer, x);
    if (!pass->model->round_bf16) return;
    row->round_bf16(pass->exec, a->q, pass->rows * pass->q_stride, a->q);
    row->round_bf16(pass->exec, a->k, pass->rows * pass->k_stride, a->k);
    row->round_bf16(pass->exec, a->v, pass->rows * pass->v_stride, a->v);
}

/* The key that heads share gets the sum of their gradients: here over those of one rank. */
static void shared_key_step(struct ash_pass *pass, void *ctx, const struct ash_terms *terms, struct ash_range rows,
                            bool start, float *sums)
{
    const struct ash_model_config *c = &pass->model->config;
    size_t kv_heads = ash_slice_deal(pass->model->whole.kv_heads, 1, terms->rank, pass->tp.size).count;
    struct ash_copy_args args = {.rows = rows.count,
                                 .blocks = kv_heads * (c->heads / c->kv_heads),
                                 .cols = c->rope_dim,
                                 .src = terms->x,
                                 .src_row = terms->x_stride,
                                 .src_block = c->head_dim,
                                 .dst = sums,
                                 .dst_dtype = ASH_F32,
                                 .dst_row = c->rope_dim,
                                 .add = true};

    (void)ctx;
    if (start) pass->exec->memory->zero(sums, rows.count * c->rope_dim * sizeof(float));
    pass->exec->ops->row->copy(pass->exec, &args);
}

static void backward_shared_key(struct ash_pass *pass)
{
    const struct ash_model_config *c = &pass->model->config;
    struct ash_scratch *s = &pass->scratch;
    size_t low = c->kv_rank + c->rope_dim;
    struct ash_chain chain = {.rows = {0, pass->rows},
                              .cols = c->rope_dim,
                              .rounds = 1,
                              .terms[0] = {.rank = pass->tp.rank, .x = s->dk + c->nope_dim, .x_stride = pass->k_stride},
                              .step = shared_key_step,
                              .out = s->dkey};
    struct ash_copy_args copy = {.rows = pass->own.count,
                                 .blocks = 1,
                                 .cols = c->rope_dim,
                                 .src = s->dkey,
                                 .src_row = c->rope_dim,
                                 .dst = s->dkv_low + pass->own.first * low + c->kv_rank,
                                 .dst_dtype = ASH_F32,
                                 .dst_row = low};

    if (pass->tp.size > 1)
        ash_chain_run(pass, &chain);
    else
        shared_key_step(pass, NULL, chain.terms, chain.rows, true, s->dkey);
    pass->exec->ops->row->copy(pass->exec, &copy);
}

/* dkv_low of all rows, from the gradients of k and v. */
static void backward_kv(struct ash_pass *pass, size_t layer, const float *x)
{
    const struct ash_model_config *c = &pass->model->config;
    const int32_t *p = pass->model->layers[layer].param;
    struct ash_attn_acts *a = &pass->layers[layer].attn;
    struct ash_scratch *s = &pass->scratch;
    size_t low = c->kv_rank + c->rope_dim, up = c->nope_dim + c->v_dim;

    copy_blocks(pass, c->nope_dim, s->dk, pass->k_stride, c->head_dim, s->dkv_up, c->heads * up, up, false);
    copy_blocks(pass, c->v_dim, s->dv, pass->v_stride, c->v_dim, s->dkv_up + c->nope_dim, c->heads * up, up, false);
    backward_shared_key(pass);
    heads_back(pass, p[ASH_ROLE_KV_UP], a->kv_low_norm, c->kv_rank, s->dkv_up, c->heads * up, s->dkv_low_norm);
    norm_back(pass, p[ASH_ROLE_KV_DOWN_NORM], a->kv_low, low, c->kv_rank, a->kv_low_rstd, s->dkv_low_norm, s->dkv_low);
    ash_rows_gather(pass, (struct ash_range){0, pass->rows}, s->dkv_low, low);
    ash_pass_rope(pass, s->dkv_low + c->kv_rank, 1, c->rope_dim, low, true);
    linear_grads(pass, p[ASH_ROLE_KV_DOWN], p[ASH_ROLE_KV_DOWN_BIAS], x, s->dkv_low, low);
}

static void backward_low_q(struct ash_pass *pass, size_t layer, const float *x)
{
    const struct ash_model_config *c = &pass->model->config;
    const int32_t *p = pass->model->layers[layer].param;
    struct ash_attn_acts *a = &pass->layers[layer].attn;
    struct ash_scratch *s = &pass->scratch;

    heads_back(pass, p[ASH_ROLE_Q_UP], a->q_low_norm, c->q_rank, s->dq, pass->q_stride, s->dq_low_norm);
    norm_back(pass, p[ASH_ROLE_Q_DOWN_NORM], a->q_low, c->q_rank, c->q_rank, a->q_low_rstd, s->dq_low_norm, s->dq_low);
    ash_rows_gather(pass, (struct ash_range){0, pass->rows}, s->dq_low, c->q_rank);
    linear_grads(pass, p[ASH_ROLE_Q_DOWN], p[ASH_ROLE_Q_DOWN_BIAS], x, s->dq_low, c->q_rank);
    linear_input_grad(pass, p[ASH_ROLE_Q_DOWN], s->dq_low, c->q_rank, true);
}

/* dnorm where q is not compressed: what comes through kv, then q's heads, rank by rank. */
static void plain_q_step(struct ash_pass *pass, void *ctx, const struct ash_terms *terms, struct ash_range rows,
                         bool start, float *sums)
{
    const struct ash_model_config *c = &pass->model->config;
    const int32_t *p = ctx;
    size_t low = c->kv_rank + c->rope_dim;
    struct ash_linear_term kv = {p[ASH_ROLE_KV_DOWN], true, {0, low}, pass->scratch.dkv_low + rows.first * low, low};

    if (start) ash_linear_continue(pass->model, pass->exec, &kv, rows.count, true, sums);
    ash_product_step(pass, terms, rows.count, false, sums);
}

static void backward_plain_q(struct ash_pass *pass, size_t layer, const float *x)
{
    int32_t *p = pass->model->layers[layer].param;
    struct ash_scratch *s = &pass->scratch;
    struct ash_linear_term q = {p[ASH_ROLE_Q], true, {0, pass->q_stride}, s->dq, pass->q_stride};
    struct ash_chain chain = {.rows = {0, pass->rows},
                              .cols = pass->model->config.hidden,
                              .rounds = 1,
                              .terms[0] = ash_product_terms(pass, &q),
                              .step = plain_q_step,
                              .ctx = p,
                              .out = s->dnorm};

    linear_grads(pass, p[ASH_ROLE_Q], ASH_NO_PARAM, x, s->dq, pass->q_stride);
    if (pass->tp.size > 1)
        ash_chain_run(pass, &chain);
    else
        plain_q_step(pass, p, chain.terms, chain.rows, true, s->dnorm);
}

void ash_attn_latent_backward(struct ash_pass *pass, size_t layer, const float *x)
{
    const struct ash_model_config *c = &pass->model->config;
    const int32_t *p = pass->model->layers[layer].param;
    struct ash_scratch *s = &pass->scratch;

    backward_kv(pass, layer, x);
    ash_pass_rope(pass, s->dq + c->nope_dim, c->heads, c->head_dim, pass->q_stride, true);
    if (c->q_rank == 0) {
        backward_plain_q(pass, layer, x);
        return;
    }
    linear_input_grad(pass, p[ASH_ROLE_KV_DOWN], s->dkv_low, c->kv_rank + c->rope_dim, false);
    backward_low_q(pass, layer, x);
}
