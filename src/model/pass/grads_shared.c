/* grads_shared: publish, compute, fence. By the time a rank computes, the others have mostly published theirs too. */
#include "model/pass/grads_shared.h"

#include "base/assert.h"

void ash_shared_grads_publish(const struct ash_pass_step *step, struct ash_grad_sink *sink, int32_t sum, int32_t weight,
                              int32_t bias, const struct ash_linear_io *io)
{
    struct ash_grad_order *order = sink->order;
    struct ash_linear_io all = *io;

    ash_assert(step->axes->shared_grads && io->shared_rows);
    if (order->published_count == ASH_PUBLISHED_MAX) ash_shared_grads_compute(sink, 0);
    all.rows = all.seq_rows = step->batch->rows;
    all.x -= step->first_row * io->x_stride;
    all.dy -= step->first_row * io->dy_stride;
    order->published[order->published_count++] =
        (struct ash_published_product){sum, weight, bias, ash_grad_overwrites(sink, sum), all};
    ash_axes_signal(order->axes, ASH_AXES_PUBLISHED, ++order->published_total);
}

/* This rank's part of a product and of its bias. */
static void add_part(struct ash_grad_sink *sink, const struct ash_published_product *product)
{
    const struct ash_model *model = sink->order->model;
    const struct ash_axis *cp = &sink->order->axes->cp;
    struct ash_exec *exec = sink->order->exec;
    struct ash_range rows = ash_range_split(model->params[product->weight].dims[0], ASH_K_GROUP, cp->rank, cp->size);
    float *dweight = ash_grad_sum_of(sink, product->sum).data, *dbias = ash_grad_sum_of(sink, product->bias).data;

    if (dweight != NULL && rows.count > 0)
        ash_linear_weight_grad(model, exec, &product->io,
                               (struct ash_weight_grad){product->weight, rows, dweight, product->overwrite});
    if (dbias == NULL) return;
    struct ash_range cols = ash_range_split(model->params[product->bias].count, ASH_K_GROUP, cp->rank, cp->size);
    exec->ops->matrix->column_sum(
        exec, &(struct ash_column_sum_args){.rows = product->io.rows,
                                            .cols = cols.count,
                                            .x = product->io.dy + cols.first,
                                            .stride = product->io.dy_stride,
                                            .seq_rows = model->round_bf16 ? product->io.seq_rows : 0,
                                            .sum = dbias + cols.first});
}

void ash_shared_grads_compute(struct ash_grad_sink *sink, size_t but)
{
    struct ash_grad_order *order = sink->order;
    size_t count = order->published_count > but ? order->published_count - but : 0;

    for (size_t i = 0; i < count; i++) {
        ash_axes_wait_all_cp(order->axes, ASH_AXES_PUBLISHED, ++order->computed_total);
        add_part(sink, &order->published[i]);
    }
    if (count == 0) return;
    order->published_count -= count;
    for (size_t i = 0; i < order->published_count; i++)
        order->published[i] = order->published[count + i];
    ash_axes_signal(order->axes, ASH_AXES_COMPUTED, order->computed_total);
}

void ash_shared_grads_fence(struct ash_grad_sink *sink)
{
    struct ash_grad_order *order = sink->order;

    if (order->axes->shared_grads) ash_axes_wait_all_cp(order->axes, ASH_AXES_COMPUTED, order->computed_total);
}

void ash_shared_grads_barrier(struct ash_grad_sink *sink, size_t but)
{
    struct ash_axes *axes = sink->order->axes;

    ash_assert(axes->cp.same_node);
    ash_axes_signal(axes, ASH_AXES_BARRIERS_CP, ++axes->barriers_cp);
    ash_shared_grads_compute(sink, but);
    ash_axes_wait_all_cp(axes, ASH_AXES_BARRIERS_CP, axes->barriers_cp);
}

void ash_shared_grads_finish(struct ash_grad_sink *sink)
{
    if (!sink->order->axes->shared_grads) return;
    ash_shared_grads_compute(sink, 0);
    ash_axes_barrier_cp(sink->order->axes);
}
