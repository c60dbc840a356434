/* grain_audit: comparisons of sums, rank by rank of two columns. */
#include "train/recover/grain_audit.h"

#include "base/assert.h"

size_t ash_grain_audit_ranks(const struct ash_grain_audit *audit)
{
    return audit->inners * audit->columns * audit->stages;
}

size_t ash_grain_audit_column(const struct ash_grain_audit *audit, size_t rank)
{
    ash_assert(audit->inners > 0);
    ash_assert(audit->columns > 0);
    return rank / audit->inners % audit->columns;
}

/* The column whose ranks have computed the grains of `column` with a shift. */
static size_t auditor_of(const struct ash_grain_audit *audit, size_t column, size_t shift)
{
    ash_assert(column < audit->columns);
    return (column + audit->columns - shift % audit->columns) % audit->columns;
}

/* Has column a in `left` the same bits of a round as column b in `right`? */
static bool is_same(const struct ash_grain_audit *audit, const uint64_t *left, size_t a, const uint64_t *right,
                    size_t b, size_t round)
{
    ash_assert(a < audit->columns);
    ash_assert(b < audit->columns);
    ash_assert(round < audit->rounds);
    for (size_t stage = 0; stage < audit->stages; stage++)
        for (size_t inner = 0; inner < audit->inners; inner++) {
            size_t at = inner + audit->inners * audit->columns * stage;

            if (left[(at + audit->inners * a) * audit->rounds + round] !=
                right[(at + audit->inners * b) * audit->rounds + round])
                return false;
        }
    return true;
}

struct ash_grain_verdict ash_grain_audit_compare(const struct ash_grain_audit *audit, const uint64_t *own,
                                                 const uint64_t *repeated)
{
    ash_assert(audit->columns > 0);
    for (size_t column = 0; column < audit->columns; column++)
        for (size_t round = 0; round < audit->rounds; round++) {
            size_t auditor = auditor_of(audit, column, 1);

            if (!audit->has_grain[column * audit->rounds + round] || !audit->has_grain[auditor * audit->rounds + round])
                continue;
            if (!is_same(audit, own, column, repeated, auditor, round))
                return (struct ash_grain_verdict){.differs = true, .column = column, .round = round};
        }
    return (struct ash_grain_verdict){0};
}

void ash_grain_audit_judge(const struct ash_grain_audit *audit, const uint64_t *own, const uint64_t *repeated,
                           const uint64_t *third, struct ash_grain_verdict *verdict)
{
    size_t column = verdict->column, round = verdict->round, auditor = auditor_of(audit, column, 1),
           judge = auditor_of(audit, column, 2);
    bool has_third = audit->has_grain[judge * audit->rounds + round];

    ash_assert(verdict->differs);
    verdict->wrong[0] = column;
    verdict->wrong[1] = auditor;
    verdict->wrong_count = auditor == column ? 1 : 2;
    if (verdict->wrong_count == 1 || !has_third) return;
    if (is_same(audit, repeated, auditor, third, judge, round)) verdict->wrong_count = 1;
    /* a rank that agrees with itself only has proven nothing */
    if (judge != column && is_same(audit, own, column, third, judge, round)) {
        verdict->wrong[0] = auditor;
        verdict->wrong_count = 1;
    }
}
