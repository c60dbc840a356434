/* The generator: its pieces are the text of its ids, chunks and reuse change nothing, and every way to end is kept. */
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

#include "base/str.h"
#include "serve/generator.h"
#include "train/data/arithmetic.h"
#include "unit/serve/tiny.h"

static struct tiny tiny;
static struct ash_tokenizer *tokenizer;

static int setup(void **state)
{
    const char *json = ash_arithmetic_tokenizer();
    struct ash_err err = {0};

    (void)state;
    if (ash_tokenizer_parse(json, strlen(json), "arithmetic", &tokenizer, &err) < 0) return -1;
    return tiny_open(&tiny, &err);
}

static int teardown(void **state)
{
    (void)state;
    ash_tokenizer_close(tokenizer);
    tiny_close(&tiny);
    return 0;
}

static struct ash_generator_opts plain_opts(void)
{
    struct ash_generator_opts opts = {.sampler = ash_sampler_defaults(), .max_tokens = 20, .keep_special = true};

    opts.sampler.temperature = 1.5;
    opts.sampler.seed = 5;
    return opts;
}

static struct ash_generator *open_generator(struct ash_generator_opts opts)
{
    struct ash_generator *generator = NULL;
    struct ash_err err = {0};

    assert_int_equal(ash_generator_open(tiny.model, &tiny.exec, tokenizer, &opts, &generator, &err), 0);
    return generator;
}

struct outcome {
    struct ash_str text;
    int32_t ids[TINY_POSITIONS];
    size_t count;
    enum ash_finish finish;
};

static void pull(struct ash_generator *generator, struct outcome *outcome)
{
    struct ash_err err = {0};
    const int32_t *ids;

    memset(outcome, 0, sizeof(*outcome));
    assert_int_equal(ash_str_adds(&outcome->text, ""), 0);
    while (outcome->finish == ASH_FINISH_NOT_YET) {
        struct ash_text piece = {0};

        assert_int_equal(ash_generator_next(generator, &piece, &outcome->finish, &err), 0);
        if (piece.size_bytes > 0) assert_int_equal(ash_str_add(&outcome->text, piece.data, piece.size_bytes), 0);
    }
    ids = ash_generator_answer(generator, &outcome->count);
    memcpy(outcome->ids, ids, outcome->count * sizeof(*ids));
}

static const int32_t prompt[] = {3, 7, 12, 9, 4, 15};
#define PROMPT (sizeof(prompt) / sizeof(prompt[0]))

static struct outcome answer(struct ash_generator_opts opts)
{
    struct ash_generator *generator = open_generator(opts);
    struct outcome outcome;
    struct ash_err err = {0};

    assert_int_equal(ash_generator_start(generator, prompt, PROMPT, &err), 0);
    pull(generator, &outcome);
    ash_generator_close(generator);
    return outcome;
}

static void pieces_are_the_text_of_the_ids(void **state)
{
    struct outcome outcome = answer(plain_opts());
    struct ash_str whole = {0};
    struct ash_err err = {0};

    (void)state;
    assert_int_equal(outcome.count, 20);
    assert_int_equal(outcome.finish, ASH_FINISH_MAX_TOKENS);
    assert_int_equal(ash_tokenizer_decode(tokenizer, outcome.ids, outcome.count, false, &whole, &err), 0);
    assert_string_equal(outcome.text.data, whole.data);
    ash_str_fini(&whole);
    ash_str_fini(&outcome.text);
}

static void chunks_change_nothing(void **state)
{
    struct ash_generator_opts opts = plain_opts();
    struct outcome whole = answer(opts);

    (void)state;
    for (opts.prefill_rows = 1; opts.prefill_rows <= PROMPT + 1; opts.prefill_rows++) {
        struct outcome pieces = answer(opts);

        assert_string_equal(pieces.text.data, whole.text.data);
        ash_str_fini(&pieces.text);
    }
    ash_str_fini(&whole.text);
}

static void the_seed_decides(void **state)
{
    struct ash_generator_opts opts = plain_opts();
    struct outcome first = answer(opts), again = answer(opts), other;

    (void)state;
    assert_string_equal(first.text.data, again.text.data);
    opts.sampler.seed = 6;
    other = answer(opts);
    assert_string_not_equal(first.text.data, other.text.data);
    ash_str_fini(&first.text);
    ash_str_fini(&again.text);
    ash_str_fini(&other.text);
}

