/* The guard: what it lets through, what it leaves out, when it gives up, and that its memory survives a checkpoint bit
 * for bit. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "train/state/guard.h"

static const struct ash_guard_opts opts = {
    .norm_factor = 10, .norm_floor = 1.0, .loss_factor = 2, .warmup_steps = 5, .max_skips = 3};

static struct ash_guard_stats warmed_up(void)
{
    struct ash_guard_stats stats = {0};

    for (int i = 0; i < 20; i++)
        assert_int_equal(ash_guard_check(&opts, &stats, 100, 2.0, 0.5), ASH_GUARD_OK);
    assert_int_equal(stats.accepted, 20);
    return stats;
}

static void test_not_finite_is_left_out_from_the_first_step(void **state)
{
    struct ash_guard_stats stats = {0};

    (void)state;
    assert_int_equal(ash_guard_check(&opts, &stats, 100, NAN, 0.5), ASH_GUARD_NOT_FINITE);
    assert_int_equal(ash_guard_check(&opts, &stats, 100, 2.0, INFINITY), ASH_GUARD_NOT_FINITE);
    assert_int_equal(ash_guard_check(&opts, &stats, 0, 0.0, 0.0), ASH_GUARD_NO_TARGETS);
    assert_int_equal(stats.skipped, 3);
    assert_int_equal(stats.accepted, 0);
    assert_true(stats.norm_mean == 0.0 && stats.loss_mean == 0.0);
}

static void test_spikes_need_a_warm_mean(void **state)
{
    struct ash_guard_stats stats = {0};

    (void)state;
    assert_int_equal(ash_guard_check(&opts, &stats, 100, 2.0, 0.5), ASH_GUARD_OK);
    assert_int_equal(ash_guard_check(&opts, &stats, 100, 200.0, 500.0), ASH_GUARD_OK);
    stats = warmed_up();
    assert_int_equal(ash_guard_check(&opts, &stats, 100, 2.0, 5.1), ASH_GUARD_NORM_SPIKE);
    assert_int_equal(ash_guard_check(&opts, &stats, 100, 4.1, 0.5), ASH_GUARD_LOSS_SPIKE);
    assert_int_equal(stats.accepted, 20);
    assert_true(fabs(stats.norm_mean - 0.5) < 1e-12 && fabs(stats.loss_mean - 2.0) < 1e-12);
}

static void test_small_values_may_jump(void **state)
{
    struct ash_guard_stats stats = {0};

    (void)state;
    for (int i = 0; i < 20; i++)
        ash_guard_check(&opts, &stats, 100, 0.01, 0.001);
    assert_int_equal(ash_guard_check(&opts, &stats, 100, 0.9, 0.9), ASH_GUARD_OK); /* 90 and 900 times, but harmless */
    assert_int_equal(ash_guard_check(&opts, &stats, 100, 1.5, 0.001), ASH_GUARD_LOSS_SPIKE);
}

static void test_factor_zero_means_never(void **state)
{
    struct ash_guard_opts off = {.warmup_steps = 1};
    struct ash_guard_stats stats = {0};

    (void)state;
    ash_guard_check(&off, &stats, 1, 1.0, 1.0);
    assert_int_equal(ash_guard_check(&off, &stats, 1, 1e9, 1e9), ASH_GUARD_OK);
}

static void test_gives_up_after_too_many_in_a_row(void **state)
{
    struct ash_guard_stats stats = warmed_up();
    struct ash_err err = {0};

    (void)state;
    for (int i = 0; i < 2; i++)
        assert_int_equal(ash_guard_limit(&opts, &stats, ash_guard_check(&opts, &stats, 1, NAN, 1), &err), 0);
    assert_int_equal(ash_guard_limit(&opts, &stats, ash_guard_check(&opts, &stats, 1, 2.0, 0.5), &err), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(ash_guard_limit(&opts, &stats, ash_guard_check(&opts, &stats, 1, NAN, 1), &err), 0);
    assert_int_equal(ash_guard_limit(&opts, &stats, ash_guard_check(&opts, &stats, 1, NAN, 1), &err), -ECANCELED);
    assert_non_null(strstr(err.text, "3 steps in a row"));
    assert_non_null(strstr(err.text, "optimizer.lr"));
}

static void test_nan_stop_ends_at_once(void **state)
{
    struct ash_guard_opts stop = opts;
    struct ash_guard_stats stats = {0};

    (void)state;
    stop.nan = ASH_GUARD_NAN_STOP;
    assert_int_equal(ash_guard_limit(&stop, &stats, ash_guard_check(&stop, &stats, 1, NAN, 1), NULL), -ECANCELED);
    assert_int_equal(ash_guard_limit(&stop, &stats, ASH_GUARD_NORM_SPIKE, NULL), 0);
}

static void test_statistics_survive_json(void **state)
{
    struct ash_guard_stats before = {
        .accepted = 7, .skipped = 3, .skipped_in_row = 2, .norm_mean = 1.0 / 3.0, .loss_mean = 0.1 + 0.2};
    struct ash_guard_stats after = {0};
    json_t *json = ash_guard_encode(&before);
    char *text = json_dumps(json, 0);
    json_t *back = json_loads(text, 0, NULL);

    (void)state;
    assert_int_equal(ash_guard_decode(back, &after, NULL), 0);
    assert_memory_equal(&before, &after, sizeof(before));
    json_object_set_new(back, "accepted", json_integer(-1));
    assert_true(ash_guard_decode(back, &after, NULL) < 0);
    json_decref(back);
    json_decref(json);
    free(text);
}

static void test_reasons_name_the_numbers(void **state)
{
    struct ash_guard_stats stats = warmed_up();
    char text[160];

    (void)state;
    ash_guard_describe(ASH_GUARD_NORM_SPIKE, &stats, 2.0, 40.0, text, sizeof(text));
    assert_string_equal(text, "gradient norm 40 is 80.0 times its running mean");
    ash_guard_describe(ASH_GUARD_LOSS_SPIKE, &stats, 6.0, 1.0, text, sizeof(text));
    assert_string_equal(text, "loss 6 is 3.0 times its running mean");
    ash_guard_describe(ASH_GUARD_NOT_FINITE, &stats, NAN, 1.0, text, sizeof(text));
    assert_non_null(strstr(text, "nan"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_not_finite_is_left_out_from_the_first_step),
        cmocka_unit_test(test_spikes_need_a_warm_mean),
        cmocka_unit_test(test_small_values_may_jump),
        cmocka_unit_test(test_factor_zero_means_never),
        cmocka_unit_test(test_gives_up_after_too_many_in_a_row),
        cmocka_unit_test(test_nan_stop_ends_at_once),
        cmocka_unit_test(test_statistics_survive_json),
        cmocka_unit_test(test_reasons_name_the_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
