/* str: appending bytes, text and formats; clearing; NUL bytes inside. */
#include "base/str.h"

#include <stdarg.h>
#include <setjmp.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

static void test_append(void **state)
{
    struct ash_str str = {0};
    (void)state;

    assert_int_equal(ash_str_adds(&str, "ab"), 0);
    assert_int_equal(ash_str_add(&str, "c\0d", 3), 0);
    assert_int_equal(ash_str_addf(&str, "%d-%s", 42, "x"), 0);
    assert_int_equal(str.size_bytes, 9);
    assert_memory_equal(str.data, "abc\0d42-x", 10);
    ash_str_clear(&str);
    assert_int_equal(str.size_bytes, 0);
    assert_string_equal(str.data, "");
    ash_str_fini(&str);
    assert_null(str.data);
    ash_str_fini(&str);
}

static void test_empty_appends_terminate(void **state)
{
    struct ash_str str = {0};
    (void)state;

    ash_str_clear(&str);
    assert_null(str.data);
    assert_int_equal(ash_str_add(&str, NULL, 0), 0);
    assert_string_equal(str.data, "");
    ash_str_fini(&str);
}

static void test_grows(void **state)
{
    struct ash_str str = {0};
    (void)state;

    for (int i = 0; i < 10000; i++)
        assert_int_equal(ash_str_addf(&str, "%04d", i), 0);
    assert_int_equal(str.size_bytes, 40000);
    assert_memory_equal(str.data + 4 * 1234, "1234", 4);
    assert_int_equal(strlen(str.data), 40000);
    ash_str_fini(&str);
}

static void test_failure_is_remembered(void **state)
{
    struct ash_str str = {0};
    (void)state;

    assert_int_equal(ash_str_adds(&str, "kept"), 0);
    assert_int_equal(ash_str_add(&str, "x", SIZE_MAX), -ENOMEM);
    assert_int_equal(ash_str_adds(&str, "later"), -ENOMEM);
    assert_int_equal(ash_str_addf(&str, "%d", 1), -ENOMEM);
    assert_int_equal(str.rc, -ENOMEM);
    assert_string_equal(str.data, "kept");
    assert_int_equal(str.size_bytes, 4);
    ash_str_cut(&str, 2);
    assert_int_equal(ash_str_adds(&str, "y"), 0);
    assert_string_equal(str.data, "key");
    assert_int_equal(ash_str_add(&str, "x", SIZE_MAX / 2), -ENOMEM);
    ash_str_clear(&str);
    assert_int_equal(str.rc, 0);
    ash_str_fini(&str);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_append),
        cmocka_unit_test(test_empty_appends_terminate),
        cmocka_unit_test(test_grows),
        cmocka_unit_test(test_failure_is_remembered),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
