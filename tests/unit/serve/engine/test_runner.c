/* The runner: many threads submit and cancel; each request is done once, and its answer is its own. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "base/thread.h"
#include "serve/engine/runner.h"
#include "unit/sanitized.h"

#define VOCAB 50
#define THREADS 4
#define EACH (SANITIZED ? 60 : 250) /* requests of a thread */
#define PROMPT 20
#define ANSWER 12

/* The next token is a function of the whole text. */
static void hash_logits(void *ctx, const int32_t *ids, size_t count, float *logits_out)
{
    uint64_t sum = 0;

    (void)ctx;
    for (size_t i = 0; i < count; i++)
        sum = sum * 31 + (uint64_t)ids[i] + 1;
    for (size_t v = 0; v < VOCAB; v++)
        logits_out[v] = v == sum % VOCAB ? 1.0f : 0.0f;
}

static const struct ash_null_model null_model = {.vocab = VOCAB, .max_positions = 256, .logits = hash_logits};
static struct ash_exec exec;
static struct ash_runner *runner;

struct client {
    pthread_t thread;
    size_t number;
    pthread_mutex_t lock;
    pthread_cond_t ended;
    struct ash_request request;
    int32_t ids[PROMPT + ANSWER];
    size_t count, done_count;
    struct ash_request_end end;
    size_t cancelled, wrong;
};

static int take(void *ctx, const struct ash_token *token)
{
    struct client *client = ctx;

    client->ids[client->count++] = token->id;
    return 0;
}

static void take_end(void *ctx, const struct ash_request_end *end)
{
    struct client *client = ctx;

    pthread_mutex_lock(&client->lock);
    client->done_count++;
    client->end = *end;
    pthread_cond_signal(&client->ended);
    pthread_mutex_unlock(&client->lock);
}

static void check(struct client *client)
{
    float logits[VOCAB];

    client->cancelled += client->end.finish == ASH_FINISH_CANCELLED;
    client->wrong += client->done_count != 1 || client->end.rc != 0 ||
                     (client->end.finish == ASH_FINISH_MAX_TOKENS && client->count != PROMPT + ANSWER);
    for (size_t i = PROMPT; i < client->count; i++) {
        hash_logits(NULL, client->ids, i, logits);
        client->wrong += logits[client->ids[i]] != 1.0f;
    }
}

static void *run_client(void *arg)
{
    struct client *client = arg;
    struct ash_err err = {0};

    for (size_t i = 0; i < EACH; i++) {
        client->request = (struct ash_request){.prompt = client->ids,
                                               .prompt_count = PROMPT,
                                               .sampler = ash_sampler_defaults(),
                                               .max_tokens = ANSWER,
                                               .owner = client->number,
                                               .take = take,
                                               .done = take_end,
                                               .ctx = client};
        client->count = PROMPT;
        client->done_count = 0;
        for (size_t t = 0; t < PROMPT; t++)
            client->ids[t] = (int32_t)ash_rng_below(1, i % 7, t, VOCAB);
        if (ash_runner_submit(runner, &client->request, &err) < 0) {
            client->wrong++;
            continue;
        }
        if (i % 3 == 0) ash_runner_cancel(runner, &client->request);
        pthread_mutex_lock(&client->lock);
        while (client->done_count == 0)
            pthread_cond_wait(&client->ended, &client->lock);
        pthread_mutex_unlock(&client->lock);
        check(client);
    }
    return NULL;
}

static void open_runner(void)
{
    struct ash_core_opts opts = {.max_seqs = 3, .max_batch_rows = 40, .kv_bytes = 640, .speculate = 3};
    struct ash_core *core = NULL;
    struct ash_err err = {0};

    assert_int_equal(ash_core_open_null(&null_model, &exec, &opts, &core, &err), 0);
    assert_int_equal(ash_runner_open(core, &runner, &err), 0);
}

static void everybody_gets_an_own_answer(void **state)
{
    static struct client clients[THREADS];
    struct ash_core_stats stats;
    size_t cancelled = 0;

    (void)state;
    open_runner();
    for (size_t i = 0; i < THREADS; i++) {
        clients[i].number = i;
        pthread_mutex_init(&clients[i].lock, NULL);
        assert_int_equal(ash_cond_init(&clients[i].ended), 0);
        assert_int_equal(ash_thread_start(&clients[i].thread, run_client, &clients[i]), 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(clients[i].thread, NULL);
        assert_int_equal(clients[i].wrong, 0);
        cancelled += clients[i].cancelled;
        pthread_mutex_destroy(&clients[i].lock);
        pthread_cond_destroy(&clients[i].ended);
    }
    assert_in_range(cancelled, 1, THREADS * EACH / 2);
    assert_int_equal(ash_runner_drain(runner, 10.0), 0);
    stats = ash_runner_stats(runner);
    assert_int_equal(stats.running + stats.waiting + stats.pages_held, 0);
    assert_true(ash_runner_stalled_seconds(runner) == 0.0);
    ash_runner_close(runner);
}

static void a_drained_runner_takes_nothing_and_close_ends_the_rest(void **state)
{
    static struct client client, late;
    struct ash_err err = {0};

    (void)state;
    open_runner();
    pthread_mutex_init(&client.lock, NULL);
    assert_int_equal(ash_cond_init(&client.ended), 0);
    client.request = (struct ash_request){.prompt = client.ids,
                                          .prompt_count = PROMPT,
                                          .sampler = ash_sampler_defaults(),
                                          .max_tokens = ANSWER,
                                          .done = take_end,
                                          .ctx = &client};
    late.request = client.request;
    assert_int_equal(ash_runner_submit(runner, &client.request, &err), 0);
    assert_int_equal(ash_runner_drain(runner, 10.0), 0);
    assert_int_equal(client.done_count, 1);
    assert_int_equal(ash_runner_submit(runner, &late.request, &err), -ESHUTDOWN);
    ash_runner_close(runner);
    open_runner();
    client.done_count = 0;
    client.request.max_tokens = 200;
    assert_int_equal(ash_runner_submit(runner, &client.request, &err), 0);
    assert_int_equal(ash_runner_max_tokens(runner), 256);
    ash_runner_close(runner); /* in the middle, or before */
    assert_int_equal(client.done_count, 1);
    open_runner();
    client.done_count = 0;
    assert_int_equal(ash_runner_submit(runner, &client.request, &err), 0);
    ash_runner_cancel_all(runner);
    assert_int_equal(ash_runner_drain(runner, 10.0), 0);
    assert_int_equal(client.done_count, 1);
    assert_int_equal(ash_runner_submit(runner, &late.request, &err), -ESHUTDOWN);
    ash_runner_close(runner);
    ash_runner_close(NULL);
    pthread_mutex_destroy(&client.lock);
    pthread_cond_destroy(&client.ended);
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
        cmocka_unit_test(everybody_gets_an_own_answer),
        cmocka_unit_test(a_drained_runner_takes_nothing_and_close_ends_the_rest),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
