/* ffn: the two projections in, the activation, the projection out; and back. */
#include "model/pass/ffn.h"

#include "base/assert.h"
#include "model/pass/copy.h"
#include "model/pass/gather.h"
#include "model/pass/grads_shared.h"
#include "model/pass/linear_grads.h"
#include "model/pass/parallel_linear.h"
#include "model/pass/scale.h"

static enum ash_gelu gelu_kind(const struct ash_pass_step *step)
{
    return step->model->config.form.mlp == ASH_MLP_GELU_TANH ? ASH_GELU_TANH : ASH_GELU_ERF;
}

static bool is_gated(const struct ash_ffn_acts *acts)
{
    return acts->gate != NULL || acts->gate_bf16 != NULL;
}

/* Is the gate's activation another one than silu? */
static bool is_special(const struct ash_pass_step *step)
{
    return step->model->config.form.mlp > ASH_MLP_GELU_ERF;
}

static enum ash_gate gate_kind(enum ash_mlp_kind mlp)
{
    if (mlp == ASH_MLP_GATED_ERF) return ASH_GATE_GELU_ERF;
    return mlp == ASH_MLP_GATED_TANH ? ASH_GATE_GELU : ASH_GATE_CLAMPED;
}

/* A forward pass over such a gate. */
static struct ash_gated_args gated_args(const struct ash_pass_step *step, const struct ash_ffn_acts *acts, size_t rows,
                                        size_t width)
{
    const struct ash_model_form *form = &step->model->config.form;

    return (struct ash_gated_args){.kind = gate_kind(form->mlp),
                                   .rows = rows,
                                   .cols = width,
                                   .stride = acts->stride,
                                   .step = form->expert.alternates ? 2 : 1,
                                   .gate = acts->gate,
                                   .up = acts->up,
                                   .out = acts->hidden};
}

void ash_ffn_activate(const struct ash_pass_step *step, const struct ash_ffn_acts *acts, size_t rows, size_t width)
{
    const struct ash_act_ops *act = step->exec->ops->act;
    size_t count = rows * width;

    ash_assert((acts->up != NULL || acts->up_bf16 != NULL) && (acts->hidden != NULL || acts->hidden_bf16 != NULL));
    if (is_special(step)) {
        struct ash_gated_args args = gated_args(step, acts, rows, width);

        step->exec->ops->family->gated_forward(step->exec, &args);
    } else if (is_gated(acts))
        act->swiglu_forward(step->exec, &(struct ash_swiglu_args){.count = count,
                                                                  .cols = acts->stride == width ? 0 : width,
                                                                  .stride = acts->stride,
                                                                  .gate = acts->gate,
                                                                  .up = acts->up,
                                                                  .gate_bf16 = acts->gate_bf16,
                                                                  .up_bf16 = acts->up_bf16,
                                                                  .round_bf16 = step->model->round_bf16,
                                                                  .out = acts->hidden,
                                                                  .out_bf16 = acts->hidden_bf16});
    else
        act->gelu_forward(step->exec, gelu_kind(step), acts->up, count, acts->hidden);
}

void ash_ffn_inner(const struct ash_pass_step *step, const struct ash_ffn_params *params, const struct ash_ffn_io *io,
                   int32_t norm)
{
    const struct ash_ffn_acts *acts = &io->acts;
    struct ash_linear_group group = {.rows = io->rows,
                                     .x = io->x,
                                     .x_bf16 = io->x_bf16,
                                     .x_stride = step->model->config.hidden,
                                     .norm = norm,
                                     .out_count = is_gated(acts) && params->gate_up == ASH_NO_PARAM ? 2 : 1};

    double gate_scale = step->model->config.form.gate_scale;

    ash_assert((io->x != NULL || io->x_bf16 != NULL) && params->width > 0);
    group.outs[0] = (struct ash_linear_out){params->gate, params->gate_bias, acts->gate, acts->stride, acts->gate_bf16};
    group.outs[group.out_count - 1] =
        (struct ash_linear_out){params->up, params->up_bias, acts->up, acts->stride, acts->up_bf16};
    if (params->gate_up != ASH_NO_PARAM)
        group.outs[0] =
            (struct ash_linear_out){params->gate_up, params->gate_up_bias, acts->gate, acts->stride, acts->gate_bf16};
    group.swiglu = group.out_count == 2 && !is_special(step) && !step->opts->backward && gate_scale == 0 &&
                   ash_linear_alike(step, params->gate, params->up);
    if (group.swiglu) { /* gate and up are not read again */
        group.outs[0].y = acts->hidden;
        group.outs[0].y_stride = params->width;
    }
    ash_linear_project(step, &group);
    if (gate_scale != 0) ash_scale_columns(step, params->width, acts->stride, gate_scale, acts->gate);
    if (!group.swiglu) ash_ffn_activate(step, acts, io->rows, params->width);
}

