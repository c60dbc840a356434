/* The norms that some models put over q and k: each head, or all of them. The gradient of their weights is a sum over
 * rows, and within a row over heads; where tp splits the heads, each rank gets all heads of the rows that it keeps, and
 * ranks accumulate in the order of their rows. */
#include "model/pass/attn_qkv.h"

#include "base/assert.h"
#include "model/pass/copy.h"
#include "model/pass/gather.h"
#include "model/pass/split.h"

bool ash_qk_norm_is_in(const struct ash_model *model, size_t layer)
{
    enum ash_qk_norm kind = model->config.form.qk_norm;

    return kind != ASH_QK_NORM_NONE && (kind != ASH_QK_NORM_BARE || ash_rope_is_in(model, layer));
}

/* The weights of a norm; without any, ones. */
static const float *weights(const struct ash_model *model, size_t layer, bool key)
{
    if (model->config.form.qk_norm == ASH_QK_NORM_BARE) return (const float *)model->vectors.data + model->ones_offset;
    return ash_model_vector(model, model->layers[layer].param[key ? ASH_ROLE_K_NORM : ASH_ROLE_Q_NORM]);
}

/* Norm of q (key false) or k (key true), of each head or of all (then tp does not split them), from qk_raw into the row
 * that attention reads. */
static struct ash_norm_args norm_args(const struct ash_pass_step *step, size_t layer, bool key)
{
    const struct ash_model_config *c = &step->model->config;
    struct ash_attn_acts *acts = &step->acts->layers[layer].attn;
    size_t column = key ? c->heads * c->head_dim : 0, heads = key ? c->kv_heads : c->heads;
    bool all = c->form.qk_norm == ASH_QK_NORM_ALL;

    ash_assert(layer < step->model->config.layers);
    return (struct ash_norm_args){.rows = step->rows,
                                  .groups = all ? 1 : heads,
                                  .cols = all ? heads * c->head_dim : c->head_dim,
                                  .x_stride = (c->heads + c->kv_heads) * c->head_dim,
                                  .y_stride = step->acts->q_stride,
                                  .x = acts->qk_raw + column,
                                  .weight = weights(step->model, layer, key),
                                  .eps = (float)c->norm_eps,
                                  .y = acts->rows.q + column,
                                  .rstd = key ? acts->k_rstd : acts->q_rstd,
                                  .round_bf16 = step->model->round_bf16,
                                  .seq_rows = step->seq_rows};
}

/* Over all heads, of which each rank has some: of whole rows, of which this rank keeps its part. */
static void norm_gathered(const struct ash_pass_step *step, struct ash_norm_args args)
{
    const struct ash_model *model = step->model;
    size_t heads = args.cols / model->config.head_dim, own = args.cols, stride = args.y_stride;
    size_t each = heads / model->config.kv_heads * model->config.head_dim, width = each * model->whole.kv_heads;
    size_t first = ash_slice_kv_heads(&model->whole, &model->slice).first * each;
    float *out = args.y, *whole = step->acts->scratch.qk.raw;

    args.x = ash_gather_part(step, args.x, args.x_stride, width);
    args.x_stride = args.y_stride = args.cols = width;
    args.y = whole;
    step->exec->ops->norm->rms_forward(step->exec, &args);
    ash_copy_columns(step->exec, step->rows, own, (struct ash_rows_from){whole + first, width},
                     (struct ash_rows_to){out, stride});
}

void ash_qk_norm_forward(const struct ash_pass_step *step, size_t layer)
{
    bool all = step->model->config.form.qk_norm == ASH_QK_NORM_ALL;

    ash_assert(step->model->config.form.qk_norm && layer < step->model->config.layers);
    for (int key = 0; key < 2; key++) {
        struct ash_norm_args args = norm_args(step, layer, key);

        if (all && ash_gathers(step))
            norm_gathered(step, args);
        else
            step->exec->ops->norm->rms_forward(step->exec, &args);
    }
}

/* ---- backward ---------------------------------------------------------------------------------------------------- */

/* What a rank sends in a row, twice (values, gradients): its heads of q, then of k. */
static size_t heads_width(const struct ash_model_config *c, size_t kv_heads)
{
    return kv_heads * (c->heads / c->kv_heads + 1) * c->head_dim;
}

