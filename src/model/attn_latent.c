/* Latent attention's projections (deepseek): q and kv through low-rank bottlenecks with norms, keys with a part that
 * carries positions and is shared by all heads. Keys and values are expanded per head before attention, in training and
 * serving alike. */
#include "model/pass_priv.h"

#define LATENT_NORM_EPS 1e-6f /* the reference library uses its default here, whatever rms_norm_eps says */

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

static void linear_back(struct ash_pass *pass, int32_t weight, int32_t bias, const float *x, size_t in, const float *dy,
                        size_t out, float *dx, bool add)
{
    ash_pass_linear_backward(pass, weight, bias,
                             &(struct ash_linear_io){.rows = pass->rows,
                                                     .x = x,
                                                     .x_stride = in,
                                                     .dy = dy,
                                                     .dy_stride = out,
                                                     .dx = dx,
                                                     .dx_stride = in,
                                                     .dx_add = add,
                                                     .seq_rows = pass->seq_rows});
}

static void forward_q(struct ash_pass *pass, size_t layer)
{
    const struct ash_model_config *c = &pass->model->config;
    const int32_t *p = pass->model->layers[layer].param;
    struct ash_attn_acts *a = &pass->layers[layer].attn;

    if (c->q_rank == 0) {
        linear(pass, p[ASH_ROLE_Q], ASH_NO_PARAM, a->norm.out, c->hidden, a->q, pass->q_stride);
    } else {
        linear(pass, p[ASH_ROLE_Q_DOWN], p[ASH_ROLE_Q_DOWN_BIAS], a->norm.out, c->hidden, a->q_low, c->q_rank);
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

static void forward_kv(struct ash_pass *pass, size_t layer)
{
    const struct ash_model_config *c = &pass->model->config;
    const int32_t *p = pass->model->layers[layer].param;
    struct ash_attn_acts *a = &pass->layers[layer].attn;
    size_t low = c->kv_rank + c->rope_dim, up = c->nope_dim + c->v_dim;

    linear(pass, p[ASH_ROLE_KV_DOWN], p[ASH_ROLE_KV_DOWN_BIAS], a->norm.out, c->hidden, a->kv_low, low);
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

void ash_attn_latent_forward(struct ash_pass *pass, size_t layer)
{
    struct ash_attn_acts *a = &pass->layers[layer].attn;
    const struct ash_row_ops *row = pass->exec->ops->row;

    forward_q(pass, layer);
    forward_kv(pass, layer);
    if (!pass->model->round_bf16) return;
    row->round_bf16(pass->exec, a->q, pass->rows * pass->q_stride, a->q);
    row->round_bf16(pass->exec, a->k, pass->rows * pass->k_stride, a->k);
    row->round_bf16(pass->exec, a->v, pass->rows * pass->v_stride, a->v);
}

static void backward_kv(struct ash_pass *pass, size_t layer)
{
    const struct ash_model_config *c = &pass->model->config;
    const int32_t *p = pass->model->layers[layer].param;
    struct ash_attn_acts *a = &pass->layers[layer].attn;
    struct ash_scratch *s = &pass->scratch;
    size_t low = c->kv_rank + c->rope_dim, up = c->nope_dim + c->v_dim;

    copy_blocks(pass, c->nope_dim, s->dk, pass->k_stride, c->head_dim, s->dkv_up, c->heads * up, up, false);
    copy_blocks(pass, c->v_dim, s->dv, pass->v_stride, c->v_dim, s->dkv_up + c->nope_dim, c->heads * up, up, false);
    pass->exec->memory->zero(s->dkv_low, pass->rows * low * sizeof(float));
    copy_blocks(pass, c->rope_dim, s->dk + c->nope_dim, pass->k_stride, c->head_dim, s->dkv_low + c->kv_rank, low, 0,
                true);
    ash_pass_rope(pass, s->dkv_low + c->kv_rank, 1, c->rope_dim, low, true);
    linear_back(pass, p[ASH_ROLE_KV_UP], ASH_NO_PARAM, a->kv_low_norm, c->kv_rank, s->dkv_up, c->heads * up,
                s->dkv_low_norm, false);
    struct ash_norm_args norm =
        low_norm_args(pass, p[ASH_ROLE_KV_DOWN_NORM], a->kv_low, low, c->kv_rank, NULL, a->kv_low_rstd);
    norm.dy = s->dkv_low_norm;
    norm.dx = s->dkv_low;
    norm.dweight = ash_grad_begin(pass, p[ASH_ROLE_KV_DOWN_NORM], ASH_GRAD_ALL);
    pass->exec->ops->norm->rms_backward(pass->exec, &norm);
    ash_grad_end(pass, p[ASH_ROLE_KV_DOWN_NORM], ASH_GRAD_ALL);
    linear_back(pass, p[ASH_ROLE_KV_DOWN], p[ASH_ROLE_KV_DOWN_BIAS], a->norm.out, c->hidden, s->dkv_low, low, s->dnorm,
                false);
}

static void backward_q(struct ash_pass *pass, size_t layer)
{
    const struct ash_model_config *c = &pass->model->config;
    const int32_t *p = pass->model->layers[layer].param;
    struct ash_attn_acts *a = &pass->layers[layer].attn;
    struct ash_scratch *s = &pass->scratch;

    ash_pass_rope(pass, s->dq + c->nope_dim, c->heads, c->head_dim, pass->q_stride, true);
    if (c->q_rank == 0) {
        linear_back(pass, p[ASH_ROLE_Q], ASH_NO_PARAM, a->norm.out, c->hidden, s->dq, pass->q_stride, s->dnorm, true);
        return;
    }
    linear_back(pass, p[ASH_ROLE_Q_UP], ASH_NO_PARAM, a->q_low_norm, c->q_rank, s->dq, pass->q_stride, s->dq_low_norm,
                false);
    struct ash_norm_args norm =
        low_norm_args(pass, p[ASH_ROLE_Q_DOWN_NORM], a->q_low, c->q_rank, c->q_rank, NULL, a->q_low_rstd);
    norm.dy = s->dq_low_norm;
    norm.dx = s->dq_low;
    norm.dweight = ash_grad_begin(pass, p[ASH_ROLE_Q_DOWN_NORM], ASH_GRAD_ALL);
    pass->exec->ops->norm->rms_backward(pass->exec, &norm);
    ash_grad_end(pass, p[ASH_ROLE_Q_DOWN_NORM], ASH_GRAD_ALL);
    linear_back(pass, p[ASH_ROLE_Q_DOWN], p[ASH_ROLE_Q_DOWN_BIAS], a->norm.out, c->hidden, s->dq_low, c->q_rank,
                s->dnorm, true);
}

void ash_attn_latent_backward(struct ash_pass *pass, size_t layer)
{
    backward_kv(pass, layer);
    backward_q(pass, layer);
}
