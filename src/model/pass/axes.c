/* axes: the exchanges of a pass with the ranks that share it, and where the first failure is kept. */
#include "model/pass/axes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"

/* ---- life -------------------------------------------------------------------------------------------------------- */

static struct ash_axis axis_or_alone(const struct ash_axis *axis)
{
    return axis->size > 1 ? *axis : (struct ash_axis){.size = 1};
}

int ash_axes_init(struct ash_axes *axes, const struct ash_pass_opts *opts, struct ash_err *err)
{
    size_t most;

    *axes = (struct ash_axes){.tp = axis_or_alone(&opts->tp),
                              .cp = axis_or_alone(&opts->cp),
                              .ep = axis_or_alone(&opts->ep),
                              .outs = axis_or_alone(&opts->outs),
                              .node = axis_or_alone(&opts->node)};
    if (axes->tp.size == 1 || axes->cp.size == 1) axes->node = axes->tp.size > 1 ? axes->tp : axes->cp;
    if (axes->outs.size > 1) axes->node = axes->outs;
    axes->cp.same_node = axes->cp.size > 1 && axes->node.same_node && axes->node.size == axes->tp.size * axes->cp.size;
    if (axes->tp.size > 1 && axes->cp.size > 1 && !axes->cp.same_node) axes->node = axes->tp;
    axes->shared_grads = axes->cp.same_node && opts->shared_grads && opts->backward;
    axes->row_blocks = opts->bf16_acts && opts->backward; /* ops that take bf16 add norms' gradients by blocks */
    most = ash_max(ash_max(axes->tp.size, axes->cp.size), axes->outs.size);
    axes->counts = calloc(most, sizeof(*axes->counts));
    axes->more_counts = calloc(most, sizeof(*axes->more_counts));
    if (axes->counts != NULL && axes->more_counts != NULL) return 0;
    ash_axes_fini(axes);
    return ash_err_set(err, -ENOMEM, "out of memory for the exchanges of %zu ranks", most);
}

void ash_axes_fini(struct ash_axes *axes)
{
    if (axes->shared.data != NULL) axes->node.ops->shared_close(axes->node.ctx, &axes->shared);
    ash_buffer_fini(&axes->apart);
    free(axes->counts);
    free(axes->more_counts);
    memset(axes, 0, sizeof(*axes));
}

/* ---- exchanges --------------------------------------------------------------------------------------------------- */

/* Is there a peer to exchange with, and has no exchange failed yet? */
static bool is_usable(const struct ash_axes *axes, const struct ash_axis *axis)
{
    ash_assert(axis->size >= 1 && axis->rank < axis->size);
    return axis->size > 1 && axes->failed == 0;
}

void ash_axes_all_gather(struct ash_axes *axes, const struct ash_axis *axis, float *data, const size_t *counts)
{
    if (is_usable(axes, axis)) axes->failed = axis->ops->all_gather(axis->ctx, data, counts, &axes->failure);
}

void ash_axes_all_to_all(struct ash_axes *axes, const struct ash_axis *axis, const float *in, const size_t *send,
                         float *out, const size_t *recv)
{
    if (is_usable(axes, axis)) axes->failed = axis->ops->all_to_all(axis->ctx, in, send, out, recv, &axes->failure);
}

void ash_axes_all_to_all_start(struct ash_axes *axes, const struct ash_axis *axis, const float *in, const size_t *send,
                               float *out, const size_t *recv, void **started_out)
{
    *started_out = NULL;
    if (is_usable(axes, axis))
        axes->failed = axis->ops->all_to_all_start(axis->ctx, in, send, out, recv, started_out, &axes->failure);
}

void ash_axes_all_to_all_wait(struct ash_axes *axes, const struct ash_axis *axis, void *started)
{
    struct ash_err err = {0};
    int rc = started != NULL ? axis->ops->all_to_all_wait(axis->ctx, started, &err) : 0;

    ash_axes_fail(axes, rc, &err);
}

void ash_axes_broadcast(struct ash_axes *axes, const struct ash_axis *axis, size_t root, float *data, size_t count)
{
    ash_assert(root < axis->size);
    if (is_usable(axes, axis)) axes->failed = axis->ops->broadcast(axis->ctx, root, data, count, &axes->failure);
}

