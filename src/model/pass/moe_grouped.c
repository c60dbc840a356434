/* moe_grouped: rows are gathered, then three products and an activation over all pairs, whoever has how many. */
#include "model/pass/moe_grouped.h"

#include "base/assert.h"
#include "base/prefetcher.h"
#include "model/files/load.h"
#include "model/lora_priv.h"
#include "model/pass/ffn.h"
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
    if (step->exec->memory->host_visible || step->exec->ops->route->grouped == NULL || step->has_adapters ||
        step->axes->ep.size > 1 || step->axes->tp.size > 1)
        return false;
    for (size_t r = 0; r < ASH_COUNT(roles); r++)
        if (!is_plain(step, layer, roles[r])) return false;
    return true;
}

/* y = x w^T, every pair with its expert's matrix of a role. */
static void multiply(const struct ash_pass_step *step, size_t layer, enum ash_role role, const float *x, float *y)
{
    const struct ash_model *model = step->model;
    struct ash_weight *weights = step->moe->weights;
    struct ash_grouped_args args = {.groups = model->experts.count,
                                    .rows = step->rows * model->config.expert.choices,
                                    .starts = step->acts->layers[layer].moe.starts,
                                    .w = weights,
                                    .x = x,
                                    .y = y,
                                    .round_bf16 = model->round_bf16};

    for (size_t e = 0; e < args.groups; e++) {
        int32_t param = ash_layer_expert(&model->layers[layer], role, e);

        ash_prefetcher_wait(model->prefetcher, model->params[param].data);
        ash_load_wait(model->load, param);
        weights[e] = ash_weight_for(model, step->exec, param, &args.K);
    }
    args.N = args.y_stride = weights[0].N;
    args.x_stride = args.K;
    step->exec->ops->route->grouped(step->exec, &args);
}

void ash_moe_grouped_forward(const struct ash_pass_step *step, size_t layer, const float *x)
{
    const struct ash_moe_acts *moe = &step->acts->layers[layer].moe;
    size_t pairs = step->rows * step->model->config.expert.choices;

    ash_assert(moe->expert.gate != NULL && moe->expert.hidden != NULL);
    ash_moe_gather_rows(step, layer, x, (struct ash_range){0, pairs}, false, moe->x);
    multiply(step, layer, ASH_ROLE_EXPERT_GATE, moe->x, moe->expert.gate);
    multiply(step, layer, ASH_ROLE_EXPERT_UP, moe->x, moe->expert.up);
    ash_ffn_activate(step, &moe->expert, pairs * step->model->config.expert.ffn);
    multiply(step, layer, ASH_ROLE_EXPERT_DOWN, moe->expert.hidden, moe->y);
}

void ash_moe_grouped_offsets(const struct ash_pass_step *step, size_t layer)
{
    size_t count = step->model->config.expert.experts + 1;
    int rc = step->exec->memory->copy(step->moe->starts, step->acts->layers[layer].moe.starts,
                                      count * sizeof(*step->moe->starts));

    if (rc < 0 && step->axes->failed == 0)
        step->axes->failed = ash_err_set(&step->axes->failure, rc, "cannot copy the experts' offsets");
    for (size_t e = 0; e < count; e++)
        step->moe->routes[layer].offsets[e] = (size_t)step->moe->starts[e];
}
