/* parallel_linear: row-parallel and column-parallel layers as reductions over the ranks of tp. */
#include "model/pass/parallel_linear.h"

#include "base/assert.h"
#include "model/pass/adapter.h"
#include "model/pass/adapter_grads.h"
#include "model/pass/gather.h"
#include "model/pass/grads_shared.h"
#include "model/pass/linear_grads.h"
#include "model/pass/reduce.h"

/* ---- row-parallel ------------------------------------------------------------------------------------------------ */

void ash_row_parallel_forward(const struct ash_pass_step *step, int32_t weight, int32_t bias, const float *x,
                              size_t x_stride, float *out)
{
    struct ash_linear_chunk chunk = {.weight = weight, .x = x, .x_stride = x_stride};
    struct ash_reduction reduction = {.rows = {0, step->rows},
                                      .cols = step->model->config.hidden,
                                      .chunk_count = 1,
                                      .chunks[0] = ash_operand_product(step, &chunk),
                                      .accumulate = ash_operand_accumulate,
                                      .bias = ash_model_vector(step->model, bias),
                                      .out = out};

    ash_reduce(step, &reduction);
    ash_adapter_forward_split(step, weight, x, x_stride, out);
}

void ash_row_parallel_add(const struct ash_pass_step *step, struct ash_linear_group *group, const float *before,
                          float *after)
{
    size_t hidden = step->model->config.hidden;
    bool is_split = step->axes->tp.size > 1;
    struct ash_linear_out *out = &group->outs[0];
    bool is_added;

    ash_assert(group->out_count == 1);
    if (ash_gathers(step)) {
        step->exec->ops->row->add(step->exec, before, ash_gather_product(step, group), step->rows * hidden, after);
        return;
    }
    group->residual = before == after && !is_split && !ash_adapter_applies(step, out->weight);
    group->add = before != after && !is_split && ash_linear_adds(step, out->weight) ? before : NULL;
    is_added = group->residual || group->add != NULL;
    out->y = is_added ? after : step->acts->scratch.residual;
    out->y_stride = hidden;
    if (is_split)
        ash_row_parallel_forward(step, out->weight, out->bias, group->x, group->x_stride, out->y);
    else
        ash_linear_project(step, group);
    if (!is_added) step->exec->ops->row->add(step->exec, before, out->y, step->own.count * hidden, after);
}

/* ---- column-parallel --------------------------------------------------------------------------------------------- */

/* The weight gradients that overlap with the reduction of dx. */
struct overlap {
    struct ash_grad_sink *sink;
    const struct ash_column_parallel *columns;
    ash_weight_grads_fn *weight_grads;
};

static void overlap_grads(const struct ash_pass_step *step, void *ctx)
{
    const struct overlap *overlap = ctx;

    overlap->weight_grads(step, overlap->sink, overlap->columns);
    ash_shared_grads_compute(overlap->sink, overlap->columns->count); /* those before */
}

/* The base's products of an output come before its adapter's, as in one process: the last rank adds that. */
static void accumulate_outputs(const struct ash_pass_step *step, void *ctx, const struct ash_operand *operand,
                               struct ash_range rows, bool overwrite, float *sums)
{
    const struct overlap *overlap = ctx;
    const struct ash_column_output *output;

    ash_operand_accumulate(step, NULL, operand, rows, overwrite, sums);
    if (operand->ends == 0) return;
    output = &overlap->columns->outputs[operand->ends - 1];
    ash_adapter_input_grad_rows(step, output->weight, overlap->columns->dlow[operand->ends - 1], rows, sums);
}

/* This rank's operands of dx, and what adapters add to it. */
static void list_operands(const struct ash_pass_step *step, struct ash_column_parallel *columns,
                          struct ash_reduction *reduction)
{
    bool is_last = step->axes->tp.rank + 1 == step->axes->tp.size;

    for (size_t i = 0; i < columns->count; i++) {
        const struct ash_column_output *output = &columns->outputs[i];

        columns->dlow[i] = ash_adapter_reduce_gradient(step, output->weight, i, output->dy, output->dy_stride);
        ash_reduction_add_outputs(step, reduction, output->weight, output->dy, output->dy_stride);
        if (columns->dlow[i] != NULL && is_last) reduction->chunks[reduction->chunk_count - 1].ends = i + 1;
    }
}

