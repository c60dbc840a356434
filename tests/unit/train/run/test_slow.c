/* Slow ranks: named after five slow steps in a row, not for noise, not for short steps, and not for the uneven work of
 * pipeline stages. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/rng.h"
#include "train/run/slow.h"

/* Steps of a rank, the others' taking 1 s each. Returns the step at which it is named; 0: it is not. */
static size_t named_at(const double *own_s, size_t steps, bool is_uneven)
{
    struct ash_slow_watch watch = {0};

    for (size_t s = 0; s < steps; s++)
        if (ash_slow_watch_add(&watch, own_s[s], own_s[s] + 3, 4, is_uneven)) return s + 1;
    return 0;
}

static void test_five_in_a_row(void **state)
{
    (void)state;
    assert_int_equal(named_at((double[]){1, 2, 2, 2, 2, 2, 2}, 7, false), 6);
    assert_int_equal(named_at((double[]){2, 2, 2, 2, 1, 2, 2, 2, 2}, 9, false), 0);
    assert_int_equal(named_at((double[]){1.4, 1.4, 1.4, 1.4, 1.4, 1.4}, 6, false), 0);
}

static void test_noise_names_nobody(void **state)
{
    struct ash_slow_watch watch = {0};

    (void)state;
    for (uint64_t s = 0; s < 5000; s++) { /* milliseconds, in which others' programs run */
        double own_s = 0.002 + 0.09 * ash_rng_uniform(3, 0, s);

        assert_false(ash_slow_watch_add(&watch, own_s, own_s + 0.006, 4, false));
    }
}

static void test_uneven_stages(void **state)
{
    double own_s[60];

    (void)state;
    for (size_t s = 0; s < 60; s++)
        own_s[s] = s < 40 ? 2.5 : 5;
    assert_int_equal(named_at(own_s, 40, true), 0); /* as always */
    assert_int_equal(named_at(own_s, 60, true), 45);
    assert_int_equal(named_at(own_s, 40, false), 5);
}

static void test_one_more_grain_is_not_slow(void **state)
{
    (void)state;
    for (size_t ranks = 2; ranks < 9; ranks++) /* grains of one time, one too many for the ranks */
        for (size_t own = 2; own < 5; own++) {
            size_t grains = (own - 1) * ranks + 1;
            double usual_s = ash_slow_even((double)own - 1, own - 1, grains, ranks);

            assert_true(ash_slow_even((double)own, own, grains, ranks) == usual_s);
            assert_true(ash_slow_even(2 * (double)own, own, grains, ranks) == 2 * usual_s);
        }
    assert_true(ash_slow_even(3, 0, 4, 2) == 3); /* not known */
}

static void test_again_after_a_while(void **state)
{
    struct ash_slow_watch watch = {0};
    size_t named = 0;

    (void)state;
    for (size_t s = 0; s < 250; s++)
        named += ash_slow_watch_add(&watch, 2, 5, 4, false);
    assert_int_equal(named, 3);
    assert_false(ash_slow_watch_add(&watch, 2, 2, 1, false)); /* alone */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_five_in_a_row),       cmocka_unit_test(test_noise_names_nobody),
        cmocka_unit_test(test_uneven_stages),       cmocka_unit_test(test_one_more_grain_is_not_slow),
        cmocka_unit_test(test_again_after_a_while),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
