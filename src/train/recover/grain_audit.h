/* grain_audit - which rank computes wrongly? Ranks compute each other's grains, and the bits must be the same. Ranks
 * that share sequences work together on a grain: a column. Columns differ along dp and fsdp. When a column and the one
 * that has repeated its grain differ, a third opinion decides. Pure functions.
 *
 *     rank = inner + inners * (column + columns * stage)        (train/layout/mesh.h; inner: tp, cp, ep)
 *
 * Column c has its own grains; the column before it repeats them (shift 1), the one before that is the third (shift 2).
 * Of two columns the third opinion is the owner's own second try; one column repeats its grains itself. */
#ifndef ASH_TRAIN_RECOVER_GRAIN_AUDIT_H
#define ASH_TRAIN_RECOVER_GRAIN_AUDIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ash_grain_audit {
    size_t inners, columns, stages; /* of the mesh */
    size_t rounds;
    const bool *has_grain; /* [columns, rounds]: all ranks of a column have a grain in a round */
};

/* Ranks with wrong results. */
struct ash_grain_verdict {
    bool differs;
    size_t column, round; /* whose grain it was */
    size_t wrong[2];      /* columns: the one that is wrong, or the two of which one is */
    size_t wrong_count;
};

/* The ranks' number. */
size_t ash_grain_audit_ranks(const struct ash_grain_audit *audit);
/* The column that a rank is in. */
size_t ash_grain_audit_column(const struct ash_grain_audit *audit, size_t rank);
/* The first grain on which a column and the one that has repeated it differ. own and repeated [ranks, rounds]: sums of
 * what each rank has computed with shift 0 and 1. */
struct ash_grain_verdict ash_grain_audit_compare(const struct ash_grain_audit *audit, const uint64_t *own,
                                                 const uint64_t *repeated);
/* Find the wrong ranks. third [ranks, rounds]: with shift 2. */
void ash_grain_audit_judge(const struct ash_grain_audit *audit, const uint64_t *own, const uint64_t *repeated,
                           const uint64_t *third, struct ash_grain_verdict *verdict);

#endif
