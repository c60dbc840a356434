/* The output matrix and the loss, a few rows at a time: logits of all tokens never exist at once.
 * A weight gradient is one chain over tokens that may be cut at the ends of sequences and, inside one, at whole groups
 * of k; pieces end there, so their size changes no bit. */
#include "model/pass_priv.h"

static int32_t head_param(const struct ash_model *model)
{
    return model->config.tied ? model->top.param[ASH_ROLE_EMBED] : model->top.param[ASH_ROLE_HEAD];
}

/* The sum that the head's gradient goes to: a tied head has one of its own beside the embedding's (see
 * ash_model_grad_fold). */
static int32_t head_sum(const struct ash_model *model)
{
    return model->config.tied && model->slice.embed ? ASH_TIED_HEAD : head_param(model);
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

static void loss_rows(struct ash_pass *pass, size_t first, size_t count, float scale)
{
    const struct ash_model_config *c = &pass->model->config;
    struct ash_scratch *s = &pass->scratch;
    const float *x = pass->final_norm.out + first * c->hidden;
    int32_t head = head_param(pass->model);

    ash_head_logits(pass, x, ASH_NO_PARAM, count, s->logits);
    pass->exec->ops->loss->cross_entropy(pass->exec, s->logits, count, c->vocab, pass->targets + first,
                                         pass->grads != NULL ? scale : 0, pass->losses + first);
    if (pass->grads == NULL) return;
    struct ash_linear_io io = {.rows = count,
                               .x = x,
                               .x_stride = c->hidden,
                               .dy = s->logits,
                               .dy_stride = c->vocab,
                               .dx = s->dnorm + first * c->hidden,
                               .dx_stride = c->hidden,
                               .seq_rows = count < pass->seq_rows ? count : pass->seq_rows};
    /* all pieces are one turn */
    if (first == 0) ash_grad_begin(pass, head_sum(pass->model), ASH_GRAD_ALL);
    ash_linear_weight_grad(pass->model, pass->exec, head, &io, ash_grad_sum(pass, head_sum(pass->model)));
    if (first + count == pass->rows) ash_grad_end(pass, head_sum(pass->model), ASH_GRAD_ALL);
    ash_linear_input_grad(pass->model, pass->exec, head, &io);
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

void ash_head_loss(struct ash_pass *pass, float scale)
{
    for (size_t first = 0, count; first < pass->rows; first += count) {
        count = piece_rows(pass, first);
        loss_rows(pass, first, count, scale);
    }
}
