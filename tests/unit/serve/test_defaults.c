/* generation_config.json: what the transformers library would take from it, and values that no one can mean. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/assert.h"
#include "serve/defaults.h"

static const struct ash_model_config config = {.vocab = 1000, .eos = {7, 8}, .eos_count = 2};

static int parse(const char *text, struct ash_defaults *defaults, struct ash_err *err)
{
    json_t *json = NULL;
    int rc;

    assert_int_equal(ash_json_parse(text, strlen(text), "test", &json, err), 0);
    rc = ash_defaults_parse(json, &config, defaults, err);
    json_decref(json);
    return rc;
}

static struct ash_defaults parsed(const char *text)
{
    struct ash_defaults defaults = {0};
    struct ash_err err = {0};

    assert_int_equal(parse(text, &defaults, &err), 0);
    return defaults;
}

static void nothing_said_is_greedy(void **state)
{
    struct ash_defaults defaults = parsed("{}");

    (void)state;
    assert_true(defaults.sampler.temperature == 0.0);
    assert_true(defaults.sampler.top_p == 1.0);
    assert_true(defaults.sampler.repetition_penalty == 1.0);
    assert_int_equal(defaults.eos_count, 2);
    assert_int_equal(defaults.eos[1], 8);
}

static void sampling_needs_do_sample(void **state)
{
    struct ash_defaults defaults = parsed("{\"temperature\": 0.6, \"top_k\": 20, \"repetition_penalty\": 1.05}");

    (void)state;
    assert_true(defaults.sampler.temperature == 0.0);
    assert_int_equal(defaults.sampler.top_k, 0);
    assert_true(defaults.sampler.repetition_penalty == 1.05); /* a penalty works without sampling too */
    defaults = parsed("{\"do_sample\": true, \"temperature\": 0.6, \"top_k\": 20, \"top_p\": 0.95, \"min_p\": 0.1}");
    assert_true(defaults.sampler.temperature == 0.6);
    assert_int_equal(defaults.sampler.top_k, 20);
    assert_true(defaults.sampler.top_p == 0.95);
    assert_true(defaults.sampler.min_p == 0.1);
    defaults = parsed("{\"do_sample\": true, \"temperature\": null, \"top_k\": null}");
    assert_true(defaults.sampler.temperature == 1.0);
    assert_int_equal(defaults.sampler.top_k, 0);
}

static void ends_are_one_or_many(void **state)
{
    struct ash_defaults defaults = parsed("{\"eos_token_id\": 5}");

    (void)state;
    assert_int_equal(defaults.eos_count, 1);
    assert_int_equal(defaults.eos[0], 5);
    defaults = parsed("{\"eos_token_id\": [1, 2, 999]}");
    assert_int_equal(defaults.eos_count, 3);
    assert_int_equal(defaults.eos[2], 999);
    defaults = parsed("{\"eos_token_id\": null}");
    assert_int_equal(defaults.eos_count, 2);
}

static void absurd_values_are_refused(void **state)
{
    static const char *const bad[] = {
        "{\"eos_token_id\": 1000}",
        "{\"eos_token_id\": -1}",
        "{\"eos_token_id\": [1, \"2\"]}",
        "{\"eos_token_id\": [1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]}",
        "{\"do_sample\": 3}",
        "{\"do_sample\": true, \"temperature\": -1}",
        "{\"do_sample\": true, \"temperature\": \"hot\"}",
        "{\"do_sample\": true, \"top_p\": 0}",
        "{\"do_sample\": true, \"top_p\": 1.5}",
        "{\"do_sample\": true, \"top_k\": -3}",
        "{\"do_sample\": true, \"min_p\": 2}",
        "{\"repetition_penalty\": 0}",
    };

    (void)state;
    for (size_t i = 0; i < ASH_COUNT(bad); i++) {
        struct ash_defaults defaults = {.eos_count = 99};
        struct ash_err err = {0};

        assert_int_equal(parse(bad[i], &defaults, &err), -EINVAL);
        assert_int_equal(defaults.eos_count, 99);
        assert_int_not_equal(err.text[0], '\0');
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_said_is_greedy),
        cmocka_unit_test(sampling_needs_do_sample),
        cmocka_unit_test(ends_are_one_or_many),
        cmocka_unit_test(absurd_values_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
