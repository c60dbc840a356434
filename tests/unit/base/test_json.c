/* json: what is read and what is refused, messages that name the place, typed look-ups with limits, saving. */
#include "base/json.h"

#include <stdarg.h>
#include <setjmp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/assert.h"
#include "base/str.h"

static json_t *parse(const char *text)
{
    struct ash_err err = {0};
    json_t *json = NULL;

    assert_int_equal(ash_json_parse(text, strlen(text), "t.json", &json, &err), 0);
    return json;
}

static void check_refused(const char *text, size_t size_bytes, const char *expected)
{
    struct ash_err err = {0};
    json_t *json = NULL;

    assert_int_equal(ash_json_parse(text, size_bytes, "t.json", &json, &err), -EINVAL);
    assert_null(json);
    if (strstr(err.text, expected) == NULL) fail_msg("'%s' is not in '%s'", expected, err.text);
}

static void test_refused(void **state)
{
    static const struct {
        const char *text, *expected;
    } bad[] = {
        {"", "t.json:1:0"},
        {"{\"a\": 1,\n \"b\": }", "t.json:2:7"},
        {"{\"a\": 1} x", "t.json:1:"},
        {"{\"a\": 1", "t.json"},
        {"[1, 2,]", "t.json"},
        {"{\"a\": \"\xff\"}", "unable to decode byte"},
        {"{\"a\": \"\xed\xa0\x80\"}", "unable to decode byte"},
        {"{\"a\": 1e}", "t.json"},
        {"{\"a\": 01}", "t.json"},
        {"{\"a\": 99999999999999999999, }", "t.json:1:"},
        {"{\"a\": \"\\ud83d\", b}", "t.json:1:"},
        {"{'a': 1}", "t.json"},
        {"{\"a\": NaNo}", "t.json"},
        {"{\"a\": nan}", "t.json"},
        {"{\"a\": +Infinity}", "t.json"},
        {"nothing", "t.json"},
    };
    (void)state;

    for (size_t i = 0; i < ASH_COUNT(bad); i++)
        check_refused(bad[i].text, strlen(bad[i].text), bad[i].expected);
    check_refused("{\"a\":\0 1}", 9, "t.json");
}

/* What Python's json module reads, jansson refuses and people's files hold. */
static void test_read_as_python_reads(void **state)
{
    static const struct {
        const char *text, *expected;
    } good[] = {
        {"{\"model_max_length\": 1000000000000000019884624838656}", "{\"model_max_length\": 1e30}"},
        {"[-9223372036854775808, -9223372036854775809]", "[-9223372036854775808, -9223372036854775808.0]"},
        {"[9223372036854775807,9223372036854775808,1]", "[9223372036854775807, 9223372036854775808.0, 1]"},
        {"[1e999, -1e999]", "[1.7976931348623157e308, -1.7976931348623157e308]"},
        {"[Infinity, -Infinity, NaN]", "[1.7976931348623157e308, -1.7976931348623157e308, null]"},
        {"{\"NaN\": \"Infinity 1e999 \\\" NaN\", \"b\":NaN}", "{\"NaN\": \"Infinity 1e999 \\\" NaN\", \"b\": null}"},
        {"{\"\\u0000\": \"a\\u0000\"}", "{\"\\ufdd0\": \"a\\ufdd0\"}"},
        {"{\"a\": 1, \"b\": 3, \"a\": 2}", "{\"a\": 2, \"b\": 3}"},
        {"[\"x\\ud83dy\", \"\\udc00\", \"\\ud83d\\ude00\", \"\\ud83d\\u0041\"]",
         "[\"x\\ufffdy\", \"\\ufffd\", \"\\ud83d\\ude00\", \"\\ufffdA\"]"},
    };
    (void)state;

    for (size_t i = 0; i < ASH_COUNT(good); i++) {
        json_t *json = parse(good[i].text), *expected = json_loads(good[i].expected, 0, NULL);

        assert_non_null(expected);
        if (!json_equal(json, expected)) fail_msg("%s is read otherwise than %s", good[i].text, good[i].expected);
        json_decref(json);
        json_decref(expected);
    }
}

