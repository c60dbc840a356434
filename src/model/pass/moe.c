/* A layer of experts: each token goes to the few experts its router chooses, and to the shared ones.
 * Tokens are sorted by expert, ascending within one, so that each expert is a plain feed-forward over its rows and its
 * gradients add up in token order. A token's output adds its experts in the order of their scores: neither depends on
 * the batch. */
#include "model/pass/moe.h"

#include <string.h>

#include "base/assert.h"
#include "model/pass/copy.h"
#include "model/pass/ffn.h"
#include "model/pass/gather.h"
#include "model/pass/linear_grads.h"
#include "model/pass/moe_exchange.h"
#include "model/pass/moe_grouped.h"
#include "model/pass/out_gate.h"
#include "model/pass/weight_grads.h"

static struct ash_route_args route_args(const struct ash_pass_step *step, size_t layer)
{
    const struct ash_expert_config *x = &step->model->config.expert;
    struct ash_moe_acts *moe = &step->acts->layers[layer].moe;
    int32_t bias = step->model->layers[layer].param[ASH_ROLE_ROUTER_BIAS];

    ash_assert(layer < step->model->config.layers);
    return (struct ash_route_args){.rows = step->rows,
                                   .experts = x->experts,
                                   .choices = x->choices,
                                   .sigmoid = x->sigmoid,
                                   .normalize = x->normalize,
                                   .groups = x->groups,
                                   .top_groups = x->top_groups,
                                   .choice_bias = ash_model_vector(step->model, bias),
                                   .scale = (float)x->scale,
                                   .tolerance = (float)x->tolerance,
                                   .logits = moe->logits,
                                   .index = moe->index,
                                   .weight = moe->weight};
}

/* expert: its number among those here. */
static struct ash_ffn_params expert_params(const struct ash_pass_step *step, size_t layer, size_t expert)
{
    const struct ash_layer *params = &step->model->layers[layer];

    ash_assert(layer < step->model->config.layers);
    return (struct ash_ffn_params){.gate_up = ash_layer_expert(params, ASH_ROLE_EXPERT_GATE_UP, expert),
                                   .gate_up_bias = ash_layer_expert(params, ASH_ROLE_EXPERT_GATE_UP_BIAS, expert),
                                   .gate = ash_layer_expert(params, ASH_ROLE_EXPERT_GATE, expert),
                                   .gate_bias = ash_layer_expert(params, ASH_ROLE_EXPERT_GATE_BIAS, expert),
                                   .up = ash_layer_expert(params, ASH_ROLE_EXPERT_UP, expert),
                                   .up_bias = ash_layer_expert(params, ASH_ROLE_EXPERT_UP_BIAS, expert),
                                   .down = ash_layer_expert(params, ASH_ROLE_EXPERT_DOWN, expert),
                                   .down_bias = ash_layer_expert(params, ASH_ROLE_EXPERT_DOWN_BIAS, expert),
                                   .width = step->model->config.expert.ffn,
                                   .is_expert = true};
}

static struct ash_ffn_params shared_params(const struct ash_pass_step *step, size_t layer)
{
    const int32_t *param = step->model->layers[layer].param;

    bool is_fused = step->model->config.family->names[ASH_ROLE_SHARED_GATE] == NULL;

    ash_assert(layer < step->model->config.layers);
    return (struct ash_ffn_params){.gate_up = is_fused ? param[ASH_ROLE_GATE_UP] : ASH_NO_PARAM,
                                   .gate_up_bias = ASH_NO_PARAM,
                                   .gate = param[ASH_ROLE_SHARED_GATE],
                                   .gate_bias = ASH_NO_PARAM,
                                   .up = param[ASH_ROLE_SHARED_UP],
                                   .up_bias = ASH_NO_PARAM,
                                   .down = param[is_fused ? ASH_ROLE_DOWN : ASH_ROLE_SHARED_DOWN],
                                   .down_bias = ASH_NO_PARAM,
                                   .width = step->model->config.expert.shared_ffn};
}

/* Rows from first on; of NULL, NULL. */
static float *rows_from(float *rows, size_t first, size_t width)
{
    return rows == NULL ? NULL : rows + first * width;
}

static struct ash_ffn_acts acts_from(const struct ash_ffn_acts *acts, size_t first, size_t width)
{
    size_t stride = acts->stride > 0 ? acts->stride : width; /* of gate and up */

    return (struct ash_ffn_acts){.gate = rows_from(acts->gate, first, stride),
                                 .up = rows_from(acts->up, first, stride),
                                 .hidden = rows_from(acts->hidden, first, width),
                                 .stride = stride};
}

/* What one expert computes for one source. */
struct expert_run {
    struct ash_ffn_params params;
    size_t source;
    struct ash_ffn_io io;
};

