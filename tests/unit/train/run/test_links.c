/* Links: ranks that wait long for five steps in a row say so, not for noise; of times of links one that stands out is
 * found, wherever it is; a group on one node has no links. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/rng.h"
#include "train/run/links.h"

static void test_five_long_waits_in_a_row(void **state)
{
    struct ash_wait_watch watch = {0};

    (void)state;
    assert_false(ash_wait_watch_add(&watch, 3.0)); /* the first steps are not like the others */
    assert_false(ash_wait_watch_add(&watch, 2.0));
    for (int i = 0; i < 20; i++)
        assert_false(ash_wait_watch_add(&watch, 0.05));
    for (int i = 0; i < 4; i++)
        assert_false(ash_wait_watch_add(&watch, 0.5));
    assert_false(ash_wait_watch_add(&watch, 0.05));
    for (int i = 0; i < 4; i++)
        assert_false(ash_wait_watch_add(&watch, 0.5));
    assert_true(ash_wait_watch_add(&watch, 0.5));
    assert_true(ash_wait_watch_add(&watch, 0.5));
    assert_false(ash_wait_watch_add(&watch, 0.12)); /* it is over */
}

static void test_noise_is_no_wait(void **state)
{
    struct ash_wait_watch watch = {0};

    (void)state;
    for (uint64_t s = 0; s < 5000; s++)
        assert_false(ash_wait_watch_add(&watch, 0.09 * ash_rng_uniform(3, 0, s)));
}

static void test_the_slow_link_stands_out(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 500; seed++) {
        int64_t times_us[16], rest_us = -1;
        size_t count = 2 + (size_t)ash_rng_below(seed, 0, 0, 15), slow = (size_t)ash_rng_below(seed, 0, 1, count);

        for (size_t i = 0; i < count; i++)
            times_us[i] = 6000 + (int64_t)ash_rng_below(seed, 1, i, 6000);
        assert_int_equal(ash_links_find_slow(times_us, count, &rest_us), SIZE_MAX);
        times_us[slow] *= 10;
        assert_int_equal(ash_links_find_slow(times_us, count, &rest_us), slow);
        assert_in_range(rest_us, 6000, 12000);
    }
    assert_int_equal(ash_links_find_slow((int64_t[]){90000}, 1, &(int64_t){0}), SIZE_MAX);
    assert_int_equal(ash_links_find_slow((int64_t[]){10, 9000}, 2, &(int64_t){0}), SIZE_MAX); /* too short to matter */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_five_long_waits_in_a_row),
        cmocka_unit_test(test_noise_is_no_wait),
        cmocka_unit_test(test_the_slow_link_stands_out),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
