/* The attention block: norm, q k v of either kind, attention over documents or cache, output projection, residual. */
#include "model/pass/pass_priv.h"

#include "base/assert.h"

/* ---- norms ------------------------------------------------------------------------------------------------------- */

/* What both directions of a norm over the stream have in common. */
static struct ash_norm_args stream_norm(const struct ash_pass *pass, int32_t weight, int32_t bias, const float *x,
                                        const struct ash_norm_acts *acts)
{
    const struct ash_model_config *c = &pass->model->config;

    return (struct ash_norm_args){.rows = pass->own.count,
                                  .groups = 1,
                                  .cols = c->hidden,
                                  .x_stride = c->hidden,
                                  .y_stride = c->hidden,
                                  .x = x,
                                  .weight = ash_model_vector(pass->model, weight),
                                  .bias = ash_model_vector(pass->model, bias),
                                  .eps = (float)c->norm_eps,
                                  .rstd = acts->rstd,
                                  .mean = acts->mean};
}

void ash_norm_block_forward(struct ash_pass *pass, int32_t weight, int32_t bias, const float *x,
                            struct ash_norm_acts *acts)
{
    struct ash_norm_args args = stream_norm(pass, weight, bias, x, acts);

    args.y = acts->out;
    if (pass->model->config.norm == ASH_NORM_RMS)
        pass->exec->ops->norm->rms_forward(pass->exec, &args);
    else
        pass->exec->ops->norm->layer_forward(pass->exec, &args);
}

bool ash_pass_fuses_norm(const struct ash_pass *pass)
{
    return !pass->opts.backward && pass->tp.size == 1 && pass->model->config.norm == ASH_NORM_RMS;
}

void ash_stream_add(struct ash_pass *pass, struct ash_linear_group *group, const float *before, float *behind)
{
    size_t hidden = pass->model->config.hidden;

    group->residual = before == behind && pass->tp.size == 1;
    group->outs[0].y = group->residual ? behind : pass->scratch.residual;
    group->outs[0].y_stride = hidden;
    if (pass->tp.size == 1)
        ash_linear_project(pass->model, pass->exec, group);
    else
        ash_rows_forward(pass, group->outs[0].weight, group->outs[0].bias, group->x, group->x_stride, group->outs[0].y);
    if (!group->residual)
        pass->exec->ops->row->add(pass->exec, before, group->outs[0].y, pass->own.count * hidden, behind);
}

void ash_norm_block_backward(struct ash_pass *pass, int32_t weight, int32_t bias, const float *x,
                             const struct ash_norm_acts *acts, const float *dnorm, bool add, float *dx)
{
    struct ash_norm_args args = stream_norm(pass, weight, bias, x, acts);

    args.dy = dnorm;
    args.dx = dx;
    args.dx_add = add;
    args.dweight = ash_grad_begin(pass, weight, ASH_GRAD_STREAM);
    args.dbias = ash_grad_begin(pass, bias, ASH_GRAD_STREAM);
    if (pass->model->config.norm == ASH_NORM_RMS)
        pass->exec->ops->norm->rms_backward(pass->exec, &args);
    else
        pass->exec->ops->norm->layer_backward(pass->exec, &args);
    ash_grad_end_both(pass, weight, bias, ASH_GRAD_STREAM);
}

/* ---- attention proper -------------------------------------------------------------------------------------------- */

static struct ash_attn_args attention_args(struct ash_pass *pass, size_t layer, size_t part)
{
    const struct ash_model_config *c = &pass->model->config;
    struct ash_attn_view view = ash_attn_view(pass, layer, part);

    return (struct ash_attn_args){
        .heads = view.heads,
        .kv_heads = view.kv_heads,
        .dim_k = c->head_dim,
        .dim_v = pass->v_dim,
        .scale = (float)(c->attn_scale / (c->scale_by_layer ? (double)(pass->model->layer_ids[layer] + 1) : 1)),
        .window = c->window[layer],
        .kv_dtype = ASH_F32,
        .q_stride = view.q_stride,
        .k_stride = view.k_stride,
        .v_stride = view.v_stride,
        .out_stride = view.out_stride,
        .q = view.q,
        .out = view.out,
        .lse = view.lse,
        .dout = view.dout,
        .dq = view.dq,
        .seqs = pass->seqs,
        .seq_count = pass->batch->doc_count};
}

/* Point every document at its own rows of k and v (and their gradients). */
static void point_at_batch(struct ash_pass *pass, size_t layer, size_t part)
{
    struct ash_attn_view view = ash_attn_view(pass, layer, part);

    for (size_t i = 0; i < pass->batch->doc_count; i++) {
        const struct ash_doc *doc = &pass->batch->docs[i];
        pass->seqs[i] = (struct ash_attn_seq){.q_row = doc->row,
                                              .q_count = doc->count,
                                              .pos = doc->pos,
                                              .k = view.k + doc->row * view.k_stride,
                                              .v = view.v + doc->row * view.v_stride};
        if (view.dk == NULL) continue;
        pass->seqs[i].dk = view.dk + doc->row * view.k_stride;
        pass->seqs[i].dv = view.dv + doc->row * view.v_stride;
    }
}

