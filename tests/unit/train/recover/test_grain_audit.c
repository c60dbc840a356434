/* Audits of grains: in drawn meshes with one rank that computes wrongly, its column is named where three columns can
 * tell, one of two where they cannot; no rank is named if all bits are the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/rng.h"
#include "train/recover/grain_audit.h"

#define DRAWS 2000
#define RANKS_MAX 256
#define ROUNDS_MAX 4

/* A mesh and what its ranks would find. */
struct drawn {
    struct ash_grain_audit audit;
    bool has_grain[RANKS_MAX * ROUNDS_MAX];
    uint64_t tries[3][RANKS_MAX * ROUNDS_MAX]; /* by shift */
};

static uint64_t below(uint64_t seed, uint64_t *count, uint64_t bound)
{
    return ash_rng_below(seed, 5, (*count)++, bound);
}

/* The bits of a grain on one of the ranks of whatever column computes it. */
static uint64_t bits_of(size_t column, size_t round, size_t inner, size_t stage)
{
    return ash_hash_mix(1 + column + 1000 * round + 100000 * inner + 10000000 * stage);
}

static void fill(struct drawn *drawn)
{
    const struct ash_grain_audit *audit = &drawn->audit;

    for (size_t rank = 0; rank < ash_grain_audit_ranks(audit); rank++)
        for (size_t shift = 0; shift < 3; shift++)
            for (size_t round = 0; round < audit->rounds; round++) {
                size_t whose = (ash_grain_audit_column(audit, rank) + shift) % audit->columns;

                drawn->tries[shift][rank * audit->rounds + round] =
                    bits_of(whose, round, rank % audit->inners, rank / (audit->inners * audit->columns));
            }
}

static void draw(struct drawn *drawn, uint64_t seed, uint64_t *count)
{
    struct ash_grain_audit *audit = &drawn->audit;

    memset(drawn, 0, sizeof(*drawn));
    audit->inners = 1 + (size_t)below(seed, count, 4);
    audit->columns = 1 + (size_t)below(seed, count, 8);
    audit->stages = 1 + (size_t)below(seed, count, 4);
    audit->rounds = 1 + (size_t)below(seed, count, ROUNDS_MAX);
    audit->has_grain = drawn->has_grain;
    memset(drawn->has_grain, true, sizeof(drawn->has_grain));
    fill(drawn);
}

static void test_same_bits_name_nobody(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < DRAWS; seed++) {
        struct drawn drawn;
        uint64_t count = 0;

        draw(&drawn, seed, &count);
        if (ash_grain_audit_compare(&drawn.audit, drawn.tries[0], drawn.tries[1]).differs)
            fail_msg("seed %llu: somebody is named", (unsigned long long)seed);
    }
}

/* A rank is wrong in all that it computes, or in one of the first two tries alone. */
static void test_the_wrong_column_is_named(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < DRAWS; seed++) {
        struct drawn drawn;
        struct ash_grain_verdict verdict;
        uint64_t count = 0;
        size_t rank, round, once, column;

        draw(&drawn, seed, &count);
        rank = (size_t)below(seed, &count, ash_grain_audit_ranks(&drawn.audit));
        round = (size_t)below(seed, &count, drawn.audit.rounds);
        once = (size_t)below(seed, &count, 3); /* 2: always */
        column = ash_grain_audit_column(&drawn.audit, rank);
        for (size_t shift = 0; shift < 3; shift++)
            if (once == 2 || once == shift)
                drawn.tries[shift][rank * drawn.audit.rounds + round] ^= 1 + below(seed, &count, 1 << 30);
        verdict = ash_grain_audit_compare(&drawn.audit, drawn.tries[0], drawn.tries[1]);
        if (!verdict.differs || verdict.round != round) fail_msg("seed %llu: not found", (unsigned long long)seed);
        ash_grain_audit_judge(&drawn.audit, drawn.tries[0], drawn.tries[1], drawn.tries[2], &verdict);
        if (verdict.wrong[0] != column && (verdict.wrong_count < 2 || verdict.wrong[1] != column))
            fail_msg("seed %llu: column %zu is not named", (unsigned long long)seed, column);
        if (drawn.audit.columns != 2 && verdict.wrong_count != 1)
            fail_msg("seed %llu: others than column %zu are named", (unsigned long long)seed, column);
    }
}

static void test_rounds_without_grains_are_left_out(void **state)
{
    struct drawn drawn;
    uint64_t count = 0;

    (void)state;
    draw(&drawn, 1, &count);
    drawn.audit.columns = 4;
    drawn.audit.inners = drawn.audit.stages = 1;
    drawn.audit.rounds = 2;
    fill(&drawn);
    drawn.has_grain[3 * 2 + 1] = false; /* the last column has one grain less; it and its auditor compute others */
    drawn.tries[0][3 * 2 + 1] = 7;
    drawn.tries[1][3 * 2 + 1] = 8;
    drawn.tries[1][2 * 2 + 1] = 9;
    assert_false(ash_grain_audit_compare(&drawn.audit, drawn.tries[0], drawn.tries[1]).differs);
    drawn.tries[1][1 * 2 + 1] = 9;
    assert_true(ash_grain_audit_compare(&drawn.audit, drawn.tries[0], drawn.tries[1]).differs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits_name_nobody),
        cmocka_unit_test(test_the_wrong_column_is_named),
        cmocka_unit_test(test_rounds_without_grains_are_left_out),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
