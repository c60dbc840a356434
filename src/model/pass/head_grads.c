/* head_grads: from gradients of logits to those of the output matrix and of the rows that it read. A weight gradient is
 * one chain over tokens: pieces of rows end at its cut points. */
#include "base/math.h"
#include "model/pass/head_priv.h"
#include "model/pass/linear_grads.h"
#include "model/pass/parallel_linear.h"
#include "model/pass/split.h"
#include "model/pass/weight_grads.h"

int32_t ash_head_param(const struct ash_model *model)
{
    return model->top.param[ash_layer_has(&model->top, ASH_ROLE_HEAD) ? ASH_ROLE_HEAD : ASH_ROLE_EMBED];
}

size_t ash_head_width(const struct ash_model *model)
{
    return model->config.labels > 0 ? model->config.labels : model->vocab.count;
}

/* The sum that the head's gradient goes to: a tied head has its own sum, apart from the embedding's (see
 * ash_model_grad_fold). */
static int32_t head_sum(const struct ash_model *model)
{
    return model->config.tied && model->slice.embed ? ASH_TIED_HEAD : ash_head_param(model);
}

/* Has every rank of cp one piece? They must know alike how the head's sum is acquired. */
static bool is_one_piece(const struct ash_pass_step *step)
{
    for (size_t r = 0; r < step->axes->cp.size; r++)
        if (ash_split_rows_cp(step->axes, step->batch->rows, r).count > step->acts->head_rows) return false;
    return true;
}

bool ash_head_is_frozen(const struct ash_pass_step *step, const struct ash_grad_sink *sink)
{
    return ash_grad_sum_of(sink, head_sum(step->model)).data == NULL && step->model->adapters != NULL;
}

/* The gradient of the outputs' bias, in pieces like the matrix's. */
static void bias_grad(const struct ash_pass_step *step, struct ash_grad_sink *sink,
                      const struct ash_column_parallel *columns)
{
    int32_t bias = step->model->top.param[ASH_ROLE_HEAD_BIAS];
    struct ash_linear_io io = {.rows = columns->rows,
                               .dy = columns->outputs[0].dy,
                               .dy_stride = columns->outputs[0].dy_stride,
                               .seq_rows = columns->seq_rows};

    if (bias == ASH_NO_PARAM) return;
    if (columns->first == 0) ash_grad_acquire(sink, bias, ASH_GRAD_ALL);
    if (ash_grad_sum_of(sink, bias).data != NULL)
        ash_linear_bias_grad(step->model, step->exec, columns->outputs[0].weight, &io,
                             ash_grad_sum_of(sink, bias).data);
    if (columns->first + columns->rows == step->rows) ash_grad_release(sink, bias, ASH_GRAD_ALL);
}

/* The output matrix's gradient over the rows of a piece. All pieces are accumulated between one acquire and release;
 * a single piece is accumulated in parts of the matrix. */
static void weight_grads(const struct ash_pass_step *step, struct ash_grad_sink *sink,
                         const struct ash_column_parallel *columns)
{
    int32_t sum = head_sum(step->model), head = columns->outputs[0].weight;
    struct ash_linear_io io = {.rows = columns->rows,
                               .x = columns->x,
                               .x_bf16 = columns->x_bf16,
                               .x_stride = columns->in,
                               .dy = columns->outputs[0].dy,
                               .dy_bf16 = columns->outputs[0].dy_bf16,
                               .dy_stride = columns->outputs[0].dy_stride,
                               .seq_rows = columns->seq_rows,
                               .shared_rows = columns->shared_rows};

    if (ash_head_is_frozen(step, sink)) return;
    bias_grad(step, sink, columns);
    if (is_one_piece(step)) {
        ash_linear_weight_backward(step, sink, sum, head, &io);
        return;
    }
    if (columns->first == 0) ash_grad_acquire(sink, sum, ASH_GRAD_ALL);
    ash_linear_weight_grad(
        step->model, step->exec, &io,
        ash_weight_grad_all(step->model, head, ash_grad_sum_of(sink, sum).data, ash_grad_overwrites_first(sink, sum)));
    if (columns->first + columns->rows == step->rows) ash_grad_release(sink, sum, ASH_GRAD_ALL);
}

void ash_head_weight_grads(const struct ash_pass_step *step, struct ash_grad_sink *sink,
                           const struct ash_column_parallel *columns, const float *factors)
{
    const struct ash_scratch *s = &step->acts->scratch;
    struct ash_column_parallel scaled = *columns;

    if (factors == NULL || ash_head_is_frozen(step, sink)) {
        weight_grads(step, sink, columns);
        return;
    }
    step->exec->ops->row->scale_rows(step->exec, &(struct ash_scale_rows_args){.rows = columns->rows,
                                                                               .cols = columns->in,
                                                                               .x = columns->x,
                                                                               .factors = factors,
                                                                               .out = s->scaled,
                                                                               .out_bf16 = s->scaled_bf16});
    scaled.x = s->scaled_bf16 == NULL ? s->scaled : NULL;
    scaled.x_bf16 = s->scaled_bf16;
    weight_grads(step, sink, &scaled);
}

void ash_head_input_grads(const struct ash_pass_step *step, const float *factors, const struct ash_linear_io *io)
{
    if (io->rows == 0) return;
    ash_linear_input_grad(step, ash_head_param(step->model), io);
    if (factors == NULL) return;
    step->exec->ops->row->scale_rows(
        step->exec, &(struct ash_scale_rows_args){
                        .rows = io->rows, .cols = io->dx_stride, .x = io->dx, .factors = factors, .out = io->dx});
}

void ash_head_backward_rows(const struct ash_pass_step *step, struct ash_grad_sink *sink, const float *x,
                            struct ash_range rows, const float *factors)
{
    struct ash_scratch *s = &step->acts->scratch;
    int32_t head = ash_head_param(step->model);
    size_t hidden = step->model->config.hidden, vocab = ash_head_width(step->model);
    struct ash_column_parallel columns = {.first = rows.first,
                                          .rows = rows.count,
                                          .in = hidden,
                                          .seq_rows = ash_min(rows.count, step->seq_rows),
                                          .x = x,
                                          .dx = s->dnorm,
                                          .shared_rows = s->logits_all != NULL,
                                          .count = 1,
                                          .outputs[0] = {head, ASH_NO_PARAM, s->logits, vocab, NULL}};
    struct ash_range own = ash_range_overlap(rows, step->own); /* of a score, which every rank of tp has whole */
    struct ash_linear_io io = {.rows = own.count,
                               .dy = s->logits + (own.first - rows.first) * vocab,
                               .dy_stride = vocab,
                               .dx = s->dnorm + (own.first - step->own.first) * hidden,
                               .dx_stride = hidden};

    if (s->dlogits_bf16 != NULL) {
        columns.outputs[0].dy_stride = io.dy_stride = s->dlogits_stride;
        columns.outputs[0].dy = io.dy = NULL;
        columns.outputs[0].dy_bf16 = s->dlogits_bf16;
        io.dy_bf16 = s->dlogits_bf16 + (own.first - rows.first) * io.dy_stride;
    }
    if (step->axes->tp.size > 1 && step->model->config.labels == 0) {
        ash_column_parallel_backward_with(step, sink, &columns, weight_grads);
        return;
    }
    /* as in ash_linear_backward: a rank that has to wait for the sum computes dx first */
    bool dx_first = step->axes->cp.rank > 0 && !columns.shared_rows;
    if (dx_first) ash_head_input_grads(step, factors, &io);
    ash_head_weight_grads(step, sink, &columns, factors);
    if (!dx_first) ash_head_input_grads(step, factors, &io);
}
