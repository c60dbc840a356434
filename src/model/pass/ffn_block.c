/* The feed-forward block: norm, a gated (silu) or plain (gelu) feed-forward or a layer of experts, residual. */
#include "model/pass/pass_priv.h"

static enum ash_gelu gelu_kind(const struct ash_pass *pass)
{
    return pass->model->config.mlp == ASH_MLP_GELU_TANH ? ASH_GELU_TANH : ASH_GELU_ERF;
}

void ash_ffn_activate(struct ash_pass *pass, const struct ash_ffn_acts *acts, size_t count)
{
    const struct ash_act_ops *act = pass->exec->ops->act;

    if (acts->gate != NULL)
        act->swiglu_forward(pass->exec, acts->gate, acts->up, count, acts->hidden);
    else
        act->gelu_forward(pass->exec, gelu_kind(pass), acts->up, count, acts->hidden);
}

/* From the rows of x (normed first, if norm is a parameter) to acts->hidden. */
static void ffn_inner(struct ash_pass *pass, const struct ash_ffn_params *params, size_t rows, const float *x,
                      int32_t norm, const struct ash_ffn_acts *acts, size_t width)
{
    struct ash_linear_group group = {.rows = rows,
                                     .x = x,
                                     .x_stride = pass->model->config.hidden,
                                     .norm = norm,
                                     .out_count = acts->gate != NULL ? 2 : 1};

    group.outs[0] = (struct ash_linear_out){params->gate, params->gate_bias, acts->gate, width};
    group.outs[group.out_count - 1] = (struct ash_linear_out){params->up, params->up_bias, acts->up, width};
    group.swiglu = acts->gate != NULL && !pass->opts.backward &&
                   ash_linear_alike(pass->model, pass->exec, params->gate, params->up);
    if (group.swiglu) group.outs[0].y = acts->hidden; /* nobody reads gate and up */
    ash_linear_project(pass->model, pass->exec, &group);
    if (!group.swiglu) ash_ffn_activate(pass, acts, rows * width);
}

/* Are its columns dealt out along tp? */
static bool is_shared(const struct ash_pass *pass, const struct ash_ffn_params *params)
{
    return pass->tp.size > 1 && !params->expert;
}

void ash_ffn_forward(struct ash_pass *pass, const struct ash_ffn_params *params, size_t rows, const float *x,
                     const struct ash_ffn_acts *acts, size_t width, float *y)
{
    ffn_inner(pass, params, rows, x, ASH_NO_PARAM, acts, width);
    if (is_shared(pass, params)) {
        ash_rows_forward(pass, params->down, params->down_bias, acts->hidden, width, y);
        return;
    }
    ash_linear_forward(
        pass->model, pass->exec, params->down, params->down_bias,
        &(struct ash_linear_io){
            .rows = rows, .x = acts->hidden, .x_stride = width, .y = y, .y_stride = pass->model->config.hidden});
}

void ash_ffn_backward(struct ash_pass *pass, const struct ash_ffn_params *params, size_t rows, const float *x,
                      const struct ash_ffn_acts *acts, const struct ash_ffn_acts *dacts, size_t width, const float *dy,
                      float *dx)
{
    const struct ash_act_ops *act = pass->exec->ops->act;
    size_t hidden = pass->model->config.hidden, seq_rows = params->expert ? 0 : pass->seq_rows;
    bool among_all = pass->shares_sums && !params->expert;
    struct ash_columns columns = {
        .rows = rows, .in = hidden, .seq_rows = seq_rows, .x = x, .dx = dx, .among_all = among_all};

    ash_pass_linear_backward(pass, params->down, params->down_bias,
                             &(struct ash_linear_io){.rows = rows,
                                                     .x = acts->hidden,
                                                     .x_stride = width,
                                                     .dy = dy,
                                                     .dy_stride = hidden,
                                                     .dx = dacts->hidden,
                                                     .dx_stride = width,
                                                     .seq_rows = seq_rows,
                                                     .among_all = among_all});
    if (among_all) ash_parts_await(pass); /* the layer behind this one had its gradients in the same place */
    if (acts->gate != NULL) {
        act->swiglu_backward(pass->exec, acts->gate, acts->up, dacts->hidden, rows * width, dacts->gate, dacts->up);
        columns.columns[columns.count++] = (struct ash_column){params->gate, params->gate_bias, dacts->gate, width};
    } else {
        act->gelu_backward(pass->exec, gelu_kind(pass), acts->up, dacts->hidden, rows * width, dacts->up);
    }
    columns.columns[columns.count++] = (struct ash_column){params->up, params->up_bias, dacts->up, width};
    ash_columns_backward(pass, &columns);
}

