/* pass_run: embedding, layers, head; and the backward pass. The same forward serves training, evaluation and
 * inference. */
#include "base/assert.h"
#include "model/pass/attn_block.h"
#include "model/pass/copy.h"
#include "model/pass/ffn_block.h"
#include "model/pass/grads_shared.h"
#include "model/pass/head.h"
#include "model/pass/moe.h"
#include "model/pass/norm.h"
#include "model/pass/pass_priv.h"
#include "model/pass/split.h"
#include "model/pass/state_block.h"

/* ---- hooks ------------------------------------------------------------------------------------------------------- */

static void need(const struct ash_pass_step *step, int unit, bool backward)
{
    const struct ash_pass_hooks *hooks = &step->opts->hooks;

    if (hooks->need != NULL && step->axes->failed == 0)
        step->axes->failed = hooks->need(hooks->ctx, unit, backward, &step->axes->failure);
}

static void done(const struct ash_pass_step *step, int unit, bool backward)
{
    const struct ash_pass_hooks *hooks = &step->opts->hooks;

    if (hooks->done != NULL && step->axes->failed == 0)
        step->axes->failed = hooks->done(hooks->ctx, unit, backward, &step->axes->failure);
}

/* After the backward pass of a unit, gradients so far are complete before the hook is called. */
static void done_backward(const struct ash_pass_step *step, struct ash_grad_sink *sink, int unit)
{
    if (step->opts->hooks.done == NULL) return;
    ash_grad_flush(sink);
    ash_shared_grads_finish(sink);
    done(step, unit, true);
}

/* A tied output matrix is the embedding. */
static bool head_is_embedding(const struct ash_pass_step *step)
{
    return step->model->config.tied && ash_split_has_embed(step->model);
}

