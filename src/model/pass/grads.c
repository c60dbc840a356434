/* grads: the sums of gradients, and the order in which ranks add to them. */
#include "model/pass/grads.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "model/pass/split.h"

/* ---- life -------------------------------------------------------------------------------------------------------- */

int ash_grad_order_open(struct ash_grad_order *order, const struct ash_model *model, struct ash_exec *exec,
                        struct ash_axes *axes, struct ash_err *err)
{
    *order = (struct ash_grad_order){.model = model, .exec = exec, .axes = axes};
    order->has_terms = calloc(model->param_count + 1, sizeof(*order->has_terms));
    order->deferred = calloc(model->param_count, sizeof(*order->deferred));
    if (order->has_terms != NULL && order->deferred != NULL) return 0;
    ash_grad_order_close(order);
    return ash_err_set(err, -ENOMEM, "out of memory for the gradients of %zu parameters", model->param_count);
}

void ash_grad_order_close(struct ash_grad_order *order)
{
    free(order->has_terms);
    free(order->deferred);
    memset(order, 0, sizeof(*order));
}

void ash_grad_begin_batch(struct ash_grad_sink *sink)
{
    struct ash_grad_order *order = sink->order;

    ash_assert(order->deferred_count == 0);
    memset(order->has_terms, 0, (order->model->param_count + 1) * sizeof(*order->has_terms));
}

/* ---- sums -------------------------------------------------------------------------------------------------------- */

struct ash_grad_sum ash_grad_sum_of(const struct ash_grad_sink *sink, int32_t param)
{
    const struct ash_model *model = sink->order->model;
    const struct ash_param *p = param >= 0 ? &model->params[param] : NULL;

    if (param == ASH_NO_PARAM) return (struct ash_grad_sum){0};
    /* the base of adapters is frozen */
    if (model->adapters != NULL && (param == ASH_TIED_HEAD || (size_t)param >= model->param_count))
        return (struct ash_grad_sum){0};
    ash_assert(param == ASH_TIED_HEAD || (param >= 0 && (size_t)param < model->param_count));
    if (sink->expert_grads != NULL && p != NULL && p->is_expert)
        return (struct ash_grad_sum){sink->expert_grads + p->expert_offset, p->count};
    if (sink->grads == NULL) return (struct ash_grad_sum){0};
    if (p == NULL)
        return (struct ash_grad_sum){sink->grads + model->tied_grad_offset, model->vocab.count * model->config.hidden};
    return (struct ash_grad_sum){sink->grads + p->grad_offset, p->count};
}

bool ash_grad_overwrites(struct ash_grad_sink *sink, int32_t param)
{
    const struct ash_model *model = sink->order->model;
    bool is_tied = param == ASH_TIED_HEAD;
    bool *has_terms = &sink->order->has_terms[is_tied ? model->param_count : (size_t)param];
    bool overwrites = sink->overwrite && !*has_terms && (is_tied || ash_param_overwrites(&model->params[param]));

    *has_terms = true;
    return overwrites;
}

bool ash_grad_overwrites_first(struct ash_grad_sink *sink, int32_t param)
{
    return ash_grad_overwrites(sink, param) && sink->order->axes->cp.rank == 0;
}

static void zero_untouched(struct ash_grad_sink *sink, int32_t param)
{
    struct ash_grad_sum sum = ash_grad_sum_of(sink, param);

    if (ash_grad_overwrites_first(sink, param)) ash_exec_zero(sink->order->exec, sum.data, sum.count * sizeof(float));
}

void ash_grad_zero_untouched(struct ash_grad_sink *sink, int layer)
{
    const struct ash_model *model = sink->order->model;

    if (sink->grads == NULL || !sink->overwrite) return;
    for (int32_t i = 0; i < (int32_t)model->param_count; i++)
        if (model->params[i].layer == layer) zero_untouched(sink, i);
    if (layer < 0 && model->config.tied && model->slice.embed && model->slice.head && model->adapters == NULL)
        zero_untouched(sink, ASH_TIED_HEAD);
}

/* ---- ordered accumulation ---------------------------------------------------------------------------------------- */

/* Is the sum the same memory on all ranks of the axis? */
static bool is_shared(const struct ash_axes *axes, const struct ash_axis *axis)
{
    return axis == &axes->cp && axes->shared_grads;
}

static void acquire(struct ash_grad_order *order, const struct ash_axis *axis, struct ash_grad_sum sum)
{
    struct ash_axes *axes = order->axes;

    if (is_shared(axes, axis)) order->acquired++;
    if (axis->rank == 0) return;
    if (is_shared(axes, axis))
        ash_axes_wait_cp(axes, axis->rank - 1, ASH_AXES_RELEASES, order->acquired);
    else
        ash_axes_recv(axes, axis, axis->rank - 1, sum.data, sum.count);
}

