/* ffn_block: the norm and the residual around a dense feed-forward or a layer of experts. */
#include "model/pass/ffn_block.h"

#include "base/assert.h"
#include "model/pass/copy.h"
#include "model/pass/ffn.h"
#include "model/pass/gather.h"
#include "model/pass/join.h"
#include "model/pass/moe.h"
#include "model/pass/norm.h"
#include "model/pass/parallel_linear.h"
#include "model/pass/stream.h"

static struct ash_ffn_params dense_params(const struct ash_pass_step *step, size_t layer)
{
    const int32_t *param = step->model->layers[layer].param;

    ash_assert(layer < step->model->config.layers);
    return (struct ash_ffn_params){.gate_up = param[ASH_ROLE_GATE_UP],
                                   .gate_up_bias = ASH_NO_PARAM,
                                   .gate = param[ASH_ROLE_GATE],
                                   .gate_bias = param[ASH_ROLE_GATE_BIAS],
                                   .up = param[ASH_ROLE_UP],
                                   .up_bias = param[ASH_ROLE_UP_BIAS],
                                   .down = param[ASH_ROLE_DOWN],
                                   .down_bias = param[ASH_ROLE_DOWN_BIAS],
                                   .width = step->model->config.ffn};
}

static struct ash_norm_params norm_params(const struct ash_pass_step *step, size_t layer)
{
    const int32_t *param = step->model->layers[layer].param;

    if (step->model->config.form.parallel && param[ASH_ROLE_NORM2] == ASH_NO_PARAM) /* one for both blocks */
        return (struct ash_norm_params){param[ASH_ROLE_NORM1], param[ASH_ROLE_NORM1_BIAS]};
    return (struct ash_norm_params){param[ASH_ROLE_NORM2], param[ASH_ROLE_NORM2_BIAS]};
}

/* The rows that the block reads, before its norm. */
static const float *input_of(const struct ash_pass_step *step, size_t layer)
{
    const struct ash_layer_acts *acts = &step->acts->layers[layer];

    return step->model->config.form.parallel ? acts->in : acts->mid;
}

static void experts_forward(const struct ash_pass_step *step, size_t layer, const float *mid, float *out)
{
    const struct ash_norm_acts *norm = &step->acts->layers[layer].ffn_norm;
    const float *x;

    ash_assert(layer < step->model->config.layers);
    ash_norm_forward(step, norm_params(step, layer), input_of(step, layer), norm);
    x = ash_stream_gather(step, norm->out, step->acts->scratch.x_gathered);
    ash_moe_forward(step, layer, x, ash_join_output(step, layer, ASH_BLOCK_FFN));
    ash_join_add(step, layer, ASH_BLOCK_FFN, mid, out);
}

static void dense_forward(const struct ash_pass_step *step, size_t layer, const float *mid, float *out)
{
    const struct ash_layer_acts *acts = &step->acts->layers[layer];
    struct ash_ffn_params params = dense_params(step, layer);
    struct ash_norm_params norm = norm_params(step, layer);
    bool is_fused = ash_norm_is_fused(step);
    struct ash_ffn_io io = {.rows = step->rows, .x = input_of(step, layer), .acts = acts->ffn};

    ash_assert(layer < step->model->config.layers);
    if (!is_fused) {
        ash_norm_forward(step, norm, io.x, &acts->ffn_norm);
        io.x = ash_stream_gather(step, acts->ffn_norm.out, step->acts->scratch.x_gathered);
        io.x_bf16 = acts->ffn_norm.out_bf16;
    }
    ash_ffn_inner(step, &params, &io, is_fused ? norm.weight : ASH_NO_PARAM);
    ash_join_product(step, layer, ASH_BLOCK_FFN,
                     &(struct ash_linear_group){
                         .rows = step->rows,
                         .x = acts->ffn.hidden_bf16 == NULL
                                  ? ash_gather_columns(step, acts->ffn.hidden, step->rows, step->model->whole.ffn)
                                  : NULL,
                         .x_bf16 = acts->ffn.hidden_bf16,
                         .x_stride = ash_gathers(step) ? step->model->whole.ffn : params.width,
                         .norm = ASH_NO_PARAM,
                         .out_count = 1,
                         .outs[0] = {.weight = params.down, .bias = params.down_bias}},
                     mid, out);
}

