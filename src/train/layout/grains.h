/* grains - sums over the grains of a global batch in one fixed binary tree, whoever computes which grain.
 * A tree over n leaves splits at the largest power of two below n: leaves 0 .. p-1 left, the rest right, and so on
 * down (collective/sum.h). A lane is a run of neighbouring leaves that come in order: it holds a stack of partial sums,
 * at most log2(n) + 1 of them, and neighbours that are the halves of a subtree are added as soon as both are there. A
 * process has one lane for its own grains, or one for each rank whose gradients it sums. What the lanes of all ranks
 * hold at the end is joined by a collective. One owner thread.
 * Ranks of a node that make a leaf together (opts.along) have one set of sums. All of them call begin, end and move;
 * each clears and adds up its share of the elements, so they meet behind begin and around end. What joins runs over the
 * ranks of the group (start, end_run, finish) is for the first of them alone. */
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

/* Rank r of the group (borrowed; NULL: alone) has lane_count lanes; all lanes of all ranks, in that order, share
 * grain_count grains in order, as evenly as can be. */
struct ash_grains_opts {
    struct ash_exec *exec; /* borrowed */
    struct ash_group *group;
    struct ash_group *peers; /* ranks of a node that add to the same leaves and have one sum (borrowed; NULL: nobody) */
    size_t grain_count, strand_count;
    size_t at_once;   /* leaves of a lane that ash_grains_add gets at a time (at its end, fewer); 0: it is not called */
    size_t sum_size;  /* floats that are added up: the first ones of a leaf */
    size_t leaf_size; /* floats of a leaf */
    struct ash_range unused; /* of those, floats behind the sum that no leaf has: once only, for sums from elsewhere */
    bool in_windows;         /* keep them where the ranks of the group can add up in place; for one lane */
    const struct ash_range
        *wanted;         /* of windows: runs of the sum's floats that this rank asks for, and no other does */
    size_t wanted_count; /* 0: it asks for all. The list is borrowed until fini. */
    size_t runs;         /* into which a step's sum is cut by ash_grains_start_reduce; 0: that is not called */
};

/* A run of elements that is being joined. */
struct ash_grains_request {
    struct ash_call *call;
    const void *parts[ASH_GRAINS_DEPTH_MAX];
};

/* The partial sums of a lane: which leaves are under each, from the first on. */
struct ash_grains_stack {
    size_t depth;
    struct ash_range spans[ASH_GRAINS_DEPTH_MAX + 1];
};

struct ash_grains_strand {
    struct ash_range grains;
    struct ash_grains_stack stack;
    size_t buffer_count;
    struct ash_buffer buffers[ASH_GRAINS_DEPTH_MAX]; /* where they are not windows */
    struct ash_window *peers[ASH_GRAINS_DEPTH_MAX];  /* what the first of opts.along has, as all of them see it */
    float *sums[ASH_GRAINS_DEPTH_MAX];               /* the partial sums, in one or the other */
};

/* Caller's storage; fields are private. Zeroed it has no lanes. */
struct ash_grains {
    struct ash_grains_opts opts;
    struct ash_shares shares; /* which partial sums each rank of the group ends with */
    struct ash_grains_strand *strands;
    struct ash_window *windows[ASH_GRAINS_DEPTH_MAX]; /* as many as any rank has partial sums */
    struct ash_grains_request *requests;              /* [opts.runs] */
    size_t request_count;
};

/* What `rank` of size gets of grain_count grains that are dealt out in order, as evenly as can be. */
struct ash_range ash_grains_partition(size_t grain_count, size_t rank, size_t size);
/* The sum of one value per grain in the order of the tree. */
double ash_grains_fold(const double *values, size_t grain_count);

/* Memory for the sums. All ranks of the group call it. Returns 0, -EINVAL or -ENOMEM. */
int ash_grains_init(struct ash_grains *grains, const struct ash_grains_opts *opts, struct ash_err *err);
/* Free; a zeroed struct is a no-op. */
void ash_grains_fini(struct ash_grains *grains);
/* Bytes that the sums take. */
size_t ash_grains_bytes(const struct ash_grains *grains);
/* The grains of a lane. */
struct ash_range ash_grains_of(const struct ash_grains *grains, size_t strand);

/* Forget partial sums. */
void ash_grains_reset(struct ash_grains *grains);
/* For each grain of a lane in order: begin gives a leaf to add to (zeroed, or as it is), end puts it into the tree. */
float *ash_grains_begin(struct ash_grains *grains, size_t strand, bool zeroed);
void ash_grains_end(struct ash_grains *grains, size_t strand);
/* Or piece by piece: elements run of the next count leaves, each where it lies; and when all pieces of them have been
 * put, the lane moves on. */
void ash_grains_add(struct ash_grains *grains, size_t strand, struct ash_range run, const float *const *leaves,
                    size_t count);
void ash_grains_advance(struct ash_grains *grains, size_t strand, size_t count);

/* Between nodes, where there is one lane: elements run of all its leaves are there, so begin to join them over the
 * ranks. part: rank r of the group wants part elements from r * part on only, which all together are the run; 0: all
 * want all. All ranks start the same runs in the same order, each once, and then all of the sum. Of a leaf that
 * ash_grains_begin gave, the run is put into the tree first; the lane moves on when all have been (ash_grains_advance). */
int ash_grains_start_reduce(struct ash_grains *grains, struct ash_range run, size_t part, struct ash_err *err);
void ash_grains_end_range(struct ash_grains *grains, struct ash_range run);

/* Behind the last grain: the root over all ranks' grains goes to out (not from windows), or (NULL) stays where
 * ash_grains_sum says, until the next reset. Fails only where another rank is lost. */
int ash_grains_reduce(struct ash_grains *grains, float *out, struct ash_err *err);
float *ash_grains_sum(const struct ash_grains *grains);

#endif
