/* The best of each group: rejection sampling learns it as an example is learned. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/rng.h"
#include "post/objective/advantages.h"

#define ANSWERS 24
#define GROUP 4
#define DRAWS 200

static void the_first_of_the_best_is_learned(void **state)
{
    const double rewards[] = {0, 1, 1, 0.5, 2, 2, -1, -3};
    const int64_t groups[] = {0, 0, 0, 0, 1, 1, 2, 2};
    const double wanted[] = {0, 1, 0, 0, 0, 0, 1, 0};
    double advantages[8];

    (void)state;
    ash_advantages_best(rewards, groups, 8, advantages);
    for (size_t i = 0; i < 8; i++)
        assert_true(advantages[i] == wanted[i]);
}

/* The plain way: the largest reward of four answers in turn, and the smallest. */
static size_t find_best(const double *rewards, double *spread_out)
{
    size_t best = 0;
    double least = rewards[0];

    for (size_t i = 1; i < GROUP; i++) {
        if (rewards[i] > rewards[best]) best = i;
        if (rewards[i] < least) least = rewards[i];
    }
    *spread_out = rewards[best] - least;
    return best;
}

static void each_group_has_one_or_none(void **state)
{
    double rewards[ANSWERS], advantages[ANSWERS], spread;
    int64_t groups[ANSWERS];

    (void)state;
    for (uint64_t draw = 0; draw < DRAWS; draw++) {
        for (size_t i = 0; i < ANSWERS; i++) {
            rewards[i] = (double)ash_rng_below(7, draw, i, 3);
            groups[i] = (int64_t)(i / GROUP);
        }
        ash_advantages_best(rewards, groups, ANSWERS, advantages);
        for (size_t g = 0; g < ANSWERS / GROUP; g++) {
            size_t best = find_best(rewards + g * GROUP, &spread);

            for (size_t i = 0; i < GROUP; i++)
                assert_true(advantages[g * GROUP + i] == (i == best && spread > 0 ? 1.0 : 0.0));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_of_the_best_is_learned),
        cmocka_unit_test(each_group_has_one_or_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
