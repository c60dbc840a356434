/* leaf_sums - a checksum of each grain's gradients on this rank, one number a round: for audits, which compare the
 * grains of one rank with another rank's results. One owner thread. */
#ifndef ASH_TRAIN_LAYOUT_LEAF_SUMS_H
#define ASH_TRAIN_LAYOUT_LEAF_SUMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "compute/ops.h"

/* Caller's storage. */
struct ash_leaf_sums {
    uint64_t *sums;       /* [rounds], the caller's */
    size_t rounds;        /* later ones are left out */
    size_t round, chunk;  /* being computed */
    uint64_t wrong_notes; /* ranges whose first element is to be spoilt, for tests of audits: counted down */
};

/* A range of a grain's gradients is complete, and was not read yet: add it to the sum of the current round. place
 * distinguishes it from other ranges of the chunk. sums NULL is a no-op. */
void ash_leaf_sums_note(struct ash_leaf_sums *sums, const struct ash_exec *exec, uint64_t place, float *values,
                        size_t count);

#endif
