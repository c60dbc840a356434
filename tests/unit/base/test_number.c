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

static void test_whole(void **state)
{
    static const struct {
        const char *text;
        int64_t value;
    } good[] = {{"0", 0},
                {"-0", 0},
                {"+7", 7},
                {"1e6", 1000000},
                {"1E+3", 1000},
                {"2.5e1", 25},
                {"1000e-3", 1},
                {"0e-400", 0},
                {"1_000_000", 1000000},
                {"1.5t", 1500000000000},
                {"0.5Gi", 1 << 29},
                {"0.1e1ki", 1024},
                {"3ti", (int64_t)3 << 40},
                {".5k", 500},
                {"9223372036854775807", INT64_MAX},
                {"-9223372036854775808", INT64_MIN}};
    static const char *const bad[] = {"",    "-",   ".",    "e5",  "_1",    "1_",    "1__0", "1._5", "1.5",  "1e",
                                      "1k5", "0.1", "1e-1", "0x5", "1.2.3", "1 000", "1 k",  "kk",   "0.3ki"};
    static const char *const large[] = {"9223372036854775808",  "-9223372036854775809",    "1e19",
                                        "1e999999999999999999", "99999999999999999999999", "8388608ti"};
    int64_t value = 0;
    (void)state;

    for (size_t i = 0; i < ASH_COUNT(good); i++) {
        assert_int_equal(ash_number_parse_whole(good[i].text, &value), 0);
        assert_int_equal(value, good[i].value);
    }
    value = 5;
    for (size_t i = 0; i < ASH_COUNT(bad); i++)
        assert_int_equal(ash_number_parse_whole(bad[i], &value), -EINVAL);
    for (size_t i = 0; i < ASH_COUNT(large); i++)
        assert_int_equal(ash_number_parse_whole(large[i], &value), -ERANGE);
    assert_int_equal(value, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_shortest),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_whole),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