/* The shared experts' last product: those of the others are moe.c's. */
static void gathered_down(const struct ash_pass_step *step, const struct ash_ffn_params *params,
                          const struct ash_ffn_io *io)
{
    size_t hidden = step->model->config.hidden, width = step->model->whole.expert.shared_ffn;
    struct ash_linear_group group = {.rows = io->rows,
                                     .x = ash_gather_columns(step, io->acts.hidden, io->rows, width),
                                     .x_stride = width,
                                     .norm = ASH_NO_PARAM,
                                     .out_count = 1,
                                     .outs[0] = {.weight = params->down, .bias = params->down_bias}};

    ash_assert(!params->is_expert && io->acts.hidden != NULL);
    ash_copy_columns(step->exec, io->rows, hidden, (struct ash_rows_from){ash_gather_product(step, &group), hidden},
                     (struct ash_rows_to){io->y, hidden});
}

void ash_ffn_forward(const struct ash_pass_step *step, const struct ash_ffn_params *params, const struct ash_ffn_io *io)
{
    ash_assert(io->y != NULL);
    ash_ffn_inner(step, params, io, ASH_NO_PARAM);
    if (ash_gathers(step)) {
        gathered_down(step, params, io);
        return;
    }
    if (step->axes->tp.size > 1 && !params->is_expert) {
        ash_row_parallel_forward(step, params->down, params->down_bias, io->acts.hidden, params->width, io->y);
        return;
    }
    ash_linear_forward(step, params->down, params->down_bias,
                       &(struct ash_linear_io){.rows = io->rows,
                                               .x = io->acts.hidden,
                                               .x_bf16 = io->acts.hidden_bf16,
                                               .x_stride = params->width,
                                               .y = io->y,
                                               .y_stride = step->model->config.hidden});
}

/* The gradient of hidden rows, where their product rounds it: in the place of floats. */
static uint16_t *dhidden_bf16(const struct ash_ffn_io *io)
{
    return io->acts.gate_bf16 != NULL ? (void *)io->dacts.hidden : NULL;
}

/* Does SwiGLU's backward pass recompute the hidden rows? */
static bool recomputes_hidden(const struct ash_pass_step *step, const struct ash_ffn_acts *acts)
{
    return acts->hidden_bf16 != NULL && step->opts->recompute != ASH_RECOMPUTE_FULL;
}

/* The gradients of gate and up, and the products that read them. Where hidden is rounded and no bias adds them up, they
 * are, too. */
