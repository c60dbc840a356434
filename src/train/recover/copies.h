/* copies - what one rank updates of the state, a second time in the memory of another (recover.copies).  The owner of a
 * part sends its summed gradients, 4 bytes a parameter and step: those of a layer as soon as they are complete, while
 * the backward pass is in the layers before it (copies_send.c). The holder has them before the owner contributes to
 * the gradient norm; so when the norm is known, the holder can make the owner's update, too. It does: the copy is
 * always at the holder's own step. Where replicas (dp, cp) lie in another failure domain they are copies that cost
 * nothing. A failure domain is a node, in a job on one node a process. One owner thread. */
#ifndef ASH_TRAIN_RECOVER_COPIES_H
#define ASH_TRAIN_RECOVER_COPIES_H

#include "collective/group.h"
#include "train/recover/patches.h"
#include "train/state/optimizer.h"

/* Where the copies of all ranks of a mesh are. */
struct ash_copies_map {
    size_t ranks, copies;
    uint32_t *holders; /* [ranks * copies]: holder of the k-th copy of a rank; ASH_COPIES_NOBODY: none, or free */
};
#define ASH_COPIES_NOBODY UINT32_MAX

/* Holders of all ranks' copies: a pure function. nodes [ranks]: the node of each; slices [ranks]: ranks with equal ones
 * are replicas of each other. In another failure domain if there is one, in another process always, not on a replica,
 * as evenly as possible. Returns 0 or -ENOMEM. */
int ash_copies_map_init(struct ash_copies_map *map, size_t ranks, size_t copies, const uint32_t *nodes,
                        const uint32_t *slices);
/* Free; a zeroed struct is a no-op. */
void ash_copies_map_fini(struct ash_copies_map *map);

/* Gradients that are sent together: those of a layer, or of the parameters before or after all layers. */
struct ash_copies_message {
    size_t first, count;     /* of the trained elements of a list of patches */
    size_t chunk, grad_at;   /* the owner's: where they are in the gradients of a chunk, */
    bool is_scattered;       /* or not one after the other */
    size_t patch, patch_end; /* in the list */
};
struct ash_copies_messages {
    struct ash_copies_message *items; /* [count], the last layers first, as backward passes complete them */
    size_t count, started;            /* of those of this step, sent or received */
};

/* One copy in this process. */
struct ash_held_copy {
    size_t owner, turn;         /* whose, and which of its copies: the turn-th */
    struct ash_patches patches; /* all that the owner updates, and constants */
    struct ash_buffer memory;   /* values and gradients of all patches, where the state is */
    float *grads;               /* [trained]: of the trained ones, in their order */
    struct ash_copies_messages messages;
    size_t trained;
    bool has_values; /* taken over, or given */
};

struct ash_copies {
    struct ash_group *group; /* of the mesh; borrowed; NULL: closed, or without copies */
    struct ash_copies_map map;
    const struct ash_exec *exec; /* in whose memory state and copies are; borrowed */
    struct ash_held_copy *held;  /* [held_count] */
    size_t held_count;
    struct ash_patches own; /* of this rank: the source of the sent gradients */
    struct ash_copies_messages messages;
    float *scattered; /* room for those of its gradients that do not lie one after the other; NULL: all do */
    size_t scattered_count;
    struct ash_group *lane;  /* the same ranks as group, for sends concurrent with calls of that one; NULL: not yet */
    struct ash_call **calls; /* [call_count] under way, of room for calls_max */
    size_t call_count, calls_max;
};

/* Allocate the copies that this rank holds in the mesh of stages. outline lists the whole model. All ranks of the
 * mesh call it. Their values are missing still: ash_copies_add_patches lists their addresses. Returns 0, -ENOMEM or
 * the group's error. */
int ash_copies_open(struct ash_copies *copies, const struct ash_stages *stages, const struct ash_model *outline,
                    size_t count, struct ash_err *err);
/* A group of the same ranks for what happens next to their calls: lane. It is opened once; all ranks of the mesh call
 * it. Returns 0 or the group's error. */
int ash_copies_open_lane(struct ash_copies *copies, struct ash_err *err);
/* Its group is about to be closed: waits for requests in flight. Values and gradients stay. */
void ash_copies_detach(struct ash_copies *copies);
/* Take over what `old`, which is detached, holds of the same ranges: nothing is copied, and old holds it no more. */
void ash_copies_take(struct ash_copies *copies, struct ash_copies *old);
/* All values are there from now on. */
void ash_copies_set_filled(struct ash_copies *copies);
/* Forget copies whose values are not there. */
void ash_copies_drop_empty(struct ash_copies *copies);
/* Free; a zeroed struct is a no-op. */
void ash_copies_close(struct ash_copies *copies);
/* Append all that the copies here hold (has_values: of those whose values are there). Returns 0 or -ENOMEM. */
int ash_copies_add_patches(const struct ash_copies *copies, bool has_values, struct ash_patches *patches,
                           struct ash_err *err);
/* Bytes of the copies here. */
size_t ash_copies_bytes(const struct ash_copies *copies);

/* A step begins: nothing of it has been sent. */
void ash_copies_begin(struct ash_copies *copies);
/* While backward passes run: start to send the complete part of this rank's sums, and to receive as much. The lane must
 * be open, and not in use. Does not wait. Returns 0, -ENOMEM or -EAGAIN. */
int ash_copies_send_some(struct ash_copies *copies, const struct ash_stages *stages, struct ash_err *err);
/* The sums of a step are complete: send the remainder and wait for all. All ranks of the mesh call it, before the norm.
 * Returns 0 or the group's error. */
int ash_copies_send(struct ash_copies *copies, const struct ash_stages *stages, struct ash_err *err);
/* Make the owners' updates on their copies. optimizer: this rank's, which has not counted the update yet. */
void ash_copies_update(struct ash_copies *copies, const struct ash_optimizer *optimizer,
                       const struct ash_model *outline, double norm, double lr);
/* Do owners and holders have the same bits? All ranks call it. Returns 0, the group's error, or on all ranks -EUCLEAN
 * naming the ranks and the tensor. */
int ash_copies_check(struct ash_copies *copies, const struct ash_stages *stages, const struct ash_model *outline,
                     struct ash_err *err);

#endif
