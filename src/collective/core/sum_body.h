/* Reductions of one type, for sum.c, which defines NAME(x), TYPE and ADD_TYPE and includes this once for each. */

#define ADD_NAME(x) NAME(narrow_##x)
#define VECTOR_BYTES NARROW_BYTES
#define VECTOR_TARGET
#include "collective/core/sum_add_body.h"
#undef ADD_NAME
#undef VECTOR_BYTES
#undef VECTOR_TARGET

#define ADD_NAME(x) NAME(wide_##x)
#define VECTOR_BYTES WIDE_BYTES
#define VECTOR_TARGET WIDE_TARGET
#include "collective/core/sum_add_body.h"
#undef ADD_NAME
#undef VECTOR_BYTES
#undef VECTOR_TARGET

/* out = a op b, element by element; out may be either. */
static void NAME(join)(enum ash_coll_op op, const TYPE *a, const TYPE *b, size_t count, TYPE *out)
{
    if (op == ASH_COLL_SUM) (has_wide() ? NAME(wide_add) : NAME(narrow_add))(a, b, count, out);
    for (size_t i = 0; op == ASH_COLL_MAX && i < count; i++)
        out[i] = a[i] < b[i] ? b[i] : a[i];
    for (size_t i = 0; op == ASH_COLL_MIN && i < count; i++)
        out[i] = b[i] < a[i] ? b[i] : a[i];
}

/* Elements first ... first + count - 1, at most BLOCK of them. */
static void NAME(block)(enum ash_coll_op op, const struct ash_tree *tree, const void *const *parts, size_t first,
                        size_t count, void *const *outs, size_t out_count)
{
    TYPE sums[DEPTH_MAX][BLOCK], *out = (TYPE *)outs[0] + first;
    const TYPE *waiting[DEPTH_MAX + 1]; /* parts, and sums that are not in a larger one yet */
    size_t depth = 0;

    for (size_t p = 0; p < tree->part_count; p++) {
        waiting[depth++] = (const TYPE *)parts[p] + first;
        for (unsigned j = 0; j < tree->joins[p]; j++, depth--) {
            bool last = p + 1 == tree->part_count && j + 1u == tree->joins[p];
            TYPE *to = last ? out : sums[depth - 2];

            NAME(join)(op, waiting[depth - 2], waiting[depth - 1], count, to);
            waiting[depth - 2] = to;
        }
    }
    if (waiting[0] != out) memcpy(out, waiting[0], count * sizeof(TYPE));
    for (size_t o = 1; o < out_count; o++)
        memcpy((TYPE *)outs[o] + first, out, count * sizeof(TYPE));
}

/* All of it: the common trees straight from memory to memory, others block by block. */
static void NAME(reduce)(enum ash_coll_op op, const struct ash_tree *tree, const void *const *parts, size_t count,
                         void *const *outs, size_t out_count)
{
    if (tree->part_count == 2 && out_count == 1)
        NAME(join)(op, parts[0], parts[1], count, outs[0]);
    else if (tree->part_count == 2 && out_count == 2 && op == ASH_COLL_SUM)
        (has_wide() ? NAME(wide_add_to_two) : NAME(narrow_add_to_two))(parts[0], parts[1], count, outs[0], outs[1]);
    else if (is_pair_of_pairs(tree) && op == ASH_COLL_SUM)
        (has_wide() ? NAME(wide_add_four) : NAME(narrow_add_four))(parts, count, outs, out_count);
    else
        for (size_t i = 0; i < count; i += BLOCK)
            NAME(block)(op, tree, parts, i, count - i < BLOCK ? count - i : BLOCK, outs, out_count);
}

#undef NAME
#undef TYPE
#undef ADD_TYPE
