/* fsdp - ranks that hold the same slice of a model shard its state (mesh.fsdp, mesh.zero).
 *
 *     mesh.zero   sharded         gradients                                  weights
 *     1           moments         reduce-scatter of the step's sum           all-gather after the update, prefetched
 *     2           + gradients     to their owners after each layer           all-gather after the update, prefetched
 *     3           + weights       to their owners after each layer           all-gather of a layer before it is used
 *
 * Under zero 2 and 3 ranks take grains in turn, so that after each round of them the owner of a shard has neighbouring
 * grains of it from all ranks and adds them to its tree of sums at once; experts that serve several ranks (mesh.ep)
 * have a partial-sum stack for each. A layer's gradients go to their owners as soon as the backward pass of the grain's
 * last micro-batch has left it; where a grain has one micro-batch, a ring of a few slots serves all layers.
 *
 * Ranks of one node keep one working copy of the weights in shared memory (train/state/state.h) and read each other's
 * gradients there, so nothing is gathered or sent. Across nodes zero 1 and 2 prefetch weights after an update,
 * overlapped with the first layers of the next step; zero 3 gathers a layer when a pass needs it, prefetches the next
 * two, and drops it afterwards. Gradients are sent while earlier layers are computed (fsdp_send.c). No order of any sum
 * depends on this. One owner thread. */
#ifndef ASH_TRAIN_FSDP_H
#define ASH_TRAIN_FSDP_H

#include "collective/call.h"
#include "train/layout/grains.h"
#include "train/layout/leaf_sums.h"
#include "train/layout/mesh.h"
#include "train/state/state.h"

/* Slots of the ring for layers' gradients: the layer being computed, the one before, one whose readers are late. */
#define ASH_FSDP_RING 3
/* Units that are whole at once: the one in use, the next, and a tied embedding or one more. Where tp peers
 * read each other's weights there, also the one before: a peer may still be using it. A layer's experts are a
 * unit of their own. */
#define ASH_FSDP_SLOTS 3
#define ASH_FSDP_SLOTS_SHARED (ASH_FSDP_SLOTS + 1)
#define ASH_FSDP_SLOTS_MAX (2 * ASH_FSDP_SLOTS_SHARED)

/* Gathered weights of a unit. */
struct ash_fsdp_slot {
    struct ash_buffer data;            /* [ranks, unit->part] weights */
    const struct ash_shard_unit *unit; /* NULL: empty */
    struct ash_call *call;             /* the all-gather in flight; NULL: the data are here */
    uint64_t used;                     /* when it was last used */
};

#define ASH_FSDP_REQUESTS 2 /* units whose gradients are in flight between nodes */

/* Where a unit's gradients are, and where their owners add them. */
struct ash_fsdp_delivery {
    const struct ash_shard_unit *unit;
    const struct ash_buffer *from; /* gradients of a grain: the unit's from element `first` on */
    size_t first;
    struct ash_grains *sums; /* the owner's: its part of a partial-sum stack from element `at` on */
    size_t strand, at;
    bool releases; /* the memory of `from` is not needed once they are sent */
};

/* Gradients in flight between nodes (fsdp_send.c). */
struct ash_fsdp_request {
    struct ash_call *call; /* NULL: none */
    struct ash_fsdp_delivery to;
    struct ash_buffer inbox; /* [ranks, part]: this rank's part of a unit, from every rank */
    size_t part;             /* elements: the largest part that fits */
    size_t *send, *recv;     /* [ranks], bytes */
};

/* Caller's storage; zeroed does nothing. */
struct ash_fsdp {
    struct ash_state *state;
    struct ash_mesh *mesh;
    struct ash_group *group; /* NULL: nothing is sharded */
    const struct ash_shards *shards;
    size_t grain_count;
    bool sends_by_layer; /* a grain is one micro-batch, so a layer's gradients leave as soon as it is done */
    /* set before each backward pass: is the micro-batch the last of its grain; of the step, so
     * that the update follows? */
    bool is_last_of_grain, is_last_of_step;

    /* weights */
    struct ash_fsdp_slot slots[ASH_FSDP_SLOTS_MAX];
    size_t slot_count;
    struct ash_window *slot_window; /* the memory of the slots, where tp peers read each other's weights */
    uint64_t clock;                 /* of slots' `used` */
    struct ash_call **gathers;      /* zero 1 and 2, [units]: all-gathers in flight; NULL: done, or not started */
    size_t *order;                  /* [units]: in which passes use them */
    size_t started, arrived;        /* in that order, since the update: all-gathers started, and units that are here */

