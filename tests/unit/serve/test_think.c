/* Budget forcing on a real model: the same ids as by hand, with answers that are started again after each change. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "ashlar/ashlar.h"
#include "base/rng.h"
#include "serve/engine.h"
#include "serve/engine/core.h"
#include "serve/engine/think.h"

#define STORIES TEST_DATA "/golden/stories260K"
#define MOST 120 /* tokens of an answer */

static struct ash_engine *engine;
static int32_t end_id, *more;
static size_t more_count;

/* The model does not think: the end of a sentence ends its "thoughts". */
static int setup(void **state)
{
    struct ash_err err = {0};
    int32_t *ids = NULL;
    size_t count = 0;

    (void)state;
    if (ash_engine_open(STORIES, NULL, &engine, &err) < 0) return -1;
    if (ash_engine_encode(engine, "cat.", false, &ids, &count, &err) < 0) return -1;
    end_id = ids[count - 1];
    ash_free(ids);
    return ash_engine_encode(engine, "Wait", false, &more, &more_count, &err);
}

static int teardown(void **state)
{
    (void)state;
    ash_free(more);
    ash_engine_close(engine);
    return 0;
}

static struct ash_answer_opts opts_of(uint64_t seed)
{
    struct ash_answer_opts opts;

    ash_answer_opts_init(engine, &opts);
    opts.temperature = 1.0;
    opts.top_p = 1.0;
    opts.seed = seed;
    opts.context_tokens = 256;
    opts.max_tokens = MOST;
    return opts;
}

static size_t answer_ids(const struct ash_answer_opts *opts, const int32_t *prompt, size_t count, int32_t *ids)
{
    enum ash_finish finish = ASH_FINISH_NOT_YET;
    struct ash_answer *answer = NULL;
    struct ash_err err = {0};
    struct ash_text piece;
    size_t answered = 0;
    const int32_t *chosen;

    assert_int_equal(ash_answer_open(engine, opts, &answer, &err), 0);
    assert_int_equal(ash_answer_start_ids(answer, prompt, count, &err), 0);
    while (finish == ASH_FINISH_NOT_YET)
        assert_int_equal(ash_answer_next(answer, &piece, &finish, &err), 0);
    chosen = ash_answer_ids(answer, &answered);
    memcpy(ids, chosen, answered * sizeof(*ids));
    ash_answer_close(answer);
    return answered;
}

/* By hand: answer, look for the first token at which a bound counts, change it, and start again from there. */
static size_t by_hand(uint64_t seed, size_t min, size_t max, const int32_t *prompt, size_t prompt_count, int32_t *out)
{
    int32_t text[2 * MOST + 64], ids[MOST];
    size_t count = 0, thought = 0;
    bool thinks = true;

    memcpy(text, prompt, prompt_count * sizeof(*text));
    while (count < MOST) {
        struct ash_answer_opts opts = opts_of(seed);
        bool is_changed = false;
        size_t answered;

        opts.max_tokens = MOST - count;
        answered = answer_ids(&opts, text, prompt_count + count, ids);
        for (size_t i = 0; i < answered && !is_changed; i++) {
            if (thinks && ids[i] == end_id && thought < min) { /* too early */
                memcpy(text + prompt_count + count, more, more_count * sizeof(*text));
                count += more_count;
                thought += more_count;
                is_changed = true;
                continue;
            }
            text[prompt_count + count++] = ids[i];
            thinks = thinks && ids[i] != end_id;
            thought += thinks;
            if (thinks && max > 0 && thought >= max) { /* too late */
                text[prompt_count + count++] = end_id;
                thinks = false;
                is_changed = true;
            }
        }
        if (!is_changed) break;
    }
    memcpy(out, text + prompt_count, count * sizeof(*out));
    return count;
}

static void test_ids_are_those_by_hand(void **state)
{
    static const char *const prompts[] = {"Once upon a time", "The cat", "Lily and Tom"};
    int32_t forced[2 * MOST], expected[2 * MOST], *prompt = NULL;
    struct ash_err err = {0};
    size_t changed = 0;

    (void)state;
    for (uint64_t seed = 0; seed < 12; seed++) {
        struct ash_answer_opts opts = opts_of(seed);
        size_t count = 0, got, wanted;

        opts.think_min = ash_rng_below(3, 1, seed, 50);
        opts.think_max = seed % 3 == 0 ? 0 : opts.think_min + 1 + ash_rng_below(3, 2, seed, 30);
        opts.think_end = ".";
        assert_int_equal(ash_engine_encode(engine, prompts[seed % 3], true, &prompt, &count, &err), 0);
        got = answer_ids(&opts, prompt, count, forced);
        wanted = by_hand(seed, opts.think_min, opts.think_max, prompt, count, expected);
        ash_free(prompt);
        if (got != wanted || memcmp(forced, expected, got * sizeof(*forced)) != 0)
            fail_msg("seed %llu, %zu to %zu tokens of thoughts: %zu ids, by hand %zu, or other ones",
                     (unsigned long long)seed, opts.think_min, opts.think_max, got, wanted);
        for (size_t i = 0; i + more_count <= got; i++)
            changed += memcmp(forced + i, more, more_count * sizeof(*more)) == 0;
    }
    assert_true(changed > 5); /* else nothing was tested */
}

