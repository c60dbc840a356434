/* adapter_grads: what of an adapter's products ranks of tp have parts of, and the gradients of its two factors. */
#include "model/pass/adapter_grads.h"

#include "base/assert.h"
#include "model/pass/adapter_priv.h"
#include "model/pass/reduce.h"
#include "model/pass/weight_grads.h"

/* Room for the products of an adapter: the first two are x A^T and dy B, the others are kept for the outputs of a
 * layer. */
static float *slot_of(const struct ash_model *model, size_t slot)
{
    ash_assert(slot < ASH_ADAPTER_SLOTS);
    return (float *)model->adapter_scratch.data +
           slot * (model->adapter_scratch.size_bytes / (ASH_ADAPTER_SLOTS * sizeof(float)));
}

/* The same where ranks of tp have parts of A's inputs: of all rows, or of this rank's own. */
static float *lower_split(const struct ash_pass_step *step, const struct ash_adapter *adapter,
                          const struct ash_linear_io *io, bool of_all)
{
    float *low = slot_of(step->model, 0);
    struct ash_linear_chunk chunk = {.weight = adapter->a, .x = io->x, .x_stride = io->x_stride};
    struct ash_reduction reduction = {.rows = {0, step->rows},
                                      .cols = adapter->rank,
                                      .chunk_count = 1,
                                      .chunks[0] = ash_operand_product(step, &chunk),
                                      .accumulate = ash_operand_accumulate,
                                      .out = low,
                                      .all = of_all ? low : NULL};

    ash_reduce(step, &reduction);
    step->exec->ops->row->scale(step->exec, low, adapter->scale,
                                (of_all ? step->rows : step->own.count) * adapter->rank);
    return low;
}

static bool is_split(const struct ash_model *model, int32_t factor)
{
    return model->params[factor].cut >= 0;
}

void ash_adapter_forward_split(const struct ash_pass_step *step, int32_t weight, const float *x, size_t x_stride,
                               float *out)
{
    const struct ash_model *model = step->model;
    const struct ash_adapter *adapter = ash_model_adapter(model, weight);
    struct ash_linear_io io = {.rows = step->rows, .x = x, .x_stride = x_stride};
    struct ash_mat low, sums;

    if (adapter == NULL || step->rows == 0) return;
    io = ash_adapter_seen(step, weight, adapter, &io);
    low = (struct ash_mat){lower_split(step, adapter, &io, false), ASH_F32, adapter->rank, 1};
    sums = (struct ash_mat){out, ASH_F32, model->params[adapter->b].dims[0], 1};
    if (step->own.count > 0) ash_adapter_product(model, step->exec, step->own.count, low, adapter->b, true, sums, true);
}

const float *ash_adapter_reduce_gradient(const struct ash_pass_step *step, int32_t weight, size_t slot, const float *dy,
                                         size_t dy_stride)
{
    const struct ash_adapter *adapter = ash_model_adapter(step->model, weight);
    float *dlow = adapter != NULL ? slot_of(step->model, 2 + slot) : NULL;
    struct ash_reduction reduction = {
        .rows = {0, step->rows}, .accumulate = ash_operand_accumulate, .out = dlow, .all = dlow};

    if (adapter == NULL || step->rows == 0) return NULL;
    reduction.cols = adapter->rank;
    ash_reduction_add_outputs(step, &reduction, adapter->b, dy, dy_stride);
    ash_reduce(step, &reduction);
    step->exec->ops->row->scale(step->exec, dlow, adapter->scale, step->rows * adapter->rank);
    return dlow;
}

void ash_adapter_backward(const struct ash_pass_step *step, struct ash_grad_sink *sink, int32_t weight,
                          const struct ash_linear_io *io)
{
    const struct ash_adapter *adapter = ash_model_adapter(step->model, weight);
    struct ash_linear_io part = {.rows = io->rows, .seq_rows = io->seq_rows}, input;

    if (adapter == NULL || io->rows == 0) return;
    input = ash_adapter_seen(step, weight, adapter, io);
    part.x = is_split(step->model, adapter->a) ? lower_split(step, adapter, &input, true)
                                               : ash_adapter_lower(step->model, step->exec, adapter, &input);
    part.x_stride = adapter->rank;
    part.dy = io->dy;
    part.dy_stride = io->dy_stride;
    ash_linear_weight_backward(step, sink, adapter->b, adapter->b, &part);
    part.x = input.x;
    part.x_stride = input.x_stride;
    ash_assert(!is_split(step->model, adapter->b) || io->dlow != NULL);
    part.dy = io->dlow != NULL ? io->dlow : ash_adapter_lower_gradient(step->model, step->exec, adapter, io);
    part.dy_stride = adapter->rank;
    ash_linear_weight_backward(step, sink, adapter->a, adapter->a, &part);
}
