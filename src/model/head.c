/* The output matrix and the loss, a few rows at a time: logits of all tokens never exist at once.
 * A weight gradient is one chain over tokens that may be cut at the ends of sequences and, inside one, at whole groups
 * of k; pieces end there, so their size changes no bit. */
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

void ash_head_logits(struct ash_pass *pass, const float *x, int32_t norm, size_t count, float *logits_out)
{
    const struct ash_model_config *c = &pass->model->config;

    ash_linear_project(
        pass->model, pass->exec,
        &(struct ash_linear_group){.rows = count,
                                   .x = x,
                                   .x_stride = c->hidden,
                                   .norm = norm,
                                   .out_count = 1,
                                   .outs[0] = {head_param(pass->model), ASH_NO_PARAM, logits_out, c->vocab}});
}

static void loss_rows(struct ash_pass *pass, size_t first, size_t count, float scale, float *grads)
{
    const struct ash_model_config *c = &pass->model->config;
    struct ash_scratch *s = &pass->scratch;
    const float *x = pass->final_norm.out + first * c->hidden;
    int32_t head = head_param(pass->model);

    ash_head_logits(pass, x, ASH_NO_PARAM, count, s->logits);
    pass->exec->ops->loss->cross_entropy(pass->exec, s->logits, count, c->vocab, pass->targets + first,
                                         grads != NULL ? scale : 0, pass->losses + first);
    if (grads == NULL) return;
    struct ash_linear_io io = {.rows = count,
                               .x = x,
                               .x_stride = c->hidden,
                               .dy = s->logits,
                               .dy_stride = c->vocab,
                               .dx = s->dnorm + first * c->hidden,
                               .dx_stride = c->hidden,
                               .seq_rows = count < pass->seq_rows ? count : pass->seq_rows};
    ash_linear_weight_grad(pass->model, pass->exec, head, &io, head_grad(pass->model, grads));
    ash_linear_backward(pass->model, pass->exec, head, ASH_NO_PARAM, &io, NULL);
}

/* Rows of the piece that starts at row first: as many as fit, of whole groups where sequences are that; else whole
 * sequences; else a part of one. */
static size_t piece_rows(const struct ash_pass *pass, size_t first)
{
    size_t in_sequence = pass->seq_rows - first % pass->seq_rows, left = pass->rows - first;
    size_t most = pass->head_rows;

    if (pass->seq_rows % ASH_K_GROUP != 0) {
        if (pass->seq_rows <= most)
            most = most / pass->seq_rows * pass->seq_rows;
        else
            left = in_sequence;
    }
    return left < most ? left : most;
}

void ash_head_loss(struct ash_pass *pass, float scale, float *grads)
{
    for (size_t first = 0, count; first < pass->rows; first += count) {
        count = piece_rows(pass, first);
        loss_rows(pass, first, count, scale, grads);
    }
}
