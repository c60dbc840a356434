/* The norms that some models put over each head of q and k. The gradient of their weights is a sum over rows, and
 * within a row over heads; where heads are dealt out along tp, each rank gets all heads of the rows that it keeps, and
 * the sum goes through the ranks in the order of their rows. */
#include "model/pass/pass_priv.h"

/* Per-head norm of q (key false) or k (key true), from qk_raw into the row that attention reads. */
static struct ash_norm_args head_norm_args(struct ash_pass *pass, size_t layer, bool key)
{
    const struct ash_model_config *c = &pass->model->config;
    const int32_t *p = pass->model->layers[layer].param;
    struct ash_attn_acts *acts = &pass->layers[layer].attn;
    size_t column = key ? c->heads * c->head_dim : 0;

    return (struct ash_norm_args){.rows = pass->rows,
                                  .groups = key ? c->kv_heads : c->heads,
                                  .cols = c->head_dim,
                                  .x_stride = (c->heads + c->kv_heads) * c->head_dim,
                                  .y_stride = pass->q_stride,
                                  .x = acts->qk_raw + column,
                                  .weight = ash_model_vector(pass->model, p[key ? ASH_ROLE_K_NORM : ASH_ROLE_Q_NORM]),
                                  .eps = (float)c->norm_eps,
                                  .y = acts->q + column,
                                  .rstd = key ? acts->k_rstd : acts->q_rstd};
}

void ash_head_norm_forward(struct ash_pass *pass, size_t layer)
{
    for (int key = 0; key < 2; key++) {
        struct ash_norm_args args = head_norm_args(pass, layer, key);

        pass->exec->ops->norm->rms_forward(pass->exec, &args);
    }
}

/* ---- backward ---------------------------------------------------------------------------------------------------- */

/* What a rank brings in a row, twice (values, gradients): its heads of q, then of k. */
static size_t heads_width(const struct ash_model_config *c, size_t kv_heads)
{
    return kv_heads * (c->heads / c->kv_heads + 1) * c->head_dim;
}

/* From what rank brings, from on, into full rows of values and of gradients. Returns behind it. */
static const float *unpack(struct ash_pass *pass, size_t rank, const float *from)
{
    const struct ash_model_config *c = &pass->model->whole;
    struct ash_head_rows *heads = &pass->scratch.heads;
    struct ash_range kv = ash_slice_deal(c->kv_heads, 1, rank, pass->tp.size);
    size_t group = c->heads / c->kv_heads, width = heads_width(c, kv.count), all = heads_width(c, c->kv_heads);
    size_t q = group * kv.count * c->head_dim, k = kv.count * c->head_dim, rows = pass->own.count;
    size_t q_at = group * kv.first * c->head_dim, k_at = (c->heads + kv.first) * c->head_dim;

    for (int grad = 0; grad < 2; grad++) {
        const float *part = from + (grad ? width : 0);
        float *whole = grad ? heads->grad : heads->raw;

        ash_pass_copy_columns(pass, rows, q, part, 2 * width, whole + q_at, all);
        ash_pass_copy_columns(pass, rows, k, part + q, 2 * width, whole + k_at, all);
    }
    return from + rows * 2 * width;
}

/* All heads of the rows that this rank keeps. */
static void exchange_heads(struct ash_pass *pass, size_t layer)
{
    const struct ash_model_config *c = &pass->model->config, *whole = &pass->model->whole;
    struct ash_scratch *s = &pass->scratch;
    size_t width = heads_width(c, c->kv_heads);
    const float *from = s->heads.in;

    ash_pass_copy_columns(pass, pass->rows, width, pass->layers[layer].attn.qk_raw, width, s->heads.out, 2 * width);
    ash_pass_copy_columns(pass, pass->rows, width, s->dq, pass->q_stride, s->heads.out + width, 2 * width);
    for (size_t r = 0; r < pass->tp.size; r++) {
        size_t theirs = ash_slice_deal(whole->kv_heads, 1, r, pass->tp.size).count;

        pass->tp_counts[r] = ash_stream_rows(pass, r).count * 2 * width;
        pass->tp_more_counts[r] = pass->own.count * 2 * heads_width(whole, theirs);
    }
    ash_share_exchange(pass, &pass->tp, s->heads.out, pass->tp_counts, s->heads.in, pass->tp_more_counts);
    for (size_t r = 0; r < pass->tp.size; r++)
        from = unpack(pass, r, from);
}

/* The weight's gradient from all heads of own rows. What else the op gives goes where nobody reads it. */
static void weight_grad(struct ash_pass *pass, size_t layer, bool key)
{
    const struct ash_model_config *c = &pass->model->whole;
    struct ash_head_rows *heads = &pass->scratch.heads;
    int32_t weight = pass->model->layers[layer].param[key ? ASH_ROLE_K_NORM : ASH_ROLE_Q_NORM];
    size_t column = key ? c->heads * c->head_dim : 0;
    struct ash_norm_args args = head_norm_args(pass, layer, key);

    args.rows = pass->own.count;
    args.groups = key ? c->kv_heads : c->heads;
    args.x_stride = args.y_stride = heads_width(c, c->kv_heads);
    args.x = heads->raw + column;
    args.y = args.dx = heads->in + column;
    args.rstd = heads->rstd;
    pass->exec->ops->norm->rms_forward(pass->exec, &args);
    args.dy = heads->grad + column;
    args.dweight = ash_grad_begin(pass, weight, ASH_GRAD_STREAM);
    pass->exec->ops->norm->rms_backward(pass->exec, &args);
    ash_grad_end(pass, weight, ASH_GRAD_STREAM);
}

void ash_head_norm_backward(struct ash_pass *pass, size_t layer)
{
    const struct ash_model_config *c = &pass->model->config;
    const int32_t *p = pass->model->layers[layer].param;
    struct ash_scratch *s = &pass->scratch;
    bool shared = pass->tp.size > 1;

    if (shared) exchange_heads(pass, layer);
    for (int key = 0; key < 2; key++) {
        struct ash_norm_args args = head_norm_args(pass, layer, key);
        int32_t weight = p[key ? ASH_ROLE_K_NORM : ASH_ROLE_Q_NORM];
        size_t column = key ? c->heads * c->head_dim : 0;

        args.dy = s->dq + column;
        args.dx = s->dqk_raw + column;
        if (shared) {
            pass->exec->ops->norm->rms_backward(pass->exec, &args);
            weight_grad(pass, layer, key);
            continue;
        }
        args.dweight = ash_grad_begin(pass, weight, ASH_GRAD_ALL);
        pass->exec->ops->norm->rms_backward(pass->exec, &args);
        ash_grad_end(pass, weight, ASH_GRAD_ALL);
    }
}