/* Number i of work->experts * work->sources: expert by expert, in each source by source. dx takes the place of dy. */
static struct expert_run expert_run_at(const struct ash_pass_step *step, size_t layer,
                                       const struct ash_expert_work *work, size_t i)
{
    size_t expert = i / work->sources, source = i % work->sources;
    size_t hidden = step->model->config.hidden, ffn = step->model->config.expert.ffn;
    const size_t *start = &work->starts[source * work->experts + expert];
    float *dy = rows_from(work->dy, start[0], hidden);

    return (struct expert_run){.params = expert_params(step, layer, expert),
                               .source = source,
                               .io = {.rows = start[1] - start[0],
                                      .x = rows_from(work->x, start[0], hidden),
                                      .acts = acts_from(&work->acts, start[0], ffn),
                                      .y = rows_from(work->y, start[0], hidden),
                                      .dacts = acts_from(&work->dacts, start[0], ffn),
                                      .dy = dy,
                                      .dx = dy}};
}

/* Over ranks that gather: the columns of all experts first, then their outputs. Whole experts have all columns here. */
static void experts_gathered(const struct ash_pass_step *step, size_t layer)
{
    struct ash_expert_work work = ash_moe_work(step, layer);
    size_t pairs = step->rows * step->model->config.expert.choices, width = step->model->whole.expert.ffn;
    size_t hidden = step->model->config.hidden;
    bool are_whole = step->model->slice.expert_size > 1;
    const float *columns = work.acts.hidden, *outputs;

    for (size_t e = 0; e < work.experts; e++) {
        struct expert_run run = expert_run_at(step, layer, &work, e);

        if (run.io.rows > 0) ash_ffn_inner(step, &run.params, &run.io, ASH_NO_PARAM);
    }
    if (!are_whole) columns = ash_gather_columns(step, work.acts.hidden, pairs, width);
    for (size_t e = 0; e < work.experts; e++) {
        struct expert_run run = expert_run_at(step, layer, &work, e);
        struct ash_linear_group group = {.rows = run.io.rows,
                                         .x = columns + work.starts[e] * width,
                                         .x_stride = width,
                                         .norm = ASH_NO_PARAM,
                                         .out_count = 1,
                                         .outs[0] = {.weight = run.params.down, .bias = run.params.down_bias}};

        if (run.io.rows == 0) continue;
        if (are_whole)
            ash_gather_set_rows(step, &group.outs[0], work.starts[e]);
        else
            ash_gather_set_output(step, &group.outs[0], work.starts[e]);
        ash_linear_project(step, &group);
    }
    outputs = are_whole ? ash_gather_experts(step, work.starts - step->model->experts.first)
                        : ash_gather_outputs(step, pairs);
    ash_copy_columns(step->exec, pairs, hidden, (struct ash_rows_from){outputs, hidden},
                     (struct ash_rows_to){work.y, hidden});
}

static void experts_forward(const struct ash_pass_step *step, size_t layer)
{
    struct ash_expert_work work = ash_moe_work(step, layer);

    for (size_t i = 0; i < work.experts * work.sources; i++) {
        struct expert_run run = expert_run_at(step, layer, &work, i);

        if (run.io.rows > 0) ash_ffn_forward(step, &run.params, &run.io);
    }
}

static void route(const struct ash_pass_step *step, size_t layer, const float *x, bool is_grouped)
{
    const struct ash_model_config *c = &step->model->config;
    const struct ash_route_ops *ops = step->exec->ops->route;
    struct ash_moe_acts *moe = &step->acts->layers[layer].moe;
    struct ash_route_args args = route_args(step, layer);

    ash_linear_forward(
        step, step->model->layers[layer].param[ASH_ROLE_ROUTER], step->model->layers[layer].param[ASH_ROLE_ROUTER_ADD],
        &(struct ash_linear_io){
            .rows = step->rows, .x = x, .x_stride = c->hidden, .y = moe->logits, .y_stride = c->expert.experts});
    ops->forward(step->exec, &args);
    ops->group(step->exec,
               &(struct ash_route_group_args){.rows = step->rows,
                                              .choices = c->expert.choices,
                                              .experts = c->expert.experts,
                                              .index = moe->index,
                                              .order = moe->order,
                                              .flat = moe->flat,
                                              .where = moe->where,
                                              .offsets = is_grouped ? NULL : step->moe->routes[layer].offsets,
                                              .starts = is_grouped ? moe->starts : NULL});
}

/* y from what shared experts gave and the factor that a token gives them. */
static void shared_gate_forward(const struct ash_pass_step *step, size_t layer, const float *x, float *y)
{
    ash_linear_forward(step, step->model->layers[layer].param[ASH_ROLE_SHARED_SCALE], ASH_NO_PARAM,
                       &(struct ash_linear_io){.rows = step->rows,
                                               .x = x,
                                               .x_stride = step->model->config.hidden,
                                               .y = step->acts->layers[layer].moe.shared_gate,
                                               .y_stride = 1});
    ash_shared_gate_forward(step, layer, y);
}