    /* gradients */
    struct ash_buffer grad_buffer;           /* of the grain being computed (fsdp_grads.c) */
    size_t *offsets;                         /* [units]: of their gradients in it */
    size_t ring_slot_size;                   /* elements of a slot of the ring, with which grad_buffer begins */
    struct ash_range rest;                   /* elements of grad_buffer after the ring */
    struct ash_window *window;               /* on one node: the grad_buffers of all ranks */
    const struct ash_shard_unit **published; /* units whose gradients wait to be reduced, oldest first */
    size_t published_count;
    uint64_t published_number;              /* counts published units */
    uint64_t ring_published[ASH_FSDP_RING]; /* the number of the last one in each slot of the ring */
    const float **grad_parts;               /* [ranks]: all ranks' gradients of a part of this rank's */
    bool round_ended;                       /* all gradients of the round have been published or sent */
    struct ash_fsdp_request requests[ASH_FSDP_REQUESTS];
    struct ash_fsdp_request *queue[ASH_FSDP_REQUESTS]; /* in flight: entries received ... sent - 1, modulo its size */
    uint64_t sent, received;
    struct ash_grains sums;                 /* of the shard, over the grains that these ranks share */
    struct ash_grains experts;              /* the same of experts that serve several ranks: a stack for each */
    struct ash_buffer *expert_grad_buffers; /* [strands]: as grad_buffer */
    size_t dense;                           /* elements of the shard that are no expert's */
    struct ash_leaf_sums *leaf_sums;        /* of the step, while it is computed; NULL: not recorded */
    size_t round;
};

/* Allocate what mesh->zero needs. Borrows state and mesh until fini. grain_micros: micro-batches of a grain. All ranks
 * of the mesh call it. Returns 0, -ENOMEM or the group's error. */
int ash_fsdp_init(struct ash_fsdp *fsdp, struct ash_state *state, struct ash_mesh *mesh, size_t grain_count,
                  size_t grain_micros, struct ash_err *err);
/* Wait for requests in flight and free; a zeroed struct is a no-op. */
void ash_fsdp_fini(struct ash_fsdp *fsdp);
/* Wait for requests in flight, and drop them; its group may then be closed before it. */
void ash_fsdp_settle(struct ash_fsdp *fsdp);
/* Bytes that gathered weights, gradients and their sums take; 0 where nothing is sharded. */
size_t ash_fsdp_bytes(const struct ash_fsdp *fsdp);

/* zero 2 and 3: rounds of grains in a step, the same for all ranks that share weights or experts. */
size_t ash_fsdp_rounds(const struct ash_mesh *mesh, size_t grain_count);
/* This rank's grain of a round, or SIZE_MAX: none is left for it. */
size_t ash_fsdp_grain(const struct ash_mesh *mesh, size_t grain_count, size_t round);

/* ---- fsdp.c, weights: hooks around the layers of a pass (struct ash_pass_hooks) ---------------------------------- */

/* Do passes have to call need and done? */
bool ash_fsdp_has_hooks(const struct ash_fsdp *fsdp);
/* A pass is about to use unit (a layer, ASH_UNIT_EMBED or ASH_UNIT_HEAD): its weights are here on return, those of the
 * next units are prefetched, and (backward) its gradients have room. Returns 0 or the group's error. */
int ash_fsdp_need(struct ash_fsdp *fsdp, int unit, bool backward, struct ash_err *err);
/* A pass is done with unit: complete gradients go to their owners. Returns 0 or the group's error. */
int ash_fsdp_done(struct ash_fsdp *fsdp, int unit, bool backward, struct ash_err *err);
/* After an update: drop gathered weights that are out of date, and start to gather new ones. */
int ash_fsdp_after_update(struct ash_fsdp *fsdp, struct ash_err *err);
/* zero 1 and 2: wait until all weights are here, for code that reads them outside of passes. All ranks call it. */
int ash_fsdp_flush(struct ash_fsdp *fsdp, struct ash_err *err);
/* A parameter's whole weights in *data_out [param->count], valid until the next call here. All ranks call it. */
int ash_fsdp_gather_param(struct ash_fsdp *fsdp, const struct ash_param *param, const void **data_out,
                          struct ash_err *err);
/* Take new values of a parameter, data [param->count]: this rank stores the part that it holds. */
void ash_fsdp_store_param(struct ash_fsdp *fsdp, const struct ash_param *param, const void *data);
/* Bytes of one weight, as passes read them. */
size_t ash_fsdp_weight_bytes(const struct ash_fsdp *fsdp);
/* Are a unit's gradients complete when the backward pass of the grain's last micro-batch has left it? Those of the
 * embedding, and of a tied output matrix, are when the grain is. */
bool ash_fsdp_completes(const struct ash_model *model, int unit);

/* ---- fsdp_sums.c, gradients (zero 2 and 3) ----------------------------------------------------------------------- */

/* Begin a step: drop what an earlier one left. */
void ash_fsdp_reset(struct ash_fsdp *fsdp);
/* Begin a round: the buffers that the grain's gradients are added to, in *grad_buffer_out and, of the experts of the
 * ranks that this one serves, in expert_grad_buffers [ep]. Returns 0 or the group's error. */
int ash_fsdp_begin(struct ash_fsdp *fsdp, float **grad_buffer_out, float **expert_grad_buffers, struct ash_err *err);
/* The round's gradients are complete: send the units that were not sent yet. */
int ash_fsdp_end(struct ash_fsdp *fsdp, struct ash_err *err);
/* After the last round: the sum over all grains of this rank's shard, in *sum_out [shards->total], until the next
 * reset. Returns 0 or the group's error. */
int ash_fsdp_finish(struct ash_fsdp *fsdp, float **sum_out, struct ash_err *err);

#endif
