/* Grouped-query attention's projections: q, k, v as columns of one row, optional per-head norms, rotary positions. */
#include "base/assert.h"
#include "model/pass/attn_qkv.h"
#include "model/pass/out_gate.h"
#include "model/pass/parallel_linear.h"
#include "model/pass/rope.h"

/* A projection: its parameters, and the columns of a row that it fills. */
struct projection {
    int32_t weight, bias;
    size_t column, width;
};

static size_t list_projections(const struct ash_pass_step *step, size_t layer, struct projection out[3])
{
    const struct ash_model_config *c = &step->model->config;
    const int32_t *p = step->model->layers[layer].param;
    size_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;

    ash_assert(layer < step->model->config.layers);
    if (p[ASH_ROLE_QKV] != ASH_NO_PARAM) {
        out[0] = (struct projection){p[ASH_ROLE_QKV], p[ASH_ROLE_QKV_BIAS], 0, q + 2 * kv};
        return 1;
    }
    out[0] = (struct projection){p[ASH_ROLE_Q], p[ASH_ROLE_Q_BIAS], 0, q};
    out[1] = (struct projection){p[ASH_ROLE_K], p[ASH_ROLE_K_BIAS], q, kv};
    out[2] = (struct projection){p[ASH_ROLE_V], p[ASH_ROLE_V_BIAS], q + kv, kv};
    return 3;
}

/* Where heads' q, k and v follow each other in the product: between its rows and those of attention. */
static void copy_by_head(const struct ash_pass_step *step, float *rows, bool to_product)
{
    const struct ash_model_config *c = &step->model->config;
    float *product = step->acts->scratch.by_head;
    size_t stride = step->acts->q_stride, dim = c->head_dim;

    ash_assert(product != NULL && c->heads == c->kv_heads);
    for (size_t part = 0; part < 3; part++) {
        float *in_product = product + part * dim, *in_rows = rows + part * c->heads * dim;

        step->exec->ops->row->copy(step->exec, &(struct ash_copy_args){.rows = step->rows,
                                                                       .blocks = c->heads,
                                                                       .cols = dim,
                                                                       .src = to_product ? in_rows : in_product,
                                                                       .src_row = stride,
                                                                       .src_block = to_product ? dim : 3 * dim,
                                                                       .dst = to_product ? in_product : in_rows,
                                                                       .dst_dtype = ASH_F32,
                                                                       .dst_row = stride,
                                                                       .dst_block = to_product ? 3 * dim : dim});
    }
}

/* What attention reads, where products round: queries, and keys and values as a cache would hold them. */
static void round_rows(const struct ash_pass_step *step, size_t layer)
{
    const struct ash_model_config *c = &step->model->config;
    const struct ash_row_ops *row = step->exec->ops->row;
    bool rounds_q = step->model->round_bf16, rounds_kv = step->kv_dtype == ASH_BF16;
    size_t q = c->heads * c->head_dim, stride = step->acts->q_stride;
    float *rows = step->acts->layers[layer].attn.rows.q;

    ash_assert(layer < step->model->config.layers);
    if (rounds_q && rounds_kv) {
        row->round_bf16(step->exec, rows, step->rows * stride, rows);
        return;
    }
    for (size_t r = 0; r < step->rows && rounds_q; r++)
        row->round_bf16(step->exec, rows + r * stride, q, rows + r * stride);
    for (size_t r = 0; r < step->rows && rounds_kv; r++)
        row->round_bf16(step->exec, rows + r * stride + q, 2 * c->kv_heads * c->head_dim, rows + r * stride + q);
}

/* The heads of q and k in rows of qk_raw. */
static struct ash_rope_heads raw_heads(const struct ash_pass_step *step, size_t layer)
{
    const struct ash_model_config *c = &step->model->config;
    size_t heads = c->heads + c->kv_heads;

    return (struct ash_rope_heads){heads, c->head_dim, heads * c->head_dim, NULL, layer};
}

/* From the products to rows as attention reads them: norms, positions, rounding. */
static void finish_rows(const struct ash_pass_step *step, size_t layer, bool is_bf16)
{
    const struct ash_model_form *form = &step->model->config.form;
    struct ash_attn_acts *acts = &step->acts->layers[layer].attn;
    bool has_norm = ash_qk_norm_is_in(step->model, layer);

    ash_assert(layer < step->model->config.layers);
    if (has_norm && form->qk_norm_last) ash_rope_apply(step, acts->qk_raw, raw_heads(step, layer), false);
    if (has_norm) ash_qk_norm_forward(step, layer);
    ash_rope_temper(step, acts->rows.q, ash_attn_grouped_heads(step, layer, NULL), false);
    if (step->cache != NULL) return; /* ash_cache_write does the rest as it goes over the rows */
    /* k's heads follow q's in the row, so one call rotates both */
    if (is_bf16) {
        ash_rope_apply_bf16(step, acts->qkv_bf16, ash_attn_grouped_heads(step, layer, NULL));
        return;
    }
    if (!form->qk_norm_last)
        ash_rope_apply(step, acts->rows.q, ash_attn_grouped_heads(step, layer, acts->qkv_bf16), false);
    if (acts->qkv_bf16 == NULL) round_rows(step, layer);
}