#define ANSWERS 9

/* One of several answers that a core writes at once. */
struct batched {
    struct ash_request request;
    struct ash_think think;
    int32_t ids[MOST];
    size_t count;
};

static int take(void *ctx, const struct ash_token *token)
{
    struct batched *batched = ctx;

    batched->ids[batched->count++] = token->id;
    return 0;
}

static void take_end(void *ctx, const struct ash_request_end *end)
{
    (void)ctx;
    assert_int_equal(end->rc, 0);
}

/* What else runs, and tokens that are drafted, change no answer with a budget. */
static void test_batches_and_drafts_change_nothing(void **state)
{
    struct ash_core_opts core_opts = {.max_seqs = 4, .max_tokens = 256, .speculate = 4};
    struct batched *batched = calloc(ANSWERS, sizeof(*batched));
    struct ash_think_words words = {0};
    struct ash_core *core = NULL;
    struct ash_err err = {0};
    int32_t alone[2 * MOST], *prompt = NULL;
    size_t count = 0;

    (void)state;
    assert_non_null(batched);
    assert_int_equal(ash_engine_encode(engine, "The cat", true, &prompt, &count, &err), 0);
    assert_int_equal(ash_think_words_init(&words, ".", NULL, ash_engine_tokenizer(engine), &err), 0);
    assert_int_equal(ash_core_open(ash_engine_model(engine), ash_engine_exec(engine), &core_opts, &core, &err), 0);
    for (size_t i = 0; i < ANSWERS; i++) {
        struct batched *one = &batched[i];

        one->think = ash_think_start(&words, 5 * i, i % 2 == 0 ? 0 : 5 * i + 20);
        one->request = (struct ash_request){.prompt = prompt,
                                            .prompt_count = count,
                                            .sampler = ash_engine_defaults(engine)->sampler,
                                            .max_tokens = MOST,
                                            .stop_ids = ash_engine_defaults(engine)->eos,
                                            .stop_id_count = ash_engine_defaults(engine)->eos_count,
                                            .think = &one->think,
                                            .take = take,
                                            .done = take_end,
                                            .ctx = one};
        one->request.sampler.temperature = 1.0;
        one->request.sampler.top_p = 1.0;
        one->request.sampler.seed = i;
        assert_int_equal(ash_core_submit(core, &one->request, &err), 0);
    }
    while (ash_core_step(core) > 0)
        continue;
    for (size_t i = 0; i < ANSWERS; i++) {
        struct ash_answer_opts opts = opts_of(i);
        size_t got;

        opts.think_min = 5 * i;
        opts.think_max = i % 2 == 0 ? 0 : 5 * i + 20;
        opts.think_end = ".";
        got = answer_ids(&opts, prompt, count, alone);
        if (batched[i].count > got || memcmp(batched[i].ids, alone, batched[i].count * sizeof(*alone)) != 0 ||
            got > batched[i].count + 1)
            fail_msg("answer %zu: other ids in a batch (%zu) than alone (%zu)", i, batched[i].count, got);
    }
    ash_core_close(core);
    ash_think_words_fini(&words);
    ash_free(prompt);
    free(batched);
}

static void test_bounds_that_cannot_be_are_refused(void **state)
{
    struct ash_answer_opts opts = opts_of(1);
    struct ash_answer *answer = NULL;
    struct ash_err err = {0};

    (void)state;
    opts.think_min = 9;
    opts.think_max = 3;
    opts.think_end = ".";
    assert_int_equal(ash_answer_open(engine, &opts, &answer, &err), -EINVAL);
    opts.think_max = 0;
    opts.think_end = NULL; /* "</think>": this model has no such token */
    assert_int_equal(ash_answer_open(engine, &opts, &answer, &err), -ENOTSUP);
    assert_non_null(strstr(err.text, "</think>"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ids_are_those_by_hand),
        cmocka_unit_test(test_batches_and_drafts_change_nothing),
        cmocka_unit_test(test_bounds_that_cannot_be_are_refused),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
