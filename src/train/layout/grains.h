/* grains - sums over the grains of a global batch in one fixed binary tree, independent of which rank computes which
 * grain.
 *
 *     grains     0   1   2   3   4        a tree over n leaves splits at the largest power of two below n
 *                 \ /     \ /    |        (collective/core/sum.h): here 0..3 left, 4 right
 *                  +       +     |
 *                   \     /      |        A strand is a range of neighbouring grains whose gradients (leaves) come in
 *                    --+--       |        order. It keeps a stack of partial sums, at most log2(n) + 1 of them; two
 *                       \       /         that are the halves of a subtree are added as soon as both are there.
 *                        --+----
 *
 * A process has one strand for its own grains, or one for each rank whose gradients it sums. The partial sums of all
 * ranks' strands are reduced by a collective at the end. One owner thread.
 *
 * Ranks of a node that compute a leaf together (opts.peers) have one set of sums. All of them call begin, end and
 * advance; each clears and adds its share of the elements, so they need a barrier after begin and around end.
 * Reductions over the ranks of the group (start_reduce, end_range, reduce) are for the first of them alone. */
#ifndef ASH_TRAIN_GRAINS_H
#define ASH_TRAIN_GRAINS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "collective/call.h"
#include "collective/group.h"
#include "compute/ops.h"
#include "model/slice.h"

#define ASH_GRAINS_DEPTH_MAX 32
#define ASH_GRAINS_MAX ((size_t)1 << 20)

/* Rank r of the group has strand_count strands; all strands of all ranks, in that order, share grain_count grains in
 * order, as evenly as possible. */
struct ash_grains_opts {
    struct ash_exec *exec;   /* borrowed */
    struct ash_group *group; /* borrowed; NULL: alone */
    struct ash_group *peers; /* ranks of a node that add to the same leaves and have one sum; borrowed; NULL: none */
    size_t grain_count, strand_count;
    size_t add_count;        /* leaves that ash_grains_add gets at a time (the last time fewer); 0: it is not called */
    size_t sum_size;         /* floats that are summed: the first ones of a leaf */
    size_t leaf_size;        /* floats of a leaf: at least sum_size */
    struct ash_range unused; /* of those, floats after the sum that no leaf has: one copy, for sums from elsewhere */
    bool in_windows;         /* in memory that the ranks of the group reduce in place; for one strand */
    /* with in_windows: ranges of the sum's floats that this rank needs and no other does; borrowed until fini */
    const struct ash_range *wanted;
    size_t wanted_count; /* 0: it needs all */
    size_t range_count;  /* ranges that ash_grains_start_reduce cuts a sum into; 0: it is not called */
};

/* A range of elements whose reduction is in flight. */
struct ash_grains_request {
    struct ash_call *call; /* NULL: one rank, nothing to reduce */
    struct ash_range range;
    const void *parts[ASH_GRAINS_DEPTH_MAX]; /* [depth] partial sums, of [range.count] floats each */
};

/* The partial sums of a strand: which grains each covers, from the first on. */
struct ash_grains_stack {
    size_t depth;
    struct ash_range spans[ASH_GRAINS_DEPTH_MAX + 1];
};

struct ash_grains_strand {
    struct ash_range grains;
    struct ash_grains_stack stack;
    size_t buffer_count;
    struct ash_buffer buffers[ASH_GRAINS_DEPTH_MAX]; /* where they are not windows */
    struct ash_window *shared[ASH_GRAINS_DEPTH_MAX]; /* the memory of the first of opts.peers, as all of them see it */
    float *sums[ASH_GRAINS_DEPTH_MAX];               /* the partial sums [leaf_size], in one or the other */
};

/* Subtrees of a step whose sums are known before it begins. In such a step ranks may have other grains than opts gives
 * them. */
struct ash_grains_kept {
    const struct ash_range *parts; /* [ranks of the group] grains of each rank in that step, in order */
    const struct ash_range *spans; /* [count] the subtrees, in order; each lies in one rank's grains */
    size_t count;
};

/* Caller's storage; fields are private. Zeroed it has no strands. */
struct ash_grains {
    struct ash_grains_opts opts;
    struct ash_shares shares;                         /* which partial sums each rank of the group ends with */
    struct ash_grains_strand *strands;                /* [opts.strand_count] */
    struct ash_window *windows[ASH_GRAINS_DEPTH_MAX]; /* as many as any rank has partial sums */
    struct ash_grains_request *requests;              /* [opts.range_count] */
    size_t request_count;
    bool is_reduced;             /* a reduction has begun, which may have overwritten sums */
    bool is_by_range;            /* the last leaf comes by ranges: it and the sum are on top of the stack */
    struct ash_grains_kept kept; /* of this step, those of this rank; parts NULL: none */
    const float *const *values;  /* [kept.count] */
    size_t taken;                /* of those, in the tree */
};

