/* grains - sums over the grains of a global batch in one fixed binary tree, whoever computes which grain.
 * A tree over n leaves splits at the largest power of two below n: leaves 0 .. p-1 left, the rest right, and so on
 * down. One process walks the leaves in order and holds a stack of at most log2(n) + 1 partial sums; a process that
 * owns a subtree gets the same partial sums. One owner thread. */
#ifndef ASH_TRAIN_GRAINS_H
#define ASH_TRAIN_GRAINS_H

#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "compute/ops.h"

#define ASH_GRAINS_DEPTH_MAX 32

/* Caller's storage; fields are private. */
struct ash_grains {
    struct ash_exec *exec;
    size_t leaf_size, sum_size; /* elements */
    size_t buffer_count, depth; /* depth: partial sums on the stack now */
    struct ash_buffer buffers[ASH_GRAINS_DEPTH_MAX];
    uint64_t leaves[ASH_GRAINS_DEPTH_MAX]; /* under each partial sum */
    double losses[ASH_GRAINS_DEPTH_MAX];
};

/* Partial sums that grain_count >= 1 grains hold at once: floor(log2(grain_count)) + 1. */
size_t ash_grains_buffers(size_t grain_count);
/* Memory for the sums of grain_count grains. A leaf has leaf_size floats, of which the first sum_size are added up.
 * Borrows exec until fini. Returns 0, -EINVAL or -ENOMEM. */
int ash_grains_init(struct ash_grains *grains, struct ash_exec *exec, size_t leaf_size, size_t sum_size,
                    size_t grain_count, struct ash_err *err);
/* Free; a zeroed struct is a no-op. */
void ash_grains_fini(struct ash_grains *grains);

/* Forget partial sums, then for each grain in order: begin gives a zeroed leaf to add to, end puts it (and the grain's
 * loss) into the tree. finish gives the root, valid until the next reset, and the total loss. */
void ash_grains_reset(struct ash_grains *grains);
float *ash_grains_begin(struct ash_grains *grains);
void ash_grains_end(struct ash_grains *grains, double loss);
float *ash_grains_finish(struct ash_grains *grains, double *loss_out);

#endif
