/* attn_block: attention over the documents of a batch, with its norm, output projection and residual. */
#include "model/pass/attn_block.h"

#include "base/assert.h"
#include "model/pass/attn_qkv.h"
#include "model/pass/attn_ulysses.h"
#include "model/pass/gather.h"
#include "model/pass/cache_step.h"
#include "model/pass/ffn_block.h"
#include "model/pass/join.h"
#include "model/pass/linear_grads.h"
#include "model/pass/norm.h"
#include "model/pass/out_gate.h"
#include "model/pass/parallel_linear.h"
#include "model/pass/rope.h"
#include "model/pass/stream.h"

/* ---- attention proper -------------------------------------------------------------------------------------------- */

static struct ash_attn_args attention_args(const struct ash_pass_step *step, size_t layer,
                                           const struct ash_attn_view *view)
{
    const struct ash_model_config *c = &step->model->config;

    ash_assert(layer < step->model->config.layers);
    const struct ash_attn_acts *acts = &step->acts->layers[layer].attn;

    return (struct ash_attn_args){
        .heads = view->heads,
        .kv_heads = view->kv_heads,
        .dim_k = c->head_dim,
        .dim_v = step->acts->v_dim,
        .scale = (float)(c->attn_scale / (c->scale_by_layer ? (double)(step->model->layer_ids[layer] + 1) : 1)),
        .window = c->form.chunked ? 0 : c->window[layer],
        .chunk = c->form.chunked ? c->window[layer] : 0,
        .both_ways = c->form.both_ways,
        .cap = (float)c->form.score_cap,
        .round_bf16 = step->model->round_bf16,
        .kv_dtype = acts->qkv_bf16 != NULL ? ASH_BF16 : ASH_F32,
        .q_stride = view->q_stride,
        .k_stride = view->k_stride,
        .v_stride = view->v_stride,
        .out_stride = view->out_stride,
        .q = view->q,
        .q_bf16 = acts->qkv_bf16,
        .out = view->out,
        .out_bf16 = acts->out_bf16,
        .lse = view->lse,
        .dout = view->dout,
        .dout_bf16 = step->acts->scratch.dattn_out_bf16,
        .dq = view->dq,
        .seqs = step->seqs,
        .seq_count = step->batch->doc_count};
}

/* Rows that are not there have no address. */
static const float *row_of(const float *rows, size_t row, size_t stride)
{
    return rows != NULL ? rows + row * stride : NULL;
}

/* Point every document at its own rows of k and v (and their gradients). rounded: q, k and v as rows of bf16, or
 * NULL. */
static void point_at_batch(const struct ash_pass_step *step, const struct ash_attn_view *view, const uint16_t *rounded)
{
    const uint16_t *k = rounded != NULL ? rounded + (view->k - view->q) : NULL;
    const uint16_t *v = rounded != NULL ? rounded + (view->v - view->q) : NULL;

    for (size_t i = 0; i < step->batch->doc_count; i++) {
        const struct ash_doc *doc = &step->batch->docs[i];

        step->seqs[i] = (struct ash_attn_seq){.q_row = doc->row,
                                              .q_count = doc->count,
                                              .pos = doc->pos,
                                              .k = row_of(view->k, doc->row, view->k_stride),
                                              .v = row_of(view->v, doc->row, view->v_stride)};
        if (rounded != NULL) {
            step->seqs[i].k = k + doc->row * view->k_stride;
            step->seqs[i].v = v + doc->row * view->v_stride;
        }
        if (view->dk == NULL) continue;
        step->seqs[i].dk = view->dk + doc->row * view->k_stride;
        step->seqs[i].dv = view->dv + doc->row * view->v_stride;
    }
}

/* Sinks come after attention proper: what they take is a factor on a head's row. */
static struct ash_sink_args sink_args(const struct ash_pass_step *step, size_t layer, const struct ash_attn_args *args)
{
    int32_t sinks = step->model->layers[layer].param[ASH_ROLE_SINKS];

    ash_assert(step->axes->cp.size == 1);
    return (struct ash_sink_args){.rows = step->rows,
                                  .heads = args->heads,
                                  .dim = args->dim_v,
                                  .stride = args->out_stride,
                                  .sinks = ash_model_vector(step->model, sinks),
                                  .out = args->out,
                                  .lse = args->lse,
                                  .dout = args->dout};
}

