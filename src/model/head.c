/* The output matrix and the loss, a few rows at a time: logits of all tokens never exist at once.
 * A weight gradient is one chain over tokens, so the size of the pieces changes no bit. */
#include "model/pass_priv.h"

static int32_t head_param(const struct ash_model *model)
{
    return model->config.tied ? model->top.param[ASH_ROLE_EMBED] : model->top.param[ASH_ROLE_HEAD];
}

/* Where the head's gradient is summed: a tied head has a sum of its own behind the parameters (see
 * ash_model_grad_fold). */
static float *head_grad(const struct ash_model *model, float *grads)
{
    return model->config.tied ? grads + model->size : grads + model->params[model->top.param[ASH_ROLE_HEAD]].offset;
}

void ash_head_logits(struct ash_pass *pass, const float *x, size_t count, float *logits_out)
{
    const struct ash_model_config *c = &pass->model->config;

    ash_linear_forward(
        pass->model, pass->exec, head_param(pass->model), ASH_NO_PARAM,
        &(struct ash_linear_io){.rows = count, .x = x, .x_stride = c->hidden, .y = logits_out, .y_stride = c->vocab});
}

static void loss_rows(struct ash_pass *pass, size_t first, size_t count, float scale, float *grads)
{
    const struct ash_model_config *c = &pass->model->config;
    struct ash_scratch *s = &pass->scratch;
    const float *x = pass->final_norm.out + first * c->hidden;
    int32_t head = head_param(pass->model);

    ash_head_logits(pass, x, count, s->logits);
    pass->exec->ops->loss->cross_entropy(pass->exec, s->logits, count, c->vocab, pass->targets + first,
                                         grads != NULL ? scale : 0, pass->losses + first);
    if (grads == NULL) return;
    struct ash_linear_io io = {.rows = count,
                               .x = x,
                               .x_stride = c->hidden,
                               .dy = s->logits,
                               .dy_stride = c->vocab,
                               .dx = s->dnorm + first * c->hidden,
                               .dx_stride = c->hidden};
    ash_linear_weight_grad(pass->model, pass->exec, head, &io, head_grad(pass->model, grads));
    ash_linear_backward(pass->model, pass->exec, head, ASH_NO_PARAM, &io, NULL);
}

void ash_head_loss(struct ash_pass *pass, float scale, float *grads)
{
    for (size_t first = 0; first < pass->rows; first += pass->head_rows) {
        size_t left = pass->rows - first;
        loss_rows(pass, first, left < pass->head_rows ? left : pass->head_rows, scale, grads);
    }
}
