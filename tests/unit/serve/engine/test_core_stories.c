/* The engine loop, one thing at a time: a common prefix, requests that cannot be served, a broken row. */
#include "unit/serve/engine/core_requests.h"

#include "base/assert.h"

static void a_common_prefix_is_computed_once(void **state)
{
    enum { TOGETHER = 8, PREFIX = 200 };
    struct ash_model *model = make_model(false, false);
    struct work *works = calloc(TOGETHER, sizeof(*works));
    struct ash_core_opts opts = {.max_seqs = TOGETHER, .max_batch_rows = 64};
    struct ash_core_stats stats;
    struct ash_core *core = NULL;
    struct ash_err err = {0};

    (void)state;
    seed_now = 3;
    for (size_t i = 0; i < TOGETHER; i++) {
        works[i].request = (struct ash_request){.prompt = works[i].prompt,
                                                .prompt_count = PREFIX + 1 + i,
                                                .sampler = ash_sampler_defaults(),
                                                .max_tokens = 4};
        works[i].take_max = SIZE_MAX;
        for (size_t t = 0; t < PREFIX + 1 + i; t++)
            works[i].prompt[t] = t < PREFIX ? (int32_t)(t % 7) : (int32_t)(8 + i);
    }
    assert_int_equal(ash_core_open(model, &execs[1], &opts, &core, &err), 0);
    for (size_t i = 0; i < TOGETHER; i++) {
        submit(core, &works[i]);
    }
    for (size_t i = 0; i < TOGETHER; i++) {
        ash_core_cancel(core, &works[i].request); /* what was drawn for them is of no use here */
        works[i].request.priority = 0;
        works[i].request.salt = works[i].request.owner = 0;
        works[i].request.skips_cache = works[i].is_done = false;
        assert_int_equal(ash_core_submit(core, &works[i].request, &err), 0);
    }
    while (ash_core_step(core) > 0)
        continue;
    stats = ash_core_get_stats(core);
    assert_int_equal(stats.rows - stats.answer_tokens + TOGETHER, PREFIX + TOGETHER * (TOGETHER + 1) / 2);
    ash_core_close(core);
    free(works);
    ash_model_close(model);
}

static void what_cannot_be_served_is_refused(void **state)
{
    struct ash_model *model = make_model(false, false);
    struct ash_core_opts opts = {.max_seqs = 2, .max_tokens = 100};
    struct work *work = calloc(1, sizeof(*work));
    struct ash_core *core = NULL;
    struct ash_err err = {0};

    (void)state;
    opts.max_batch_rows = 1;
    assert_int_equal(ash_core_open(model, &execs[0], &opts, &core, &err), -EINVAL);
    opts.max_batch_rows = 16;
    opts.kv_bytes = 10;
    assert_int_equal(ash_core_open(model, &execs[0], &opts, &core, &err), -EINVAL);
    opts.kv_bytes = 0;
    assert_int_equal(ash_core_open(model, &execs[0], &opts, &core, &err), 0);
    work->request = (struct ash_request){.prompt = work->prompt,
                                         .prompt_count = 100,
                                         .sampler = ash_sampler_defaults(),
                                         .max_tokens = 1,
                                         .done = take_end};
    assert_int_equal(ash_core_submit(core, &work->request, &err), -EOVERFLOW);
    assert_non_null(strstr(err.text, "100 tokens"));
    work->request.prompt_count = 0;
    assert_int_equal(ash_core_submit(core, &work->request, &err), -EINVAL);
    work->request.prompt_count = 3;
    work->prompt[1] = VOCAB;
    assert_int_equal(ash_core_submit(core, &work->request, &err), -EINVAL);
    work->prompt[1] = 0;
    work->request.sampler.top_p = 2.0;
    assert_int_equal(ash_core_submit(core, &work->request, &err), -EINVAL);
    work->request.sampler.top_p = 1.0;
    work->request.top_logprobs = ASH_CORE_TOP_LOGPROBS_MAX + 1;
    assert_int_equal(ash_core_submit(core, &work->request, &err), -EINVAL);
    assert_int_equal(ash_core_step(core), 0);
    ash_core_close(core);
    ash_core_close(NULL);
    free(work);
    ash_model_close(model);
}