static void need_head(const struct ash_pass_step *step, bool backward)
{
    need(step, ASH_UNIT_HEAD, backward);
    if (head_is_embedding(step)) need(step, ASH_UNIT_EMBED, backward);
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

/* out: the stream after the layer, which is the stream before the next. */
static void layer_forward(const struct ash_pass_step *step, size_t layer, float *out)
{
    const struct ash_model_config *config = &step->model->config;
    const struct ash_layer_acts *acts = &step->acts->layers[layer];
    const float *in = acts->in;
    float *mixed = ash_config_has_ffn(config) ? acts->mid : out;

    ash_assert(layer < config->layers);
    if (step->rows == 0) {
        if (config->sparse[layer]) ash_moe_forward(step, layer, NULL, NULL);
        return;
    }
    if (ash_config_has_state(config, layer)) {
        ash_state_block_forward(step, layer, acts->in, mixed);
        in = mixed;
    }
    if (ash_config_attends(config, layer)) ash_attn_block_forward(step, layer, in, mixed);
    if (ash_config_has_ffn(config)) ash_ffn_block_forward(step, layer, mixed, out);
}

/* Keep the stream before a layer, if opts want it. */
static void capture(const struct ash_pass_step *step, size_t layer)
{
    const struct ash_pass_opts *opts = step->opts;
    size_t hidden = step->model->config.hidden, stride = opts->capture_count * hidden;

    for (size_t i = 0; i < opts->capture_count; i++)
        if (opts->captures[i] == layer)
            ash_copy_columns(step->exec, step->rows, hidden,
                             (struct ash_rows_from){step->acts->layers[layer].in, hidden},
                             (struct ash_rows_to){step->acts->captured + i * hidden, stride});
}

void ash_pass_run_forward(const struct ash_pass_step *step)
{
    struct ash_acts *acts = step->acts;
    size_t layers = step->model->config.layers;

    if (ash_split_has_embed(step->model)) {
        need(step, ASH_UNIT_EMBED, false);
        if (step->rows > 0) ash_embed_forward(step, acts->layers[0].in);
        done(step, ASH_UNIT_EMBED, false);
    }
    for (size_t i = 0; i < layers; i++) {
        need(step, (int)i, false);
        capture(step, i);
        layer_forward(step, i, i + 1 < layers ? acts->layers[i + 1].in : acts->final_in);
        done(step, (int)i, false);
    }
}

/* ---- the head ---------------------------------------------------------------------------------------------------- */

static struct ash_norm_params final_norm_params(const struct ash_pass_step *step)
{
    const int32_t *param = step->model->top.param;

    return (struct ash_norm_params){param[ASH_ROLE_FINAL_NORM], param[ASH_ROLE_FINAL_NORM_BIAS]};
}

/* Along cp every rank gets the losses (or entropies) of all rows. */
static void gather_losses(const struct ash_pass_step *step, float *losses)
{
    struct ash_axes *axes = step->axes;

    for (size_t r = 0; r < axes->cp.size; r++)
        axes->counts[r] = ash_split_rows_cp(axes, step->batch->rows, r).count;
    ash_axes_all_gather(axes, &axes->cp, losses, axes->counts);
}

void ash_pass_run_losses(const struct ash_pass_step *step, bool has_entropies)
{
    ash_assert(ash_split_has_head(step->model));
    need_head(step, false);
    if (step->rows > 0) {
        ash_norm_forward(step, final_norm_params(step), step->acts->final_in, &step->acts->final_norm);
        ash_head_losses(step, has_entropies);
        gather_losses(step, step->acts->losses);
        if (has_entropies) gather_losses(step, step->acts->entropies);
    }
    if (head_is_embedding(step)) done(step, ASH_UNIT_EMBED, false);
    done(step, ASH_UNIT_HEAD, false);
}

const float *ash_pass_run_states(const struct ash_pass_step *step, const float *rows, size_t count)
{
    struct ash_pass_step wanted = *step;

    ash_assert(count <= step->opts->max_rows);
    wanted.rows = wanted.own.count = count;
    ash_norm_forward(&wanted, final_norm_params(step), rows, &step->acts->final_norm);
    return step->acts->final_norm.out;
}

void ash_pass_run_logits(const struct ash_pass_step *step, const float *rows, size_t count, float *logits_out)
{
    if (ash_norm_is_fused(step))
        ash_head_logits(step, rows, final_norm_params(step).weight, count, logits_out);
    else
        ash_head_logits(step, ash_pass_run_states(step, rows, count), ASH_NO_PARAM, count, logits_out);
}

/* ---- backward ---------------------------------------------------------------------------------------------------- */

/* From the loss to the gradient of the stream after the last layer. */
static void head_backward(const struct ash_pass_step *step, struct ash_grad_sink *sink, float scale)
{
    struct ash_acts *acts = step->acts;
    struct ash_norm_params norm = final_norm_params(step);

    need_head(step, true);
    if (step->rows > 0) {
        ash_norm_forward(step, norm, acts->final_in, &acts->final_norm);
        ash_head_backward(step, sink, scale);
        gather_losses(step, step->acts->losses);
        ash_norm_backward(step, sink, norm, acts->final_in, &acts->final_norm, false);
    }
    ash_grad_zero_untouched(sink, -1);
    if (head_is_embedding(step)) done(step, ASH_UNIT_EMBED, false); /* its gradients continue */
    done_backward(step, sink, ASH_UNIT_HEAD);
}

/* Full recomputation runs the layer's forward again; its last product is not needed, so it goes to a scratch
 * buffer. */
static void layer_backward(const struct ash_pass_step *step, struct ash_grad_sink *sink, size_t layer)
{
    bool is_sparse = step->model->config.sparse[layer];
    bool recomputes = step->opts->recompute == ASH_RECOMPUTE_FULL;

    ash_assert(layer < step->model->config.layers);
    /* recomputed activations and experts' gradients have one place for all layers */
    if (step->opts->recompute != ASH_RECOMPUTE_NONE || is_sparse) ash_shared_grads_fence(sink);
    if (recomputes && step->axes->tp.same_node) ash_axes_barrier_tp(step->axes); /* norms are shared */
    if (recomputes) layer_forward(step, layer, step->acts->scratch.residual);
    if (step->rows == 0) {
        if (is_sparse) ash_moe_backward(step, sink, layer, NULL, NULL, NULL);
        return;
    }
    if (ash_config_has_ffn(&step->model->config)) ash_ffn_block_backward(step, sink, layer);
    if (ash_config_has_state(&step->model->config, layer)) ash_state_block_backward(step, sink, layer);
    if (ash_config_attends(&step->model->config, layer)) ash_attn_block_backward(step, sink, layer);
    ash_shared_grads_compute(sink, 0);
}

/* After the last unit: all sums are complete here, or continue where the next batch's begin. */
static void finish_grads(const struct ash_pass_step *step, struct ash_grad_sink *sink)
{
    ash_grad_flush(sink);
    ash_shared_grads_finish(sink);
    if ((step->batch->flags & ASH_BATCH_MORE_FOLLOW) != 0) ash_grad_carry(sink);
    ash_moe_carry_grads(step, sink);
}

/* The gradient that came from the next stage, as products of the last layer read it. */
static void round_gradient(const struct ash_pass_step *step)
{
    const struct ash_scratch *s = &step->acts->scratch;
    size_t hidden = step->model->config.hidden;

    if (s->dx_bf16 == NULL || step->rows == 0) return;
    step->exec->ops->row->copy(step->exec, &(struct ash_copy_args){.rows = step->own.count,
                                                                   .blocks = 1,
                                                                   .cols = hidden,
                                                                   .src = s->dx,
                                                                   .src_row = hidden,
                                                                   .dst = s->dx_bf16,
                                                                   .dst_dtype = ASH_BF16,
                                                                   .dst_row = hidden});
}

void ash_pass_run_backward(const struct ash_pass_step *step, struct ash_grad_sink *sink, float scale)
{
    ash_assert(step->opts->backward && (step->rows == 0 || sink->grads != NULL));
    ash_grad_begin_batch(sink);
    if (ash_split_has_head(step->model))
        head_backward(step, sink, scale);
    else
        round_gradient(step);
    for (size_t i = step->model->config.layers; i-- > 0;) {
        need(step, (int)i, true);
        layer_backward(step, sink, i);
        ash_grad_zero_untouched(sink, (int)i);
        done_backward(step, sink, (int)i);
    }
    if (ash_split_has_embed(step->model)) {
        if (step->rows > 0) ash_embed_backward(step, sink);
        done_backward(step, sink, ASH_UNIT_EMBED);
    }
    finish_grads(step, sink);
}
