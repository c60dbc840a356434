/* The schedule, with a stand-in for the model: priorities, shares of owners, streams next to a long prompt, pages, the
 * prefix cache's order of eviction. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "serve/engine/core.h"

#define VOCAB 100
#define PROMPT_MAX 2000
#define PAGE 64

static struct ash_exec exec;
static size_t ended; /* requests so far */

struct item {
    struct ash_request request;
    int32_t prompt[PROMPT_MAX];
    size_t tokens, place; /* place: how many ended before it */
    bool is_done;
    struct ash_request_end end;
};

static int take(void *ctx, const struct ash_token *token)
{
    struct item *item = ctx;

    (void)token;
    item->tokens++;
    return 0;
}

static void take_end(void *ctx, const struct ash_request_end *end)
{
    struct item *item = ctx;

    item->is_done = true;
    item->end = *end;
    item->place = ended++;
}

static struct ash_core *open_core(struct ash_core_opts opts)
{
    static const struct ash_null_model null = {.vocab = VOCAB, .max_positions = 4096};
    struct ash_core *core = NULL;
    struct ash_err err = {0};

    ended = 0;
    if (ash_core_open_null(&null, &exec, &opts, &core, &err) < 0) fail_msg("%s", err.text);
    return core;
}

/* Prompts of different first tokens have nothing in common. */
static void submit(struct ash_core *core, struct item *item, int32_t first, size_t prompt, size_t answer)
{
    int priority = item->request.priority;
    uint64_t owner = item->request.owner;
    struct ash_err err = {0};

    for (size_t i = 0; i < prompt; i++)
        item->prompt[i] = (int32_t)((size_t)first + i) % VOCAB;
    item->request = (struct ash_request){.prompt = item->prompt,
                                         .prompt_count = prompt,
                                         .sampler = ash_sampler_defaults(),
                                         .max_tokens = answer,
                                         .priority = priority,
                                         .owner = owner,
                                         .take = take,
                                         .done = take_end,
                                         .ctx = item};
    item->is_done = false;
    item->tokens = 0;
    if (ash_core_submit(core, &item->request, &err) < 0) fail_msg("%s", err.text);
}

static void run(struct ash_core *core)
{
    while (ash_core_step(core) > 0)
        assert_true(ash_core_is_consistent(core));
}

static void what_matters_more_runs_first(void **state)
{
    struct ash_core *core = open_core((struct ash_core_opts){.max_seqs = 1, .max_batch_rows = 64});
    struct item *items = calloc(6, sizeof(*items));

    (void)state;
    for (size_t i = 0; i < 6; i++) {
        items[i].request.priority = 5 - (int)i / 2;
        submit(core, &items[i], (int32_t)i, 10, 3);
    }
    run(core);
    for (size_t i = 0; i < 6; i++) /* pairs of one priority in their order, the last pair first */
        assert_int_equal(items[i].place, (2 - i / 2) * 2 + i % 2);
    ash_core_close(core);
    free(items);
}

/* One that runs gives way to one that matters more, and continues later. */
static void who_matters_less_gives_way(void **state)
{
    struct ash_core *core = open_core((struct ash_core_opts){.max_seqs = 1, .max_batch_rows = 64});
    struct item *items = calloc(2, sizeof(*items));

    (void)state;
    items[0].request.priority = 1;
    submit(core, &items[0], 0, 100, 50);
    for (size_t i = 0; i < 10; i++)
        assert_int_equal(ash_core_step(core), 1);
    submit(core, &items[1], 50, 100, 5);
    run(core);
    assert_int_equal(items[1].place, 0);
    assert_int_equal(items[0].tokens, 50);
    assert_int_equal(ash_core_get_stats(core).preemptions, 1);
    ash_core_close(core);
    free(items);
}

static void owners_share_evenly(void **state)
{
    enum { MANY = 20, FEW = 4 };
    struct ash_core *core = open_core((struct ash_core_opts){.max_seqs = 2, .max_batch_rows = 64});
    struct item *items = calloc(MANY + FEW, sizeof(*items));

    (void)state;
    for (size_t i = 0; i < MANY + FEW; i++) {
        items[i].request.owner = i < MANY ? 1 : 2;
        submit(core, &items[i], (int32_t)i, 40, 10);
    }
    run(core);
    for (size_t i = MANY; i < MANY + FEW; i++) /* every second place, about: not after all the others */
        assert_in_range(items[i].place, 0, 2 * (i - MANY) + 4);
    ash_core_close(core);
    free(items);
}

static void a_long_prompt_does_not_stop_the_others(void **state)
{
    struct ash_core *core =
        open_core((struct ash_core_opts){.max_seqs = 8, .max_batch_rows = 512, .step_seconds = 1e-9});
    struct item *items = calloc(5, sizeof(*items));
    size_t steps = 0;

    (void)state;
    for (size_t i = 0; i < 4; i++)
        submit(core, &items[i], (int32_t)i * 9, 4, 400);
    while (items[3].tokens == 0)
        ash_core_step(core);
    submit(core, &items[4], 77, PROMPT_MAX, 1);
    for (size_t before = items[0].tokens; items[4].tokens == 0; steps++) {
        ash_core_step(core);
        assert_int_equal(items[0].tokens, before + steps + 1); /* a token in every step */
    }
    assert_in_range(steps, PROMPT_MAX / 64, PROMPT_MAX / 16 + 1);
    run(core);
    ash_core_close(core);
    free(items);
}