static void sink_forward(const struct ash_pass_step *step, size_t layer, const struct ash_attn_args *args)
{
    struct ash_sink_args sink;

    ash_assert(layer < step->model->config.layers);
    if (!ash_layer_has(&step->model->layers[layer], ASH_ROLE_SINKS)) return;
    sink = sink_args(step, layer, args);
    step->exec->ops->family->sink_forward(step->exec, &sink);
}

static void sink_backward(const struct ash_pass_step *step, struct ash_grad_sink *sink, size_t layer,
                          const struct ash_attn_args *args)
{
    int32_t param = step->model->layers[layer].param[ASH_ROLE_SINKS];
    struct ash_sink_args sinks;

    ash_assert(layer < step->model->config.layers);
    if (param == ASH_NO_PARAM) return;
    sinks = sink_args(step, layer, args);
    sinks.dsinks = ash_grad_acquire(sink, param, ASH_GRAD_ALL);
    if (sinks.dsinks != NULL) step->exec->ops->family->sink_backward(step->exec, &sinks);
    ash_grad_release(sink, param, ASH_GRAD_ALL);
}

static void attend(const struct ash_pass_step *step, size_t layer)
{
    ash_ulysses_scatter_heads(step, layer);
    for (size_t chunk = 0; chunk < ash_ulysses_chunks(step); chunk++) {
        struct ash_attn_view view = ash_ulysses_view(step, layer, chunk);
        struct ash_attn_args args = attention_args(step, layer, &view);

        ash_ulysses_wait(step, chunk);
        point_at_batch(step, &view, args.q_bf16);
        if (step->cache != NULL) ash_cache_write(step, layer, &args);
        step->exec->ops->attn->forward(step->exec, &args);
        sink_forward(step, layer, &args);
        ash_ulysses_gather_heads(step, layer, chunk);
    }
    ash_ulysses_gather_heads_wait(step, layer);
}

/* To the rounded gradients of q, k and v before their positions, if the backend does both at once. */
static bool attend_backward_rounded(const struct ash_pass_step *step, size_t layer)
{
    const struct ash_model_config *c = &step->model->config;
    struct ash_scratch *s = &step->acts->scratch;
    struct ash_attn_view view;
    struct ash_attn_args args;
    struct ash_rope_args rope;
    uint16_t *rounded;

    if (step->exec->ops->attn->backward_rounded == NULL || c->attn != ASH_ATTN_GROUPED || c->form.qk_norm) return false;
    if (!ash_rope_is_in(step->model, layer) || step->axes->cp.size > 1) return false;
    rounded = ash_attn_grouped_rounded(step, layer);
    if (rounded == NULL) return false;
    view = ash_ulysses_view(step, layer, 0);
    args = attention_args(step, layer, &view);
    point_at_batch(step, &view, args.q_bf16);
    rope = ash_rope_args_of(step, s->dattn.q, ash_attn_grouped_heads(step, layer, rounded), true);
    s->has_dqkv = step->exec->ops->attn->backward_rounded(step->exec, &args, &rope);
    return s->has_dqkv;
}

/* From the gradient of attention's output to those of q, k and v. */
static void attend_backward(const struct ash_pass_step *step, struct ash_grad_sink *sink, size_t layer)
{
    if (attend_backward_rounded(step, layer)) return;
    ash_ulysses_zero_grads(step, layer);
    ash_ulysses_scatter_grads(step, sink);
    for (size_t chunk = 0; chunk < ash_ulysses_chunks(step); chunk++) {
        struct ash_attn_view view = ash_ulysses_view(step, layer, chunk);
        struct ash_attn_args args = attention_args(step, layer, &view);

        ash_ulysses_wait(step, chunk);
        point_at_batch(step, &view, args.q_bf16);
        step->exec->ops->attn->backward(step->exec, &args);
        sink_backward(step, sink, layer, &args);
        ash_ulysses_gather_grads(step, chunk);
    }
    ash_ulysses_gather_grads_wait(step, sink);
}

/* ---- the block --------------------------------------------------------------------------------------------------- */

static struct ash_norm_params norm_params(const struct ash_pass_step *step, size_t layer)
{
    const int32_t *param = step->model->layers[layer].param;

    return (struct ash_norm_params){param[ASH_ROLE_NORM1], param[ASH_ROLE_NORM1_BIAS]};
}

