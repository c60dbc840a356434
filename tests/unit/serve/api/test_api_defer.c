/* Grammars that take long to compile: other requests go through meanwhile, on a server with one worker. */
#include "unit/serve/api/api_client.h"

#include <semaphore.h>

static sem_t has_begun, may_end;

/* Takes the one thread for what takes long until it is told to let go. */
static void take_slow_worker(void *ctx, struct ash_http_exchange *exchange)
{
    struct ash_str body = {0};

    (void)ctx;
    if (ash_http_may_defer(exchange)) {
        ash_http_defer(exchange);
        return;
    }
    sem_post(&has_begun);
    sem_wait(&may_end);
    ash_http_respond(exchange, 200, "text/plain", &body);
}

/* A schema with a long description: large, but compiled in no time. */
static void write_large(struct ash_str *out, const char *word)
{
    ash_str_addf(out,
                 "{\"prompt\":\"Once\",\"temperature\":0,\"max_tokens\":40,\"guided_json\":{\"enum\":[\"%s\"],"
                 "\"description\":\"",
                 word);
    for (int i = 0; i < 2000; i++)
        ash_str_adds(out, "many words ");
    ash_str_adds(out, "\"}}");
}

static int send_body(const char *path, const char *body)
{
    int fd = http_connect(server.port);

    assert_true(http_send_request(fd, "POST", path, "", body));
    return fd;
}

static void wait_deferred(uint64_t count)
{
    for (int i = 0; i < 20000 && ash_http_get_stats(server.http).deferred < count; i++)
        pause_ms(1);
    assert_int_equal(ash_http_get_stats(server.http).deferred, count);
}

static void check_answer(int fd, const char *word)
{
    struct http_answer answer = http_read(fd, false);
    json_error_t where;
    json_t *json = json_loads(answer.body.data, 0, &where), *value;

    if (answer.status != 200) fail_msg("%d %s", answer.status, answer.body.data);
    value = json_loads(text_at(json, "choices.0.text"), JSON_DECODE_ANY, &where);
    assert_non_null(value);
    assert_memory_equal(json_string_value(value), word, strlen(word));
    json_decref(value);
    json_decref(json);
    http_answer_fini(&answer);
    close(fd);
}

static void test_small_requests_overtake_large_grammars(void **state)
{
    static const char *const words[] = {"first", "second", "first"};
    struct http_answer answer;
    int blocker = send_body("/block", "{}"), fds[ASH_COUNT(words)];
    json_t *json;
    (void)state;

    sem_wait(&has_begun);
    api_say(&server, "a cat");
    for (size_t i = 0; i < ASH_COUNT(words); i++) {
        struct ash_str body = {0};

        write_large(&body, words[i]);
        fds[i] = send_body("/v1/completions", body.data);
        ash_str_fini(&body);
    }
    wait_deferred(1 + ASH_COUNT(words));
    json = post("/v1/completions", "{\"prompt\":\"Once\",\"max_tokens\":4}", 200);
    json_decref(json);
    json = post("/v1/chat/completions",
                "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"regex\":\"(yes|no)\"}", 200);
    assert_true(strcmp(text_at(json, "choices.0.message.content"), "yes") == 0 ||
                strcmp(text_at(json, "choices.0.message.content"), "no") == 0);
    json_decref(json);
    sem_post(&may_end);
    answer = http_read(blocker, false);
    assert_int_equal(answer.status, 200);
    http_answer_fini(&answer);
    close(blocker);
    for (size_t i = 0; i < ASH_COUNT(words); i++)
        check_answer(fds[i], words[i]);
}

/* Also a deferred request is refused with a sentence, and names the ignored fields once. */
static void test_deferred_requests_are_refused_as_others(void **state)
{
    struct ash_str body = {0};
    struct http_answer answer;
    char value[64];
    (void)state;

    write_large(&body, "third");
    body.data[body.size_bytes - 1] = ',';
    ash_str_adds(&body, "\"odd\":1}");
    answer = http_do(server.port, "POST", "/v1/completions", "", body.data);
    assert_int_equal(answer.status, 200);
    assert_string_equal(http_header(&answer, "x-ignored-fields: ", value, sizeof(value)), "odd");
    http_answer_fini(&answer);
    ash_str_clear(&body);
    ash_str_adds(&body, "{\"prompt\":\"Once\",\"regex\":\"((([a-z]{0,100}){0,100}){0,100}){0,100}\"}");
    answer = http_do(server.port, "POST", "/v1/completions", "", body.data);
    assert_int_equal(answer.status, 400);
    assert_non_null(strstr(answer.body.data, "invalid_grammar"));
    http_answer_fini(&answer);
    ash_str_fini(&body);
}

static int setup_one_worker(void **state)
{
    static struct ash_http_route routes[64];
    size_t count = 0;
    const struct ash_http_route *all = ash_api_routes(&count);
    (void)state;

    ash_assert(count < ASH_COUNT(routes));
    memcpy(routes, all, count * sizeof(*all));
    routes[count++] = (struct ash_http_route){.method = "POST", .path = "/block", .handle = take_slow_worker};
    sem_init(&has_begun, 0, 0);
    sem_init(&may_end, 0, 0);
    ash_log_set_level(ASH_LOG_WARN);
    api_server_init(&server);
    server.http_opts.workers = server.http_opts.slow_workers = 1;
    server.http_opts.routes = routes;
    server.http_opts.route_count = count;
    api_server_open(&server, TEST_DATA);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small_requests_overtake_large_grammars),
        cmocka_unit_test(test_deferred_requests_are_refused_as_others),
    };

    return cmocka_run_group_tests(tests, setup_one_worker, teardown);
}