static void test_keys_given_twice_are_refused_where_asked(void **state)
{
    static const char text[] = "{\"a\": 1, \"a\": 2}";
    struct ash_err err = {0};
    json_t *json = NULL;
    (void)state;

    assert_int_equal(ash_json_parse_unique(text, strlen(text), "t.json", &json, &err), -EINVAL);
    assert_non_null(strstr(err.text, "duplicate"));
    assert_null(json);
}

static void test_lines(void **state)
{
    static const char good[] = "{\"text\": \"a\\u0000b\", \"score\": NaN}", bad[] = "{\"text\": }";
    struct ash_err err = {0};
    json_t *json = NULL;
    (void)state;

    assert_int_equal(ash_json_parse_line(good, strlen(good), "a.jsonl", 7, &json, &err), 0);
    assert_int_equal(json_string_length(json_object_get(json, "text")), 3);
    json_decref(json);
    assert_int_equal(ash_json_parse_line(bad, strlen(bad), "a.jsonl", 7, &json, &err), -EINVAL);
    assert_non_null(strstr(err.text, "a.jsonl:7: not valid JSON"));
}

static void test_depth_is_bounded(void **state)
{
    struct ash_str text = {0};
    (void)state;

    for (int i = 0; i < 100000; i++)
        assert_int_equal(ash_str_adds(&text, "["), 0);
    check_refused(text.data, text.size_bytes, "depth");
    ash_str_fini(&text);
}

static void test_lookups(void **state)
{
    json_t *json = parse("{\"i\": 7, \"d\": 1.5, \"b\": true, \"s\": \"x\", \"o\": {}, \"a\": [], \"n\": null}");
    struct ash_err err = {0};
    const json_t *found = NULL;
    const char *text = "default";
    int64_t i = 1;
    double d = 2;
    bool b = false;
    (void)state;

    assert_int_equal(ash_json_int(json, "i", 0, 10, &i, &err), 1);
    assert_int_equal(i, 7);
    assert_int_equal(ash_json_double(json, "d", 0, 10, &d, &err), 1);
    assert_true(d == 1.5);
    assert_int_equal(ash_json_double(json, "i", 0, 10, &d, &err), 1); /* an integer is a number */
    assert_true(d == 7);
    assert_int_equal(ash_json_bool(json, "b", &b, &err), 1);
    assert_true(b);
    assert_int_equal(ash_json_string(json, "s", &text, &err), 1);
    assert_string_equal(text, "x");
    assert_int_equal(ash_json_object(json, "o", &found, &err), 1);
    assert_true(json_is_object(found));
    assert_int_equal(ash_json_array(json, "a", &found, &err), 1);
    assert_true(json_is_array(found));
    json_decref(json);
}

static void test_absent_and_null_keep_the_default(void **state)
{
    json_t *json = parse("{\"n\": null}");
    static const char *const keys[] = {"n", "absent"};
    (void)state;

    for (int k = 0; k < 2; k++) {
        const json_t *found = NULL;
        const char *text = "default";
        int64_t i = 1;
        double d = 2;
        bool b = true;
        assert_int_equal(ash_json_int(json, keys[k], 0, 10, &i, NULL), 0);
        assert_int_equal(ash_json_double(json, keys[k], 0, 10, &d, NULL), 0);
        assert_int_equal(ash_json_bool(json, keys[k], &b, NULL), 0);
        assert_int_equal(ash_json_string(json, keys[k], &text, NULL), 0);
        assert_int_equal(ash_json_object(json, keys[k], &found, NULL), 0);
        assert_int_equal(ash_json_array(json, keys[k], &found, NULL), 0);
        assert_true(i == 1 && d == 2 && b && found == NULL);
        assert_string_equal(text, "default");
    }
    json_decref(json);
}