/* From the heads of a rank at `from` into full rows of values and of gradients. Returns where the next rank's begin. */
static const float *unpack(const struct ash_pass_step *step, size_t rank, const float *from)
{
    const struct ash_model_config *c = &step->model->whole;
    struct ash_qk_rows *qk = &step->acts->scratch.qk;
    struct ash_range kv = ash_split_heads_tp(step->model, step->axes, rank);
    size_t group = c->heads / c->kv_heads, width = heads_width(c, kv.count), all = heads_width(c, c->kv_heads);
    size_t q = group * kv.count * c->head_dim, k = kv.count * c->head_dim, rows = step->own.count;
    size_t q_at = group * kv.first * c->head_dim, k_at = (c->heads + kv.first) * c->head_dim;

    ash_assert(rank < step->axes->tp.size);
    for (int grad = 0; grad < 2; grad++) {
        const float *part = from + (grad ? width : 0);
        float *whole = grad ? qk->grad : qk->raw;

        ash_copy_columns(step->exec, rows, q, (struct ash_rows_from){part, 2 * width},
                         (struct ash_rows_to){whole + q_at, all});
        ash_copy_columns(step->exec, rows, k, (struct ash_rows_from){part + q, 2 * width},
                         (struct ash_rows_to){whole + k_at, all});
    }
    return from + rows * 2 * width;
}

/* All heads of the rows that this rank keeps. */
static void exchange_heads(const struct ash_pass_step *step, size_t layer)
{
    const struct ash_model_config *c = &step->model->config, *whole = &step->model->whole;
    struct ash_scratch *s = &step->acts->scratch;
    size_t width = heads_width(c, c->kv_heads);
    const float *from = s->qk.recv;

    ash_assert(layer < step->model->config.layers);
    ash_copy_columns(step->exec, step->rows, width,
                     (struct ash_rows_from){step->acts->layers[layer].attn.qk_raw, width},
                     (struct ash_rows_to){s->qk.send, 2 * width});
    ash_copy_columns(step->exec, step->rows, width, (struct ash_rows_from){s->dattn.q, step->acts->q_stride},
                     (struct ash_rows_to){s->qk.send + width, 2 * width});
    for (size_t r = 0; r < step->axes->tp.size; r++) {
        size_t theirs = ash_split_heads_tp(step->model, step->axes, r).count;

        step->axes->counts[r] = ash_split_rows_tp(step->axes, step->rows, step->seq_rows, r).count * 2 * width;
        step->axes->more_counts[r] = step->own.count * 2 * heads_width(whole, theirs);
    }
    ash_axes_all_to_all(step->axes, &step->axes->tp, s->qk.send, step->axes->counts, s->qk.recv,
                        step->axes->more_counts);
    for (size_t r = 0; r < step->axes->tp.size; r++)
        from = unpack(step, r, from);
}

/* The weight's gradient from all heads of own rows. The op's other outputs go to scratch memory. */
static void weight_grad(const struct ash_pass_step *step, struct ash_grad_sink *sink, size_t layer, bool key)
{
    const struct ash_model_config *c = &step->model->whole;
    struct ash_qk_rows *qk = &step->acts->scratch.qk;
    int32_t weight = step->model->layers[layer].param[key ? ASH_ROLE_K_NORM : ASH_ROLE_Q_NORM];
    size_t column = key ? c->heads * c->head_dim : 0;
    struct ash_norm_args args = norm_args(step, layer, key);

    ash_assert(layer < step->model->config.layers);
    args.rows = step->own.count;
    args.seq_first = step->own.first % step->seq_rows;
    args.groups = key ? c->kv_heads : c->heads;
    args.x_stride = args.y_stride = heads_width(c, c->kv_heads);
    args.x = qk->raw + column;
    args.y = args.dx = qk->recv + column;
    args.rstd = qk->rstd;
    step->exec->ops->norm->rms_forward(step->exec, &args);
    args.dy = qk->grad + column;
    args.dweight = ash_grad_acquire(sink, weight, ASH_GRAD_STREAM);
    step->exec->ops->norm->rms_backward(step->exec, &args);
    ash_grad_release(sink, weight, ASH_GRAD_STREAM);
}

void ash_qk_norm_backward(const struct ash_pass_step *step, struct ash_grad_sink *sink, size_t layer)
{
    const struct ash_model_config *c = &step->model->config;
    const int32_t *p = step->model->layers[layer].param;
    struct ash_scratch *s = &step->acts->scratch;
    bool is_split = step->axes->tp.size > 1 && c->form.qk_norm != ASH_QK_NORM_BARE;

    ash_assert(c->form.qk_norm && s->dqk_raw != NULL);
    if (is_split) exchange_heads(step, layer);
    for (int key = 0; key < 2; key++) {
        struct ash_norm_args args = norm_args(step, layer, key);
        int32_t weight = p[key ? ASH_ROLE_K_NORM : ASH_ROLE_Q_NORM];
        size_t column = key ? c->heads * c->head_dim : 0;

        args.dy = s->dattn.q + column;
        args.dx = s->dqk_raw + column;
        if (is_split) {
            step->exec->ops->norm->rms_backward(step->exec, &args);
            weight_grad(step, sink, layer, key);
            continue;
        }
        args.dweight = ash_grad_acquire(sink, weight, ASH_GRAD_ALL);
        step->exec->ops->norm->rms_backward(step->exec, &args);
        ash_grad_release(sink, weight, ASH_GRAD_ALL);
    }
}