/* The part of `rank` when grain_count grains are partitioned over `size` ranks in order, as evenly as possible. */
struct ash_range ash_grains_partition(size_t grain_count, size_t rank, size_t size);
/* The sum of one value per grain, values[grain_count], in the order of the tree. */
double ash_grains_fold(const double *values, size_t grain_count);

/* Allocate memory for the sums. All ranks of the group call it. Returns 0, -EINVAL, -ENOMEM or the group's error. */
int ash_grains_init(struct ash_grains *grains, const struct ash_grains_opts *opts, struct ash_err *err);
/* Wait for requests in flight and drop them; the group may then be closed before this. */
void ash_grains_settle(struct ash_grains *grains);
/* Wait for requests in flight and free; a zeroed struct is a no-op. */
void ash_grains_fini(struct ash_grains *grains);
/* Bytes that the sums take. */
size_t ash_grains_bytes(const struct ash_grains *grains);
/* The grains of a strand. */
struct ash_range ash_grains_of(const struct ash_grains *grains, size_t strand);

/* Begin a step: wait for requests in flight and drop all partial sums. */
void ash_grains_reset(struct ash_grains *grains);
/* The memory [leaf_size] for the next grain of a strand, for the caller to add gradients to; zeroed, or as it is. */
float *ash_grains_begin(struct ash_grains *grains, size_t strand, bool zeroed);
/* The leaf that begin gave is complete: put it into the tree. */
void ash_grains_end(struct ash_grains *grains, size_t strand);
/* Instead of begin and end, range by range: add elements `range` of the next count leaves, leaves[i] pointing at the
 * first of them [range.count]. Each range of the sum once, then ash_grains_advance. */
void ash_grains_add(struct ash_grains *grains, size_t strand, struct ash_range range, const float *const *leaves,
                    size_t count);
/* All ranges of the next count leaves have been added: go to the grains after them. */
void ash_grains_advance(struct ash_grains *grains, size_t strand, size_t count);

/* ---- sums that are known before a step (one strand, no peers) ---------------------------------------------------- */

/* Can a step have these? The same answer on all ranks. */
bool ash_grains_can_keep(const struct ash_grains *grains, const struct ash_grains_kept *kept);
/* Memory for such a step. All ranks of the group call it. Returns 0, -EINVAL, -ENOMEM or the group's error. */
int ash_grains_make_room(struct ash_grains *grains, const struct ash_grains_kept *kept, struct ash_err *err);
/* After a reset: this step has those, all ranks'. values: the sums [sum_size] of those in this rank's grains, in order.
 * Both are borrowed until the next reset. The grains between them are begun and ended as ever; ranges
 * (ash_grains_end_range) are not for such a step. */
void ash_grains_keep(struct ash_grains *grains, const struct ash_grains_kept *kept, const float *const *values);
/* The subtrees that are complete, and not overwritten by a reduction: spans_out, sums_out [ASH_GRAINS_DEPTH_MAX].
 * Returns how many. */
size_t ash_grains_finished(const struct ash_grains *grains, struct ash_range *spans_out, const float **sums_out);

/* Between nodes, or alone, with one strand: elements `range` of all its leaves are there, so start to reduce them over
 * the ranks, overlapped with what the caller computes next. part: rank r of the group needs only part elements from
 * r * part on, which together are the range; 0: all need all. All ranks start the same ranges in the same order, each
 * once, until they cover the sum. Returns 0 or the group's error. */
int ash_grains_start_reduce(struct ash_grains *grains, struct ash_range range, size_t part, struct ash_err *err);
/* Is the sum of elements `range`, as far as this rank needs them, at ash_grains_sum? For started ranges, until
 * ash_grains_reduce. Does not wait; a failed reduction is reported by ash_grains_reduce. */
bool ash_grains_has_sum(const struct ash_grains *grains, struct ash_range range);
/* Before a start, of the strand's last leaf, which begin gave: put elements `range` into the tree; elements that are in
 * it already stay unchanged. ash_grains_advance follows when all have been. */
void ash_grains_end_range(struct ash_grains *grains, struct ash_range range);

/* After the last grain: reduce the root over all ranks' grains into out[sum_size] (not with windows or started ranges),
 * or (NULL) in place, at ash_grains_sum, until the next reset. Waits for started ranges. Returns 0 or the
 * group's error. */
int ash_grains_reduce(struct ash_grains *grains, float *out, struct ash_err *err);
/* Where the sum [sum_size] is after ash_grains_reduce(NULL). */
float *ash_grains_sum(const struct ash_grains *grains);

#endif
