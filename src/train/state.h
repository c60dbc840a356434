/* state - what a training run is at a step: weights, the optimizer's moments, counters and the guard's statistics.
 * Its hash depends on names and values alone: not on layout, padding, file split or who holds which part. One owner
 * thread. */
#ifndef ASH_TRAIN_STATE_H
#define ASH_TRAIN_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "collective/group.h"
#include "compute/ops.h"
#include "model/model.h"
#include "train/guard.h"
#include "model/shards.h"

/* Caller's storage. The model may be a slice. m and v are moments of the shard; bf16 is the working copy of the
 * weights, empty in float32 runs. */
struct ash_state {
    struct ash_model *model;
    struct ash_exec *exec;
    const struct ash_shards *shards; /* the model's: all of it, unless several ranks share this slice */
    bool stands;       /* of those who have copies of this slice, does this one count in sums over the job? */
    bool stands_dense; /* and for what is not an expert's? */
    struct ash_buffer m, v, bf16;
    uint64_t step;    /* steps done, skipped ones too */
    uint64_t updates; /* of the weights */
    struct ash_guard_stats guard;
};

/* Which part of a job's state a process keeps. NULL stands for all of it. */
struct ash_state_part {
    bool stands, stands_dense;
};
/* Step 0 around an owned model, which state takes over on success. Borrows exec until fini. bf16: the forward pass
 * works on a bf16 copy. */
int ash_state_init(struct ash_state *state, struct ash_exec *exec, struct ash_model *model, bool bf16,
                   const struct ash_state_part *part, struct ash_err *err);
/* Free, the model too; a zeroed struct is a no-op. */
void ash_state_fini(struct ash_state *state);
/* After the weights were written from outside: bring the working copies up to date. */
void ash_state_refresh(struct ash_state *state);

/* Sum over every tensor of ash_hash_words seeded by "weights/<name>", "m/<name>", "v/<name>", mixed with step and
 * updates. */
uint64_t ash_state_hash(const struct ash_state *state);
/* The same of a state that several processes share: of count parts here, and those of the other ranks of group (NULL:
 * none), which call it too. */
int ash_state_hash_all(const struct ash_state *const *states, size_t count, struct ash_group *group, uint64_t *hash_out,
                       struct ash_err *err);

#endif