/* Both sides cut long messages at the same places. */
void ash_axes_send(struct ash_axes *axes, const struct ash_axis *axis, size_t to, const float *data, size_t count)
{
    ash_assert(to < axis->size);
    for (size_t done = 0, step; done < count && is_usable(axes, axis); done += step) {
        step = ash_min(count - done, ASH_AXIS_MESSAGE);
        axes->failed = axis->ops->send(axis->ctx, to, data + done, step, &axes->failure);
    }
}

void ash_axes_recv(struct ash_axes *axes, const struct ash_axis *axis, size_t from, float *data, size_t count)
{
    ash_assert(from < axis->size);
    for (size_t done = 0, step; done < count && is_usable(axes, axis); done += step) {
        step = ash_min(count - done, ASH_AXIS_MESSAGE);
        axes->failed = axis->ops->recv(axis->ctx, from, data + done, step, &axes->failure);
    }
}

/* ---- shared memory ----------------------------------------------------------------------------------------------- */

void ash_axes_signal(struct ash_axes *axes, enum ash_axes_counter counter, uint64_t value)
{
    if (axes->failed == 0) axes->node.ops->signal(axes->node.ctx, &axes->shared, counter, value);
}

/* rank: among all that share the memory. */
static void wait_for(struct ash_axes *axes, size_t rank, enum ash_axes_counter counter, uint64_t value)
{
    const struct ash_axis *node = &axes->node;

    ash_assert(rank < node->size);
    if (axes->failed == 0 && rank != node->rank)
        axes->failed = node->ops->wait(node->ctx, &axes->shared, rank, counter, value, &axes->failure);
}

void ash_axes_wait_tp(struct ash_axes *axes, size_t rank, enum ash_axes_counter counter, uint64_t value)
{
    wait_for(axes, axes->node.rank - axes->tp.rank + rank, counter, value);
}

void ash_axes_wait_cp(struct ash_axes *axes, size_t rank, enum ash_axes_counter counter, uint64_t value)
{
    wait_for(axes, rank * axes->tp.size + axes->tp.rank, counter, value);
}

void ash_axes_wait_all_tp(struct ash_axes *axes, enum ash_axes_counter counter, uint64_t value)
{
    for (size_t r = 0; r < axes->tp.size; r++)
        ash_axes_wait_tp(axes, r, counter, value);
}

void ash_axes_wait_all_cp(struct ash_axes *axes, enum ash_axes_counter counter, uint64_t value)
{
    for (size_t r = 0; r < axes->cp.size; r++)
        ash_axes_wait_cp(axes, r, counter, value);
}

void ash_axes_enter_batch(struct ash_axes *axes)
{
    ash_assert(axes->tp.same_node);
    ash_axes_signal(axes, ASH_AXES_BATCHES, ++axes->batches);
    ash_axes_wait_all_tp(axes, ASH_AXES_BATCHES, axes->batches);
}

void ash_axes_barrier_tp(struct ash_axes *axes)
{
    ash_assert(axes->tp.same_node);
    ash_axes_signal(axes, ASH_AXES_BARRIERS_TP, ++axes->barriers_tp);
    ash_axes_wait_all_tp(axes, ASH_AXES_BARRIERS_TP, axes->barriers_tp);
}

void ash_axes_barrier_cp(struct ash_axes *axes)
{
    ash_assert(axes->cp.same_node);
    ash_axes_signal(axes, ASH_AXES_BARRIERS_CP, ++axes->barriers_cp);
    ash_axes_wait_all_cp(axes, ASH_AXES_BARRIERS_CP, axes->barriers_cp);
}

void ash_axes_barrier_outs(struct ash_axes *axes)
{
    ash_axes_signal(axes, ASH_AXES_GATHERS, ++axes->gathers);
    for (size_t r = 0; r < axes->outs.size; r++)
        wait_for(axes, r, ASH_AXES_GATHERS, axes->gathers);
}

/* ---- failure ----------------------------------------------------------------------------------------------------- */

void ash_axes_fail(struct ash_axes *axes, int rc, const struct ash_err *err)
{
    if (rc == 0 || axes->failed < 0) return;
    axes->failed = rc;
    axes->failure = *err;
}

int ash_axes_result(const struct ash_axes *axes, struct ash_err *err)
{
    if (axes->failed < 0 && err != NULL) *err = axes->failure;
    return axes->failed;
}
