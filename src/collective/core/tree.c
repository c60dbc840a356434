/* The tree over n leaves: it splits at the largest power of two below n, and so do its halves. */
#include "collective/core/sum.h"

#include <errno.h>

#include "base/assert.h"

/* Leaves of the left half. */
static size_t split(size_t count)
{
    size_t left = 1;

    while (2 * left < count)
        left *= 2;
    return left;
}

bool ash_tree_halves(size_t total, struct ash_range left, struct ash_range right)
{
    struct ash_range node = {0, total};

    while (node.count > 1) {
        size_t half = split(node.count);

        if (left.first == node.first && left.count + right.count == node.count) return left.count == half;
        if (left.first >= node.first + half)
            node = (struct ash_range){node.first + half, node.count - half};
        else
            node.count = half;
        if (left.first + left.count + right.count > node.first + node.count)
            return false; /* they cross a split above them */
    }
    return false;
}

void ash_tree_of(struct ash_tree *tree, size_t count)
{
    struct ash_range spans[ASH_TREE_PARTS_MAX];

    ash_assert(count >= 1 && count <= ASH_TREE_PARTS_MAX);
    for (size_t i = 0; i < count; i++)
        spans[i] = (struct ash_range){i, 1};
    ash_assert(ash_tree_of_spans(tree, spans, count, count) == 0);
}

int ash_tree_of_spans(struct ash_tree *tree, const struct ash_range *spans, size_t count, size_t total)
{
    struct ash_range sums[ASH_TREE_PARTS_MAX];
    size_t depth = 0, next = 0;

    if (count == 0 || count > ASH_TREE_PARTS_MAX) return -EINVAL;
    for (size_t i = 0; i < count; i++) {
        if (spans[i].first != next || spans[i].count == 0) return -EINVAL;
        next += spans[i].count;
        sums[depth++] = spans[i];
        tree->joins[i] = 0;
        while (depth >= 2 && ash_tree_halves(total, sums[depth - 2], sums[depth - 1])) {
            depth--;
            sums[depth - 1].count += sums[depth].count;
            tree->joins[i]++;
        }
    }
    tree->part_count = count;
    return depth == 1 && next == total ? 0 : -EINVAL;
}

/* Collect the subtrees under node that lie in range. */
static void cover(struct ash_range node, struct ash_range range, struct ash_range *spans_out, size_t *count)
{
    size_t end = range.first + range.count, half;

    if (node.first >= end || node.first + node.count <= range.first) return;
    if (node.first >= range.first && node.first + node.count <= end) {
        ash_assert(*count < ASH_TREE_COVER_MAX);
        spans_out[(*count)++] = node;
        return;
    }
    half = split(node.count);
    cover((struct ash_range){node.first, half}, range, spans_out, count);
    cover((struct ash_range){node.first + half, node.count - half}, range, spans_out, count);
}

size_t ash_tree_cover(size_t total, struct ash_range range, struct ash_range *spans_out)
{
    size_t count = 0;

    cover((struct ash_range){0, total}, range, spans_out, &count);
    return count;
}

size_t ash_shares_most(const struct ash_shares *shares, size_t size)
{
    size_t most = 1;

    for (size_t r = 0; r < size; r++)
        if (shares->first[r + 1] - shares->first[r] > most) most = shares->first[r + 1] - shares->first[r];
    return most;
}