/* One broken row ends its own request, and no other. */
static void broken_logits(void *ctx, const int32_t *ids, size_t count, float *logits_out)
{
    (void)ctx;
    for (size_t v = 0; v < VOCAB; v++)
        logits_out[v] = (float)((count * 7 + v * 3) % 11);
    if (ids[0] == 5 && count == 12) logits_out[3] = NAN;
}

static void a_broken_row_ends_its_own_request(void **state)
{
    struct ash_null_model null = {.vocab = VOCAB, .max_positions = POSITIONS, .logits = broken_logits};
    struct ash_core_opts opts = {.max_seqs = 4, .max_batch_rows = 32};
    struct work *works = calloc(4, sizeof(*works));
    struct ash_core *core = NULL;
    struct ash_err err = {0};

    (void)state;
    seed_now = 4;
    assert_int_equal(ash_core_open_null(&null, &execs[1], &opts, &core, &err), 0);
    for (size_t i = 0; i < 4; i++) {
        works[i].request = (struct ash_request){
            .prompt = works[i].prompt, .prompt_count = 8, .sampler = ash_sampler_defaults(), .max_tokens = 20};
        works[i].prompt[0] = i == 2 ? 5 : 1;
        works[i].take_max = SIZE_MAX;
        submit(core, &works[i]);
    }
    while (ash_core_step(core) > 0)
        continue;
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(works[i].got.count, i == 2 ? 4 : 20);
        assert_int_equal(works[i].got.finish, i == 2 ? ASH_FINISH_FAILED : ASH_FINISH_MAX_TOKENS);
        assert_int_equal(works[i].end.rc, i == 2 ? -EDOM : 0);
    }
    ash_core_close(core);
    free(works);
}

/* All ids of the vocabulary, each once, the most likely first. */
static int take_tops(void *ctx, const struct ash_token *token)
{
    bool is_seen[VOCAB] = {false};

    assert_int_equal(token->top_count, VOCAB);
    for (size_t t = 0; t < token->top_count; t++) {
        assert_in_range(token->top[t].id, 0, VOCAB - 1);
        assert_false(is_seen[token->top[t].id]);
        assert_true(t == 0 || token->top[t].logprob <= token->top[t - 1].logprob);
        is_seen[token->top[t].id] = true;
    }
    ++*(size_t *)ctx;
    return 0;
}

static void ignore_end(void *ctx, const struct ash_request_end *end)
{
    (void)ctx;
    assert_int_equal(end->finish, ASH_FINISH_MAX_TOKENS);
}

/* More log-probabilities than there are ids: there are as many as ids. */
static void tops_are_no_more_than_ids(void **state)
{
    struct ash_null_model null = {.vocab = VOCAB, .max_positions = POSITIONS, .logits = broken_logits};
    struct ash_core_opts opts = {.max_seqs = 1, .max_batch_rows = 8};
    int32_t prompt[4] = {1, 2, 3, 4};
    size_t taken = 0;
    struct ash_request request = {.prompt = prompt,
                                  .prompt_count = ASH_COUNT(prompt),
                                  .sampler = ash_sampler_defaults(),
                                  .max_tokens = 3,
                                  .wants_logprobs = true,
                                  .top_logprobs = VOCAB + 6,
                                  .take = take_tops,
                                  .done = ignore_end,
                                  .ctx = &taken};
    struct ash_core *core = NULL;
    struct ash_err err = {0};

    (void)state;
    assert_int_equal(ash_core_open_null(&null, &execs[1], &opts, &core, &err), 0);
    assert_int_equal(ash_core_submit(core, &request, &err), 0);
    while (ash_core_step(core) > 0)
        continue;
    assert_int_equal(taken, 3);
    ash_core_close(core);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_common_prefix_is_computed_once),
        cmocka_unit_test(what_cannot_be_served_is_refused),
        cmocka_unit_test(a_broken_row_ends_its_own_request),
        cmocka_unit_test(tops_are_no_more_than_ids),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