void ash_attn_grouped_forward(const struct ash_pass_step *step, size_t layer, const float *x, int32_t norm)
{
    const struct ash_model_config *c = &step->model->config;
    struct ash_attn_acts *acts = &step->acts->layers[layer].attn;
    struct ash_linear_group group = {
        .rows = step->rows, .x = x, .x_bf16 = acts->norm.out_bf16, .x_stride = c->hidden, .norm = norm};
    struct projection projections[3];
    size_t raw_stride = (c->heads + c->kv_heads) * c->head_dim;
    bool has_norm = ash_qk_norm_is_in(step->model, layer);
    bool is_bf16 = acts->qkv_bf16 != NULL && !has_norm; /* the rotation reads the products' output */

    ash_assert(c->attn == ASH_ATTN_GROUPED);
    if (c->is_eagle) group.x_stride = 2 * c->hidden;
    group.out_count = list_projections(step, layer, projections);
    for (size_t i = 0; i < group.out_count; i++) {
        bool raw = has_norm && i < 2;
        struct ash_linear_out *out = &group.outs[i];

        *out = (struct ash_linear_out){.weight = projections[i].weight,
                                       .bias = projections[i].bias,
                                       .y_stride = raw ? raw_stride : step->acts->q_stride};
        if (is_bf16)
            out->y_bf16 = acts->qkv_bf16 + projections[i].column;
        else
            out->y = (raw ? acts->qk_raw : acts->rows.q) + projections[i].column;
    }
    if (c->form.qkv_by_head) group.outs[0].y = step->acts->scratch.by_head;
    if (c->form.out_gate) {
        group.outs[0].y = acts->q_gate;
        group.outs[0].y_stride = 2 * c->heads * c->head_dim;
    }
    ash_linear_project(step, &group);
    if (c->form.out_gate)
        ash_out_gate_copy_queries(step, acts->q_gate, has_norm ? acts->qk_raw : acts->rows.q,
                                  has_norm ? raw_stride : step->acts->q_stride, false);
    if (c->form.qkv_by_head) copy_by_head(step, acts->rows.q, false);
    finish_rows(step, layer, is_bf16);
}

uint16_t *ash_attn_grouped_rounded(const struct ash_pass_step *step, size_t layer)
{
    struct projection projections[3];
    size_t count = list_projections(step, layer, projections);

    for (size_t i = 0; i < count; i++)
        if (projections[i].bias != ASH_NO_PARAM) return NULL;
    return step->acts->scratch.dqkv_bf16;
}

struct ash_rope_heads ash_attn_grouped_heads(const struct ash_pass_step *step, size_t layer, uint16_t *rounded)
{
    const struct ash_model_config *c = &step->model->config;

    return (struct ash_rope_heads){c->heads + c->kv_heads, c->head_dim, step->acts->q_stride, rounded, layer};
}

/* From the gradients of attention's rows to those of the products. */
static void begin_rows(const struct ash_pass_step *step, struct ash_grad_sink *sink, size_t layer, uint16_t *rounded)
{
    const struct ash_model_config *c = &step->model->config;
    struct ash_scratch *s = &step->acts->scratch;
    bool has_norm = ash_qk_norm_is_in(step->model, layer);

    ash_assert(layer < c->layers);
    ash_rope_temper(step, s->dattn.q, ash_attn_grouped_heads(step, layer, NULL), true);
    if (!s->has_dqkv && !c->form.qk_norm_last)
        ash_rope_apply(step, s->dattn.q, ash_attn_grouped_heads(step, layer, rounded), true);
    s->has_dqkv = false;
    if (has_norm) ash_qk_norm_backward(step, sink, layer);
    if (has_norm && c->form.qk_norm_last) ash_rope_apply(step, s->dqk_raw, raw_heads(step, layer), true);
}

void ash_attn_grouped_backward(const struct ash_pass_step *step, struct ash_grad_sink *sink, size_t layer,
                               const float *x)
{
    const struct ash_model_config *c = &step->model->config;
    struct ash_scratch *s = &step->acts->scratch;
    struct ash_column_parallel columns = {.rows = step->rows,
                                          .in = c->hidden,
                                          .seq_rows = step->seq_rows,
                                          .x = x,
                                          .x_bf16 = step->acts->layers[layer].attn.norm.out_bf16,
                                          .dx = s->dnorm,
                                          .dx_bf16 = step->acts->is_bf16 ? (void *)s->dnorm : NULL,
                                          .shared_rows = step->axes->shared_grads};
    struct projection projections[3];
    size_t raw_stride = (c->heads + c->kv_heads) * c->head_dim;
    bool has_norm = ash_qk_norm_is_in(step->model, layer);
    uint16_t *rounded = ash_attn_grouped_rounded(step, layer);

    ash_assert(c->attn == ASH_ATTN_GROUPED && s->dnorm != NULL && (!c->form.qkv_by_head || rounded == NULL));
    columns.count = list_projections(step, layer, projections);
    begin_rows(step, sink, layer, rounded);
    for (size_t i = 0; i < columns.count; i++) {
        bool raw = has_norm && i < 2;
        columns.outputs[i] = (struct ash_column_output){
            projections[i].weight, projections[i].bias, (raw ? s->dqk_raw : s->dattn.q) + projections[i].column,
            raw ? raw_stride : step->acts->q_stride, rounded != NULL ? rounded + projections[i].column : NULL};
    }
    if (c->form.qkv_by_head) {
        copy_by_head(step, s->dattn.q, true);
        columns.outputs[0].dy = s->by_head;
    }
    if (c->form.out_gate) {
        ash_out_gate_copy_queries(step, s->dq_gate, has_norm ? s->dqk_raw : s->dattn.q, columns.outputs[0].dy_stride,
                                  true);
        columns.outputs[0].dy = s->dq_gate;
        columns.outputs[0].dy_stride = 2 * c->heads * c->head_dim;
    }
    s->dnorm_is_bf16 = ash_column_parallel_backward(step, sink, &columns);
}