static void release(struct ash_grad_order *order, const struct ash_axis *axis, struct ash_grad_sum sum)
{
    struct ash_axes *axes = order->axes;

    if (is_shared(axes, axis))
        ash_axes_signal(axes, ASH_AXES_RELEASES, ++order->released);
    else if (axis->rank + 1 < axis->size)
        ash_axes_send(axes, axis, axis->rank + 1, sum.data, sum.count);
}

void ash_grad_acquire_part(struct ash_grad_sink *sink, struct ash_grad_sum part)
{
    ash_assert(part.data != NULL);
    acquire(sink->order, &sink->order->axes->cp, part);
}

void ash_grad_release_part(struct ash_grad_sink *sink, struct ash_grad_sum part)
{
    ash_assert(part.data != NULL);
    release(sink->order, &sink->order->axes->cp, part);
}

float *ash_grad_acquire(struct ash_grad_sink *sink, int32_t param, enum ash_grad_rows rows)
{
    struct ash_grad_sum sum = ash_grad_sum_of(sink, param);

    if (sum.data == NULL) return NULL;
    acquire(sink->order, &sink->order->axes->cp, sum);
    if (rows == ASH_GRAD_STREAM) acquire(sink->order, &sink->order->axes->tp, sum);
    return sum.data;
}

/* Release along cp; before it all ranks of tp get the sum, because each has a copy of the parameter. Without a cp axis
 * it is not needed at once: the sum is deferred, and no rank waits here for the last. */
static void release_cp(struct ash_grad_sink *sink, int32_t param, enum ash_grad_rows rows)
{
    struct ash_grad_order *order = sink->order;
    struct ash_axes *axes = order->axes;
    struct ash_grad_sum sum = ash_grad_sum_of(sink, param);
    bool is_split = rows == ASH_GRAD_STREAM && axes->tp.size > 1;

    if (sum.data == NULL) return;
    if (is_split && axes->cp.size == 1) {
        ash_assert(order->deferred_count < order->model->param_count);
        order->deferred[order->deferred_count++] = param;
    } else if (is_split) {
        ash_axes_broadcast(axes, &axes->tp, axes->tp.size - 1, sum.data, sum.count);
    }
    release(order, &axes->cp, sum);
}

void ash_grad_release_both(struct ash_grad_sink *sink, int32_t one, int32_t other, enum ash_grad_rows rows)
{
    struct ash_grad_sum first = ash_grad_sum_of(sink, one), second = ash_grad_sum_of(sink, other);
    const struct ash_axis *tp = &sink->order->axes->tp;

    if (rows == ASH_GRAD_STREAM && first.data != NULL) release(sink->order, tp, first);
    if (rows == ASH_GRAD_STREAM && second.data != NULL) release(sink->order, tp, second);
    release_cp(sink, one, rows);
    release_cp(sink, other, rows);
}

void ash_grad_release(struct ash_grad_sink *sink, int32_t param, enum ash_grad_rows rows)
{
    ash_grad_release_both(sink, param, ASH_NO_PARAM, rows);
}

void ash_grad_flush(struct ash_grad_sink *sink)
{
    struct ash_grad_order *order = sink->order;
    struct ash_axes *axes = order->axes;

    for (size_t i = 0; i < order->deferred_count; i++) {
        struct ash_grad_sum sum = ash_grad_sum_of(sink, order->deferred[i]);

        ash_axes_broadcast(axes, &axes->tp, axes->tp.size - 1, sum.data, sum.count);
    }
    order->deferred_count = 0;
}

/* ---- from batch to batch ----------------------------------------------------------------------------------------- */

static void carry(struct ash_grad_sink *sink, int32_t param)
{
    struct ash_axes *axes = sink->order->axes;
    struct ash_grad_sum sum = ash_grad_sum_of(sink, param);

    if (axes->cp.rank == 0)
        ash_axes_recv(axes, &axes->cp, axes->cp.size - 1, sum.data, sum.count);
    else if (axes->cp.rank + 1 == axes->cp.size)
        ash_axes_send(axes, &axes->cp, 0, sum.data, sum.count);
}

static bool carries(const struct ash_grad_sink *sink)
{
    return sink->order->axes->cp.size > 1 && !sink->order->axes->shared_grads;
}

/* All sums at once and at the end: a rank that sent each as soon as it was done would wait for room while the other
 * waits for it in the next batch's attention. */
void ash_grad_carry(struct ash_grad_sink *sink)
{
    const struct ash_model *model = sink->order->model;

    if (!carries(sink) || sink->grads == NULL) return;
    for (int32_t i = 0; i < (int32_t)model->param_count; i++)
        if (model->params[i].is_trained && !model->params[i].is_expert) carry(sink, i);
    if (model->config.tied && model->slice.embed && ash_split_has_head(model)) carry(sink, ASH_TIED_HEAD);
}

void ash_grad_carry_experts(struct ash_grad_sink *sink)
{
    const struct ash_model *model = sink->order->model;

    if (!carries(sink) || (sink->grads == NULL && sink->expert_grads == NULL)) return;
    for (int32_t i = 0; i < (int32_t)model->param_count; i++)
        if (model->params[i].is_expert) carry(sink, i);
}