/* What the projections read, where they do no norm themselves. */
static const float *projected_rows(const struct ash_pass_step *step, size_t layer, const float *in)
{
    struct ash_attn_acts *acts = &step->acts->layers[layer].attn;

    ash_assert(layer < step->model->config.layers);
    if (step->model->config.is_eagle) return step->acts->scratch.fused;
    if (!ash_config_has_state(&step->model->config, layer)) /* which has made the norm */
        ash_norm_forward(step, norm_params(step, layer), in, &acts->norm);
    return ash_stream_gather(step, acts->norm.out, step->acts->scratch.x_gathered);
}

void ash_attn_block_forward(const struct ash_pass_step *step, size_t layer, const float *in, float *mid)
{
    const struct ash_model_config *c = &step->model->config;
    const struct ash_layer *params = &step->model->layers[layer];
    struct ash_attn_acts *acts = &step->acts->layers[layer].attn;
    bool is_fused =
        ash_norm_is_fused(step) && c->attn == ASH_ATTN_GROUPED && !ash_config_has_state(c, layer) && !c->is_eagle;
    const float *x = is_fused ? in : projected_rows(step, layer, in);

    ash_assert(layer < c->layers && step->rows > 0 && in != NULL && mid != NULL);
    if (c->attn == ASH_ATTN_LATENT)
        ash_attn_latent_forward(step, layer, x);
    else
        ash_attn_grouped_forward(step, layer, x, is_fused ? params->param[ASH_ROLE_NORM1] : ASH_NO_PARAM);
    attend(step, layer);
    if (c->form.out_gate) ash_out_gate_forward(step, layer);
    ash_join_product(step, layer, ASH_BLOCK_ATTN,
                     &(struct ash_linear_group){
                         .rows = step->rows,
                         .x = acts->out_bf16 != NULL ? NULL
                              : c->form.out_gate     ? acts->gated
                                                     : ash_gather_heads(step, acts->rows.out),
                         .x_bf16 = acts->out_bf16,
                         .x_stride = (ash_gathers(step) ? step->model->whole.heads : c->heads) * step->acts->v_dim,
                         .norm = ASH_NO_PARAM,
                         .out_count = 1,
                         .outs[0] = {.weight = params->param[ASH_ROLE_OUT], .bias = params->param[ASH_ROLE_OUT_BIAS]}},
                     in, mid);
}

void ash_attn_block_backward(const struct ash_pass_step *step, struct ash_grad_sink *sink, size_t layer)
{
    const struct ash_model_config *c = &step->model->config;
    const struct ash_layer *params = &step->model->layers[layer];
    struct ash_layer_acts *acts = &step->acts->layers[layer];
    struct ash_scratch *s = &step->acts->scratch;
    size_t width = c->heads * step->acts->v_dim;
    const float *dy, *x;

    ash_assert(layer < c->layers && step->rows > 0);
    dy = ash_join_backward(step, sink, layer, ASH_BLOCK_ATTN);
    if (ash_norm_is_recomputed(step, &acts->attn.norm))
        ash_norm_forward(step, norm_params(step, layer), acts->in, &acts->attn.norm);
    ash_linear_backward(step, sink, params->param[ASH_ROLE_OUT], params->param[ASH_ROLE_OUT_BIAS],
                        &(struct ash_linear_io){.rows = step->rows,
                                                .x = c->form.out_gate ? acts->attn.gated : acts->attn.rows.out,
                                                .x_bf16 = acts->attn.out_bf16,
                                                .x_stride = width,
                                                .dy = dy,
                                                .dy_bf16 = s->dx_bf16,
                                                .dy_stride = c->hidden,
                                                .dx = s->dattn.out,
                                                .dx_bf16 = s->dattn_out_bf16,
                                                .dx_stride = width,
                                                .seq_rows = step->seq_rows,
                                                .shared_rows = step->axes->shared_grads});
    if (c->form.out_gate) ash_out_gate_backward(step, layer);
    attend_backward(step, sink, layer);
    x = ash_stream_gather_kept(step, acts->attn.norm.out, s->x_gathered);
    if (c->attn == ASH_ATTN_LATENT)
        ash_attn_latent_backward(step, sink, layer, x);
    else
        ash_attn_grouped_backward(step, sink, layer, x);
    ash_stream_rotate_dx(step);
    if (ash_config_has_state(c, layer))
        step->exec->ops->row->add(step->exec, s->dnorm, s->dparallel, step->own.count * c->hidden, s->dnorm);
    if (c->form.parallel) ash_ffn_block_backward_norm(step, sink, layer);
    ash_norm_backward(step, sink, norm_params(step, layer), acts->in, &acts->attn.norm, true);
}