/* A second turn on the same cache gives what a generator gives that never saw the first. */
static void turns_go_on_where_the_last_one_ended(void **state)
{
    struct ash_generator *generator = open_generator(plain_opts()), *fresh = open_generator(plain_opts());
    int32_t longer[PROMPT + 20 + 3];
    struct outcome first, second, expected;
    struct ash_err err = {0};

    (void)state;
    assert_int_equal(ash_generator_start(generator, prompt, PROMPT, &err), 0);
    pull(generator, &first);
    memcpy(longer, prompt, sizeof(prompt));
    memcpy(longer + PROMPT, first.ids, 20 * sizeof(int32_t));
    longer[PROMPT + 20] = 3;
    longer[PROMPT + 21] = 8;
    longer[PROMPT + 22] = 1;
    assert_int_equal(ash_generator_start(generator, longer, PROMPT + 23, &err), 0);
    pull(generator, &second);
    assert_int_equal(ash_generator_stats(generator).reused_tokens,
                     PROMPT + 19); /* the last one chosen was never computed */
    assert_int_equal(ash_generator_start(fresh, longer, PROMPT + 23, &err), 0);
    pull(fresh, &expected);
    assert_int_equal(ash_generator_stats(fresh).reused_tokens, 0);
    assert_string_equal(second.text.data, expected.text.data);
    ash_str_fini(&first.text);
    ash_str_fini(&second.text);
    ash_str_fini(&expected.text);
    ash_generator_close(generator);
    ash_generator_close(fresh);
}

/* Another prompt, the same one again, a part of it, and one given up in the middle: each as if it were the first. */
static void any_prompt_may_follow_any_other(void **state)
{
    struct ash_generator *generator = open_generator(plain_opts());
    const int32_t other[] = {3, 7, 12, 1, 2};
    struct outcome first, same, part, expected;
    struct ash_text piece;
    enum ash_finish finish;
    struct ash_err err = {0};

    (void)state;
    assert_int_equal(ash_generator_start(generator, prompt, PROMPT, &err), 0);
    pull(generator, &first);
    assert_int_equal(ash_generator_start(generator, other, 5, &err), 0);
    assert_int_equal(ash_generator_stats(generator).reused_tokens, 3);
    assert_int_equal(ash_generator_next(generator, &piece, &finish, &err), 0);
    assert_int_equal(ash_generator_start(generator, prompt, PROMPT, &err), 0);
    pull(generator, &same);
    assert_string_equal(same.text.data, first.text.data);
    assert_int_equal(ash_generator_start(generator, prompt, 3, &err), 0);
    assert_int_equal(ash_generator_stats(generator).reused_tokens, 2); /* the last token is needed for its logits */
    pull(generator, &part);
    ash_generator_close(generator);
    generator = open_generator(plain_opts());
    assert_int_equal(ash_generator_start(generator, prompt, 3, &err), 0);
    pull(generator, &expected);
    assert_string_equal(part.text.data, expected.text.data);
    ash_generator_close(generator);
    ash_str_fini(&first.text);
    ash_str_fini(&same.text);
    ash_str_fini(&part.text);
    ash_str_fini(&expected.text);
}

static void a_stop_string_is_never_shown(void **state)
{
    struct ash_generator_opts opts = plain_opts();
    struct outcome whole = answer(opts);

    (void)state;
    for (size_t at = 0; at + 3 < whole.text.size_bytes; at++) {
        char stop[4] = {0};
        const char *stops[] = {stop};
        struct outcome cut;
        size_t before;

        memcpy(stop, whole.text.data + at, 3); /* three tokens */
        before = (size_t)(strstr(whole.text.data, stop) - whole.text.data);
        opts.stops = stops;
        opts.stop_count = 1;
        cut = answer(opts);
        assert_int_equal(cut.finish, ASH_FINISH_STOP);
        assert_int_equal(cut.text.size_bytes, before);
        assert_memory_equal(cut.text.data, whole.text.data, before);
        ash_str_fini(&cut.text);
    }
    ash_str_fini(&whole.text);
}

static void text_held_back_comes_out_at_the_end(void **state)
{
    struct ash_generator_opts opts = plain_opts();
    struct outcome whole = answer(opts), held;
    char stop[3] = {whole.text.data[whole.text.size_bytes - 1], '?',
                    '\0'}; /* begins with the last character, never comes */
    const char *stops[] = {stop};

    (void)state;
    opts.stops = stops;
    opts.stop_count = 1;
    held = answer(opts);
    assert_int_equal(held.finish, ASH_FINISH_MAX_TOKENS);
    assert_string_equal(held.text.data, whole.text.data);
    ash_str_fini(&whole.text);
    ash_str_fini(&held.text);
}

static void an_end_id_ends(void **state)
{
    struct ash_generator_opts opts = plain_opts();
    struct outcome whole = answer(opts), ended;
    size_t at = 0;

    (void)state;
    opts.eos[0] = whole.ids[9];
    opts.eos_count = 1;
    while (whole.ids[at] != opts.eos[0])
        at++;
    ended = answer(opts);
    assert_int_equal(ended.finish, ASH_FINISH_EOS);
    assert_int_equal(ended.count, at + 1);
    assert_memory_equal(ended.text.data, whole.text.data, ended.text.size_bytes);
    assert_true(ended.text.size_bytes < whole.text.size_bytes);
    ash_str_fini(&whole.text);
    ash_str_fini(&ended.text);
}

