/* answers: each text of a batch is the one that its prompt gets alone, with stop strings and several samples; prompts
 * without ids get none. */
#include "serve/answers.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define STORIES TEST_DATA "/golden/stories260K"
#define PROMPTS 4

static struct ash_engine *engine;

static int setup(void **state)
{
    struct ash_err err = {0};

    (void)state;
    return ash_engine_open(STORIES, NULL, &engine, &err);
}

static int teardown(void **state)
{
    (void)state;
    ash_engine_close(engine);
    return 0;
}

/* The answer of the public API to one prompt; the caller frees it. */
static char *alone(const struct ash_answer_opts *opts, const int32_t *ids, size_t count)
{
    enum ash_finish finish = ASH_FINISH_NOT_YET;
    struct ash_answer *answer = NULL;
    struct ash_err err = {0};
    struct ash_str text = {0};

    assert_int_equal(ash_answer_open(engine, opts, &answer, &err), 0);
    assert_int_equal(ash_answer_start_ids(answer, ids, count, &err), 0);
    assert_int_equal(ash_str_adds(&text, ""), 0);
    while (finish == ASH_FINISH_NOT_YET) {
        struct ash_text piece;

        assert_int_equal(ash_answer_next(answer, &piece, &finish, &err), 0);
        assert_int_equal(ash_str_add(&text, piece.data, piece.size_bytes), 0);
    }
    ash_answer_close(answer);
    return text.data;
}

/* All answers, compared with those alone. */
static void compare(struct ash_answer_opts *answer, size_t samples)
{
    static const char *const texts[PROMPTS] = {"Once upon a time", "The cat", NULL, "Lily and Tom went to the"};
    struct ash_answers_opts opts = {.answer = answer, .context_tokens = 128, .samples = samples, .concurrent = 2};
    struct ash_answers_prompt prompts[PROMPTS] = {0};
    int32_t *ids[PROMPTS] = {NULL};
    struct ash_answers *answers = NULL;
    struct ash_err err = {0};
    uint64_t seed = answer->seed;

    for (size_t p = 0; p < PROMPTS; p++) {
        if (texts[p] == NULL) continue;
        assert_int_equal(ash_engine_encode(engine, texts[p], true, &ids[p], &prompts[p].count, &err), 0);
        prompts[p].ids = ids[p];
    }
    assert_int_equal(ash_answers_open(engine, &opts, prompts, PROMPTS, &answers, &err), 0);
    assert_null(ash_answers_of(answers, 0));
    for (size_t p = 0; p < PROMPTS; p++) {
        struct ash_answers_item *items = NULL;

        for (size_t pass = 0; texts[p] != NULL && pass < 10000 && items == NULL; pass++) {
            assert_int_equal(ash_answers_step(answers, &err), 0);
            items = ash_answers_of(answers, p);
        }
        for (size_t s = 0; items != NULL && s < samples; s++) {
            char *want;

            answer->seed = s == 0 ? seed : ash_sampler_seed(seed, s);
            want = alone(answer, prompts[p].ids, prompts[p].count);
            assert_string_equal(items[s].text.data, want);
            assert_true(json_array_size(items[s].logprobs) == (answer->wants_logprobs ? items[s].ids.count : 0));
            free(want);
        }
        answer->seed = seed;
        if (texts[p] == NULL)
            assert_null(ash_answers_of(answers, p));
        else
            assert_non_null(items);
        if (p == 0) ash_answers_forget(answers, p);
    }
    ash_answers_close(answers);
    for (size_t p = 0; p < PROMPTS; p++)
        ash_free(ids[p]);
}

static void each_answer_is_the_one_alone(void **state)
{
    struct ash_answer_opts answer;

    (void)state;
    ash_answer_opts_init(engine, &answer);
    answer.max_tokens = 24;
    answer.context_tokens = 128;
    compare(&answer, 1);
    answer.temperature = 1.0;
    answer.seed = 7;
    answer.wants_logprobs = true;
    compare(&answer, 3);
}

static void stop_strings_end_answers(void **state)
{
    static const char *const stops[] = {"the", "."};
    struct ash_answer_opts answer;

    (void)state;
    ash_answer_opts_init(engine, &answer);
    answer.max_tokens = 40;
    answer.context_tokens = 128;
    answer.stops = stops;
    answer.stop_count = 2;
    compare(&answer, 1);
}

static void wrong_settings_are_refused(void **state)
{
    static const char *const empty[] = {""};
    struct ash_answer_opts answer;
    struct ash_answers_opts opts = {.answer = &answer, .context_tokens = 64, .samples = 1, .concurrent = 1};
    struct ash_answers *answers = NULL;
    struct ash_err err = {0};
    int32_t id = 1;

    (void)state;
    ash_answer_opts_init(engine, &answer);
    answer.stops = empty;
    answer.stop_count = 1;
    assert_int_equal(ash_answers_open(engine, &opts, &(struct ash_answers_prompt){&id, 1}, 1, &answers, &err), -EINVAL);
    assert_null(answers);
    ash_answers_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_answer_is_the_one_alone),
        cmocka_unit_test(stop_strings_end_answers),
        cmocka_unit_test(wrong_settings_are_refused),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
