/* A layer of experts: each token goes to the few experts its router chooses, and to the shared ones.
 * Tokens are sorted by expert, ascending within one, so that each expert is a plain feed-forward over its rows and its
 * gradients add up in token order. A token's output adds its experts in the order of their scores: neither depends on
 * the batch. */
#include "model/pass_priv.h"

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

/* The part of acts that belongs to pairs from first on. */
static struct ash_ffn_acts acts_from(const struct ash_ffn_acts *acts, size_t first, size_t width)
{
    return (struct ash_ffn_acts){acts->gate + first * width, acts->up + first * width, acts->hidden + first * width};
}

static void experts_forward(struct ash_pass *pass, size_t layer)
{
    const struct ash_model_config *c = &pass->model->config;
    struct ash_moe_acts *moe = &pass->layers[layer].moe;

    for (size_t e = 0; e < c->expert.experts; e++) {
        size_t first = moe->offsets[e], rows = moe->offsets[e + 1] - first;
        if (rows == 0) continue;
        struct ash_ffn_params params = expert_params(&pass->model->layers[layer], e);
        struct ash_ffn_acts acts = acts_from(&moe->expert, first, c->expert.ffn);
        ash_ffn_forward(pass, &params, rows, moe->x + first * c->hidden, &acts, c->expert.ffn,
                        moe->y + first * c->hidden);
    }
}

void ash_moe_forward(struct ash_pass *pass, size_t layer, const float *x, float *y)
{
    const struct ash_model_config *c = &pass->model->config;
    const struct ash_ops *ops = pass->exec->ops;
    struct ash_moe_acts *moe = &pass->layers[layer].moe;
    struct ash_route_args route = route_args(pass, layer);
    bool shared = c->expert.shared_ffn != 0;

    ash_linear_forward(
        pass->model, pass->exec, pass->model->layers[layer].param[ASH_ROLE_ROUTER], ASH_NO_PARAM,
        &(struct ash_linear_io){
            .rows = pass->rows, .x = x, .x_stride = c->hidden, .y = moe->logits, .y_stride = c->expert.experts});
    ops->route->forward(pass->exec, &route);
    ops->route->group(pass->exec, moe->index, pass->rows, c->expert.choices, c->expert.experts, moe->order, moe->flat,
                      moe->where, moe->offsets);
    ops->row->gather(pass->exec, x, c->hidden, moe->order, pass->rows * c->expert.choices, moe->x);
    experts_forward(pass, layer);
    if (shared) {
        struct ash_ffn_params params = shared_params(&pass->model->layers[layer]);
        ash_ffn_forward(pass, &params, pass->rows, x, &moe->shared, c->expert.shared_ffn, y);
    }
    ops->row->combine(pass->exec, moe->y, c->hidden, moe->where, moe->weight, c->expert.choices, pass->rows, shared, y);
}

/* dpair becomes the gradient of moe->x, expert by expert; on entry it is the gradient of moe->y. */
static void experts_backward(struct ash_pass *pass, size_t layer)
{
    const struct ash_model_config *c = &pass->model->config;
    struct ash_moe_acts *moe = &pass->layers[layer].moe;
    struct ash_scratch *s = &pass->scratch;

    for (size_t e = 0; e < c->expert.experts; e++) {
        size_t first = moe->offsets[e], rows = moe->offsets[e + 1] - first;
        if (rows == 0) continue;
        struct ash_ffn_params params = expert_params(&pass->model->layers[layer], e);
        struct ash_ffn_acts acts = acts_from(&moe->expert, first, c->expert.ffn);
        struct ash_ffn_acts dacts = acts_from(&s->dexpert, first, c->expert.ffn);
        float *dpair = s->dpair + first * c->hidden;
        ash_ffn_backward(pass, &params, rows, moe->x + first * c->hidden, &acts, &dacts, c->expert.ffn, dpair, dpair,
                         false);
    }
}

static void recompute_cheap(struct ash_pass *pass, size_t layer, const float *x)
{
    const struct ash_model_config *c = &pass->model->config;
    struct ash_moe_acts *moe = &pass->layers[layer].moe;
    size_t pairs = pass->rows * c->expert.choices;

    pass->exec->ops->row->gather(pass->exec, x, c->hidden, moe->order, pairs, moe->x);
    ash_ffn_activate(pass, &moe->expert, pairs * c->expert.ffn);
    if (c->expert.shared_ffn != 0) ash_ffn_activate(pass, &moe->shared, pass->rows * c->expert.shared_ffn);
}

void ash_moe_backward(struct ash_pass *pass, size_t layer, const float *x, const float *dy, float *dx)
{
    const struct ash_model_config *c = &pass->model->config;
    const struct ash_ops *ops = pass->exec->ops;
    struct ash_moe_acts *moe = &pass->layers[layer].moe;
    struct ash_scratch *s = &pass->scratch;
    struct ash_route_args route = route_args(pass, layer);
    size_t choices = c->expert.choices, pairs = pass->rows * choices;
    bool shared = c->expert.shared_ffn != 0;

    if (pass->opts.recompute == ASH_RECOMPUTE_SELECTIVE) recompute_cheap(pass, layer, x);
    ops->row->slot_dot(pass->exec, dy, moe->y, c->hidden, moe->where, choices, pass->rows, s->dweight);
    route.dweight = s->dweight;
    route.dlogits = s->dlogits;
    ops->route->backward(pass->exec, &route);
    /* the gradient of a pair's y is its token's gradient times its weight */
    ops->row->gather(pass->exec, moe->weight, 1, moe->flat, pairs, s->pair_weight);
    ops->row->combine(pass->exec, dy, c->hidden, moe->order, s->pair_weight, 1, pairs, false, s->dpair);
    experts_backward(pass, layer);
    if (shared) {
        struct ash_ffn_params params = shared_params(&pass->model->layers[layer]);
        ash_ffn_backward(pass, &params, pass->rows, x, &moe->shared, &s->dffn, c->expert.shared_ffn, dy, dx, false);
    }
    ops->row->combine(pass->exec, s->dpair, c->hidden, moe->where, NULL, choices, pass->rows, shared, dx);
    ash_pass_linear_backward(pass, pass->model->layers[layer].param[ASH_ROLE_ROUTER], ASH_NO_PARAM,
                             &(struct ash_linear_io){.rows = pass->rows,
                                                     .x = x,
                                                     .x_stride = c->hidden,
                                                     .dy = s->dlogits,
                                                     .dy_stride = c->expert.experts,
                                                     .dx = dx,
                                                     .dx_stride = c->hidden,
                                                     .dx_add = true,
                                                     .seq_rows = pass->seq_rows});
}