/* A rank of cp that has to wait for the weights' sums computes dx first. */
void ash_column_parallel_backward_with(const struct ash_pass_step *step, struct ash_grad_sink *sink,
                                       const struct ash_column_parallel *columns, ash_weight_grads_fn *weight_grads)
{
    bool dx_first = step->axes->cp.rank > 0 && !columns->shared_rows;
    struct ash_column_parallel adapted = *columns;
    struct overlap overlap = {sink, &adapted, weight_grads};
    struct ash_reduction reduction = {.rows = {columns->first, columns->rows},
                                      .cols = columns->in,
                                      .accumulate = accumulate_outputs,
                                      .overlap = dx_first ? NULL : overlap_grads,
                                      .ctx = &overlap,
                                      .out = columns->dx};

    ash_assert(columns->count >= 1 && columns->dx != NULL);
    list_operands(step, &adapted, &reduction);
    ash_reduce(step, &reduction);
    if (dx_first) weight_grads(step, sink, &adapted);
}

/* Does the next output's gradient lie in the columns after this one's? */
static bool dy_continues(const struct ash_column_output *output, size_t outs)
{
    const struct ash_column_output *next = output + 1;

    if (next->dy_stride != output->dy_stride || (next->dy == NULL) != (output->dy == NULL) ||
        (next->dy_bf16 == NULL) != (output->dy_bf16 == NULL))
        return false;
    return (output->dy == NULL || next->dy == output->dy + outs) &&
           (output->dy_bf16 == NULL || next->dy_bf16 == output->dy_bf16 + outs);
}

/* And the gradient of its weight after that of this one's? */
static bool grads_continue(const struct ash_grad_sink *sink, int32_t weight)
{
    struct ash_grad_sum sum = ash_grad_sum_of(sink, weight), next = ash_grad_sum_of(sink, weight + 1);

    return sum.data == NULL ? next.data == NULL : next.data == sum.data + sum.count;
}

/* How many outputs after output i are computed with it, as those of one matrix. */
static size_t joined_after(const struct ash_pass_step *step, const struct ash_grad_sink *sink,
                           const struct ash_column_parallel *columns, size_t i)
{
    size_t joined = 0;

    if (step->axes->cp.size > 1 || columns->shared_rows) return 0;
    for (; i + 1 < columns->count; i++, joined++) {
        const struct ash_column_output *output = &columns->outputs[i];

        if (output->bias != ASH_NO_PARAM || output[1].bias != ASH_NO_PARAM || output[1].weight != output->weight + 1 ||
            !ash_linear_joins_next(step, output->weight) || !grads_continue(sink, output->weight) ||
            !dy_continues(output, ash_weight_shape_of(step->model, output->weight).out))
            break;
    }
    return joined;
}

/* Everything but dx (NULL), or with it. Returns whether dx went to dx_bf16. */
static bool backward_here(const struct ash_pass_step *step, struct ash_grad_sink *sink,
                          const struct ash_column_parallel *columns, float *dx)
{
    bool is_bf16 = false;

    for (size_t i = 0, joined; i < columns->count; i += joined + 1) {
        joined = joined_after(step, sink, columns, i);
        is_bf16 = dx != NULL && columns->dx_bf16 != NULL && joined + 1 == columns->count;
        ash_linear_backward(step, sink, columns->outputs[i].weight, columns->outputs[i].bias,
                            &(struct ash_linear_io){.rows = columns->rows,
                                                    .x = columns->x,
                                                    .x_bf16 = columns->x_bf16,
                                                    .x_stride = columns->in,
                                                    .dy = columns->outputs[i].dy,
                                                    .dy_bf16 = columns->outputs[i].dy_bf16,
                                                    .dy_stride = columns->outputs[i].dy_stride,
                                                    .dx = is_bf16 ? NULL : dx,
                                                    .dx_bf16 = is_bf16 ? columns->dx_bf16 : NULL,
                                                    .dx_stride = columns->in,
                                                    .dx_add = i > 0,
                                                    .dlow = columns->dlow[i],
                                                    .seq_rows = columns->seq_rows,
                                                    .shared_rows = columns->shared_rows,
                                                    .joined = joined});
    }
    return is_bf16;
}

static void weight_grads_here(const struct ash_pass_step *step, struct ash_grad_sink *sink,
                              const struct ash_column_parallel *columns)
{
    backward_here(step, sink, columns, NULL);
}

bool ash_column_parallel_backward(const struct ash_pass_step *step, struct ash_grad_sink *sink,
                                  const struct ash_column_parallel *columns)
{
    ash_assert(columns->count >= 1 && columns->count <= ASH_PROJECT_OUTS_MAX);
    if (step->axes->tp.size == 1 || step->model->params[columns->outputs[0].weight].cut < 0)
        return backward_here(step, sink, columns, columns->dx);
    ash_column_parallel_backward_with(step, sink, columns, weight_grads_here);
    return false;
}
