/* state - a training run's values at a step: weights, the optimizer's moments, counters and the guard's statistics.
 * Its hash depends on names and values alone: not on layout, padding, file split or sharding. One owner
 * thread. */
#ifndef ASH_TRAIN_STATE_STATE_H
#define ASH_TRAIN_STATE_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "collective/group.h"
#include "compute/ops.h"
#include "model/model.h"
#include "model/shards.h"
#include "train/state/guard.h"

/* The part of a job's state in a process, and the ranks that share it. NULL: all of it, alone. */
struct ash_state_part {
    bool is_counted;          /* of the replicas of this slice, is this the one counted in sums over the job? */
    bool is_dense_counted;    /* and for all but experts? */
    size_t replica, replicas; /* this one's number among the replicas of this slice */
    /* of those, the ones on this node: they keep one copy in shared memory; NULL: none. Borrowed. */
    struct ash_group *node_replicas;
    /* the ranks that this slice is sharded over, all on this node: they keep one working copy of the weights in shared
     * memory; NULL: each has its own. Borrowed. Never together with node_replicas. */
    struct ash_group *node_shard_group;
    /* ranks of tp on this node: their passes read this one's working copy, too, and this one's theirs; NULL: none.
     * Borrowed. */
    struct ash_group *tp_peers;
    bool is_blank; /* its values come from elsewhere, and ash_state_renew follows: nothing is derived from them yet */
};

/* Weights [model size] and moments [shards->total] that an update reads, or those that it writes. */
struct ash_state_values {
    float *weights, *m, *v;
};

/* Caller's storage. The model may be a slice. m and v are moments of the shard [shards->total]; bf16 is the
 * working copy of the weights [model size], empty in float32 runs. Node replicas have all of them in shared
 * memory, where each updates its part; an update does not write the values that it reads, so that a rank lost in the
 * middle of it leaves the values of the last step whole. A node shard group has the working copy (in float32 runs the
 * weights) in shared memory. */
struct ash_state {
    struct ash_model *model;
    struct ash_exec *exec;
    const struct ash_shards *shards; /* the model's: all of it, unless several ranks share this slice */
    struct ash_state_part part;
    struct ash_range own; /* elements of the shard that this process updates: all, or its part among node replicas */
    struct ash_buffer m, v, bf16;
    size_t mates;                 /* node replicas, this one among them; 0: none. Stays after ash_state_detach */
    struct ash_buffer result;     /* of an op over all parameters: an ash_squares */
    struct ash_state_values next; /* where an update is written: in place, or where node replicas have another step's */
    struct ash_window *window;    /* the shared memory of node replicas or of the node shard group */
    struct ash_window *tp_window; /* the working copies of all tp peers; NULL: none, or fsdp gathers the weights */
    bool is_rounded;              /* the working copy has been made of the weights; updates keep it so */
    bool is_taken;                /* the working copy is that of the weights already: ash_state_renew leaves it */
    uint64_t step;                /* steps done, skipped ones too */
    uint64_t updates;             /* of the weights */
    struct ash_guard_stats guard;
};

/* Step 0 around an owned model, which state takes over on success. Borrows exec until fini. bf16: passes work on a bf16
 * copy. All node replicas or the whole node shard group call it. Returns 0, -ENOMEM or the group's error. */
int ash_state_init(struct ash_state *state, struct ash_exec *exec, struct ash_model *model, bool bf16,
                   const struct ash_state_part *part, struct ash_err *err);
/* Free, the model too; a zeroed struct is a no-op. */
void ash_state_fini(struct ash_state *state);
/* Are all replicas on this node? Then each needs the gradients of its own part only. */
bool ash_state_is_partitioned(const struct ash_state *state);
/* The working copy of these weights of the state; NULL: there is none. */
uint16_t *ash_state_bf16_of(const struct ash_state *state, const float *weights);
/* Barrier of the node replicas or the node shard group: what each of them wrote is there for all. Returns 0 or the
 * group's error. */
int ash_state_barrier(const struct ash_state *state, struct ash_err *err);
/* Node shard group: this process does not need elements `range` of the working copy, nor those of tp peers. Unmaps
 * their pages, which stay in shared memory, so that they do not count as resident here. */
void ash_state_unmap(const struct ash_state *state, struct ash_range range);
/* An update has been written to next, and all node replicas or the node shard group have passed ash_state_barrier: it
 * is current from now on. */
void ash_state_advance(struct ash_state *state);
/* The values [own] have been written from elsewhere: compute the values derived from them. All node replicas or the
 * whole node shard group call it. Returns 0 or the group's error. */
int ash_state_renew(struct ash_state *state, struct ash_err *err);
/* The groups that it was opened with are about to be closed: the values stay, to be read and to be updated once
 * more. */
void ash_state_detach(struct ash_state *state);
/* Take over the values and counters of `old`, which is detached and of the same part of the same model, and give it the
 * unused memory in exchange: nothing is copied. The same for the working copy, if it is private. ash_state_renew
 * follows. Returns false, and nothing is done, if the parts differ or the values of one are in shared memory. */
bool ash_state_take(struct ash_state *state, struct ash_state *old);
/* The part of the shard that replica `mate` of the node (< state->mates) updates. */
struct ash_range ash_state_mate_run(const struct ash_state *state, size_t mate);
/* Bytes of this process's share of the state. */
size_t ash_state_bytes(const struct ash_state *state);

/* Sum over every tensor of ash_hash_words seeded by "weights/<name>", "m/<name>", "v/<name>", mixed with step and
 * updates. */
uint64_t ash_state_hash(const struct ash_state *state);
/* The same of a state that several processes share: of count parts here, and those of the other ranks of group (NULL:
 * none), which call it too. Returns 0 or the group's error. */
int ash_state_hash_all(const struct ash_state *const *states, size_t count, struct ash_group *group, uint64_t *hash_out,
                       struct ash_err *err);

#endif