void ash_ffn_block_forward(const struct ash_pass_step *step, size_t layer, const float *mid, float *out)
{
    ash_assert(layer < step->model->config.layers && step->rows > 0);
    if (step->model->config.sparse[layer])
        experts_forward(step, layer, mid, out);
    else
        dense_forward(step, layer, mid, out);
}

static void dense_backward(const struct ash_pass_step *step, struct ash_grad_sink *sink, size_t layer, const float *x,
                           const float *dy)
{
    const struct ash_ffn_acts *acts = &step->acts->layers[layer].ffn;
    struct ash_ffn_params params = dense_params(step, layer);
    struct ash_ffn_io io = {.rows = step->rows,
                            .x = x,
                            .x_bf16 = step->acts->layers[layer].ffn_norm.out_bf16,
                            .acts = *acts,
                            .dacts = ash_acts_dffn(step->acts, step->axes, step->first_row, params.width),
                            .dy = dy,
                            .dy_bf16 = step->acts->scratch.dx_bf16,
                            .dx = step->acts->scratch.dnorm,
                            .dx_bf16 = step->acts->is_bf16 ? (void *)step->acts->scratch.dnorm : NULL};

    ash_assert(layer < step->model->config.layers);
    if (step->opts->recompute == ASH_RECOMPUTE_SELECTIVE && acts->hidden_bf16 == NULL)
        ash_ffn_activate(step, acts, step->rows, params.width);
    step->acts->scratch.dnorm_is_bf16 = ash_ffn_backward(step, sink, &params, &io);
}

void ash_ffn_block_backward(const struct ash_pass_step *step, struct ash_grad_sink *sink, size_t layer)
{
    struct ash_layer_acts *acts = &step->acts->layers[layer];
    struct ash_scratch *s = &step->acts->scratch;
    struct ash_norm_params norm = norm_params(step, layer);
    size_t hidden = step->model->config.hidden;
    const float *dy, *x;

    ash_assert(layer < step->model->config.layers && step->rows > 0);
    dy = ash_join_backward(step, sink, layer, ASH_BLOCK_FFN);
    if (ash_norm_is_recomputed(step, &acts->ffn_norm))
        ash_norm_forward(step, norm, input_of(step, layer), &acts->ffn_norm);
    x = ash_stream_gather_kept(step, acts->ffn_norm.out, s->x_gathered);
    if (step->model->config.sparse[layer])
        ash_moe_backward(step, sink, layer, x, dy, s->dnorm);
    else
        dense_backward(step, sink, layer, x, dy);
    if (step->model->config.form.parallel) { /* attention reads scratch.dx first, and uses dnorm */
        ash_copy_columns(step->exec, step->own.count, hidden, (struct ash_rows_from){s->dnorm, hidden},
                         (struct ash_rows_to){s->dparallel, hidden});
        return;
    }
    ash_stream_rotate_dx(step);
    ash_norm_backward(step, sink, norm, acts->mid, &acts->ffn_norm, true);
}

void ash_ffn_block_backward_norm(const struct ash_pass_step *step, struct ash_grad_sink *sink, size_t layer)
{
    struct ash_layer_acts *acts = &step->acts->layers[layer];
    struct ash_scratch *s = &step->acts->scratch;
    struct ash_norm_params norm = norm_params(step, layer);
    size_t count = step->own.count * step->model->config.hidden;

    ash_assert(step->model->config.form.parallel && s->dparallel != NULL);
    if (norm.weight == step->model->layers[layer].param[ASH_ROLE_NORM1]) {
        step->exec->ops->row->add(step->exec, s->dnorm, s->dparallel, count, s->dnorm);
        return;
    }
    ash_norm_backward_to(step, sink, norm, acts->in, &acts->ffn_norm, s->dparallel, s->dparallel);
    step->exec->ops->row->add(step->exec, s->dx, s->dparallel, count, s->dx);
}
