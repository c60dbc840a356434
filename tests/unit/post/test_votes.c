/* Votes: which answer counts, pass@k against counting, Wilson's intervals against published values. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/assert.h"
#include "base/rng.h"
#include "post/search/votes.h"

static void test_strategies_choose(void **state)
{
    const struct ash_vote votes[] = {{"1", 0.1, false}, {"2", 0.9, true}, {"1", 0.1, false}, {"3", 0.2, false}};

    (void)state;
    assert_int_equal(ash_votes_choose(votes, 4, ASH_STRATEGY_GREEDY), 0);
    assert_int_equal(ash_votes_choose(votes, 4, ASH_STRATEGY_BEST), 1);
    assert_int_equal(ash_votes_choose(votes, 4, ASH_STRATEGY_MAJORITY), 0);
    assert_int_equal(ash_votes_choose(votes, 4, ASH_STRATEGY_WEIGHTED), 1);
    assert_int_equal(ash_votes_choose(votes, 1, ASH_STRATEGY_BEST), 0);
}

/* All ways to take k of n, counted. */
static void test_pass_at_is_the_share_of_draws_with_a_right_one(void **state)
{
    (void)state;
    for (unsigned n = 1; n <= 10; n++)
        for (unsigned right = 0; right <= n; right++)
            for (unsigned k = 1; k <= n; k++) {
                unsigned draws = 0, lucky = 0;

                for (unsigned set = 0; set < 1u << n; set++) {
                    if ((unsigned)__builtin_popcount(set) != k) continue;
                    draws++;
                    lucky += (set & ((1u << right) - 1u)) != 0;
                }
                assert_true(fabs(ash_pass_at(n, right, k) - (double)lucky / draws) < 1e-12);
            }
}

static void test_best_of_more_never_falls(void **state)
{
    struct ash_vote votes[64];

    (void)state;
    for (uint64_t seed = 0; seed < 50; seed++) {
        bool was_right = false;

        for (size_t i = 0; i < 64; i++)
            votes[i] = (struct ash_vote){"x", 1.0, ash_rng_uniform(seed, 1, i) < 0.03};
        for (size_t n = 1; n <= 64; n++) {
            bool is_right = votes[ash_votes_choose(votes, n, ASH_STRATEGY_BEST)].is_right;

            assert_true(is_right || !was_right);
            was_right = is_right;
        }
    }
}

static void test_wilson_interval(void **state)
{
    struct ash_share_interval interval = ash_wilson(81, 263); /* Newcombe 1998, table I: 0.2553 to 0.3662 */

    (void)state;
    assert_true(fabs(interval.low - 0.2553) < 1e-4 && fabs(interval.high - 0.3662) < 1e-4);
    interval = ash_wilson(0, 20); /* 0.0000 to 0.1611 */
    assert_true(interval.low < 1e-9 && fabs(interval.high - 0.1611) < 1e-4);
    interval = ash_wilson(0, 0);
    assert_true(interval.low <= 0 && interval.high >= 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_strategies_choose),
        cmocka_unit_test(test_pass_at_is_the_share_of_draws_with_a_right_one),
        cmocka_unit_test(test_best_of_more_never_falls),
        cmocka_unit_test(test_wilson_interval),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
