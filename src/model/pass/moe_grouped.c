/* moe_grouped: rows are gathered, then three products and an activation over all pairs, however many each expert
 * has; then the reverse. */
#include "model/pass/moe_grouped.h"

#include "base/assert.h"
#include "base/prefetcher.h"
#include "model/load.h"
#include "model/lora_priv.h"
#include "model/pass/ffn.h"
#include "model/pass/moe_exchange.h"
#include "model/pass/moe_pairs.h"
#include "model/weight.h"

static const enum ash_role roles[] = {ASH_ROLE_EXPERT_GATE, ASH_ROLE_EXPERT_UP, ASH_ROLE_EXPERT_DOWN};

/* Has every expert's matrix of a role the same plain dtype? */
static bool is_plain(const struct ash_pass_step *step, size_t layer, enum ash_role role)
{
    const struct ash_layer *params = &step->model->layers[layer];
    enum ash_dtype dtype = step->model->params[ash_layer_expert(params, role, 0)].dtype;

    for (size_t e = 0; e < step->model->experts.count; e++) {
        size_t in;
        struct ash_weight w = ash_weight_for(step->model, step->exec, ash_layer_expert(params, role, e), &in);

        if (w.packed || w.mat.dtype != dtype) return false;
    }
    return dtype == ASH_F32 || dtype == ASH_BF16;
}

bool ash_moe_is_grouped(const struct ash_pass_step *step, size_t layer)
{
    ash_assert(layer < step->model->config.layers);
    if (step->exec->memory->host_visible || step->exec->ops->route->grouped == NULL || step->has_adapters ||
        step->axes->ep.size > 1 || step->axes->tp.size > 1 || step->axes->cp.size > 1 || step->axes->outs.size > 1)
        return false;
    if (!ash_layer_has(&step->model->layers[layer], ASH_ROLE_EXPERT_GATE)) return false; /* fused */
    if (ash_layer_has(&step->model->layers[layer], ASH_ROLE_EXPERT_DOWN_BIAS)) return false;
    for (size_t r = 0; r < ASH_COUNT(roles); r++)
        if (!is_plain(step, layer, roles[r])) return false;
    return true;
}

static size_t pair_count(const struct ash_pass_step *step)
{
    return step->rows * step->model->config.expert.choices;
}

/* The product of all pairs with their experts' matrices of a role, but for the matrices: from K columns to N. */
static struct ash_grouped_args product(const struct ash_pass_step *step, size_t layer, const float *x, float *y)
{
    ash_assert(layer < step->model->config.layers);
    return (struct ash_grouped_args){.groups = step->model->experts.count,
                                     .rows = pair_count(step),
                                     .starts = step->acts->layers[layer].moe.starts,
                                     .w = step->moe->weights,
                                     .x = x,
                                     .y = y,
                                     .round_bf16 = step->model->round_bf16};
}

static void run_product(const struct ash_pass_step *step, struct ash_grouped_args *args)
{
    args->N = args->y_stride = args->w[0].N;
    args->x_stride = args->K;
    step->exec->ops->route->grouped(step->exec, args);
}

/* y = x w^T. */
static void multiply(const struct ash_pass_step *step, size_t layer, enum ash_role role, const float *x, float *y)
{
    const struct ash_model *model = step->model;
    struct ash_grouped_args args = product(step, layer, x, y);

    ash_assert(layer < step->model->config.layers);
    for (size_t e = 0; e < args.groups; e++) {
        int32_t param = ash_layer_expert(&model->layers[layer], role, e);

        ash_prefetcher_wait(model->prefetcher, model->params[param].data);
        ash_load_wait(model->load, param);
        step->moe->weights[e] = ash_weight_for(model, step->exec, param, &args.K);
    }
    run_product(step, &args);
}

/* dx (+)= dy w. */
static void input_grad(const struct ash_pass_step *step, size_t layer, enum ash_role role, const float *dy, float *dx,
                       bool accumulate)
{
    const struct ash_model *model = step->model;
    struct ash_grouped_args args = product(step, layer, dy, dx);

    ash_assert(layer < step->model->config.layers);
    for (size_t e = 0; e < args.groups; e++) {
        int32_t param = ash_layer_expert(&model->layers[layer], role, e);
        struct ash_weight_shape shape = ash_weight_shape_of(model, param);

        step->moe->weights[e] = (struct ash_weight){.N = shape.in, .mat = ash_weight_matrix(model, param, true)};
        args.K = shape.out;
    }
    args.accumulate = accumulate;
    run_product(step, &args);
}

