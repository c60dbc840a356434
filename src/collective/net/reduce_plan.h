/* reduce_plan - which partial sums each node can form by itself, and how they make the whole. The tree of a sum
 * (collective/ sum.h) is cut where nodes meet: the largest subtrees whose parts all come from one node are pieces. A
 * node joins its pieces through shared memory, pieces cross the network, and joining pieces along the rest of the
 * tree gives the bits of one node, wherever the ranks are. */
#ifndef ASH_COLLECTIVE_NET_REDUCE_PLAN_H
#define ASH_COLLECTIVE_NET_REDUCE_PLAN_H

#include "collective/core/sum.h"

/* Parts first ... first + count - 1 of the sum, all from one node. */
struct ash_partial_sum {
    uint32_t node, first, count;
    uint32_t index; /* among the pieces of its node */
};

struct ash_reduce_plan {
    struct ash_partial_sum partials[ASH_TREE_PARTS_MAX]; /* in order */
    struct ash_tree tree;                                /* over them */
    size_t most;                                         /* pieces of any node */
    bool deep;                                           /* some piece is a sum of several parts */
};

/* shares: of a group of size ranks, rank r on node node_of[r]. */
void ash_reduce_plan_init(struct ash_reduce_plan *plan, const struct ash_shares *shares, size_t size,
                          const uint32_t *node_of);
/* The tree of one piece, over its parts alone. */
void ash_reduce_plan_subtree(const struct ash_tree *tree, const struct ash_partial_sum *partial,
                             struct ash_tree *tree_out);

#endif