static void the_context_fills_up(void **state)
{
    struct ash_generator_opts opts = plain_opts();
    struct ash_generator *generator;
    int32_t ids[TINY_POSITIONS] = {0};
    struct outcome outcome;
    struct ash_err err = {0};

    (void)state;
    opts.max_tokens = 0;
    opts.context_tokens = 1000; /* more than the model has */
    generator = open_generator(opts);
    assert_int_equal(ash_generator_start(generator, prompt, PROMPT, &err), 0);
    pull(generator, &outcome);
    assert_int_equal(outcome.finish, ASH_FINISH_CONTEXT);
    assert_int_equal(outcome.count, TINY_POSITIONS - PROMPT);
    assert_int_equal(ash_generator_start(generator, ids, TINY_POSITIONS, &err), -EOVERFLOW);
    assert_non_null(strstr(err.text, "context is full"));
    ash_str_fini(&outcome.text);
    ash_generator_close(generator);
}

static void wrong_use_is_refused(void **state)
{
    struct ash_generator *generator = open_generator(plain_opts());
    const int32_t outside[] = {1, TINY_VOCAB};
    const char *empty_stop[] = {""};
    struct ash_generator_opts opts = plain_opts();
    struct ash_generator *none = NULL;
    enum ash_finish finish = ASH_FINISH_NOT_YET;
    struct ash_text piece;
    struct ash_err err = {0};

    (void)state;
    assert_int_equal(ash_generator_next(generator, &piece, &finish, &err), -EINVAL);
    assert_int_equal(ash_generator_start(generator, prompt, 0, &err), -EINVAL);
    assert_int_equal(ash_generator_start(generator, outside, 2, &err), -EINVAL);
    assert_int_equal(ash_generator_start(generator, prompt, PROMPT, &err), 0);
    for (int i = 0; i < 40; i++) /* twice as often as there are tokens */
        assert_int_equal(ash_generator_next(generator, &piece, &finish, &err), 0);
    assert_int_equal(finish, ASH_FINISH_MAX_TOKENS);
    assert_int_equal(piece.size_bytes, 0);
    ash_generator_close(generator);
    opts.stops = empty_stop;
    opts.stop_count = 1;
    assert_int_equal(ash_generator_open(tiny.model, &tiny.exec, tokenizer, &opts, &none, &err), -EINVAL);
    opts = plain_opts();
    opts.sampler.top_p = 0.0;
    assert_int_equal(ash_generator_open(tiny.model, &tiny.exec, tokenizer, &opts, &none, &err), -EINVAL);
    assert_null(none);
    ash_generator_close(NULL);
}

static void broken_weights_are_named(void **state)
{
    struct ash_generator *generator = open_generator(plain_opts());
    float *broken = ash_model_values(tiny.model) + prompt[0] * 32, kept = *broken; /* the embedding comes first */
    struct ash_text piece;
    enum ash_finish finish;
    struct ash_err err = {0};

    (void)state;
    *broken = NAN;
    assert_int_equal(ash_generator_start(generator, prompt, PROMPT, &err), 0);
    assert_int_equal(ash_generator_next(generator, &piece, &finish, &err), -EDOM);
    assert_non_null(strstr(err.text, "not a number"));
    assert_int_equal(ash_generator_next(generator, &piece, &finish, &err), -EINVAL); /* the answer is over */
    *broken = kept;
    ash_generator_close(generator);
}

static void times_are_measured(void **state)
{
    struct ash_generator *generator = open_generator(plain_opts());
    struct ash_answer_stats stats;
    struct outcome outcome;
    struct ash_err err = {0};

    (void)state;
    assert_int_equal(ash_generator_start(generator, prompt, PROMPT, &err), 0);
    stats = ash_generator_stats(generator);
    assert_true(stats.first_token_s == 0.0 && stats.answer_tokens == 0);
    pull(generator, &outcome);
    stats = ash_generator_stats(generator);
    assert_int_equal(stats.prompt_tokens, PROMPT);
    assert_int_equal(stats.answer_tokens, 20);
    assert_true(stats.prompt_s > 0.0 && stats.first_token_s >= stats.prompt_s && stats.answer_s > 0.0);
    ash_str_fini(&outcome.text);
    ash_generator_close(generator);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_are_the_text_of_the_ids),
        cmocka_unit_test(chunks_change_nothing),
        cmocka_unit_test(the_seed_decides),
        cmocka_unit_test(turns_go_on_where_the_last_one_ended),
        cmocka_unit_test(any_prompt_may_follow_any_other),
        cmocka_unit_test(a_stop_string_is_never_shown),
        cmocka_unit_test(text_held_back_comes_out_at_the_end),
        cmocka_unit_test(an_end_id_ends),
        cmocka_unit_test(the_context_fills_up),
        cmocka_unit_test(wrong_use_is_refused),
        cmocka_unit_test(broken_weights_are_named),
        cmocka_unit_test(times_are_measured),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
