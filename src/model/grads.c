/* A model's gradients in a flat buffer: where each parameter's are, and which are cleared or folded. */
#include "base/assert.h"
#include "model/model_priv.h"

/* Elements of the sum that a tied output matrix has for itself: as many as its part of the embedding. */
static size_t tied_count(const struct ash_model *model)
{
    bool both = model->config.tied && model->slice.embed && model->slice.head && model->adapters == NULL;

    return both ? model->vocab.count * model->config.hidden : 0;
}

/* Experts come after all other parameters of the flat buffers: what ranks with other experts share is the same for
 * all. */
void ash_model_place_experts(struct ash_model *model)
{
    for (size_t i = 0; i < model->param_count; i++)
        if (model->params[i].is_expert) model->params[i].offset = model->dense_size + model->params[i].expert_offset;
    model->size = model->dense_size + model->expert_size;
    for (size_t i = 0; i < model->param_count; i++)
        model->params[i].grad_offset = model->params[i].offset;
    model->tied_grad_offset = model->size;
}

void ash_model_place_grads(struct ash_model *model, size_t index, size_t offset)
{
    ash_assert(index < model->param_count);
    model->params[index].grad_offset = offset;
}

void ash_model_place_tied_grads(struct ash_model *model, size_t offset)
{
    model->tied_grad_offset = offset;
}

size_t ash_model_grad_size(const struct ash_model *model)
{
    return model->size + tied_count(model);
}

/* Embeddings get theirs row by row; of experts' tokens there may be none. */
bool ash_param_overwrites(const struct ash_param *param)
{
    return param->is_trained && param->is_matrix && !param->is_expert && !param->before_layers;
}

void ash_model_clear_grads(const struct ash_model *model, struct ash_exec *exec, float *grads, struct ash_range run)
{
    for (size_t i = 0; i < model->param_count; i++) {
        const struct ash_param *param = &model->params[i];
        size_t first = param->grad_offset;

        if (ash_param_overwrites(param) || first < run.first || first >= run.first + run.count) continue;
        ash_exec_zero(exec, grads + first, param->count * sizeof(float));
    }
}

void ash_model_grad_fold_part(const struct ash_model *model, struct ash_exec *exec, float *grads, size_t part,
                              size_t parts)
{
    struct ash_range run;

    ash_assert(model->config.hidden > 0 && part < parts);
    run = ash_range_split(tied_count(model), model->config.hidden, part, parts);
    if (run.count == 0) return;
    float *embed = grads + model->params[model->top.param[ASH_ROLE_EMBED]].grad_offset + run.first,
          *head = grads + model->tied_grad_offset + run.first;
    exec->ops->row->add(exec, embed, head, run.count, embed);
}

void ash_model_grad_fold(const struct ash_model *model, struct ash_exec *exec, float *grads)
{
    ash_model_grad_fold_part(model, exec, grads, 0, 1);
}
