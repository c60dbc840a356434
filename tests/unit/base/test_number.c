/* number: what is written reads back as the same bits; what is no finite number is refused. */
#include "base/number.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stdint.h>
#include <errno.h>
#include <math.h>
#include <string.h>
#include <cmocka.h>

#include "base/assert.h"
#include "base/rng.h"

static void test_round_trip(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 20000; i++) {
        uint64_t bits = ash_rng_u64(1, 2, i);
        struct ash_str text = {0};
        double value, back = 0;
        memcpy(&value, &bits, sizeof(value));
        if (!isfinite(value)) continue;
        assert_int_equal(ash_number_add(&text, value), 0);
        assert_int_equal(ash_number_parse(text.data, &back), 0);
        assert_memory_equal(&back, &value, sizeof(value));
        ash_str_fini(&text);
    }
}

static void test_shortest(void **state)
{
    static const struct {
        double value;
        const char *text;
    } known[] = {{0.1, "0.1"}, {1, "1"},       {1e-300, "1e-300"}, {1.0 / 3, "0.3333333333333333"},
                 {-0.0, "-0"}, {1e21, "1e+21"}};
    (void)state;

    for (size_t i = 0; i < ASH_COUNT(known); i++) {
        struct ash_str text = {0};
        assert_int_equal(ash_number_add(&text, known[i].value), 0);
        assert_string_equal(text.data, known[i].text);
        ash_str_fini(&text);
    }
}

static void test_refused(void **state)
{
    static const char *const bad[] = {"", " 1", "1 ", "nan", "1,5", "x", "1e", "--1"};
    double value = 7;
    (void)state;

    for (size_t i = 0; i < ASH_COUNT(bad); i++)
        assert_int_equal(ash_number_parse(bad[i], &value), -EINVAL);
    assert_int_equal(ash_number_parse("inf", &value), -ERANGE);
    assert_int_equal(ash_number_parse("-1e999", &value), -ERANGE);
    assert_true(value == 7);
    assert_int_equal(ash_number_parse("1e-999", &value), 0);
    assert_true(value == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_shortest),
        cmocka_unit_test(test_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