void ash_moe_forward(const struct ash_pass_step *step, size_t layer, const float *x, float *y)
{
    const struct ash_model_config *c = &step->model->config;
    struct ash_moe_acts *moe = &step->acts->layers[layer].moe;
    size_t own = step->own.first * c->expert.choices;
    bool has_shared = c->expert.shared_ffn != 0, is_grouped = step->rows > 0 && ash_moe_is_grouped(step, layer);
    bool has_gate = ash_layer_has(&step->model->layers[layer], ASH_ROLE_SHARED_SCALE);

    ash_assert(layer < c->layers && c->sparse[layer] && (step->rows == 0 || (x != NULL && y != NULL)));
    if (step->rows > 0)
        route(step, layer, x, is_grouped);
    else
        memset(step->moe->routes[layer].offsets, 0, (c->expert.experts + 1) * sizeof(size_t));
    if (is_grouped) {
        ash_moe_grouped_forward(step, layer, x);
    } else {
        ash_moe_dispatch(step, layer, x);
        if (ash_gathers(step))
            experts_gathered(step, layer);
        else
            experts_forward(step, layer);
        ash_moe_combine(step, layer);
    }
    if (step->rows == 0) return;
    if (has_shared) {
        struct ash_ffn_params params = shared_params(step, layer);
        struct ash_ffn_io io = {.rows = step->rows, .x = x, .acts = moe->shared, .y = has_gate ? moe->shared_y : y};

        ash_ffn_forward(step, &params, &io);
        if (has_gate) shared_gate_forward(step, layer, x, y);
    }
    step->exec->ops->row->combine(step->exec,
                                  &(struct ash_slots_args){.rows = step->own.count,
                                                           .slots = c->expert.choices,
                                                           .cols = c->hidden,
                                                           .y = moe->y,
                                                           .where = moe->where + own,
                                                           .weight = c->expert.scales_input ? NULL : moe->weight + own,
                                                           .add = has_shared,
                                                           .out = y});
}

/* Along cp accumulation is ordered, whether tokens here chose the expert or not. */
static void skip_expert(const struct ash_pass_step *step, struct ash_grad_sink *sink, const struct expert_run *run)
{
    if (step->axes->cp.size == 1 || !ash_moe_source_has_rows(step, run->source)) return;
    ash_linear_skip(sink, run->params.down);
    ash_linear_skip(sink, run->params.gate);
    ash_linear_skip(sink, run->params.up);
}

/* work.dy becomes the gradient of work.x, expert by expert. Each source's batch has its own gradients. */
static void experts_backward(const struct ash_pass_step *step, struct ash_grad_sink *sink, size_t layer)
{
    struct ash_expert_work work = ash_moe_work(step, layer);

    for (size_t i = 0; i < work.experts * work.sources; i++) {
        struct expert_run run = expert_run_at(step, layer, &work, i);
        struct ash_grad_sink source_sink = ash_moe_source_sink(step, sink, run.source);

        if (run.io.rows > 0)
            ash_ffn_backward(step, &source_sink, &run.params, &run.io);
        else
            skip_expert(step, &source_sink, &run);
    }
}

/* Rows from other ranks are retained; local rows are gathered again. */
static void recompute_cheap(const struct ash_pass_step *step, size_t layer, const float *x)
{
    const struct ash_model_config *c = &step->model->config;
    struct ash_expert_work work = ash_moe_work(step, layer);
    size_t first = work.starts[0], count = work.starts[work.sources * work.experts] - first;
    struct ash_ffn_acts acts = acts_from(&work.acts, first, c->expert.ffn);

    if (step->axes->ep.size == 1) ash_moe_dispatch(step, layer, x);
    if (count > 0) ash_ffn_activate(step, &acts, count, c->expert.ffn);
}

/* Gradients of the router's logits, from those of the chosen weights: rows of tokens times rows of pairs. */
static void route_backward(const struct ash_pass_step *step, size_t layer, const float *rows, const float *pairs)
{
    const struct ash_model_config *c = &step->model->config;
    struct ash_moe_acts *moe = &step->acts->layers[layer].moe;
    struct ash_scratch *s = &step->acts->scratch;
    struct ash_route_args args = route_args(step, layer);

    ash_assert(layer < step->model->config.layers);
    step->exec->ops->row->slot_dot(step->exec, &(struct ash_slots_args){.rows = step->rows,
                                                                        .slots = c->expert.choices,
                                                                        .cols = c->hidden,
                                                                        .x = rows,
                                                                        .y = pairs,
                                                                        .where = moe->where,
                                                                        .out = s->dweight});
    args.dweight = s->dweight;
    args.dlogits = s->dlogits;
    step->exec->ops->route->backward(step->exec, &args);
}

