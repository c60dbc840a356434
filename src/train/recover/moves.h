/* moves - sender and receiver of each piece, so that every rank gets its needed ranges. A pure function of all ranks'
 * lists, so every rank has the same moves. A piece comes from the process itself if it has it, else from its own node,
 * else from the rank that has given least so far. */
#ifndef ASH_TRAIN_RECOVER_MOVES_H
#define ASH_TRAIN_RECOVER_MOVES_H

#include "train/recover/patches.h"

/* What ranks have or need: those of rank r are ranges[first[r]] ... ranges[first[r + 1] - 1]. Borrowed. */
struct ash_patch_lists {
    const struct ash_patch_range *ranges;
    const size_t *first; /* [ranks + 1] */
};

struct ash_move {
    uint32_t from, to; /* ranks */
    struct ash_patch_range range;
};

/* Elements of a move at most: larger ones are cut. */
#define ASH_MOVE_MAX ((size_t)1 << 15)

/* What to find moves for. */
struct ash_moves_opts {
    size_t ranks;
    const uint32_t *nodes; /* [ranks]: the node of each */
    struct ash_patch_lists have, need;
};

/* All moves, by parameter and element. Returns 0, -ENOMEM, or -ENODATA if no rank has a range that a rank needs: then
 * *missing_out is that range. On 0 the caller frees *moves_out [*count_out]. */
int ash_moves_plan(const struct ash_moves_opts *opts, struct ash_move **moves_out, size_t *count_out,
                   struct ash_patch_range *missing_out);

#endif
