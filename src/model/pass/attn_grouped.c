/* Grouped-query attention's projections: q, k, v as columns of one row, optional per-head norms, rotary positions. */
#include "model/pass/pass_priv.h"

/* A projection: its parameters, and the columns of a row that it fills. */
struct projection {
    int32_t weight, bias;
    size_t column, width;
};

static size_t list_projections(const struct ash_pass *pass, size_t layer, struct projection out[3])
{
    const struct ash_model_config *c = &pass->model->config;
    const int32_t *p = pass->model->layers[layer].param;
    size_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;

    if (p[ASH_ROLE_QKV] != ASH_NO_PARAM) {
        out[0] = (struct projection){p[ASH_ROLE_QKV], p[ASH_ROLE_QKV_BIAS], 0, q + 2 * kv};
        return 1;
    }
    out[0] = (struct projection){p[ASH_ROLE_Q], p[ASH_ROLE_Q_BIAS], 0, q};
    out[1] = (struct projection){p[ASH_ROLE_K], p[ASH_ROLE_K_BIAS], q, kv};
    out[2] = (struct projection){p[ASH_ROLE_V], p[ASH_ROLE_V_BIAS], q + kv, kv};
    return 3;
}

void ash_attn_grouped_forward(struct ash_pass *pass, size_t layer, const float *x, int32_t norm)
{
    const struct ash_model_config *c = &pass->model->config;
    struct ash_attn_acts *acts = &pass->layers[layer].attn;
    struct ash_linear_group group = {.rows = pass->rows, .x = x, .x_stride = c->hidden, .norm = norm};
    struct projection projections[3];
    size_t raw_stride = (c->heads + c->kv_heads) * c->head_dim;

    group.out_count = list_projections(pass, layer, projections);
    for (size_t i = 0; i < group.out_count; i++) {
        bool raw = c->qk_norm && i < 2;
        group.outs[i] = (struct ash_linear_out){projections[i].weight, projections[i].bias,
                                                (raw ? acts->qk_raw : acts->q) + projections[i].column,
                                                raw ? raw_stride : pass->q_stride};
    }
    ash_linear_project(pass->model, pass->exec, &group);
    if (c->qk_norm) ash_head_norm_forward(pass, layer);
    if (pass->cache != NULL) return; /* ash_cache_write does the rest as it goes over the rows */
    /* k's heads follow q's in the row, so one call rotates both */
    ash_pass_rope(pass, acts->q, c->heads + c->kv_heads, c->head_dim, pass->q_stride, false);
    if (pass->model->round_bf16)
        pass->exec->ops->row->round_bf16(pass->exec, acts->q, pass->rows * pass->q_stride, acts->q);
}

void ash_attn_grouped_backward(struct ash_pass *pass, size_t layer, const float *x)
{
    const struct ash_model_config *c = &pass->model->config;
    struct ash_scratch *s = &pass->scratch;
    struct ash_columns columns = {.rows = pass->rows,
                                  .in = c->hidden,
                                  .seq_rows = pass->seq_rows,
                                  .x = x,
                                  .dx = s->dnorm,
                                  .among_all = pass->shares_sums};
    struct projection projections[3];
    size_t raw_stride = (c->heads + c->kv_heads) * c->head_dim;

    ash_pass_rope(pass, s->dq, c->heads + c->kv_heads, c->head_dim, pass->q_stride, true);
    if (c->qk_norm) ash_head_norm_backward(pass, layer);
    columns.count = list_projections(pass, layer, projections);
    for (size_t i = 0; i < columns.count; i++) {
        bool raw = c->qk_norm && i < 2;
        columns.columns[i] =
            (struct ash_column){projections[i].weight, projections[i].bias,
                                (raw ? s->dqk_raw : s->dq) + projections[i].column, raw ? raw_stride : pass->q_stride};
    }
    ash_columns_backward(pass, &columns);
}
