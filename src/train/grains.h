/* grains - sums over the grains of a global batch in one fixed binary tree, whoever computes which grain.
 * A tree over n leaves splits at the largest power of two below n: leaves 0 .. p-1 left, the rest right, and so on
 * down (collective/sum.h). A process walks its own leaves in order and holds a stack of partial sums, at most log2(n) +
 * 1 of them for all leaves; what the stacks of several processes hold at the end is joined by a collective. One owner
 * thread. */
#ifndef ASH_TRAIN_GRAINS_H
#define ASH_TRAIN_GRAINS_H

#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "collective/group.h"
#include "compute/ops.h"

#define ASH_GRAINS_DEPTH_MAX 32
#define ASH_GRAINS_MAX ((size_t)1 << 20)

/* Caller's storage; fields are private. */
struct ash_grains {
    struct ash_exec *exec;
    struct ash_group *group;                          /* who shares the grains; NULL: this process has all */
    struct ash_shares shares;                         /* which partial sums each rank of the group ends with */
    size_t total;                                     /* grains of all ranks */
    struct ash_span own;                              /* this rank's */
    size_t leaf_size, sum_size;                       /* elements */
    size_t buffer_count, depth;                       /* depth: partial sums on the stack now */
    struct ash_buffer buffers[ASH_GRAINS_DEPTH_MAX];  /* alone */
    struct ash_window *windows[ASH_GRAINS_DEPTH_MAX]; /* in a group: as many as any rank has partial sums */
    float *sums[ASH_GRAINS_DEPTH_MAX];                /* the partial sums, in one or the other */
    struct ash_span spans[ASH_GRAINS_DEPTH_MAX];      /* under each partial sum */
};

/* The grains of rank `rank` when size ranks share grain_count of them in order, as evenly as can be. */
struct ash_span ash_grains_dealt(size_t grain_count, size_t rank, size_t size);
/* The sum of one value per grain in the order of the tree. */
double ash_grains_fold(const double *values, size_t grain_count);

/* Partial sums that rank `rank` of size holds at once when they share grain_count grains; alone:
 * floor(log2(grain_count)) + 1. */
size_t ash_grains_buffers(size_t grain_count, size_t rank, size_t size);
/* Memory for the sums of grain_count grains, dealt out to the ranks of group (borrowed; NULL: alone) in order, as
 * evenly as can be. A leaf has leaf_size floats, of which the first sum_size are added up. Borrows exec until fini.
 * Returns 0, -EINVAL or -ENOMEM. */
int ash_grains_init(struct ash_grains *grains, struct ash_exec *exec, struct ash_group *group, size_t leaf_size,
                    size_t sum_size, size_t grain_count, struct ash_err *err);
/* The same for grains own of grain_count alone: what is on the stack behind the last one is joined by whoever asked
 * (ash_grains_parts). */
int ash_grains_init_part(struct ash_grains *grains, struct ash_exec *exec, struct ash_span own, size_t leaf_size,
                         size_t grain_count, struct ash_err *err);
/* The partial sums that are left, in order; returns how many. */
size_t ash_grains_parts(const struct ash_grains *grains, const void **parts_out);
/* Free; a zeroed struct is a no-op. */
void ash_grains_fini(struct ash_grains *grains);
/* Bytes of partial sums. */
size_t ash_grains_bytes(const struct ash_grains *grains);
/* The grains of this rank. */
struct ash_span ash_grains_own(const struct ash_grains *grains);

/* Forget partial sums, then for each own grain in order: begin gives a zeroed leaf to add to, end puts it into the
 * tree. finish gives the root over all ranks' grains, valid until the next reset; it fails only where another rank is
 * lost. */
void ash_grains_reset(struct ash_grains *grains);
float *ash_grains_begin(struct ash_grains *grains);
void ash_grains_end(struct ash_grains *grains);
int ash_grains_finish(struct ash_grains *grains, float **sum_out, struct ash_err *err);

#endif
