/* Votes: which answer counts, pass@k against counting, Wilson's intervals against published values. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/assert.h"
#include "base/rng.h"
#include "post/search/shares.h"
#include "serve/votes.h"

static void test_strategies_choose(void **state)
{
    const struct ash_vote votes[] = {{"1", 0.1}, {"2", 0.9}, {"1", 0.1}, {"3", 0.2}, {"", 2.0}, {"", 2.0}, {"", 2.0}};

    (void)state;
    assert_int_equal(ash_votes_choose(votes, 4, ASH_STRATEGY_GREEDY), 0);
    assert_int_equal(ash_votes_choose(votes, 4, ASH_STRATEGY_BEST), 1);
    assert_int_equal(ash_votes_choose(votes, 4, ASH_STRATEGY_MAJORITY), 0);
    assert_int_equal(ash_votes_choose(votes, 4, ASH_STRATEGY_WEIGHTED), 1);
    assert_int_equal(ash_votes_choose(votes, 1, ASH_STRATEGY_BEST), 0);
    assert_int_equal(ash_votes_choose(votes, 7, ASH_STRATEGY_MAJORITY), 0); /* answers without a vote do not win */
    assert_int_equal(ash_votes_choose(votes, 7, ASH_STRATEGY_WEIGHTED), 1);
    assert_int_equal(ash_votes_choose(votes + 4, 3, ASH_STRATEGY_MAJORITY), 0);
    assert_true(ash_votes_sum(votes, 7, ASH_STRATEGY_MAJORITY, 2) == 2.0);
}

static void test_parts_of_answers_vote(void **state)
{
    static const struct {
        const char *text, *all, *line, *number;
    } cases[] = {
        {"", "", "", ""},
        {" 7 \n", "7", "7", "7"},
        {"3 and 4\nso 12\n\n", "3 and 4\nso 12", "so 12", "12"},
        {"<think>99</think>it is -1,234.50.", "it is -1,234.50.", "it is -1,234.50.", "-1234.50"},
        {"x-3", "x-3", "x-3", "3"},
        {"no digit", "no digit", "no digit", ""},
        {"-5", "-5", "-5", "-5"},
        {",.7", ",.7", ",.7", "7"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        for (int on = 0; on < 3; on++) {
            struct ash_str part = {0};

            assert_int_equal(ash_vote_part(cases[i].text, (enum ash_vote_on)on, &part), 0);
            assert_string_equal(part.data, on == 0 ? cases[i].all : on == 1 ? cases[i].line : cases[i].number);
            ash_str_fini(&part);
        }
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
            votes[i] = (struct ash_vote){"x", ash_rng_uniform(seed, 1, i) < 0.03 ? 1.0 : 0.0};
        for (size_t n = 1; n <= 64; n++) {
            bool is_right = votes[ash_votes_choose(votes, n, ASH_STRATEGY_BEST)].weight > 0;

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
        cmocka_unit_test(test_parts_of_answers_vote),
        cmocka_unit_test(test_pass_at_is_the_share_of_draws_with_a_right_one),
        cmocka_unit_test(test_best_of_more_never_falls),
        cmocka_unit_test(test_wilson_interval),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
