/* The public API on a real model: open, encode, decode, answer, and every way to use it wrongly. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "ashlar/ashlar.h"

#define STORIES TEST_DATA "/golden/stories260K"

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

/* The whole answer to what was started, NUL-terminated. */
static const char *pull(struct ash_answer *answer, enum ash_finish *finish_out)
{
    static char text[4096];
    struct ash_err err = {0};
    size_t used = 0;

    *finish_out = ASH_FINISH_NOT_YET;
    while (*finish_out == ASH_FINISH_NOT_YET) {
        struct ash_text piece;

        assert_int_equal(ash_answer_next(answer, &piece, finish_out, &err), 0);
        assert_true(used + piece.size_bytes < sizeof(text));
        if (piece.size_bytes > 0) memcpy(text + used, piece.data, piece.size_bytes);
        used += piece.size_bytes;
    }
    text[used] = '\0';
    return text;
}

static void versions_agree(void **state)
{
    (void)state;
    assert_string_equal(ash_version(), ASHLAR_VERSION);
}

static void text_goes_to_ids_and_back(void **state)
{
    struct ash_err err = {0};
    int32_t *ids = NULL;
    size_t count = 0;
    char *text = NULL;

    (void)state;
    assert_int_equal(ash_engine_encode(engine, "The cat sat", true, &ids, &count, &err), 0);
    assert_int_equal(ids[0], 1); /* beginning of text */
    assert_int_equal(ash_engine_decode(engine, ids, count, false, &text, &err), 0);
    assert_string_equal(text, "The cat sat");
    ash_free(text);
    ash_free(ids);
    assert_int_equal(ash_engine_encode(engine, "", false, &ids, &count, &err), 0);
    assert_int_equal(count, 0);
    ash_free(ids);
    assert_int_equal(ash_engine_decode(engine, NULL, 0, false, &text, &err), 0);
    assert_string_equal(text, "");
    ash_free(text);
    assert_int_equal(ash_engine_encode(engine, "\xff", true, &ids, &count, &err), -EILSEQ);
}

static void an_answer_continues_the_text(void **state)
{
    struct ash_answer_stats stats;
    struct ash_answer_opts opts;
    struct ash_answer *answer = NULL;
    const char *const stops[] = {"Lily"};
    enum ash_finish finish;
    struct ash_err err = {0};
    size_t count = 0;

    (void)state;
    ash_answer_opts_init(engine, &opts);
    opts.max_tokens = 40;
    opts.stops = stops;
    opts.stop_count = 1;
    assert_int_equal(ash_answer_open(engine, &opts, &answer, &err), 0);
    assert_int_equal(ash_answer_start(answer, "Once upon a time", &err), 0);
    assert_string_equal(pull(answer, &finish), ", there was a little girl named ");
    assert_int_equal(finish, ASH_FINISH_STOP);
    assert_string_equal(ash_finish_reason(finish), "stop");
    assert_non_null(ash_answer_ids(answer, &count));
    assert_int_equal(count, 10);
    ash_answer_get_stats(answer, &stats);
    assert_int_equal(stats.answer_tokens, 10);
    assert_int_equal(ash_answer_start(answer, "The cat sat", &err), 0); /* the same object answers again */
    assert_memory_equal(pull(answer, &finish), " down on the ground.", 20);
    assert_int_equal(finish, ASH_FINISH_MAX_TOKENS);
    assert_string_equal(ash_finish_reason(finish), "length");
    ash_answer_close(answer);
}

static void a_model_without_a_template_cannot_chat(void **state)
{
    const struct ash_message message = {"user", "Hello"};
    struct ash_answer *answer = NULL;
    struct ash_err err = {0};
    char *prompt = NULL;

    (void)state;
    assert_false(ash_engine_has_chat(engine));
    assert_int_equal(ash_engine_render_chat(engine, &message, 1, &prompt, &err), -ENOTSUP);
    assert_non_null(strstr(err.text, "chat template"));
    assert_null(prompt);
    assert_int_equal(ash_answer_open(engine, NULL, &answer, &err), 0);
    assert_int_equal(ash_answer_start_chat(answer, &message, 1, &err), -ENOTSUP);
    ash_answer_close(answer);
}

static void wrong_use_is_answered(void **state)
{
    struct ash_engine_opts engine_opts;
    struct ash_answer_opts answer_opts;
    struct ash_engine *none = NULL;
    struct ash_answer *answer = NULL;
    struct ash_err err = {0};

    (void)state;
    assert_true(ash_engine_open(TEST_DATA "/nowhere", NULL, &none, &err) < 0);
    assert_non_null(strstr(err.text, "nowhere"));
    ash_engine_opts_init(&engine_opts);
    engine_opts.backend = "abacus";
    assert_int_equal(ash_engine_open(STORIES, &engine_opts, &none, &err), -EINVAL);
    memset(&engine_opts, 0, sizeof(engine_opts)); /* not initialised: its size says so */
    assert_int_equal(ash_engine_open(STORIES, &engine_opts, &none, &err), -EINVAL);
    assert_null(none);
    ash_answer_opts_init(engine, &answer_opts);
    answer_opts.size = sizeof(answer_opts) + 8; /* a later version's struct */
    assert_int_equal(ash_answer_open(engine, &answer_opts, &answer, &err), -EINVAL);
    ash_answer_opts_init(engine, &answer_opts);
    answer_opts.temperature = -1.0;
    assert_int_equal(ash_answer_open(engine, &answer_opts, &answer, &err), -EINVAL);
    assert_null(answer);
    assert_true(ash_engine_open(TEST_DATA "/nowhere", NULL, &none, NULL) < 0); /* no err is fine */
    ash_engine_close(NULL);
    ash_answer_close(NULL);
    ash_free(NULL);
}

static void a_struct_of_an_older_version_is_taken(void **state)
{
    struct ash_answer_opts opts;
    struct ash_answer *answer = NULL;
    enum ash_finish finish;
    struct ash_err err = {0};

    (void)state;
    memset(&opts, 0xff, sizeof(opts)); /* what follows its end must not be read */
    opts.size = offsetof(struct ash_answer_opts, temperature);
    opts.context_tokens = 100;
    opts.max_tokens = 3;
    assert_int_equal(ash_answer_open(engine, &opts, &answer, &err), 0);
    assert_int_equal(ash_answer_start(answer, "Once upon a time", &err), 0);
    assert_string_equal(pull(answer, &finish), ", there was");
    ash_answer_close(answer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(versions_agree),
        cmocka_unit_test(text_goes_to_ids_and_back),
        cmocka_unit_test(an_answer_continues_the_text),
        cmocka_unit_test(a_model_without_a_template_cannot_chat),
        cmocka_unit_test(wrong_use_is_answered),
        cmocka_unit_test(a_struct_of_an_older_version_is_taken),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
