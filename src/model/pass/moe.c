/* A layer of experts: each token goes to the few experts its router chooses, and to the shared ones.
 * Tokens are sorted by expert, ascending within one, so that each expert is a plain feed-forward over its rows and its
 * gradients add up in token order. A token's output adds its experts in the order of their scores: neither depends on
 * the batch. */
#include "model/pass/pass_priv.h"

#include <string.h>

static struct ash_route_args route_args(struct ash_pass *pass, size_t layer)
{
    const struct ash_expert_config *x = &pass->model->config.expert;
    struct ash_moe_acts *moe = &pass->layers[layer].moe;
    int32_t bias = pass->model->layers[layer].param[ASH_ROLE_ROUTER_BIAS];

    return (struct ash_route_args){.rows = pass->rows,
                                   .experts = x->experts,
                                   .choices = x->choices,
                                   .sigmoid = x->sigmoid,
                                   .normalize = x->normalize,
                                   .groups = x->groups,
                                   .top_groups = x->top_groups,
                                   .choice_bias = ash_model_vector(pass->model, bias),
                                   .scale = (float)x->scale,
                                   .logits = moe->logits,
                                   .index = moe->index,
                                   .weight = moe->weight};
}

/* expert: its number among those here. */
static struct ash_ffn_params expert_params(const struct ash_layer *layer, size_t expert)
{
    return (struct ash_ffn_params){ash_layer_expert(layer, ASH_ROLE_EXPERT_GATE, expert),
                                   ASH_NO_PARAM,
                                   ash_layer_expert(layer, ASH_ROLE_EXPERT_UP, expert),
                                   ASH_NO_PARAM,
                                   ash_layer_expert(layer, ASH_ROLE_EXPERT_DOWN, expert),
                                   ASH_NO_PARAM,
                                   true};
}

static struct ash_ffn_params shared_params(const struct ash_layer *layer)
{
    return (struct ash_ffn_params){layer->param[ASH_ROLE_SHARED_GATE],
                                   ASH_NO_PARAM,
                                   layer->param[ASH_ROLE_SHARED_UP],
                                   ASH_NO_PARAM,
                                   layer->param[ASH_ROLE_SHARED_DOWN],
                                   ASH_NO_PARAM,
                                   false};
}

/* Rows from first on. */
static struct ash_ffn_acts acts_from(const struct ash_ffn_acts *acts, size_t first, size_t width)
{
    return (struct ash_ffn_acts){
        .gate = acts->gate + first * width, .up = acts->up + first * width, .hidden = acts->hidden + first * width};
}

static void experts_forward(struct ash_pass *pass, size_t layer)
{
    const struct ash_model_config *c = &pass->model->config;
    struct ash_expert_work work = ash_moe_work(pass, layer);

    for (size_t i = 0; i < work.experts * work.sources; i++) {
        size_t e = i / work.sources, source = i % work.sources;
        size_t first = work.starts[source * work.experts + e];
        size_t rows = work.starts[source * work.experts + e + 1] - first;
        if (rows == 0) continue;
        struct ash_ffn_params params = expert_params(&pass->model->layers[layer], e);
        struct ash_ffn_acts acts = acts_from(&work.acts, first, c->expert.ffn);
        ash_ffn_forward(pass, &params, rows, work.x + first * c->hidden, &acts, c->expert.ffn,
                        work.y + first * c->hidden);
    }
}

static void route(struct ash_pass *pass, size_t layer, const float *x)
{
    const struct ash_model_config *c = &pass->model->config;
    const struct ash_route_ops *ops = pass->exec->ops->route;
    struct ash_moe_acts *moe = &pass->layers[layer].moe;
    struct ash_route_args args = route_args(pass, layer);

    ash_linear_forward(
        pass->model, pass->exec, pass->model->layers[layer].param[ASH_ROLE_ROUTER], ASH_NO_PARAM,
        &(struct ash_linear_io){
            .rows = pass->rows, .x = x, .x_stride = c->hidden, .y = moe->logits, .y_stride = c->expert.experts});
    ops->forward(pass->exec, &args);
    ops->group(pass->exec, moe->index, pass->rows, c->expert.choices, c->expert.experts, moe->order, moe->flat,
               moe->where, moe->offsets);
}

void ash_moe_forward(struct ash_pass *pass, size_t layer, const float *x, float *y)
{
    const struct ash_model_config *c = &pass->model->config;
    struct ash_moe_acts *moe = &pass->layers[layer].moe;
    size_t own = pass->own.first * c->expert.choices;
    bool shared = c->expert.shared_ffn != 0;

    if (pass->rows > 0)
        route(pass, layer, x);
    else
        memset(moe->offsets, 0, (c->expert.experts + 1) * sizeof(*moe->offsets));
    ash_moe_dispatch(pass, layer, x);
    experts_forward(pass, layer);
    ash_moe_collect(pass, layer);
    if (pass->rows == 0) return;
    if (shared) {
        struct ash_ffn_params params = shared_params(&pass->model->layers[layer]);
        ash_ffn_forward(pass, &params, pass->rows, x, &moe->shared, c->expert.shared_ffn, y);
    }
    pass->exec->ops->row->combine(pass->exec, moe->y, c->hidden, moe->where + own, moe->weight + own, c->expert.choices,
                                  pass->own.count, shared, y);
}

