/* fsdp - ranks that hold the same slice of a model and deal out its state (mesh.fsdp, mesh.zero).
 *   zero 1: moments. Each rank gets its part of the summed gradients and updates its shard of the weights.
 *   zero 2: gradients too. Grains are taken in turn, so that after each round of them the owner of a shard has
 * neighbouring grains of it from everyone and merges them into its tree of sums at once; experts that serve several
 * ranks (mesh.ep) have a lane of sums for each. A layer's gradients go to their owners as soon as the way back of the
 * grain's last batch has left it; where that is the only one, a few places serve all layers.
 *   zero 3: weights too.
 * Ranks of one node keep one working copy of the weights together (train/state.h) and read each other's gradients where
 * they lie, so nothing is gathered or sent. Across nodes zero 1 and 2 bring weights after an update, beside the first
 * layers of the next step; under zero 3 a
 * layer is put together when a pass needs it, the next two meanwhile, and let go behind it. Gradients travel beside the
 * layers before theirs (fsdp_send.c). No order of any sum depends on this. One owner thread. */
#ifndef ASH_TRAIN_FSDP_H
#define ASH_TRAIN_FSDP_H

#include "collective/call.h"
#include "train/layout/grains.h"
#include "train/layout/mesh.h"
#include "train/state/state.h"

/* Places for layers' gradients on their way: the layer at work, one before, one that is late. */
#define ASH_FSDP_RING 3
/* Units that are whole at once: the one at work, the next, and a tied embedding or one more. Where ranks of tp read
 * each other's weights there, also the one before: another rank may still be at work with it. Experts of a layer are
 * units of their own. */
#define ASH_FSDP_SLOTS 3
#define ASH_FSDP_SLOTS_SHARED (ASH_FSDP_SLOTS + 1)
#define ASH_FSDP_SLOTS_MAX (2 * ASH_FSDP_SLOTS_SHARED)

/* Weights of a unit, put together. */
struct ash_fsdp_slot {
    struct ash_buffer data;
    const struct ash_shard_unit *unit; /* NULL: empty */
    struct ash_call *call;             /* that brings it; NULL: it is here */
    uint64_t used;                     /* when it was last asked for */
};

#define ASH_FSDP_REQUESTS 2 /* units whose gradients are under way between nodes */

/* A unit's gradients, which are elements from `first` on of a leaf, to its owners: to elements from `at` on of a lane's
 * sums. */
struct ash_fsdp_delivery {
    const struct ash_shard_unit *unit;
    const struct ash_buffer *from;
    size_t first;
    struct ash_grains *sums;
    size_t strand, at;
    bool releases; /* the leaf's memory is not needed behind that */
};

/* Gradients on their way between nodes (fsdp_send.c). */
struct ash_fsdp_request {
    struct ash_call *call; /* NULL: none */
    struct ash_fsdp_delivery to;
    struct ash_buffer inbox; /* one part of a unit, of up to so many elements, from every rank */
    size_t part;
    size_t *send, *recv; /* [size], bytes */
};

/* Caller's storage; zeroed does nothing. */
struct ash_fsdp {
    struct ash_state *state;
    struct ash_mesh *mesh;
    struct ash_group *group; /* NULL: nothing is dealt out */
    const struct ash_shards *shards;
    size_t grain_count;
    bool sends_by_layer; /* a grain is one batch, so that a layer's gradients leave as soon as it is done with */
    /* set by who runs the passes: is the batch on its way back its grain's last; does the update come behind it? */
    bool is_last_micro_batch, is_last_of_step;
    /* weights */
    struct ash_fsdp_slot slots[ASH_FSDP_SLOTS_MAX];
    size_t slot_count;
    struct ash_window *slot_window; /* the memory of the slots, where ranks of tp read each other's weights */
    uint64_t clock;
    struct ash_call *
        *gathers;  /* zero 1 and 2, [units]: that bring their weights; NULL: they are here, or have not set out */
    size_t *order; /* [units]: in which passes ask for them */
    size_t started, arrived; /* of that order, in this update: what has set out, and what is here */
    /* gradients */
    struct ash_buffer grad_buffer;           /* of the grain at hand (fsdp_leaf.c) */
    size_t *offsets;                         /* [units]: of their gradients in it */
    size_t ring_slot_size;                   /* elements of a place that layers take in turn */
    struct ash_range rest;                   /* elements of leaf that are none of those */
    struct ash_window *window;               /* on one node: the leaves of all ranks */
    const struct ash_shard_unit **published; /* units whose gradients wait to be added up, oldest first */
    size_t published_count;
    uint64_t published_number,
        ring_published[ASH_FSDP_RING]; /* of the last unit that was given; of the last one in each place */
    const float **grad_parts;          /* [size] */
    bool round_ended;                  /* the round at hand, but for what is given */
    struct ash_fsdp_request requests[ASH_FSDP_REQUESTS];
    struct ash_fsdp_request *queue[ASH_FSDP_REQUESTS]; /* those under way: from landed on, before sent */
    uint64_t sent, received;
    struct ash_grains sums;                 /* of the shard, over the grains that these ranks share */
    struct ash_grains experts;              /* the same of experts that serve several ranks: a lane for each */
    struct ash_buffer *expert_grad_buffers; /* [lanes]: of the grains at hand, as leaf */
    size_t dense;                           /* elements of the shard that are no expert's */
    size_t round;
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

/* fsdp.c, weights. What passes tell (struct ash_pass_hooks), where they have to; and after an update: what others must
 * know sets out. */
bool ash_fsdp_has_hooks(const struct ash_fsdp *fsdp);
int ash_fsdp_need(struct ash_fsdp *fsdp, int unit, bool backward, struct ash_err *err);
int ash_fsdp_done(struct ash_fsdp *fsdp, int unit, bool backward, struct ash_err *err);
int ash_fsdp_after_update(struct ash_fsdp *fsdp, struct ash_err *err);
/* zero 1 and 2: all weights are here, for who reads them otherwise than in passes that tell. All ranks call it. */
int ash_fsdp_flush(struct ash_fsdp *fsdp, struct ash_err *err);
/* A parameter's weights as passes read them, whole, valid until the next call here; and whole ones that came from
 * elsewhere, of which the rank keeps what it holds. */
int ash_fsdp_gather_param(struct ash_fsdp *fsdp, const struct ash_param *param, const void **data_out,
                          struct ash_err *err);
void ash_fsdp_store_param(struct ash_fsdp *fsdp, const struct ash_param *param, const void *data);
size_t ash_fsdp_weight_bytes(const struct ash_fsdp *fsdp); /* bytes of one such weight */

/* fsdp_sums.c, gradients (zero 2 and 3): leaf of a round (expert_leaves: those of the ranks that are served), what is
 * left of it to its owners, and the sum of all. */
void ash_fsdp_reset(struct ash_fsdp *fsdp);
int ash_fsdp_begin(struct ash_fsdp *fsdp, float **leaf_out, float **expert_grad_buffers, struct ash_err *err);
int ash_fsdp_end(struct ash_fsdp *fsdp, struct ash_err *err);
int ash_fsdp_finish(struct ash_fsdp *fsdp, float **sum_out, struct ash_err *err);

size_t ash_fsdp_bytes(const struct ash_fsdp *fsdp);

/* Are a unit's gradients complete when the grain's last batch has left it on its way back? Those of the embedding are
 * when the grain is, and so are a tied output matrix's. */
bool ash_fsdp_completes(const struct ash_model *model, int unit);

#endif
