/* utf8: every code point both ways, and the ways in which bytes fail to be UTF-8. */
#include "base/utf8.h"

#include <stdarg.h>
#include <setjmp.h>
#include <string.h>
#include <cmocka.h>

#include "base/assert.h"

static void test_every_code_point(void **state)
{
    (void)state;
    for (uint32_t point = 0; point <= 0x10ffff; point++) {
        uint32_t back = 0xffffffff;
        char buf[4];
        int length;
        if (point >= 0xd800 && point <= 0xdfff) continue;
        length = ash_utf8_encode(point, buf);
        assert_int_equal(length, point < 0x80 ? 1 : point < 0x800 ? 2 : point < 0x10000 ? 3 : 4);
        assert_int_equal(ash_utf8_decode(buf, (size_t)length, &back), length);
        assert_int_equal(back, point);
        for (int cut = 1; cut < length; cut++) { /* its beginnings are incomplete, not valid */
            assert_int_equal(ash_utf8_decode(buf, (size_t)cut, &back), 0);
            assert_int_equal(ash_utf8_incomplete_tail(buf, (size_t)cut), cut);
        }
        assert_int_equal(ash_utf8_incomplete_tail(buf, (size_t)length), 0);
    }
}

static void test_refused(void **state)
{
    static const struct {
        const char *bytes;
        size_t size_bytes;
    } bad[] = {
        {"\x80", 1},
        {"\xbf", 1},
        {"\xc0\x80", 2},
        {"\xc1\xbf", 2},
        {"\xe0\x80\x80", 3},
        {"\xe0\x9f\xbf", 3},
        {"\xf0\x80\x80\x80", 4},
        {"\xf0\x8f\xbf\xbf", 4},
        {"\xed\xa0\x80", 3},
        {"\xed\xbf\xbf", 3},
        {"\xf4\x90\x80\x80", 4},
        {"\xf5\x80\x80\x80", 4},
        {"\xf8\x88\x80\x80", 4},
        {"\xfe", 1},
        {"\xff", 1},
        {"\xc3", 1},
        {"\xc3\x28", 2},
        {"\xe2\x82", 2},
        {"\xe2\x28\xa1", 3},
        {"\xe2\x82\x28", 3},
        {"\xf0\x9f\x98", 3},
        {"\xf0\x28\x8c\xbc", 4},
        {"\xf0\x90\x28\xbc", 4},
        {"\xf0\x90\x8c\x28", 4},
    };
    (void)state;

    for (size_t i = 0; i < ASH_COUNT(bad); i++) {
        uint32_t point = 0x1234;
        assert_int_equal(ash_utf8_decode(bad[i].bytes, bad[i].size_bytes, &point), 0);
        assert_int_equal(point, 0x1234);
        assert_int_equal(ash_utf8_valid_prefix(bad[i].bytes, bad[i].size_bytes), 0);
    }
}

static void test_valid_prefix(void **state)
{
    const char *text = "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z";
    (void)state;

    assert_int_equal(ash_utf8_valid_prefix(text, strlen(text)), strlen(text));
    assert_int_equal(ash_utf8_valid_prefix(text, strlen(text) - 2), 6); /* cut inside the emoji */
    assert_int_equal(ash_utf8_valid_prefix("ab\xff"
                                           "cd",
                                           5),
                     2);
    assert_int_equal(ash_utf8_valid_prefix("a\0b", 3), 3); /* NUL is a character */
    assert_int_equal(ash_utf8_valid_prefix("", 0), 0);
}

static void test_incomplete_tail(void **state)
{
    (void)state;
    assert_int_equal(ash_utf8_incomplete_tail("", 0), 0);
    assert_int_equal(ash_utf8_incomplete_tail("abc", 3), 0);
    assert_int_equal(ash_utf8_incomplete_tail("ab\xf0\x9f\x98", 5), 3);
    assert_int_equal(ash_utf8_incomplete_tail("\x98", 1), 0);     /* a continuation alone never becomes a character */
    assert_int_equal(ash_utf8_incomplete_tail("\xe0\x80", 2), 0); /* overlong already */
    assert_int_equal(ash_utf8_incomplete_tail("\xed\xa0", 2), 0); /* a surrogate already */
    assert_int_equal(ash_utf8_incomplete_tail("\xf4\x90", 2), 0); /* too large already */
    assert_int_equal(ash_utf8_incomplete_tail("\xf0\x9f\xc3", 3), 1); /* only the last lead counts */
    assert_int_equal(ash_utf8_incomplete_tail("\xff", 1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_code_point),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_valid_prefix),
        cmocka_unit_test(test_incomplete_tail),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
