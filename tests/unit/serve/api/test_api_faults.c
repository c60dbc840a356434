/* Faults: broken logits, a full queue, a stalled engine, clients that leave or do not read, a server that ends. None
 * harms another request. */
#include "unit/serve/api/api_client.h"

#include "base/clock.h"
#include "base/rng.h"

static void wait_for_running(size_t running, size_t waiting)
{
    for (int i = 0; i < 4000; i++) {
        struct ash_core_stats stats = ash_runner_stats(server.runner);

        if (stats.running + stats.waiting == running + waiting) return;
        pause_ms(5);
    }
    fail_msg("%zu running and %zu waiting are never reached", running, waiting);
}

/* NaN logits end one request with an error, whole and streamed; the next one works. */
static void test_broken_logits(void **state)
{
    struct http_answer answer;
    json_t *json;
    (void)state;

    api_say(&server, "fine");
    atomic_store(&server.is_broken, true);
    json = post("/v1/completions", "{\"prompt\":\"x\"}", 500);
    assert_string_equal(text_at(json, "error.code"), "engine_error");
    json_decref(json);
    answer = http_do(server.port, "POST", "/v1/completions", "", "{\"prompt\":\"x\",\"stream\":true}");
    assert_int_equal(answer.status, 200);
    assert_non_null(strstr(answer.body.data, "data: {\"error\":{"));
    http_answer_fini(&answer);
    answer = http_do(server.port, "POST", "/v1/messages", "",
                     "{\"max_tokens\":5,\"stream\":true,\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}");
    assert_non_null(strstr(answer.body.data, "event: error\ndata: {\"type\":\"error\""));
    http_answer_fini(&answer);
    atomic_store(&server.is_broken, false);
    json = post("/v1/completions", "{\"prompt\":\"x\",\"temperature\":0}", 200);
    assert_non_null(strstr(text_at(json, "choices.0.text"), "fine"));
    json_decref(json);
}

/* Wait until from least to most requests are being answered. */
static void await_exchanges(const struct api_server *at, size_t least, size_t most)
{
    size_t count = ash_http_get_stats(at->http).exchanges;

    for (int i = 0; i < 12000 && (count < least || count > most); i++) {
        pause_ms(5);
        count = ash_http_get_stats(at->http).exchanges;
    }
    assert_in_range(count, least, most);
}

/* A full queue is 429 with Retry-After; a stalled engine makes /health 503; both pass. */
static void test_queue_and_health(void **state)
{
    struct http_answer answer;
    int fds[8];
    char value[32];
    (void)state;

    api_say(&server, "a b c d e f g h");
    atomic_store(&server.is_stuck, true);
    for (int i = 0; i < 8; i++) {
        fds[i] = http_connect(server.port);
        assert_true(http_send_request(fds[i], "POST", "/v1/completions", "", "{\"prompt\":\"x\",\"temperature\":0}"));
        if (i < 5) await_exchanges(&server, (size_t)i + 1, (size_t)i + 1);
    }
    pause_ms(600);
    answer = http_do(server.port, "GET", "/health", "", NULL);
    assert_int_equal(answer.status, 503);
    assert_non_null(strstr(answer.body.data, "engine_stalled"));
    http_answer_fini(&answer);
    answer = http_do(server.port, "POST", "/v1/completions", "", "{\"prompt\":\"x\"}");
    assert_int_equal(answer.status, 429);
    assert_non_null(http_header(&answer, "retry-after: ", value, sizeof(value)));
    assert_non_null(strstr(answer.body.data, "queue_full"));
    http_answer_fini(&answer);
    atomic_store(&server.is_stuck, false);
    for (int i = 0; i < 8; i++) {
        answer = http_read(fds[i], false);
        assert_int_equal(answer.status, i < 5 ? 200 : answer.status);
        http_answer_fini(&answer);
        close(fds[i]);
    }
    answer = http_do(server.port, "GET", "/health", "", NULL);
    assert_int_equal(answer.status, 200);
    http_answer_fini(&answer);
}

/* Clients leave at drawn moments; every page comes back. */
static void test_clients_that_leave(void **state)
{
    (void)state;

    api_say(&server, "the little girl was happy and the dog was big and the sun was in the sky");
    atomic_store(&server.pause_us, 500);
    for (uint64_t i = 0; i < 40; i++) {
        int fd = http_connect(server.port);
        struct ash_str text = {0};

        assert_true(http_send_request(fd, "POST", "/v1/completions", "",
                                      i % 2 == 0
                                          ? "{\"prompt\":\"Once\",\"max_tokens\":500,\"ignore_eos\":true,"
                                            "\"stream\":true,\"n\":3}"
                                          : "{\"prompt\":\"Once\",\"max_tokens\":500,\"ignore_eos\":true,\"n\":2}"));
        if (i % 2 == 0) http_read_until(fd, "data: ", &text);
        pause_ms((int)ash_rng_below(3, 0, i, 5));
        close(fd);
        ash_str_fini(&text);
    }
    wait_for_running(0, 0);
    assert_int_equal(ash_runner_stats(server.runner).pages_held, 0);
    atomic_store(&server.pause_us, 0);
}

