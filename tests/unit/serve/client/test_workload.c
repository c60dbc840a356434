/* Workloads: lengths, arrivals and shared parts are as asked for, and the same for the same seed. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "serve/client/workload.h"

static const struct ash_workload_opts drawn = {.requests = 4000,
                                               .rate = 20,
                                               .prompt_tokens = 100,
                                               .answer_tokens = 40,
                                               .spread = 0.5,
                                               .prefixes = 4,
                                               .prefix_tokens = 64,
                                               .seed = 9};

static void test_drawn_requests_have_the_asked_means(void **state)
{
    struct ash_workload workload = {0};
    struct ash_err err = {0};
    double gaps = 0, squares = 0, prompts = 0, answers = 0;
    size_t counts[4] = {0}, kinds = 0;

    (void)state;
    assert_int_equal(ash_workload_make(&drawn, &workload, &err), 0);
    assert_int_equal(workload.count, 4000);
    for (size_t i = 0; i < workload.count; i++) {
        const struct ash_workload_item *item = &workload.items[i];
        double gap = i > 0 ? item->at_s - workload.items[i - 1].at_s : 0;

        assert_true(gap >= 0);
        assert_true(item->prompt_tokens >= 64 + 50 && item->prompt_tokens <= 64 + 150);
        assert_true(item->answer_tokens >= 20 && item->answer_tokens <= 60);
        assert_int_equal(item->block_count, 2);
        counts[workload.blocks[item->first_block].name / 3]++;
        gaps += gap;
        squares += gap * gap;
        prompts += (double)item->prompt_tokens;
        answers += (double)item->answer_tokens;
    }
    assert_true(fabs(gaps / 3999 * 20 - 1) < 0.05);
    assert_true(fabs(squares / 3999 * 400 - 2) < 0.3); /* an exponential gap: twice the square of its mean */
    assert_true(fabs(prompts / 4000 - 164) < 2);
    assert_true(fabs(answers / 4000 - 40) < 1);
    for (size_t i = 0; i < 4; i++)
        kinds += counts[i] > 850;
    assert_int_equal(kinds, 4);
    ash_workload_fini(&workload);
}

/* How many leading bytes two texts share. */
static size_t common(const struct ash_str *a, const struct ash_str *b)
{
    size_t i = 0;

    while (i < a->size_bytes && i < b->size_bytes && a->data[i] == b->data[i])
        i++;
    return i;
}

static size_t count_commas(const struct ash_str *text)
{
    size_t count = 0;

    for (size_t i = 0; i < text->size_bytes; i++)
        count += text->data[i] == ',';
    return count;
}

static void test_a_trace_shares_what_its_hashes_share(void **state)
{
    static const char trace[] =
        "{\"timestamp\": 0, \"input_length\": 1100, \"output_length\": 7, \"hash_ids\": [1, 2, 3]}\n\n"
        "{\"timestamp\": 500, \"input_length\": 1030, \"output_length\": 9, \"hash_ids\": [1, 2, 4]}\n"
        "{\"timestamp\": 500, \"input_length\": 30, \"output_length\": 1, \"hash_ids\": []}";
    const struct ash_workload_opts opts = {.trace_speed = 2, .trace_scale = 1};
    const struct ash_prompt_form ids = {.vocab = 1000, .seed = 4}, words = {.word_tokens = 1.25, .seed = 4};
    struct ash_workload workload = {0};
    struct ash_str texts[3] = {{0}};
    struct ash_err err = {0};

    (void)state;
    assert_int_equal(ash_workload_add_trace(&workload, &opts, trace, "trace", &err), 0);
    assert_int_equal(workload.count, 3);
    assert_true(workload.items[1].at_s == 0.25);
    assert_int_equal(workload.items[0].prompt_tokens, 1100);
    assert_int_equal(workload.items[1].answer_tokens, 9);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(ash_prompt_add(&ids, &workload, &workload.items[i], &texts[i]), 0);
        assert_int_equal(count_commas(&texts[i]) + 1, workload.items[i].prompt_tokens);
    }
    texts[1].size_bytes = common(&texts[0], &texts[1]);
    assert_true(count_commas(&texts[1]) >= 1024 && count_commas(&texts[1]) < 1030);
    for (size_t i = 0; i < 3; i++)
        ash_str_clear(&texts[i]);
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(ash_prompt_add(&words, &workload, &workload.items[i], &texts[i]), 0);
    assert_true(common(&texts[0], &texts[1]) > 2000 && common(&texts[0], &texts[1]) < texts[1].size_bytes);
    for (size_t i = 0; i < 3; i++)
        ash_str_fini(&texts[i]);
    ash_workload_fini(&workload);
}

static void test_wrong_lines_are_named(void **state)
{
    static const struct {
        const char *text, *says;
    } wrong[] = {
        {"", "no request"},
        {"{\"timestamp\": 0}", "input_length"},
        {"\n{\"timestamp\": 0, \"input_length\": 0, \"output_length\": 1}", "line 2"},
        {"{\"timestamp\": -1, \"input_length\": 1, \"output_length\": 1}", "timestamp"},
        {"{\"timestamp\": 0, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": [\"a\"]}", "hash_ids"},
        {"[]", "object"},
        {"{\"timestamp\": 5, \"input_length\": 1, \"output_length\": 1}\n{\"timestamp\": 4, \"input_length\": 1, "
         "\"output_length\": 1}",
         "before"},
    };
    const struct ash_workload_opts opts = {.trace_speed = 1, .trace_scale = 1};

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct ash_workload workload = {0};
        struct ash_err err = {0};

        assert_int_equal(ash_workload_add_trace(&workload, &opts, wrong[i].text, "trace", &err), -EINVAL);
        if (strstr(err.text, wrong[i].says) == NULL) fail_msg("'%s' is not in: %s", wrong[i].says, err.text);
        ash_workload_fini(&workload);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_drawn_requests_have_the_asked_means),
        cmocka_unit_test(test_a_trace_shares_what_its_hashes_share),
        cmocka_unit_test(test_wrong_lines_are_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