static void pages_of_the_cancelled_are_free_at_once(void **state)
{
    struct ash_core *core = open_core((struct ash_core_opts){
        .max_seqs = 4, .max_batch_rows = 512, .kv_bytes = 20 * PAGE, .has_no_prefix_cache = true});
    struct item *items = calloc(2, sizeof(*items));

    (void)state;
    submit(core, &items[0], 0, 300, 10);
    submit(core, &items[1], 50, 300, 10);
    assert_int_equal(ash_core_step(core), 1);
    assert_in_range(ash_core_get_stats(core).pages_held, 8, 10);
    ash_core_cancel(core, &items[0].request);
    assert_true(items[0].is_done);
    assert_int_equal(items[0].end.finish, ASH_FINISH_CANCELLED);
    assert_in_range(ash_core_get_stats(core).pages_held, 4, 5);
    ash_core_cancel(core, &items[1].request);
    assert_int_equal(ash_core_get_stats(core).pages_free, 20);
    assert_int_equal(ash_core_step(core), 0);
    ash_core_close(core);
    free(items);
}

/* A request that only fits alone still gets its answer, whatever came before it. */
static void a_full_pool_serves_one_after_the_other(void **state)
{
    struct ash_core *core =
        open_core((struct ash_core_opts){.max_seqs = 6, .max_batch_rows = 128, .kv_bytes = 6 * PAGE});
    struct item *items = calloc(6, sizeof(*items));

    (void)state;
    assert_int_equal(ash_core_max_tokens(core), 6 * PAGE);
    for (size_t i = 0; i < 6; i++)
        submit(core, &items[i], (int32_t)i * 3, 100, 6 * PAGE - 100);
    run(core);
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(items[i].tokens, 6 * PAGE - 100);
    assert_true(ash_core_get_stats(core).preemptions > 0);
    ash_core_close(core);
    free(items);
}

/* What was used last stays; reuse is to the token. */
static void the_prefix_used_longest_ago_goes_first(void **state)
{
    struct ash_core *core =
        open_core((struct ash_core_opts){.max_seqs = 1, .max_batch_rows = 512, .kv_bytes = 9 * PAGE});
    struct item *item = calloc(1, sizeof(*item));
    size_t cached;

    (void)state;
    submit(core, item, 0, 150, 1); /* 3 pages */
    run(core);
    submit(core, item, 30, 150, 1); /* 3 more */
    run(core);
    submit(core, item, 0, 150, 1); /* the first again: only the last token is computed */
    run(core);
    assert_int_equal(item->end.cached_tokens, 149);
    submit(core, item, 60, 250, 1); /* 4 pages: the second text has to go, from its end */
    run(core);
    submit(core, item, 0, 150, 1);
    cached = ash_core_cached_tokens(core, item->prompt, 150, 0);
    assert_int_equal(cached, 149);
    assert_int_equal(ash_core_cached_tokens(core, item->prompt, 150, 1), 0); /* another salt */
    item->prompt[140] = 99;
    assert_int_equal(ash_core_cached_tokens(core, item->prompt, 150, 0), 140);
    item->prompt[140] = 40;
    run(core);
    for (size_t i = 0; i < 150; i++)
        item->prompt[i] = (int32_t)((30 + i) % VOCAB);
    assert_in_range(ash_core_cached_tokens(core, item->prompt, 150, 0), 0, 2 * PAGE);
    ash_core_close(core);
    free(item);
}

/* Choices after one context, all asked at once: who tells no log-probabilities before its choice shares the rest. */
static void choices_compute_their_context_once(void **state)
{
    struct ash_core *core = open_core((struct ash_core_opts){.max_seqs = 8, .max_batch_rows = 64});
    struct item *items = calloc(4, sizeof(*items));
    struct ash_err err = {0};

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        struct item *item = &items[i];

        for (size_t t = 0; t < 150; t++)
            item->prompt[t] = (int32_t)(t < 149 ? t % VOCAB : i);
        item->request = (struct ash_request){.prompt = item->prompt,
                                             .prompt_count = 150,
                                             .sampler = ash_sampler_defaults(),
                                             .wants_prompt_logprobs = true,
                                             .prompt_logprobs_from = 149,
                                             .done = take_end,
                                             .ctx = item};
        if (ash_core_submit(core, &item->request, &err) < 0) fail_msg("%s", err.text);
    }
    run(core);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(items[i].end.cached_tokens, i == 0 ? 0 : 148);
    assert_int_equal(ash_core_get_stats(core).rows, 150 + 3 * 2);
    ash_core_close(core);
    free(items);
}

static int setup(void **state)
{
    struct ash_err err = {0};

    (void)state;
    return ash_exec_init(&exec, NULL, 2, &err);
}

static int teardown(void **state)
{
    (void)state;
    ash_exec_fini(&exec);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_matters_more_runs_first),
        cmocka_unit_test(who_matters_less_gives_way),
        cmocka_unit_test(owners_share_evenly),
        cmocka_unit_test(a_long_prompt_does_not_stop_the_others),
        cmocka_unit_test(pages_of_the_cancelled_are_free_at_once),
        cmocka_unit_test(a_full_pool_serves_one_after_the_other),
        cmocka_unit_test(the_prefix_used_longest_ago_goes_first),
        cmocka_unit_test(choices_compute_their_context_once),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