/* The router's gradients: of its weight over all rows, whose logits all ranks have; and what goes back to own rows. */
static void router_backward(const struct ash_pass_step *step, struct ash_grad_sink *sink, size_t layer, const float *x,
                            float *dx)
{
    const struct ash_model_config *c = &step->model->config;
    int32_t router = step->model->layers[layer].param[ASH_ROLE_ROUTER];
    struct ash_linear_io io = {.rows = step->rows,
                               .x = x,
                               .x_stride = c->hidden,
                               .dy = step->acts->scratch.dlogits,
                               .dy_stride = c->expert.experts,
                               .dx_stride = c->hidden,
                               .dx_add = true,
                               .seq_rows = step->seq_rows};

    ash_assert(layer < step->model->config.layers);
    ash_linear_backward(step, sink, router, step->model->layers[layer].param[ASH_ROLE_ROUTER_ADD], &io);
    io.rows = step->own.count;
    io.first = step->own.first;
    io.dy += step->own.first * c->expert.experts;
    io.dx = dx;
    ash_linear_input_grad(step, router, &io);
}

/* dx of the experts that every token visits; and of the factor of what they give, where it has one. */
static void shared_backward(const struct ash_pass_step *step, struct ash_grad_sink *sink, size_t layer, const float *x,
                            const float *dy, float *dx)
{
    const struct ash_moe_acts *moe = &step->acts->layers[layer].moe;
    struct ash_ffn_params params = shared_params(step, layer);
    int32_t scale = step->model->layers[layer].param[ASH_ROLE_SHARED_SCALE];
    struct ash_ffn_io io = {.rows = step->rows,
                            .x = x,
                            .acts = moe->shared,
                            .dacts = ash_acts_dffn(step->acts, step->axes, step->first_row, params.width),
                            .dy = dy,
                            .dx = dx};

    ash_assert(params.width > 0);
    if (scale != ASH_NO_PARAM) {
        ash_shared_gate_backward(step, layer, dy);
        io.dy = step->acts->scratch.dshared;
    }
    if (step->opts->recompute == ASH_RECOMPUTE_SELECTIVE)
        ash_ffn_activate(step, &moe->shared, step->rows, params.width);
    ash_ffn_backward(step, sink, &params, &io);
    if (scale == ASH_NO_PARAM) return;
    ash_linear_backward(step, sink, scale, ASH_NO_PARAM,
                        &(struct ash_linear_io){.rows = step->rows,
                                                .x = x,
                                                .x_stride = step->model->config.hidden,
                                                .dy = step->acts->scratch.dshared_gate,
                                                .dy_stride = 1,
                                                .dx = dx,
                                                .dx_stride = step->model->config.hidden,
                                                .dx_add = true,
                                                .seq_rows = step->seq_rows});
}

void ash_moe_backward(const struct ash_pass_step *step, struct ash_grad_sink *sink, size_t layer, const float *x,
                      const float *dy, float *dx)
{
    const struct ash_model_config *c = &step->model->config;
    struct ash_moe_acts *moe = &step->acts->layers[layer].moe;
    struct ash_scratch *s = &step->acts->scratch;
    size_t own = step->own.first * c->expert.choices;
    bool has_shared = c->expert.shared_ffn != 0, is_grouped = step->rows > 0 && ash_moe_is_grouped(step, layer);

    ash_assert(layer < c->layers && c->sparse[layer] && (step->rows == 0 || (x != NULL && dy != NULL && dx != NULL)));
    if (step->rows > 0 && !c->expert.scales_input) route_backward(step, layer, dy, moe->y);
    if (is_grouped) {
        ash_moe_grouped_backward(step, sink, layer, x, dy);
    } else {
        if (step->opts->recompute == ASH_RECOMPUTE_SELECTIVE) recompute_cheap(step, layer, x);
        ash_moe_dispatch_grads(step, layer, dy);
        experts_backward(step, sink, layer);
        ash_moe_combine_grads(step, layer);
    }
    if (step->rows == 0) return;
    if (c->expert.scales_input) route_backward(step, layer, x, s->dpair);
    if (has_shared) shared_backward(step, sink, layer, x, dy, dx);
    step->exec->ops->row->combine(step->exec,
                                  &(struct ash_slots_args){.rows = step->own.count,
                                                           .slots = c->expert.choices,
                                                           .cols = c->hidden,
                                                           .y = s->dpair,
                                                           .where = moe->where + own,
                                                           .weight = c->expert.scales_input ? moe->weight + own : NULL,
                                                           .add = has_shared,
                                                           .out = dx});
    router_backward(step, sink, layer, x, dx);
}