/* Keys that wait get equal shares: the second key's only request does not wait for all of the first's. */
static void test_keys_share(void **state)
{
    enum { MANY = 12 };
    static const char *const keys[] = {"one", "two"};
    static const char body[] = "{\"prompt\":\"Once\",\"max_tokens\":20,\"ignore_eos\":true}";
    static struct api_server own;
    struct http_answer answer;
    int fds[MANY];
    (void)state;

    api_server_init(&own);
    own.keys_opts = (struct ash_keys_opts){.keys = keys, .key_count = 2};
    own.core_opts.max_seqs = 1;
    api_server_open(&own, TEST_DATA);
    api_say(&own, "the little girl was happy and the dog was big");
    atomic_store(&own.is_stuck, true);
    for (size_t i = 0; i < MANY; i++) {
        fds[i] = http_connect(own.port);
        assert_true(http_send_request(fds[i], "POST", "/v1/completions", "Authorization: Bearer one\r\n", body));
    }
    await_exchanges(&own, MANY, MANY);
    atomic_store(&own.pause_us, 40000);
    atomic_store(&own.is_stuck, false);
    answer = http_do(own.port, "POST", "/v1/completions", "Authorization: Bearer two\r\n", body);
    assert_int_equal(answer.status, 200);
    assert_true(ash_runner_stats(own.runner).waiting >= MANY / 2);
    http_answer_fini(&answer);
    atomic_store(&own.pause_us, 0);
    for (size_t i = 0; i < MANY; i++) {
        answer = http_read(fds[i], false);
        assert_int_equal(answer.status, 200);
        http_answer_fini(&answer);
        close(fds[i]);
    }
    api_server_close(&own);
}

/* A client that never reads holds up no other client, and is dropped. */
static void test_client_that_does_not_read(void **state)
{
    int fd = http_connect(server.port), small = 1024;
    uint64_t begin_ns = ash_clock_ns();
    json_t *json;
    (void)state;

    api_say(&server, "the little girl was happy");
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
    assert_true(http_send_request(fd, "POST", "/v1/completions", "",
                                  "{\"prompt\":\"Once\",\"max_tokens\":1500,\"ignore_eos\":true,\"stream\":true,"
                                  "\"logprobs\":100,\"n\":4}"));
    for (int i = 0; i < 5; i++) {
        json = post("/v1/completions", "{\"prompt\":\"x\",\"temperature\":0}", 200);
        json_decref(json);
    }
    wait_for_running(0, 0);
    await_exchanges(&server, 0, 0);
    assert_true(ash_clock_ns() - begin_ns > 500000000ull);
    close(fd);
}

/* A server that ends: /ready says so at once; an answer that is cut is an error, not an empty reply. The last test: the
 * engine takes nothing more. */
static void test_ending(void **state)
{
    const char body[] = "{\"prompt\":\"x\",\"max_tokens\":2000,\"ignore_eos\":true,\"stream\":true}";
    struct http_answer answer;
    struct ash_str head = {0};
    int fd = http_connect(server.port);
    (void)state;

    api_say(&server, "word word word");
    atomic_store(&server.pause_us, 1000);
    answer = http_do(server.port, "GET", "/ready", "", "");
    assert_int_equal(answer.status, 200);
    http_answer_fini(&answer);
    assert_true(fd >= 0 && http_send_request(fd, "POST", "/v1/completions", "", body));
    assert_true(http_read_until(fd, "data: ", &head)); /* it is being written */
    ash_api_drain(server.api);
    answer = http_do(server.port, "GET", "/ready", "", "");
    assert_int_equal(answer.status, 503);
    http_answer_fini(&answer);
    ash_runner_cancel_all(server.runner);
    assert_true(http_read_until(fd, "shutting down", &head));
    ash_str_fini(&head);
    close(fd);
    atomic_store(&server.pause_us, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_broken_logits),
        cmocka_unit_test(test_queue_and_health),
        cmocka_unit_test(test_clients_that_leave),
        cmocka_unit_test(test_keys_share),
        cmocka_unit_test(test_client_that_does_not_read),
        cmocka_unit_test(test_ending),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
