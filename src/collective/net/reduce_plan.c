/* A tree is given as joins after each part; here it is first made into nodes with two halves, then walked from the root
 * until a subtree belongs to one node. */
#include "collective/net/reduce_plan.h"

#include <string.h>

#include "base/assert.h"

#define MIXED UINT32_MAX
#define BRANCHES_MAX (2 * ASH_TREE_PARTS_MAX)

/* A subtree; a part has no halves. */
struct branch {
    uint16_t first, count, left, right;
    uint32_t node; /* that all its parts come from, or MIXED */
};

struct walk {
    struct branch branches[BRANCHES_MAX];
    struct ash_reduce_plan *plan;
    uint32_t on_node[ASH_SHARES_RANKS_MAX]; /* pieces of each node so far */
};

/* Returns the root. */
static uint16_t grow(struct walk *walk, const struct ash_shares *shares, size_t size, const uint32_t *node_of)
{
    uint16_t stack[ASH_TREE_PARTS_MAX], count = 0;
    size_t depth = 0;

    for (size_t r = 0; r < size; r++)
        for (uint32_t p = shares->first[r]; p < shares->first[r + 1]; p++) {
            walk->branches[count] = (struct branch){.first = (uint16_t)p, .count = 1, .node = node_of[r]};
            stack[depth++] = count++;
            for (unsigned j = 0; j < shares->tree.joins[p]; j++, depth--) {
                const struct branch *left = &walk->branches[stack[depth - 2]],
                                    *right = &walk->branches[stack[depth - 1]];

                walk->branches[count] = (struct branch){.first = left->first,
                                                        .count = (uint16_t)(left->count + right->count),
                                                        .left = stack[depth - 2],
                                                        .right = stack[depth - 1],
                                                        .node = left->node == right->node ? left->node : MIXED};
                stack[depth - 2] = count++;
            }
        }
    ash_assert(depth == 1);
    return stack[0];
}

/* Pieces under a branch, left before right; two that have been walked are joined after the last of them. */
static void cut(struct walk *walk, uint16_t at)
{
    const struct branch *branch = &walk->branches[at];
    struct ash_reduce_plan *plan = walk->plan;
    struct ash_tree *tree = &plan->tree;

    if (branch->node == MIXED) {
        cut(walk, branch->left);
        cut(walk, branch->right);
        tree->joins[tree->part_count - 1]++;
        return;
    }
    plan->partials[tree->part_count] = (struct ash_partial_sum){
        .node = branch->node, .first = branch->first, .count = branch->count, .index = walk->on_node[branch->node]++};
    if (walk->on_node[branch->node] > plan->most) plan->most = walk->on_node[branch->node];
    if (branch->count > 1) plan->deep = true;
    tree->joins[tree->part_count++] = 0;
}

void ash_reduce_plan_init(struct ash_reduce_plan *plan, const struct ash_shares *shares, size_t size,
                          const uint32_t *node_of)
{
    struct walk walk;

    ash_assert(size <= ASH_SHARES_RANKS_MAX && shares->tree.part_count > 0);
    plan->tree.part_count = 0;
    plan->most = 0;
    plan->deep = false;
    walk.plan = plan;
    memset(walk.on_node, 0, sizeof(walk.on_node));
    cut(&walk, grow(&walk, shares, size, node_of));
}

void ash_reduce_plan_subtree(const struct ash_tree *tree, const struct ash_partial_sum *partial,
                             struct ash_tree *tree_out)
{
    size_t left = partial->count - 1; /* joins inside the piece: those above it are not its own */

    ash_assert(partial->first + partial->count <= tree->part_count);
    tree_out->part_count = partial->count;
    for (size_t i = 0; i < partial->count; i++) {
        size_t joins = tree->joins[partial->first + i];

        tree_out->joins[i] = (uint8_t)(joins < left ? joins : left);
        left -= tree_out->joins[i];
    }
}