static void gated_backward(const struct ash_pass_step *step, const struct ash_ffn_params *params,
                           const struct ash_ffn_io *io, struct ash_column_parallel *columns)
{
    const struct ash_ffn_acts *acts = &io->acts, *dacts = &io->dacts;
    bool is_bf16 = acts->hidden_bf16 != NULL && params->gate_bias == ASH_NO_PARAM && params->up_bias == ASH_NO_PARAM;
    struct ash_swiglu_grad_args args = {.count = io->rows * params->width,
                                        .cols = acts->stride == params->width ? 0 : params->width,
                                        .stride = acts->stride,
                                        .gate = acts->gate,
                                        .up = acts->up,
                                        .gate_bf16 = acts->gate_bf16,
                                        .up_bf16 = acts->up_bf16,
                                        .dout = acts->gate_bf16 == NULL ? dacts->hidden : NULL,
                                        .dout_bf16 = dhidden_bf16(io),
                                        .hidden_bf16 = recomputes_hidden(step, acts) ? acts->hidden_bf16 : NULL,
                                        .round_bf16 = step->model->round_bf16};
    bool is_fused = params->gate_up != ASH_NO_PARAM; /* its outputs are gate's columns, then up's */
    struct ash_column_output gate = {is_fused ? params->gate_up : params->gate,
                                     is_fused ? params->gate_up_bias : params->gate_bias, NULL, dacts->stride, NULL};
    struct ash_column_output up = {params->up, params->up_bias, NULL, dacts->stride, NULL};

    ash_assert(acts->stride == dacts->stride);
    if (is_bf16) {
        gate.dy_bf16 = args.dgate_bf16 = (void *)dacts->gate;
        up.dy_bf16 = args.dup_bf16 = args.dgate_bf16 + (dacts->up - dacts->gate);
    } else {
        gate.dy = args.dgate = dacts->gate;
        up.dy = args.dup = dacts->up;
    }
    if (is_special(step)) {
        struct ash_gated_args special = gated_args(step, acts, io->rows, params->width);

        special.dout = dacts->hidden;
        special.dgate = dacts->gate;
        special.dup = dacts->up;
        step->exec->ops->family->gated_backward(step->exec, &special);
    } else
        step->exec->ops->act->swiglu_backward(step->exec, &args);
    columns->outputs[columns->count++] = gate;
    if (!is_fused) columns->outputs[columns->count++] = up;
}

/* Back through the activation, to the gradients of its inputs. */
static void activation_backward(const struct ash_pass_step *step, const struct ash_ffn_params *params,
                                const struct ash_ffn_io *io, struct ash_column_parallel *columns)
{
    const struct ash_ffn_acts *acts = &io->acts, *dacts = &io->dacts;

    if (is_gated(acts)) {
        gated_backward(step, params, io, columns);
        if (step->model->config.form.gate_scale != 0)
            ash_scale_columns(step, params->width, dacts->stride, step->model->config.form.gate_scale, dacts->gate);
        return;
    }
    step->exec->ops->act->gelu_backward(step->exec, gelu_kind(step), acts->up, dacts->hidden, io->rows * params->width,
                                        dacts->up);
    columns->outputs[columns->count++] =
        (struct ash_column_output){params->up, params->up_bias, dacts->up, params->width, NULL};
}

bool ash_ffn_backward(const struct ash_pass_step *step, struct ash_grad_sink *sink, const struct ash_ffn_params *params,
                      const struct ash_ffn_io *io)
{
    size_t hidden = step->model->config.hidden;
    bool shared_rows = step->axes->shared_grads && !params->is_expert;
    struct ash_column_parallel columns = {.rows = io->rows,
                                          .in = hidden,
                                          .seq_rows = params->is_expert ? 0 : step->seq_rows,
                                          .x = io->x,
                                          .x_bf16 = io->x_bf16,
                                          .dx = io->dx,
                                          .dx_bf16 = io->dx_bf16,
                                          .shared_rows = shared_rows};
    struct ash_linear_io down = {.rows = io->rows,
                                 .x = io->acts.hidden,
                                 .x_bf16 = io->acts.hidden_bf16,
                                 .x_stride = params->width,
                                 .dy = io->dy,
                                 .dy_bf16 = io->dy_bf16,
                                 .dy_stride = hidden,
                                 .dx = dhidden_bf16(io) == NULL ? io->dacts.hidden : NULL,
                                 .dx_bf16 = dhidden_bf16(io),
                                 .dx_stride = params->width,
                                 .seq_rows = columns.seq_rows,
                                 .shared_rows = shared_rows};

    ash_assert((io->x != NULL || io->x_bf16 != NULL) && io->dy != NULL && io->dx != NULL);
    if (recomputes_hidden(step, &io->acts)) {
        ash_linear_input_grad(step, params->down, &down);
        activation_backward(step, params, io, &columns);
        down.dx = NULL;
        down.dx_bf16 = NULL;
        ash_linear_backward(step, sink, params->down, params->down_bias, &down);
    } else {
        ash_linear_backward(step, sink, params->down, params->down_bias, &down);
        if (shared_rows)
            ash_shared_grads_fence(sink); /* the layer after this one had its gradients in the same place */
        activation_backward(step, params, io, &columns);
    }
    return ash_column_parallel_backward(step, sink, &columns);
}
