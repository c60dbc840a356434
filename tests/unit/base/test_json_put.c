/* json_put: commas, keys, escapes, numbers; drawn values read back as they were; a failure is remembered. */
#include "base/json_put.h"

#include <stdarg.h>
#include <setjmp.h>
#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "base/rng.h"

static void test_all_kinds(void **state)
{
    struct ash_str out = {0};
    json_t *tree = json_pack("{s:[i,i]}", "list", 1, 2);
    (void)state;

    ash_json_put_begin(&out, NULL, '{');
    ash_json_put_int(&out, "int", -7);
    ash_json_put_bool(&out, "bool", true);
    ash_json_put_null(&out, "null");
    ash_json_put_text(&out, "none", NULL);
    ash_json_put_begin(&out, "empty", '[');
    ash_json_put_end(&out, ']');
    ash_json_put_begin(&out, "list", '[');
    ash_json_put_number(&out, NULL, 0.1, 9);
    ash_json_put_number(&out, NULL, NAN, 9);
    ash_json_put_number(&out, NULL, -INFINITY, 9);
    ash_json_put_begin(&out, NULL, '{');
    ash_json_put_end(&out, '}');
    ash_json_put_end(&out, ']');
    assert_int_equal(ash_json_put_json(&out, "tree", tree), 0);
    ash_json_put_key(&out, "own");
    ash_str_adds(&out, "1");
    ash_json_put_end(&out, '}');
    assert_string_equal(out.data, "{\"int\":-7,\"bool\":true,\"null\":null,\"none\":null,\"empty\":[],"
                                  "\"list\":[0.1,null,null,{}],\"tree\":{\"list\":[1,2]},\"own\":1}");
    assert_int_equal(ash_json_put_json(&out, "no tree", NULL), -ENOMEM);
    json_decref(tree);
    ash_str_fini(&out);
}

static void test_lines_begin_without_comma(void **state)
{
    struct ash_str out = {0};
    (void)state;

    for (int i = 0; i < 2; i++) {
        ash_json_put_begin(&out, NULL, '[');
        ash_json_put_int(&out, NULL, i);
        ash_str_adds(&out, "]\n");
    }
    ash_str_adds(&out, "data: ");
    ash_json_put_text(&out, NULL, "x");
    assert_string_equal(out.data, "[0]\n[1]\ndata: \"x\"");
    ash_str_fini(&out);
}

static void test_escapes(void **state)
{
    struct ash_str out = {0};
    (void)state;

    ash_json_put_begin(&out, NULL, '[');
    ash_json_put_text(&out, NULL, "{\"\\\n\r\t\x01\x7f[");
    ash_json_put_string(&out, NULL, "\xe4\xbd\xa0\xff\xe4\xbd", 6);
    ash_json_put_string(&out, NULL, NULL, 0);
    ash_json_put_end(&out, ']');
    assert_string_equal(
        out.data, "[\"{\\\"\\\\\\n\\r\\t\\u0001\\u007f[\",\"\xe4\xbd\xa0\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\",\"\"]");
    ash_str_fini(&out);
}

struct draws {
    uint64_t seed, count;
};

static uint64_t next(struct draws *draws)
{
    return ash_rng_u64(draws->seed, 0, draws->count++);
}

/* A value and the same as jansson's tree. */
static json_t *draw(struct ash_str *out, const char *key, struct draws *draws, int depth)
{
    static const char *const texts[] = {"", "{", "[,", "a\"b", "\xe4\xbd\xa0:", "\n"};
    uint64_t kind = next(draws) % (depth > 0 ? 6 : 4);
    json_t *json;

    if (kind == 0) {
        int64_t value = (int64_t)next(draws);

        ash_json_put_int(out, key, value);
        return json_integer(value);
    }
    if (kind == 1) {
        const char *text = texts[next(draws) % 6];

        ash_json_put_text(out, key, text);
        return json_string(text);
    }
    if (kind == 2) {
        ash_json_put_bool(out, key, false);
        return json_false();
    }
    if (kind == 3) {
        double value = (double)(next(draws) >> 11) * 0x1p-60 + 1e-30;

        ash_json_put_number(out, key, value, 17);
        return json_real(value);
    }
    json = kind == 4 ? json_array() : json_object();
    ash_json_put_begin(out, key, kind == 4 ? '[' : '{');
    for (uint64_t i = 0, count = next(draws) % 4; i < count; i++) {
        if (kind == 4)
            json_array_append_new(json, draw(out, NULL, draws, depth - 1));
        else
            json_object_set_new(json, texts[i], draw(out, texts[i], draws, depth - 1));
    }
    ash_json_put_end(out, kind == 4 ? ']' : '}');
    return json;
}

static void test_drawn_values_read_back(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 2000; seed++) {
        struct draws draws = {.seed = seed};
        struct ash_str out = {0};
        json_t *want = draw(&out, NULL, &draws, 4), *got = json_loadb(out.data, out.size_bytes, JSON_DECODE_ANY, NULL);

        if (!json_equal(want, got)) fail_msg("seed %llu: %s", (unsigned long long)seed, out.data);
        json_decref(want);
        json_decref(got);
        ash_str_fini(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_kinds),
        cmocka_unit_test(test_lines_begin_without_comma),
        cmocka_unit_test(test_escapes),
        cmocka_unit_test(test_drawn_values_read_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
