/* grain_plan - a step is redone, and sums of some of its grains were salvaged: which of them are used, and the grains
 * of each rank, so that all ranks compute as much. A pure function: every rank has the same plan. */
#ifndef ASH_TRAIN_RECOVER_GRAIN_PLAN_H
#define ASH_TRAIN_RECOVER_GRAIN_PLAN_H

#include "ashlar/err.h"
#include "base/range.h"

/* A subtree of the grains whose sum is there. */
struct ash_grain_offer {
    struct ash_range span;
    size_t home; /* the data-parallel rank that has it, or most of it; SIZE_MAX: none of them */
};

/* Zero-initialise; free with ash_grain_plan_fini. */
struct ash_grain_plan {
    struct ash_grain_offer *kept; /* [kept_count] in order; none overlaps another */
    size_t kept_count;
    struct ash_range *parts; /* [ranks]: grains of each, in order. A kept subtree is in one of them */
    size_t kept_grains;
    size_t most; /* grains that a rank has to compute, at most: never more than in any other step */
};

/* Plan a step of `grains` grains, of which each rank (at most as many) has at least one. offers [count] may overlap;
 * they are sorted. Returns 0 or -ENOMEM. */
int ash_grain_plan_make(struct ash_grain_plan *plan, struct ash_grain_offer *offers, size_t count, size_t grains,
                        size_t ranks);
/* Free; a zeroed struct is a no-op. */
void ash_grain_plan_fini(struct ash_grain_plan *plan);

#endif