void ash_ffn_place(struct ash_pass *pass)
{
    const struct ash_model_config *c = &pass->model->config;

    for (size_t i = 0; pass->shares_sums && i < c->layers; i++) {
        struct ash_layer_acts *acts = &pass->layers[i];

        if (acts->ffn.hidden_all != NULL) acts->ffn.hidden = acts->ffn.hidden_all + pass->first_row * c->ffn;
        if (acts->moe.shared.hidden_all != NULL)
            acts->moe.shared.hidden = acts->moe.shared.hidden_all + pass->first_row * c->expert.shared_ffn;
    }
}

struct ash_ffn_acts ash_ffn_gradients(const struct ash_pass *pass, size_t width)
{
    struct ash_ffn_acts acts = pass->scratch.dffn;
    size_t skip = pass->shares_sums ? pass->first_row * width : 0;

    if (acts.gate != NULL) acts.gate += skip;
    acts.up += skip;
    return acts;
}

/* ---- the block --------------------------------------------------------------------------------------------------- */

static struct ash_ffn_params dense_params(const struct ash_layer *layer)
{
    return (struct ash_ffn_params){layer->param[ASH_ROLE_GATE],
                                   layer->param[ASH_ROLE_GATE_BIAS],
                                   layer->param[ASH_ROLE_UP],
                                   layer->param[ASH_ROLE_UP_BIAS],
                                   layer->param[ASH_ROLE_DOWN],
                                   layer->param[ASH_ROLE_DOWN_BIAS],
                                   false};
}

static void norm_forward(struct ash_pass *pass, size_t layer, const float *mid)
{
    const struct ash_layer *params = &pass->model->layers[layer];

    ash_norm_block_forward(pass, params->param[ASH_ROLE_NORM2], params->param[ASH_ROLE_NORM2_BIAS], mid,
                           &pass->layers[layer].ffn_norm);
}

static void experts_forward(struct ash_pass *pass, size_t layer, const float *mid, float *out)
{
    struct ash_scratch *s = &pass->scratch;

    norm_forward(pass, layer, mid);
    ash_moe_forward(pass, layer, ash_stream_gather(pass, pass->layers[layer].ffn_norm.out, s->x_all), s->residual);
    pass->exec->ops->row->add(pass->exec, mid, s->residual, pass->own.count * pass->model->config.hidden, out);
}

void ash_ffn_block_forward(struct ash_pass *pass, size_t layer, const float *mid, float *out)
{
    const struct ash_model_config *c = &pass->model->config;
    const struct ash_layer *layer_params = &pass->model->layers[layer];
    struct ash_layer_acts *acts = &pass->layers[layer];
    struct ash_ffn_params params = dense_params(layer_params);
    bool fused = ash_pass_fuses_norm(pass);
    const float *x = mid;

    if (c->sparse[layer]) {
        experts_forward(pass, layer, mid, out);
        return;
    }
    if (!fused) {
        norm_forward(pass, layer, mid);
        x = ash_stream_gather(pass, acts->ffn_norm.out, pass->scratch.x_all);
    }
    ffn_inner(pass, &params, pass->rows, x, fused ? layer_params->param[ASH_ROLE_NORM2] : ASH_NO_PARAM, &acts->ffn,
              c->ffn);
    ash_stream_add(pass,
                   &(struct ash_linear_group){.rows = pass->rows,
                                              .x = acts->ffn.hidden,
                                              .x_stride = c->ffn,
                                              .norm = ASH_NO_PARAM,
                                              .out_count = 1,
                                              .outs[0] = {.weight = params.down, .bias = params.down_bias}},
                   mid, out);
}

void ash_ffn_block_backward(struct ash_pass *pass, size_t layer)
{
    const struct ash_model_config *c = &pass->model->config;
    const struct ash_layer *layer_params = &pass->model->layers[layer];
    struct ash_layer_acts *acts = &pass->layers[layer];
    struct ash_scratch *s = &pass->scratch;
    const float *dy = ash_stream_gather(pass, s->dx, s->dy_all), *x;

    if (pass->opts.recompute == ASH_RECOMPUTE_SELECTIVE) norm_forward(pass, layer, acts->mid);
    x = ash_stream_again(pass, acts->ffn_norm.out, s->x_all);
    if (c->sparse[layer]) {
        ash_moe_backward(pass, layer, x, dy, s->dnorm);
    } else {
        struct ash_ffn_params params = dense_params(layer_params);
        struct ash_ffn_acts dacts = ash_ffn_gradients(pass, c->ffn);
        if (pass->opts.recompute == ASH_RECOMPUTE_SELECTIVE) ash_ffn_activate(pass, &acts->ffn, pass->rows * c->ffn);
        ash_ffn_backward(pass, &params, pass->rows, x, &acts->ffn, &dacts, c->ffn, dy, s->dnorm);
    }
    ash_stream_turn(pass);
    ash_norm_block_backward(pass, layer_params->param[ASH_ROLE_NORM2], layer_params->param[ASH_ROLE_NORM2_BIAS],
                            acts->mid, &acts->ffn_norm, s->dnorm, true, s->dx);
}
