/* fsdp - ranks that hold the same slice of a model and deal out its state (mesh.fsdp, mesh.zero).
 *   zero 1: moments. Each rank gets its part of the summed gradients and updates its shard of the weights.
 *   zero 2: gradients too. Grains are taken in turn, so that after each round of them the owner of a shard has
 * neighbouring grains of it from everyone and merges them into its tree of sums at once; experts that serve several
 * ranks (mesh.ep) have a lane of sums for each. Where a grain is one micro-batch a layer's gradients go to their owners
 * as soon as the way back has left it.
 *   zero 3: weights too.
 * Ranks of one node keep one working copy of the weights together (train/state.h) and read each other's gradients where
 * they lie, so nothing is gathered or sent. Across nodes zero 1 and 2 bring weights after an update; under zero 3 a
 * layer is put together when a pass needs it, the next one meanwhile, and let go behind it. No order of any sum depends
 * on this. One owner thread. */
#ifndef ASH_TRAIN_FSDP_H
#define ASH_TRAIN_FSDP_H

#include "collective/call.h"
#include "train/layout/grains.h"
#include "train/layout/mesh.h"
#include "train/state.h"

/* Places for layers' gradients on their way: the layer at work, one before, one that is late. */
#define ASH_FSDP_TURNS 3
#define ASH_FSDP_SLOTS 3 /* units that are whole at once: the one at work, a tied embedding, the next one */
#define ASH_FSDP_SLOTS_MAX (2 * ASH_FSDP_SLOTS) /* experts of a layer are units of their own */

/* Weights of a unit, put together. */
struct ash_fsdp_slot {
    struct ash_buffer data;
    const struct ash_shard_unit *unit; /* NULL: empty */
    struct ash_call *call;             /* that brings it; NULL: it is here */
    uint64_t used;                     /* when it was last asked for */
};

/* Caller's storage; zeroed does nothing. */
struct ash_fsdp {
    struct ash_state *state;
    struct ash_mesh *mesh;
    struct ash_group *group; /* NULL: nothing is dealt out */
    const struct ash_shards *shards;
    size_t grain_count;
    bool streams; /* gradients leave as soon as a layer is done with */
    /* weights */
    struct ash_fsdp_slot slots[ASH_FSDP_SLOTS_MAX];
    size_t slot_count;
    uint64_t clock;
    /* gradients */
    struct ash_buffer leaf;              /* of the grain at hand (fsdp_leaf.c) */
    size_t *places;                      /* [units]: of their gradients in it */
    size_t turn_size;                    /* elements of a place that layers take in turn */
    struct ash_run rest;                 /* elements of leaf that are none of those */
    struct ash_window *window;           /* on one node: the leaves of all ranks */
    const struct ash_shard_unit **given; /* units whose gradients wait to be added up, oldest first */
    size_t given_count;
    uint64_t number, turn_given[ASH_FSDP_TURNS]; /* of the last unit that was given; of the last one in each place */
    const float **leaves;                        /* [size] */
    bool ended;                                  /* the round at hand, but for what is given */
    struct ash_buffer inbox;                     /* one part of a unit from every rank */
    struct ash_grains sums;                      /* of the shard, over the grains that these ranks share */
    struct ash_grains experts;                   /* the same of experts that serve several ranks: a lane for each */
    struct ash_buffer *expert_leaves;            /* [lanes]: of the grains at hand, as leaf */
    size_t dense;                                /* elements of the shard that are no expert's */
    size_t round;
    size_t *send, *recv; /* [size], bytes */
};

/* Borrows state and mesh until fini. grain_micros: micro-batches of a grain. */
int ash_fsdp_init(struct ash_fsdp *fsdp, struct ash_state *state, struct ash_mesh *mesh, size_t grain_count,
                  size_t grain_micros, struct ash_err *err);
void ash_fsdp_fini(struct ash_fsdp *fsdp);

/* Rounds of grains where gradients are dealt out, the ranks taking turns: as many for all who share weights or experts.
 */
size_t ash_fsdp_rounds(const struct ash_mesh *mesh, size_t grain_count);
/* The grain of a round, or SIZE_MAX: none is left for this rank. */
size_t ash_fsdp_grain(const struct ash_mesh *mesh, size_t grain_count, size_t round);

/* fsdp.c, weights. Hooks for passes (zero 3), and after an update: what others must know. */
struct ash_pass_hooks ash_fsdp_hooks(struct ash_fsdp *fsdp);
int ash_fsdp_spread(struct ash_fsdp *fsdp, struct ash_err *err);
/* A parameter's weights as passes read them, whole, valid until the next call here; and whole ones that came from
 * elsewhere, of which the rank keeps what it holds. */
int ash_fsdp_whole(struct ash_fsdp *fsdp, const struct ash_param *param, const void **data_out, struct ash_err *err);
void ash_fsdp_keep(struct ash_fsdp *fsdp, const struct ash_param *param, const void *data);
size_t ash_fsdp_width(const struct ash_fsdp *fsdp); /* bytes of one such weight */

/* fsdp_sums.c, gradients (zero 2 and 3): leaf of a round (expert_leaves: those of the ranks that are served), what is
 * left of it to its owners, and the sum of all. */
void ash_fsdp_reset(struct ash_fsdp *fsdp);
int ash_fsdp_begin(struct ash_fsdp *fsdp, float **leaf_out, float **expert_leaves, struct ash_err *err);
int ash_fsdp_end(struct ash_fsdp *fsdp, struct ash_err *err);
int ash_fsdp_finish(struct ash_fsdp *fsdp, float **sum_out, struct ash_err *err);

size_t ash_fsdp_bytes(const struct ash_fsdp *fsdp);

#endif
