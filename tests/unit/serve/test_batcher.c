/* The batcher: answers are those of one prompt at a time, whatever shares the pass; limits and ends are kept. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "serve/batcher.h"
#include "unit/serve/tiny.h"

#define REQUESTS 23
#define PROMPT_MAX 9
#define ANSWER_MAX 12

static struct tiny tiny;

static int setup(void **state)
{
    struct ash_err err = {0};

    (void)state;
    return tiny_open(&tiny, &err);
}

static int teardown(void **state)
{
    (void)state;
    tiny_close(&tiny);
    return 0;
}

struct work {
    int32_t prompts[REQUESTS][PROMPT_MAX], answers[REQUESTS][ANSWER_MAX];
    struct ash_request requests[REQUESTS];
};

/* Prompts of different lengths, answers of different limits. */
static struct work *make_work(void)
{
    struct work *work = calloc(1, sizeof(*work));

    assert_non_null(work);
    for (size_t i = 0; i < REQUESTS; i++) {
        struct ash_request *request = &work->requests[i];

        request->prompt = work->prompts[i];
        request->prompt_count = 1 + ash_rng_below(1, i, 0, PROMPT_MAX);
        request->answer = work->answers[i];
        request->answer_max = 1 + ash_rng_below(1, i, 1, ANSWER_MAX);
        for (size_t t = 0; t < request->prompt_count; t++)
            work->prompts[i][t] = (int32_t)ash_rng_below(2, i, t, TINY_VOCAB);
    }
    return work;
}

static struct ash_batcher_opts plain_opts(size_t slots, size_t rows)
{
    static const int32_t eos[] = {5};
    struct ash_batcher_opts opts = {.sampler = ash_sampler_defaults(),
                                    .slots = slots,
                                    .slot_tokens = PROMPT_MAX + ANSWER_MAX,
                                    .rows = rows,
                                    .eos = eos,
                                    .eos_count = 1};

    opts.sampler.temperature = 1.5;
    opts.sampler.repetition_penalty = 1.1;
    return opts;
}

static void run(struct ash_batcher_opts opts, struct work *work, size_t first, size_t count)
{
    struct ash_batcher *batcher = NULL;
    struct ash_err err = {0};

    assert_int_equal(ash_batcher_open(tiny.model, &tiny.exec, &opts, &batcher, &err), 0);
    assert_int_equal(ash_batcher_run(batcher, work->requests + first, count, &err), 0);
    ash_batcher_close(batcher);
}

static void company_changes_no_answer(void **state)
{
    static const size_t shapes[][2] = {{1, 21}, {2, 21}, {7, 30}, {23, 400}, {1, 1}, {3, 4}, {7, 8}}; /* slots, rows */
    struct work *alone = make_work();
    size_t ended = 0;

    (void)state;
    for (size_t i = 0; i < REQUESTS; i++)
        run(plain_opts(1, 21), alone, i, 1);
    for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++) {
        struct work *together = make_work();

        run(plain_opts(shapes[s][0], shapes[s][1]), together, 0, REQUESTS);
        for (size_t i = 0; i < REQUESTS; i++) {
            assert_int_equal(together->requests[i].answer_count, alone->requests[i].answer_count);
            assert_int_equal(together->requests[i].finish, alone->requests[i].finish);
            assert_memory_equal(together->answers[i], alone->answers[i], sizeof(alone->answers[i]));
        }
        free(together);
    }
    for (size_t i = 0; i < REQUESTS; i++) {
        const struct ash_request *request = &alone->requests[i];

        ended += request->finish == ASH_FINISH_EOS;
        assert_int_equal(request->eos_id, request->finish == ASH_FINISH_EOS ? 5 : -1);
        if (request->finish != ASH_FINISH_EOS) assert_int_equal(request->answer_count, request->answer_max);
        for (size_t t = 0; t < request->answer_count; t++)
            assert_int_not_equal(request->answer[t], 5); /* the end itself is not part of the answer */
    }
    assert_in_range(ended, 1, REQUESTS - 1); /* the data must exercise both ends */
    free(alone);
}

static void a_batcher_can_be_used_again(void **state)
{
    struct ash_batcher_opts opts = plain_opts(4, 40);
    struct ash_batcher *batcher = NULL;
    struct work *first = make_work(), *second = make_work();
    struct ash_err err = {0};

    (void)state;
    assert_int_equal(ash_batcher_open(tiny.model, &tiny.exec, &opts, &batcher, &err), 0);
    assert_int_equal(ash_batcher_run(batcher, first->requests, REQUESTS, &err), 0);
    assert_int_equal(ash_batcher_run(batcher, second->requests, REQUESTS, &err), 0);
    assert_memory_equal(first->answers, second->answers, sizeof(first->answers));
    assert_int_equal(ash_batcher_run(batcher, first->requests, 0, &err), 0);
    ash_batcher_close(batcher);
    free(first);
    free(second);
}

