/* The model of the GPU's powers of two: exact where the answer is a power of two, near the true value everywhere, and
 * the special values that were recorded on an H200. */
#include "compute/ref/ex2.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "base/bits.h"

static void test_special(void **state)
{
    (void)state;
    assert_true(ash_ex2(INFINITY) == INFINITY && ash_ex2(128.0f) == INFINITY && ash_ex2(1e30f) == INFINITY);
    assert_true(ash_ex2(-INFINITY) == 0.0f && ash_ex2(-1e30f) == 0.0f);
    assert_int_equal(ash_f32_bits(ash_ex2(NAN)), 0x7fffffff);
    assert_true(ash_ex2(0.0f) == 1.0f && ash_ex2(-0.0f) == 1.0f && ash_ex2(1e-40f) == 1.0f && ash_ex2(-1e-40f) == 1.0f);
    assert_true(ash_ex2(-126.0f) == 0x1p-126f && ash_ex2(-126.5f) == 0.0f); /* denormal results are flushed */
}

static void test_whole(void **state)
{
    (void)state;
    for (int e = -126; e < 128; e++)
        assert_true(ash_ex2((float)e) == ldexpf(1.0f, e));
}

/* The table is within 1.4 ulp; cutting x off at 23 fraction bits adds up to 0.7. */
static void test_near(void **state)
{
    double worst = 0.0;

    (void)state;
    for (int i = 0; i < 400000; i++) {
        float x = (float)((i * 2654435761u) % 2520000u) / 10000.0f - 126.0f, y = ash_ex2(x);
        double exact = exp2((double)x), ulp = ldexp(1.0, ilogb(exact) - 23), away = fabs((double)y - exact) / ulp;

        if (exact >= 0x1p-126) worst = away > worst ? away : worst;
    }
    assert_true(worst < 2.1);
    assert_true(worst > 0.5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_special), cmocka_unit_test(test_whole),
                                       cmocka_unit_test(test_near)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
