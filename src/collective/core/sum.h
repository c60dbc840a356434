/* sum - the canonical order of every sum over ranks: a binary tree over their numbers that splits at the largest power
 * of two below the count (as train/layout/grains does over grains), so ((0 + 1) + (2 + 3)) + 4 for five. Each element
 * is added by itself: no algorithm, placement or cut into pieces changes a bit. float32 is added as float32; bf16 is
 * widened, added as float32 and rounded once at the root; integers wrap. */
#ifndef ASH_COLLECTIVE_CORE_SUM_H
#define ASH_COLLECTIVE_CORE_SUM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/range.h"

enum ash_coll_dtype { ASH_COLL_F32, ASH_COLL_BF16, ASH_COLL_F64, ASH_COLL_I32, ASH_COLL_I64, ASH_COLL_U8 };
enum ash_coll_op { ASH_COLL_SUM, ASH_COLL_MAX, ASH_COLL_MIN };

/* Bytes of an element. */
size_t ash_coll_dtype_bytes(enum ash_coll_dtype dtype);
/* "f32", ... */
const char *ash_coll_dtype_name(enum ash_coll_dtype dtype);
/* "sum", ... */
const char *ash_coll_op_name(enum ash_coll_op op);

/* ---- trees ------------------------------------------------------------------------------------------------------- */

#define ASH_TREE_PARTS_MAX 1024
#define ASH_SHARES_RANKS_MAX 256
#define ASH_TREE_COVER_MAX 64 /* subtrees that a range of leaves can need */

/* How parts are reduced: take them in order; after part i, add the last two sums joins[i] times. */
struct ash_tree {
    size_t part_count;
    uint8_t joins[ASH_TREE_PARTS_MAX];
};

/* The tree over count leaves, each a part. */
void ash_tree_of(struct ash_tree *tree, size_t count);
/* The tree over total leaves, given parts that are sums of subtrees, in order. -EINVAL where the parts are not that. */
int ash_tree_of_spans(struct ash_tree *tree, const struct ash_range *spans, size_t count, size_t total);
/* Leaves range.first ... as the fewest subtrees of the tree over total leaves, in order: what one who owns these leaves
 * sums up by itself. Returns how many (at most ASH_TREE_COVER_MAX). */
size_t ash_tree_cover(size_t total, struct ash_range range, struct ash_range *spans_out);
/* Are these two neighbours (left.first + left.count == right.first) the two halves of a subtree? */
bool ash_tree_halves(size_t total, struct ash_range left, struct ash_range right);

/* Which rank contributes which parts of a sum: rank r those from first[r] to first[r + 1] - 1 of the tree's. */
struct ash_shares {
    uint32_t first[ASH_SHARES_RANKS_MAX + 1];
    struct ash_tree tree;
};
/* The most parts that any of size ranks contributes, at least 1. */
size_t ash_shares_most(const struct ash_shares *shares, size_t size);

/* out[i] = the reduction of parts[0 ... tree->part_count - 1][i]. out may be one of the parts. A NaN in a maximum may
 * be lost. */
void ash_coll_reduce(enum ash_coll_dtype dtype, enum ash_coll_op op, const struct ash_tree *tree,
                     const void *const *parts, size_t count, void *out);
/* The same to several places, each of which may be one of the parts. */
void ash_coll_reduce_to(enum ash_coll_dtype dtype, enum ash_coll_op op, const struct ash_tree *tree,
                        const void *const *parts, size_t count, void *const *outs, size_t out_count);
/* bf16 parts, and their reduction as float32: a part of a larger tree, to be rounded at its root. */
void ash_coll_reduce_wide(enum ash_coll_op op, const struct ash_tree *tree, const void *const *parts, size_t count,
                          float *out);

#endif
