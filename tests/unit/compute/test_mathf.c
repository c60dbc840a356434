/* The shared exp, log, sigmoid, tanh and erf against libm in double, over a dense sweep of all floats, and at the
 * edges. */
#include <float.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>
#include "base/assert.h"
#include "compute/mathf.h"

/* Distance of got from want in units of the last place of a float at want. */
static double ulps(float got, double want)
{
    double ulp;

    if (isnan(want)) return isnan(got) ? 0.0 : INFINITY;
    if (isinf((float)want) || isinf(got)) return (float)want == got ? 0.0 : INFINITY;
    ulp = fabs(want) < FLT_MIN ? 0x1p-149 : ldexp(1.0, ilogb(want) - 23);
    return fabs((double)got - want) / ulp;
}

static double sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

static const struct {
    const char *name;
    float (*ours)(float);
    double (*theirs)(double);
    double limit_ulps;
} functions[] = {
    {"exp", ash_expf, exp, 1.5},    {"log", ash_logf, log, 1.5}, {"sigmoid", ash_sigmoidf, sigmoid, 2.5},
    {"tanh", ash_tanhf, tanh, 2.0}, {"erf", ash_erff, erf, 2.0},
};

/* Every 1,021st float of both signs: 4.2 million of them, denormals, infinities and NaN included. */
static void test_sweep(void **state)
{
    (void)state;
    for (size_t f = 0; f < ASH_COUNT(functions); f++) {
        double worst = 0.0, worst_x = 0.0;

        for (uint64_t bits = 0; bits <= UINT32_MAX; bits += 1021) {
            float x = ash_f32_from_bits((uint32_t)bits);
            double off = ulps(functions[f].ours(x), functions[f].theirs((double)x));

            if (off <= worst) continue;
            worst = off;
            worst_x = (double)x;
        }
        print_message("%-8s worst %.3f ulp at %.9g\n", functions[f].name, worst, worst_x);
        assert_true(worst <= functions[f].limit_ulps);
    }
}

/* The range where models live, more densely than the sweep by bits. */
static void test_near_zero(void **state)
{
    (void)state;
    for (size_t f = 0; f < ASH_COUNT(functions); f++)
        for (int n = -200000; n <= 200000; n++) {
            float x = (float)n * 5e-5f;
            assert_true(ulps(functions[f].ours(x), functions[f].theirs((double)x)) <= functions[f].limit_ulps);
        }
}

static void test_edges(void **state)
{
    (void)state;
    assert_true(ash_expf(0.0f) == 1.0f && ash_expf(-0.0f) == 1.0f);
    assert_true(ash_expf(-INFINITY) == 0.0f && ash_expf(INFINITY) == INFINITY && isnan(ash_expf(NAN)));
    assert_true(ash_expf(FLT_MAX) == INFINITY && ash_expf(-FLT_MAX) == 0.0f);
    assert_true(ash_logf(0.0f) == -INFINITY && ash_logf(INFINITY) == INFINITY && ash_logf(1.0f) == 0.0f);
    assert_true(isnan(ash_logf(-1.0f)) && isnan(ash_logf(NAN)) && isnan(ash_logf(-INFINITY)));
    assert_true(ash_sigmoidf(0.0f) == 0.5f && ash_sigmoidf(INFINITY) == 1.0f && ash_sigmoidf(-INFINITY) == 0.0f);
    assert_true(ash_tanhf(INFINITY) == 1.0f && ash_tanhf(-INFINITY) == -1.0f && ash_tanhf(0.0f) == 0.0f);
    assert_true(ash_erff(INFINITY) == 1.0f && ash_erff(-INFINITY) == -1.0f && ash_erff(0.0f) == 0.0f);
    assert_true(isnan(ash_sigmoidf(NAN)) && isnan(ash_tanhf(NAN)) && isnan(ash_erff(NAN)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sweep),
        cmocka_unit_test(test_near_zero),
        cmocka_unit_test(test_edges),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