/* The third id is enough. */
static int take_three(void *ctx, int32_t id, struct ash_err *err)
{
    size_t *seen = ctx;

    (void)id, (void)err;
    return ++*seen == 3;
}

static int take_none(void *ctx, int32_t id, struct ash_err *err)
{
    (void)ctx, (void)id;
    return ash_err_set(err, -EIO, "no");
}

static void who_takes_an_answer_may_end_it(void **state)
{
    struct ash_batcher_opts opts = plain_opts(4, 40);
    struct ash_batcher *batcher = NULL;
    struct work *alone = make_work(), *work = make_work();
    size_t seen[REQUESTS] = {0}, stopped = 0;
    struct ash_err err = {0};

    (void)state;
    run(opts, alone, 0, REQUESTS);
    for (size_t i = 0; i < REQUESTS; i++) {
        work->requests[i].take = take_three;
        work->requests[i].ctx = &seen[i];
    }
    run(opts, work, 0, REQUESTS);
    for (size_t i = 0; i < REQUESTS; i++) {
        const struct ash_request *got = &work->requests[i], *whole = &alone->requests[i];
        size_t count = whole->answer_count < 3 ? whole->answer_count : 3;

        assert_int_equal(got->answer_count, count);
        assert_memory_equal(got->answer, whole->answer, count * sizeof(*got->answer));
        assert_int_equal(got->finish, whole->answer_count < 3 ? whole->finish : ASH_FINISH_STOP);
        stopped += got->finish == ASH_FINISH_STOP;
    }
    assert_in_range(stopped, 1, REQUESTS);
    work->requests[7].take = take_none;
    assert_int_equal(ash_batcher_open(tiny.model, &tiny.exec, &opts, &batcher, &err), 0);
    assert_int_equal(ash_batcher_run(batcher, work->requests, REQUESTS, &err), -EIO);
    assert_int_equal(ash_batcher_run(batcher, work->requests, 7, &err), 0); /* and it continues with others */
    ash_batcher_close(batcher);
    free(alone);
    free(work);
}

static void ids_beyond_the_tokenizer_are_not_chosen(void **state)
{
    struct ash_batcher_opts opts = plain_opts(8, 100);
    struct work *work = make_work();

    (void)state;
    opts.vocab = 3;
    run(opts, work, 0, REQUESTS);
    for (size_t i = 0; i < REQUESTS; i++)
        for (size_t t = 0; t < work->requests[i].answer_count; t++)
            assert_in_range(work->answers[i][t], 0, 2);
    free(work);
}

static void what_does_not_fit_is_refused(void **state)
{
    struct ash_batcher_opts opts = plain_opts(4, 40);
    struct ash_batcher *batcher = NULL;
    struct work *work = make_work();
    struct ash_err err = {0};

    (void)state;
    opts.rows = 3;
    assert_int_equal(ash_batcher_open(tiny.model, &tiny.exec, &opts, &batcher, &err), -EINVAL);
    opts = plain_opts(4, 400);
    opts.slot_tokens = TINY_POSITIONS + 1;
    assert_int_equal(ash_batcher_open(tiny.model, &tiny.exec, &opts, &batcher, &err), -EINVAL);
    opts = plain_opts(4, 40);
    assert_int_equal(ash_batcher_open(tiny.model, &tiny.exec, &opts, &batcher, &err), 0);
    work->requests[2].answer_max = SIZE_MAX;
    assert_int_equal(ash_batcher_run(batcher, work->requests, REQUESTS, &err), -EINVAL);
    work->requests[2].answer_max = 1;
    work->requests[3].prompt_count = 0;
    assert_int_equal(ash_batcher_run(batcher, work->requests, REQUESTS, &err), -EINVAL);
    work->requests[3].prompt_count = 1;
    work->prompts[3][0] = TINY_VOCAB;
    assert_int_equal(ash_batcher_run(batcher, work->requests, REQUESTS, &err), -EINVAL);
    ash_batcher_close(batcher);
    ash_batcher_close(NULL);
    free(work);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(company_changes_no_answer),      cmocka_unit_test(a_batcher_can_be_used_again),
        cmocka_unit_test(who_takes_an_answer_may_end_it), cmocka_unit_test(ids_beyond_the_tokenizer_are_not_chosen),
        cmocka_unit_test(what_does_not_fit_is_refused),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
