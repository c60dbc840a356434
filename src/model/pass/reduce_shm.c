/* reduce_shm: ranks see each other's activations and weights, so no sum is sent. Each sums its rows over
 * the operands of all ranks in the order of the pipelined reduction (reduce.c). */
#include "model/pass/reduce_shm.h"

#include "base/assert.h"

struct ash_range ash_reduce_shm_rows(const struct ash_pass_step *step, struct ash_range rows)
{
    const struct ash_axis *tp = &step->axes->tp;
    size_t first = rows.count * tp->rank / tp->size;

    return (struct ash_range){rows.first + first, rows.count * (tp->rank + 1) / tp->size - first};
}

/* ---- who has which operands -------------------------------------------------------------------------------------- */

/* Of the current reduction. A rank that begins with one is through with the one before it, so the slot of the one
 * before that is free. */
static struct ash_posted_operand *posted_by(const struct ash_pass_step *step, size_t rank)
{
    ash_assert(rank < step->axes->tp.size);
    return step->acts->posted[step->axes->reductions % 2] + rank * ASH_PROJECT_OUTS_MAX;
}

static size_t distance_of(const void *data, const void *base)
{
    return data != NULL ? (size_t)((const char *)data - (const char *)base) : ASH_POSTED_NONE;
}

static const void *at_distance(const void *base, size_t distance)
{
    return distance != ASH_POSTED_NONE ? (const char *)base + distance : NULL;
}

void ash_operands_publish(const struct ash_pass_step *step, const struct ash_operand *operands, size_t count)
{
    struct ash_axes *axes = step->axes;
    const void *weights = axes->tp.weights[axes->tp.rank];
    struct ash_posted_operand *posted;

    ash_assert(axes->tp.same_node && count <= ASH_PROJECT_OUTS_MAX);
    ash_axes_wait_all_tp(axes, ASH_AXES_OPERANDS, axes->reductions++);
    if (axes->failed < 0) return; /* others may still be reading what would be overwritten */
    posted = posted_by(step, axes->tp.rank);
    for (size_t i = 0; i < count; i++)
        posted[i] = (struct ash_posted_operand){.operand = operands[i],
                                                .x_distance = distance_of(operands[i].x, axes->shared.data),
                                                .weight_distance = distance_of(operands[i].product.b.data, weights)};
    ash_axes_signal(axes, ASH_AXES_OPERANDS, axes->reductions);
}

void ash_operands_wait(const struct ash_pass_step *step)
{
    ash_axes_wait_all_tp(step->axes, ASH_AXES_OPERANDS, step->axes->reductions);
}

struct ash_operand ash_operand_of(const struct ash_pass_step *step, size_t rank, size_t chunk)
{
    const struct ash_posted_operand *posted = &posted_by(step, rank)[chunk];
    struct ash_operand operand = posted->operand;

    ash_assert(rank < step->axes->tp.size);
    operand.x = at_distance(step->axes->shared.data, posted->x_distance);
    operand.product.b.data = at_distance(step->axes->tp.weights[rank], posted->weight_distance);
    return operand;
}

float *ash_operand_rows(const struct ash_pass_step *step, size_t rank, size_t chunk)
{
    size_t distance = posted_by(step, rank)[chunk].x_distance;

    ash_assert(distance != ASH_POSTED_NONE && distance % sizeof(float) == 0);
    return step->axes->shared.data + distance / sizeof(float);
}

/* ---- the sums ---------------------------------------------------------------------------------------------------- */

void ash_reduce_shm(const struct ash_pass_step *step, const struct ash_reduction *reduction)
{
    struct ash_range rows = ash_reduce_shm_rows(step, reduction->rows);
    float *sums = reduction->out + ((ptrdiff_t)rows.first - (ptrdiff_t)step->own.first) * (ptrdiff_t)reduction->cols;

    ash_operands_publish(step, reduction->chunks, reduction->chunk_count);
    if (reduction->overlap != NULL) reduction->overlap(step, reduction->ctx);
    ash_operands_wait(step);
    if (step->axes->failed < 0 || rows.count == 0) return;
    for (size_t chunk = 0; chunk < reduction->chunk_count; chunk++)
        for (size_t r = 0; r < step->axes->tp.size; r++) {
            struct ash_operand operand =
                ash_operand_from_row(ash_operand_of(step, r, chunk), rows.first - reduction->rows.first);

            reduction->accumulate(step, reduction->ctx, &operand, rows, chunk == 0 && r == 0, sums);
        }
    ash_reduction_add_bias(step, reduction, rows.count, sums);
}
