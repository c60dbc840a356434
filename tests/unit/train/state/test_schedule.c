/* Learning rates against the formulas in libm, at the joints of the schedules and beyond their ends. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "train/state/schedule.h"

static void assert_near(double value, double expected)
{
    if (!(fabs(value - expected) <= 1e-14 * fmax(1.0, fabs(expected)))) fail_msg("%.17g is not %.17g", value, expected);
}

static void test_warmup_is_linear_and_reaches_the_peak(void **state)
{
    struct ash_lr_schedule s = {
        .kind = ASH_LR_CONSTANT, .steps = 100, .warmup_steps = 10, .peak_lr = 0.5, .final_share = 0.1};

    (void)state;
    for (uint64_t i = 0; i < 10; i++)
        assert_near(ash_lr_schedule_at(&s, i), 0.05 * (double)(i + 1));
    for (uint64_t i = 10; i < 120; i++)
        assert_near(ash_lr_schedule_at(&s, i), 0.5);
}

static void test_cosine_follows_libm(void **state)
{
    struct ash_lr_schedule s = {
        .kind = ASH_LR_COSINE, .steps = 1000, .warmup_steps = 100, .peak_lr = 1.0, .final_share = 0.1};

    (void)state;
    for (uint64_t i = 100; i <= 1000; i++)
        assert_near(ash_lr_schedule_at(&s, i), 0.1 + 0.9 * 0.5 * (1.0 + cos(M_PI * (double)(i - 100) / 900.0)));
    assert_near(ash_lr_schedule_at(&s, 5000), 0.1);
}

static void test_wsd_is_level_then_falls(void **state)
{
    struct ash_lr_schedule s = {
        .kind = ASH_LR_WSD, .steps = 100, .warmup_steps = 5, .decay_steps = 20, .peak_lr = 2.0, .final_share = 0.0};

    (void)state;
    for (uint64_t i = 5; i <= 80; i++)
        assert_near(ash_lr_schedule_at(&s, i), 2.0);
    for (uint64_t i = 81; i <= 100; i++)
        assert_near(ash_lr_schedule_at(&s, i), 2.0 * (1.0 - sqrt((double)(i - 80) / 20.0)));
    assert_near(ash_lr_schedule_at(&s, 101), 0.0);
}

static void test_degenerate_lengths(void **state)
{
    struct ash_lr_schedule s = {
        .kind = ASH_LR_COSINE, .steps = 1, .warmup_steps = 1, .peak_lr = 3.0, .final_share = 0.5};

    (void)state;
    assert_near(ash_lr_schedule_at(&s, 0), 3.0);
    assert_near(ash_lr_schedule_at(&s, 1), 1.5);
    s = (struct ash_lr_schedule){.kind = ASH_LR_WSD, .steps = 4, .decay_steps = 9, .peak_lr = 1.0, .final_share = 1.0};
    for (uint64_t i = 0; i < 6; i++)
        assert_near(ash_lr_schedule_at(&s, i), 1.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_warmup_is_linear_and_reaches_the_peak),
        cmocka_unit_test(test_cosine_follows_libm),
        cmocka_unit_test(test_wsd_is_level_then_falls),
        cmocka_unit_test(test_degenerate_lengths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