static void test_wrong_types_and_ranges(void **state)
{
    json_t *json = parse("{\"i\": 7, \"d\": 1.5, \"s\": \"x\", \"big\": 1000000000000000019884624838656}");
    struct ash_err err = {0};
    const json_t *found = NULL;
    const char *text = NULL;
    int64_t i = 1;
    double d = 2;
    bool b = true;
    (void)state;

    assert_int_equal(ash_json_int(json, "s", 0, 10, &i, &err), -EINVAL);
    assert_string_equal(err.text, "'s' must be an integer, but it is a string");
    assert_int_equal(ash_json_int(json, "d", 0, 10, &i, &err), -EINVAL);
    assert_int_equal(ash_json_int(json, "i", 8, 10, &i, &err), -EINVAL);
    assert_string_equal(err.text, "'i' is 7, but it must be from 8 to 10");
    assert_int_equal(ash_json_int(json, "i", 0, 6, &i, &err), -EINVAL);
    assert_int_equal(ash_json_int(json, "big", 0, 6, &i, &err), -EINVAL);
    assert_string_equal(err.text, "'big' is 1e+30, but it must be from 0 to 6");
    assert_int_equal(ash_json_double(json, "d", 2, 3, &d, &err), -EINVAL);
    assert_string_equal(err.text, "'d' is 1.5, but it must be from 2 to 3");
    assert_int_equal(ash_json_double(json, "s", 2, 3, &d, &err), -EINVAL);
    assert_int_equal(ash_json_bool(json, "i", &b, &err), -EINVAL);
    assert_int_equal(ash_json_string(json, "i", &text, &err), -EINVAL);
    assert_int_equal(ash_json_object(json, "i", &found, &err), -EINVAL);
    assert_int_equal(ash_json_array(json, "i", &found, NULL), -EINVAL);
    assert_true(i == 1 && d == 2 && b && text == NULL && found == NULL);
    json_decref(json);
}

static void test_text_has_the_fewest_digits(void **state)
{
    json_t *json =
        parse("{\"eps\": 1e-05, \"lr\": 0.003, \"n\": [-2.0, 7, 1e300], \"s\": \"a\\\"0.10\\\\\", \"t\": true}");
    struct ash_str text = {0};
    (void)state;

    assert_int_equal(ash_json_add_text(json, &text), 0);
    assert_string_equal(text.data,
                        "{\n  \"eps\": 1e-05,\n  \"lr\": 0.003,\n  \"n\": [\n    -2.0,\n    7,\n    1e+300\n  ],\n"
                        "  \"s\": \"a\\\"0.10\\\\\",\n  \"t\": true\n}");
    ash_str_fini(&text);
    json_decref(json);
}

static void test_save_and_load(void **state)
{
    char path[] = "/tmp/ashlar-json-XXXXXX";
    json_t *json = parse("{\"z\": [1, 2.5], \"a\": \"caf\xc3\xa9\"}"), *back = NULL;
    struct ash_err err = {0};
    int fd = mkstemp(path);
    (void)state;

    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(ash_json_save(path, json, &err), 0);
    assert_int_equal(ash_json_load(path, &back, &err), 0);
    assert_true(json_equal(json, back));
    unlink(path);
    json_decref(back);
    assert_int_equal(ash_json_load(path, &back, &err), -ENOENT);
    assert_non_null(strstr(err.text, path));
    assert_int_equal(ash_json_save("/nonexistent/x.json", json, &err), -ENOENT);
    json_decref(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_read_as_python_reads),
        cmocka_unit_test(test_keys_given_twice_are_refused_where_asked),
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_depth_is_bounded),
        cmocka_unit_test(test_lookups),
        cmocka_unit_test(test_absent_and_null_keep_the_default),
        cmocka_unit_test(test_wrong_types_and_ranges),
        cmocka_unit_test(test_text_has_the_fewest_digits),
        cmocka_unit_test(test_save_and_load),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
