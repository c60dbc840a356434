/* exchange - pieces of a state from where they are to where they are needed, over the fabric, checksummed. One owner
 * thread. */
#ifndef ASH_TRAIN_RECOVER_EXCHANGE_H
#define ASH_TRAIN_RECOVER_EXCHANGE_H

#include "collective/group.h"
#include "train/recover/moves.h"

/* What an exchange did, on all ranks together. */
struct ash_exchange_counts {
    uint64_t moved_bytes;              /* between processes */
    uint64_t kept_bytes;               /* inside one */
    uint64_t repeated;                 /* rounds of which something arrived damaged, so that they were sent again */
    uint32_t damaged_from, damaged_to; /* where repeated > 0: between which ranks, the last time */
};

/* Waits for a patch's values. */
struct ash_exchange_gate {
    int (*wait)(void *ctx, size_t patch, struct ash_err *err); /* until it has. Returns 0 or an error */
    void *ctx;
};

/* Patches that a rank has and needs. Borrowed. */
struct ash_exchange_sides {
    const struct ash_patches *have, *need;
    const struct ash_exchange_gate *gate; /* NULL: all values are there */
    bool last_first;                      /* the last parameters come first; the same on all ranks */
};

/* Every rank lists its ranges and receives the needed ones into the memory of `need`. All ranks of group call it;
 * outline lists the whole model, for messages. Returns 0, -ENOMEM, the group's or the gate's error, -ENODATA on every
 * rank if no rank has a piece (err names it), or -EBADMSG on every rank if one arrives corrupted repeatedly. */
int ash_exchange_run(struct ash_group *group, const struct ash_model *outline, const struct ash_exchange_sides *sides,
                     struct ash_exchange_counts *counts_out, struct ash_err *err);

/* Change a bit of the first block that this process sends in its next exchange, after it was summed up: to see it found
 * (ashlar chaos). */
void ash_exchange_damage_next(void);

#endif