static void attend(struct ash_pass *pass, size_t layer)
{
    ash_attn_spread(pass, layer);
    for (size_t part = 0; part < ash_attn_parts(pass); part++) {
        struct ash_attn_args args = attention_args(pass, layer, part);

        ash_attn_await(pass, part);
        point_at_batch(pass, layer, part);
        if (pass->cache != NULL) ash_cache_write(pass, layer, &args);
        pass->exec->ops->attn->forward(pass->exec, &args);
        ash_attn_return(pass, layer, part);
    }
    ash_attn_collect(pass, layer);
}

/* From the gradient of attention's output to those of q, k and v. */
static void attend_backward(struct ash_pass *pass, size_t layer)
{
    ash_attn_clear_sums(pass, layer);
    ash_attn_spread_back(pass);
    for (size_t part = 0; part < ash_attn_parts(pass); part++) {
        struct ash_attn_args args = attention_args(pass, layer, part);

        ash_attn_await(pass, part);
        point_at_batch(pass, layer, part);
        pass->exec->ops->attn->backward(pass->exec, &args);
        ash_attn_return_back(pass, part);
    }
    ash_attn_collect_back(pass);
}

/* ---- the block --------------------------------------------------------------------------------------------------- */

static void norm_forward(struct ash_pass *pass, size_t layer, const float *in)
{
    const struct ash_layer *params = &pass->model->layers[layer];

    ash_norm_block_forward(pass, params->param[ASH_ROLE_NORM1], params->param[ASH_ROLE_NORM1_BIAS], in,
                           &pass->layers[layer].attn.norm);
}

void ash_attn_block_forward(struct ash_pass *pass, size_t layer, const float *in, float *mid)
{
    const struct ash_model_config *c = &pass->model->config;
    const struct ash_layer *params = &pass->model->layers[layer];
    struct ash_attn_acts *acts = &pass->layers[layer].attn;
    bool fused = ash_pass_fuses_norm(pass) && c->attn == ASH_ATTN_GROUPED;
    const float *x = in;

    if (!fused) {
        norm_forward(pass, layer, in);
        x = ash_stream_gather(pass, acts->norm.out, pass->scratch.x_all);
    }
    if (c->attn == ASH_ATTN_LATENT)
        ash_attn_latent_forward(pass, layer, x);
    else
        ash_attn_grouped_forward(pass, layer, x, fused ? params->param[ASH_ROLE_NORM1] : ASH_NO_PARAM);
    attend(pass, layer);
    ash_stream_add(pass,
                   &(struct ash_linear_group){
                       .rows = pass->rows,
                       .x = acts->out,
                       .x_stride = c->heads * pass->v_dim,
                       .norm = ASH_NO_PARAM,
                       .out_count = 1,
                       .outs[0] = {.weight = params->param[ASH_ROLE_OUT], .bias = params->param[ASH_ROLE_OUT_BIAS]}},
                   in, mid);
}

void ash_attn_block_backward(struct ash_pass *pass, size_t layer)
{
    const struct ash_model_config *c = &pass->model->config;
    const struct ash_layer *params = &pass->model->layers[layer];
    struct ash_layer_acts *acts = &pass->layers[layer];
    struct ash_scratch *s = &pass->scratch;
    size_t width = c->heads * pass->v_dim;
    const float *dy = ash_stream_gather(pass, s->dx, s->dy_all);

    if (pass->opts.recompute == ASH_RECOMPUTE_SELECTIVE) norm_forward(pass, layer, acts->in);
    ash_pass_linear_backward(pass, params->param[ASH_ROLE_OUT], params->param[ASH_ROLE_OUT_BIAS],
                             &(struct ash_linear_io){.rows = pass->rows,
                                                     .x = acts->attn.out,
                                                     .x_stride = width,
                                                     .dy = dy,
                                                     .dy_stride = c->hidden,
                                                     .dx = s->dattn,
                                                     .dx_stride = width,
                                                     .seq_rows = pass->seq_rows,
                                                     .among_all = pass->shares_sums});
    attend_backward(pass, layer);
    const float *x = ash_stream_again(pass, acts->attn.norm.out, s->x_all);
    if (c->attn == ASH_ATTN_LATENT)
        ash_attn_latent_backward(pass, layer, x);
    else
        ash_attn_grouped_backward(pass, layer, x);
    ash_stream_turn(pass);
    ash_norm_block_backward(pass, params->param[ASH_ROLE_NORM1], params->param[ASH_ROLE_NORM1_BIAS], acts->in,
                            &acts->attn.norm, s->dnorm, true, s->dx);
}
