/* grains: the grains that a strand's partial sums cover, and the number of sums at a time. */
#include "train/layout/grains_priv.h"

#include "base/assert.h"
#include "base/math.h"

struct ash_range ash_grains_partition(size_t grain_count, size_t rank, size_t size)
{
    size_t first = grain_count * rank / size;

    ash_assert(rank < size);
    return (struct ash_range){first, grain_count * (rank + 1) / size - first};
}

double ash_grains_fold(const double *values, size_t grain_count)
{
    size_t half = 1;

    ash_assert(grain_count > 0);
    if (grain_count == 1) return values[0];
    while (2 * half < grain_count)
        half *= 2;
    return ash_grains_fold(values, half) + ash_grains_fold(values + half, grain_count - half);
}

/* ---- stacks ------------------------------------------------------------------------------------------------------ */

size_t ash_grains_next(const struct ash_grains_strand *strand, const struct ash_grains_stack *stack)
{
    return stack->depth > 0 ? ash_range_end(stack->spans[stack->depth - 1]) : strand->grains.first;
}

void ash_grains_push(struct ash_grains_stack *stack, struct ash_range span)
{
    ash_assert(stack->depth <= ASH_GRAINS_DEPTH_MAX && span.count > 0);
    stack->spans[stack->depth++] = span;
}

bool ash_grains_merge(struct ash_grains_stack *stack, size_t total)
{
    struct ash_range *spans = stack->spans;
    size_t depth = stack->depth;

    if (depth < 2 || !ash_tree_halves(total, spans[depth - 2], spans[depth - 1])) return false;
    spans[depth - 2].count += spans[depth - 1].count;
    stack->depth--;
    return true;
}

size_t ash_grains_buffers_for(size_t total, struct ash_range strand, size_t add_count)
{
    struct ash_grains_stack stack = {0};
    size_t most = 1;

    for (size_t i = 0; i < strand.count && stack.depth <= ASH_GRAINS_DEPTH_MAX; i++) {
        ash_grains_push(&stack, (struct ash_range){strand.first + i, 1});
        if (add_count == 0) most = ash_max(most, stack.depth);
        while (ash_grains_merge(&stack, total))
            most = ash_max(most, stack.depth);
        if (add_count > 0 && (i + 1) % add_count == 0) most = ash_max(most, stack.depth);
    }
    return ash_max(most, stack.depth);
}