/* The ranks of cp take turns at a batch's gradients, whether tokens here chose the expert or not. */
static void skip_turns(struct ash_pass *pass, const struct ash_ffn_params *params)
{
    if (pass->cp.size == 1 || (pass->serving != NULL && !pass->serving->filled)) return;
    ash_pass_linear_skip(pass, params->down);
    ash_pass_linear_skip(pass, params->gate);
    ash_pass_linear_skip(pass, params->up);
}

/* work.dy becomes the gradient of work.x, expert by expert. Each source's batch has sums of its own. */
static void experts_backward(struct ash_pass *pass, size_t layer)
{
    const struct ash_model_config *c = &pass->model->config;
    struct ash_expert_work work = ash_moe_work(pass, layer);

    for (size_t i = 0; i < work.experts * work.sources; i++) {
        size_t e = i / work.sources, source = i % work.sources;
        size_t first = work.starts[source * work.experts + e];
        size_t rows = work.starts[source * work.experts + e + 1] - first;
        struct ash_ffn_params params = expert_params(&pass->model->layers[layer], e);
        float *dpair = work.dy + first * c->hidden;

        pass->serving = pass->ep.size > 1 ? &pass->exchange.served[source] : NULL;
        if (rows == 0) {
            skip_turns(pass, &params);
            continue;
        }
        struct ash_ffn_acts acts = acts_from(&work.acts, first, c->expert.ffn);
        struct ash_ffn_acts dacts = acts_from(&work.dacts, first, c->expert.ffn);
        ash_ffn_backward(pass, &params, rows, work.x + first * c->hidden, &acts, &dacts, c->expert.ffn, dpair, dpair);
    }
    pass->serving = NULL;
}

/* What came from other ranks is kept; what is here is gathered again. */
static void recompute_cheap(struct ash_pass *pass, size_t layer, const float *x)
{
    const struct ash_model_config *c = &pass->model->config;
    struct ash_expert_work work = ash_moe_work(pass, layer);
    size_t first = work.starts[0], count = work.starts[work.sources * work.experts] - first;
    struct ash_ffn_acts acts = acts_from(&work.acts, first, c->expert.ffn);

    if (pass->ep.size == 1) ash_moe_dispatch(pass, layer, x);
    if (count > 0) ash_ffn_activate(pass, &acts, count * c->expert.ffn);
    if (c->expert.shared_ffn != 0 && pass->rows > 0)
        ash_ffn_activate(pass, &pass->layers[layer].moe.shared, pass->rows * c->expert.shared_ffn);
}

/* Gradients of the router's logits, from those of the chosen weights. */
static void route_backward(struct ash_pass *pass, size_t layer, const float *dy)
{
    const struct ash_model_config *c = &pass->model->config;
    struct ash_moe_acts *moe = &pass->layers[layer].moe;
    struct ash_scratch *s = &pass->scratch;
    struct ash_route_args args = route_args(pass, layer);

    pass->exec->ops->row->slot_dot(pass->exec, dy, moe->y, c->hidden, moe->where, c->expert.choices, pass->rows,
                                   s->dweight);
    args.dweight = s->dweight;
    args.dlogits = s->dlogits;
    pass->exec->ops->route->backward(pass->exec, &args);
}

/* The router's gradients: of its weight over all rows, whose logits all ranks have; and what goes back to own rows. */
static void router_backward(struct ash_pass *pass, size_t layer, const float *x, float *dx)
{
    const struct ash_model_config *c = &pass->model->config;
    int32_t router = pass->model->layers[layer].param[ASH_ROLE_ROUTER];
    struct ash_linear_io io = {.rows = pass->rows,
                               .x = x,
                               .x_stride = c->hidden,
                               .dy = pass->scratch.dlogits,
                               .dy_stride = c->expert.experts,
                               .dx_stride = c->hidden,
                               .dx_add = true,
                               .seq_rows = pass->seq_rows};

    ash_pass_linear_backward(pass, router, ASH_NO_PARAM, &io);
    io.rows = pass->own.count;
    io.dy += pass->own.first * c->expert.experts;
    io.dx = dx;
    ash_linear_input_grad(pass->model, pass->exec, router, &io);
}

void ash_moe_backward(struct ash_pass *pass, size_t layer, const float *x, const float *dy, float *dx)
{
    const struct ash_model_config *c = &pass->model->config;
    struct ash_moe_acts *moe = &pass->layers[layer].moe;
    struct ash_scratch *s = &pass->scratch;
    bool shared = c->expert.shared_ffn != 0;

    if (pass->opts.recompute == ASH_RECOMPUTE_SELECTIVE) recompute_cheap(pass, layer, x);
    if (pass->rows > 0) route_backward(pass, layer, dy);
    ash_moe_dispatch_back(pass, layer, dy);
    experts_backward(pass, layer);
    ash_moe_collect_back(pass, layer);
    if (pass->rows == 0) return;
    if (shared) {
        struct ash_ffn_params params = shared_params(&pass->model->layers[layer]);
        struct ash_ffn_acts dacts = ash_ffn_gradients(pass, c->expert.shared_ffn);
        ash_ffn_backward(pass, &params, pass->rows, x, &moe->shared, &dacts, c->expert.shared_ffn, dy, dx);
    }
    pass->exec->ops->row->combine(pass->exec, s->dpair, c->hidden, moe->where + pass->own.first * c->expert.choices,
                                  NULL, c->expert.choices, pass->own.count, shared, dx);
    router_backward(pass, layer, x, dx);
}
