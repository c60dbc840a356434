/* state - what a training run is at a step: weights, the optimizer's moments, counters and the guard's statistics.
 * Its hash depends on names and values alone: not on layout, padding, file split or who holds which part. One owner
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
#include "train/state/guard.h"
#include "model/shards.h"

/* Which part of a job's state a process keeps. NULL stands for all of it. */
struct ash_state_part {
    bool is_counted;          /* of those who have copies of this slice, does this one count in sums over the job? */
    bool is_dense_counted;    /* and for what is not an expert's? */
    size_t replica, replicas; /* this one's number among those who have copies of this slice */
    struct ash_group
        *node_replicas; /* those of them on this node: they keep one copy together; NULL: nobody. Borrowed. */
    struct ash_group
        *node_shard_group; /* those that this slice is dealt out to, all on this node: they keep one working copy of
                                  the weights together; NULL: each has its own. Borrowed. Never both. */
    struct ash_group *tp_peers; /* those on this node whose passes read this one's working copy beside their own (tp),
                                  and this one's theirs; NULL: nobody. Borrowed. */
};

/* Weights and moments that an update reads, or those that it makes. */
struct ash_state_values {
    float *weights, *m, *v;
};

/* Caller's storage. The model may be a slice. m and v are moments of the shard; bf16 is the working copy of the
 * weights, empty in float32 runs. Twins have all of them in memory that they share, where each updates its part; an
 * update goes to another place than it reads from, so that whoever is lost in the middle of it leaves the values of the
 * last step whole. Sharers have the working copy (in float32 runs the weights) in memory that they share. */
struct ash_state {
    struct ash_model *model;
    struct ash_exec *exec;
    const struct ash_shards *shards; /* the model's: all of it, unless several ranks share this slice */
    struct ash_state_part part;
    struct ash_range own; /* elements of the shard that this process updates: all, or its part among twins */
    struct ash_buffer m, v, bf16;
    struct ash_state_values next; /* where an update goes: in place, or where twins have the values of another step */
    struct ash_window *window;    /* the memory of twins or sharers */
    struct ash_window *tp_window; /* of each reader, the memory that its working copy is in; NULL: there are none, or
                                     passes read weights elsewhere (shards of them, put together by fsdp) */
    uint64_t step;                /* steps done, skipped ones too */
    uint64_t updates;             /* of the weights */
    struct ash_guard_stats guard;
};

/* Step 0 around an owned model, which state takes over on success. Borrows exec until fini. bf16: the forward pass
 * works on a bf16 copy. All twins or sharers call it. */
int ash_state_init(struct ash_state *state, struct ash_exec *exec, struct ash_model *model, bool bf16,
                   const struct ash_state_part *part, struct ash_err *err);
/* Free, the model too; a zeroed struct is a no-op. */
void ash_state_fini(struct ash_state *state);
/* Are all replicas twins of this process? Then each needs the gradients of its own part only. */
bool ash_state_is_partitioned(const struct ash_state *state);
/* Wait until all twins or sharers have come here: what each of them wrote is there for all. Returns 0 or the group's
 * error. */
int ash_state_barrier(const struct ash_state *state, struct ash_err *err);
/* Sharers: this process does not need elements run of the working copy, nor those of readers. They stay, but what it
 * does not look at does not count as memory that it has. */
void ash_state_unmap(const struct ash_state *state, struct ash_range run);
/* An update has been written to next: once all twins or sharers are here it counts. On error a state of twins is as it
 * was. */
int ash_state_advance(struct ash_state *state, struct ash_err *err);
/* Bytes of this process's share of the state. */
size_t ash_state_bytes(const struct ash_state *state);

/* Sum over every tensor of ash_hash_words seeded by "weights/<name>", "m/<name>", "v/<name>", mixed with step and
 * updates. */
uint64_t ash_state_hash(const struct ash_state *state);
/* The same of a state that several processes share: of count parts here, and those of the other ranks of group (NULL:
 * none), which call it too. */
int ash_state_hash_all(const struct ash_state *const *states, size_t count, struct ash_group *group, uint64_t *hash_out,
                       struct ash_err *err);

#endif
