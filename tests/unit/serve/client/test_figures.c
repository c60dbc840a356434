/* figures: percentiles by nearest rank, rates, goodput, answers without usage, failed ones, none at all. */
#include "serve/client/figures.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include "base/assert.h"

static double number(const json_t *figures, const char *object, const char *key)
{
    return json_number_value(json_object_get(object != NULL ? json_object_get(figures, object) : figures, key));
}

/* An answer that was due at 0 and began after ttft_ms; a token each 10 ms. */
static struct ash_load_result answer(double ttft_ms, size_t tokens)
{
    return (struct ash_load_result){.is_sent = true,
                                    .is_ok = true,
                                    .status = 200,
                                    .sent_s = 0.001,
                                    .first_s = ttft_ms * 1e-3,
                                    .last_s = ttft_ms * 1e-3 + 0.01 * (double)(tokens - 1),
                                    .end_s = ttft_ms * 1e-3 + 0.01 * (double)tokens,
                                    .chunks = tokens,
                                    .prompt_tokens = 3,
                                    .cached_tokens = 1,
                                    .answer_tokens = tokens};
}

static void test_rates_percentiles_and_goodput(void **state)
{
    struct ash_load_result items[101];
    struct ash_load_results results = {.items = items, .count = ASH_COUNT(items), .seconds = 2};
    json_t *figures;
    (void)state;

    for (size_t i = 0; i < 100; i++)
        items[i] = answer((double)(100 - i), 5);
    items[99].answer_tokens = 0; /* no usage: events count */
    items[100] = (struct ash_load_result){.is_sent = true, .status = 500, .end_s = 1};
    figures = ash_load_figures(&results, &(struct ash_load_limits){.ttft_ms = 40.5});
    assert_non_null(figures);
    assert_float_equal(number(figures, NULL, "requests"), 101, 0);
    assert_float_equal(number(figures, NULL, "completed"), 100, 0);
    assert_float_equal(number(figures, NULL, "failed"), 1, 0);
    assert_float_equal(number(figures, NULL, "output_tokens"), 500, 0);
    assert_float_equal(number(figures, NULL, "output_tokens_per_s"), 250, 1e-9);
    assert_float_equal(number(figures, NULL, "tokens_per_s"), 400, 1e-9);
    assert_float_equal(number(figures, NULL, "goodput_requests_per_s"), 20, 1e-9);
    assert_float_equal(number(figures, "ttft_ms", "mean"), 50.5, 1e-9);
    assert_float_equal(number(figures, "ttft_ms", "p50"), 50, 1e-9);
    assert_float_equal(number(figures, "ttft_ms", "p99"), 99, 1e-9);
    assert_float_equal(number(figures, "ttft_ms", "max"), 100, 1e-9);
    assert_float_equal(number(figures, "tpot_ms", "p90"), 10, 1e-6);
    assert_true(json_is_null(json_object_get(figures, "itl_ms")));
    assert_int_equal(json_array_size(json_object_get(figures, "each")), 101);
    json_decref(figures);
}

static void test_no_answer(void **state)
{
    struct ash_load_result one = {.is_sent = true, .status = 503, .end_s = 1};
    struct ash_load_results results = {.items = &one, .count = 1, .seconds = 1};
    json_t *figures = ash_load_figures(&results, &(struct ash_load_limits){0});
    (void)state;

    assert_float_equal(number(figures, NULL, "good_share"), 0, 0);
    assert_true(json_is_null(json_object_get(figures, "ttft_ms")));
    json_decref(figures);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rates_percentiles_and_goodput),
        cmocka_unit_test(test_no_answer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
