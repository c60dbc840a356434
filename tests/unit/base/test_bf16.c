/* bf16 and f16: every 16-bit value goes out and back; rounding is checked against exact arithmetic. */
#include "base/bf16.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <math.h>
#include <cmocka.h>

static uint32_t bits_of(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof(bits));
    return bits;
}

static float from_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof(f));
    return f;
}

/* The value of a half by its definition. */
static double half_value(uint16_t h)
{
    int exponent = h >> 10 & 0x1f, fraction = h & 0x3ff;
    double magnitude = exponent == 0 ? ldexp(fraction, -24) : ldexp(1024 + fraction, exponent - 25);

    return h & 0x8000 ? -magnitude : magnitude;
}

static void test_f16_all_values(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        float f = ash_f16_to_f32((uint16_t)h);
        if ((h & 0x7c00) == 0x7c00 && (h & 0x3ff) != 0) {
            assert_true(isnan(f));
            assert_int_equal(ash_f32_to_f16(f), h | 0x200); /* made quiet, payload kept */
            continue;
        }
        if ((h & 0x7fff) == 0x7c00)
            assert_true(isinf(f) && (f < 0) == (h >> 15));
        else
            assert_true((double)f == half_value((uint16_t)h));
        assert_int_equal(bits_of(f) >> 31, h >> 15);
        assert_int_equal(ash_f32_to_f16(f), h);
    }
}

/* Between each two neighbouring halves: the midpoint goes to the even one, its neighbours to the nearer one. */
static void test_f16_rounding(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x7c00; h++) {
        double low = half_value((uint16_t)h), high = h + 1 == 0x7c00 ? 65536.0 : half_value((uint16_t)(h + 1));
        float middle = (float)((low + high) / 2); /* exact: a half has 11 bits */
        assert_int_equal(ash_f32_to_f16(middle), h & 1 ? h + 1 : h);
        assert_int_equal(ash_f32_to_f16(nextafterf(middle, 0)), h);
        assert_int_equal(ash_f32_to_f16(nextafterf(middle, INFINITY)), h + 1);
        assert_int_equal(ash_f32_to_f16(-middle), (h & 1 ? h + 1 : h) | 0x8000);
    }
    assert_int_equal(ash_f32_to_f16(1e30f), 0x7c00);
    assert_int_equal(ash_f32_to_f16(-1e30f), 0xfc00);
    assert_int_equal(ash_f32_to_f16(from_bits(1)), 0);
    assert_int_equal(ash_f32_to_f16(-0.0f), 0x8000);
}

static void test_bf16_all_values(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        float f = ash_bf16_to_f32((uint16_t)h);
        assert_int_equal(bits_of(f), h << 16);
        assert_int_equal(ash_f32_to_bf16(f), isnan(f) ? h | 0x40 : h);
    }
}

static void test_bf16_rounding(void **state)
{
    (void)state;
    assert_int_equal(ash_f32_to_bf16(from_bits(0x3f808000)), 0x3f80); /* ties go to even */
    assert_int_equal(ash_f32_to_bf16(from_bits(0x3f818000)), 0x3f82);
    assert_int_equal(ash_f32_to_bf16(from_bits(0x3f808001)), 0x3f81);
    assert_int_equal(ash_f32_to_bf16(from_bits(0x3f807fff)), 0x3f80);
    assert_int_equal(ash_f32_to_bf16(from_bits(0x7f7fffff)), 0x7f80); /* the largest float rounds to infinity */
    assert_int_equal(ash_f32_to_bf16(from_bits(0x7f800001)), 0x7fc0); /* a NaN with only low bits stays one */
    assert_true(ash_bf16_round(1.00001f) == 1.0f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_f16_all_values),
        cmocka_unit_test(test_f16_rounding),
        cmocka_unit_test(test_bf16_all_values),
        cmocka_unit_test(test_bf16_rounding),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