/* dw (+)= dy^T x, of every expert: experts without rows get zeros if the others begin with this batch. */
static void weight_grad(const struct ash_pass_step *step, struct ash_grad_sink *sink, size_t layer, enum ash_role role,
                        const float *dy, const float *x)
{
    const struct ash_model *model = step->model;
    float *dw[ASH_ROUTE_EXPERTS_MAX];
    struct ash_grouped_grad_args args = {.groups = model->experts.count,
                                         .rows = pair_count(step),
                                         .starts = step->acts->layers[layer].moe.starts,
                                         .dy = dy,
                                         .x = x,
                                         .dw = dw,
                                         .round_bf16 = model->round_bf16};

    ash_assert(args.groups <= ASH_COUNT(dw));
    for (size_t e = 0; e < args.groups; e++) {
        int32_t param = ash_layer_expert(&model->layers[layer], role, e);
        struct ash_weight_shape shape = ash_weight_shape_of(model, param);

        ash_assert(!shape.transposed);
        dw[e] = ash_grad_sum_of(sink, param).data;
        if (dw[e] == NULL) return; /* no expert's is wanted */
        args.accumulate = !ash_grad_overwrites_first(sink, param);
        args.M = args.dy_stride = shape.out;
        args.N = args.x_stride = shape.in;
    }
    step->exec->ops->route->grouped_grad(step->exec, &args);
}

void ash_moe_grouped_forward(const struct ash_pass_step *step, size_t layer, const float *x)
{
    const struct ash_moe_acts *moe = &step->acts->layers[layer].moe;
    size_t pairs = step->rows * step->model->config.expert.choices;

    ash_assert(moe->expert.gate != NULL && moe->expert.hidden != NULL);
    ash_moe_gather_rows(step, layer, x, (struct ash_range){0, pairs}, false, moe->x);
    multiply(step, layer, ASH_ROLE_EXPERT_GATE, moe->x, moe->expert.gate);
    multiply(step, layer, ASH_ROLE_EXPERT_UP, moe->x, moe->expert.up);
    ash_ffn_activate(step, &moe->expert, pairs, step->model->config.expert.ffn);
    multiply(step, layer, ASH_ROLE_EXPERT_DOWN, moe->expert.hidden, moe->y);
}

void ash_moe_grouped_backward(const struct ash_pass_step *step, struct ash_grad_sink *sink, size_t layer,
                              const float *x, const float *dy)
{
    const struct ash_moe_acts *moe = &step->acts->layers[layer].moe;
    const struct ash_ffn_acts *acts = &moe->expert, *dacts = &step->acts->scratch.dexpert;
    struct ash_range pairs = {0, pair_count(step)};
    struct ash_grad_sink own = ash_moe_source_sink(step, sink, 0);
    size_t count = pairs.count * step->model->config.expert.ffn;
    float *dpair = step->acts->scratch.dpair;

    ash_assert(layer < step->model->config.layers);
    if (step->opts->recompute == ASH_RECOMPUTE_SELECTIVE) {
        ash_moe_gather_rows(step, layer, x, pairs, false, moe->x);
        ash_ffn_activate(step, acts, pairs.count, step->model->config.expert.ffn);
    }
    ash_moe_gather_rows(step, layer, dy, pairs, true, dpair);
    weight_grad(step, &own, layer, ASH_ROLE_EXPERT_DOWN, dpair, acts->hidden);
    input_grad(step, layer, ASH_ROLE_EXPERT_DOWN, dpair, dacts->hidden, false);
    step->exec->ops->act->swiglu_backward(step->exec,
                                          &(struct ash_swiglu_grad_args){.count = count,
                                                                         .gate = acts->gate,
                                                                         .up = acts->up,
                                                                         .dout = dacts->hidden,
                                                                         .round_bf16 = step->model->round_bf16,
                                                                         .dgate = dacts->gate,
                                                                         .dup = dacts->up});
    weight_grad(step, &own, layer, ASH_ROLE_EXPERT_GATE, dacts->gate, moe->x);
    input_grad(step, layer, ASH_ROLE_EXPERT_GATE, dacts->gate, dpair, false);
    weight_grad(step, &own, layer, ASH_ROLE_EXPERT_UP, dacts->up, moe->x);
    input_grad(step, layer, ASH_ROLE_EXPERT_UP, dacts->up, dpair, true);
}
