/* The request forms over a model that says what it is told: streams join to the whole answer for every script, stop string
 * and form; what goes wrong in the engine is told and harms nobody else; health, queue, drain. */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/rng.h"
#include "harness/api_server.h"
#include "serve/api/api_priv.h"

static struct api_server server;

static void pause_ms(int ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
}

/* POST, check the status, and give the answer's JSON. */
static json_t *post(const char *path, const char *body, int status)
{
    struct http_answer answer = http_do(server.port, "POST", path, "", body);
    json_error_t where;
    json_t *json = json_loads(answer.body.data, 0, &where);

    if (answer.status != status) fail_msg("%s %s: %d %s", path, body, answer.status, answer.body.data);
    if (json == NULL) fail_msg("%s: not JSON: %s", path, answer.body.data);
    http_answer_fini(&answer);
    return json;
}

/* The value at a path like "choices.0.message.content", or NULL. */
static json_t *at(json_t *json, const char *path)
{
    char name[64];

    while (json != NULL && *path != '\0') {
        size_t bytes = strcspn(path, ".");

        snprintf(name, sizeof(name), "%.*s", (int)bytes, path);
        json = json_is_array(json) ? json_array_get(json, (size_t)atoi(name)) : json_object_get(json, name);
        path += bytes + (path[bytes] == '.');
    }
    return json;
}

static const char *text_at(json_t *json, const char *path)
{
    return json_string_value(at(json, path));
}

/* ---- streams ------------------------------------------------------------------------------------------------------- */

/* Parts of an answer, from a whole response or joined from a stream. */
struct joined {
    struct ash_str content, reasoning, calls; /* calls: name(arguments);… */
    char reason[32];
};

static void joined_fini(struct joined *joined)
{
    ash_str_fini(&joined->content);
    ash_str_fini(&joined->reasoning);
    ash_str_fini(&joined->calls);
}

static void add_text(struct ash_str *text, const json_t *value)
{
    if (json_is_string(value)) ash_str_add(text, json_string_value(value), json_string_length(value));
}

static void add_calls(struct joined *joined, const json_t *calls)
{
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const json_t *function = json_object_get(json_array_get(calls, i), "function");

        if (json_object_get(function, "name") != NULL) {
            ash_str_adds(&joined->calls, ";");
            add_text(&joined->calls, json_object_get(function, "name"));
            ash_str_adds(&joined->calls, "(");
        }
        add_text(&joined->calls, json_object_get(function, "arguments"));
    }
}

static void add_message(struct joined *joined, const json_t *message, const json_t *reason)
{
    add_text(&joined->content, json_object_get(message, "content"));
    add_text(&joined->reasoning, json_object_get(message, "reasoning_content"));
    add_calls(joined, json_object_get(message, "tool_calls"));
    if (json_is_string(reason)) snprintf(joined->reason, sizeof(joined->reason), "%s", json_string_value(reason));
}

static struct joined read_stream(const char *path, const char *body)
{
    struct http_answer answer = http_do(server.port, "POST", path, "", body);
    struct joined joined = {0};
    char *rest = NULL;

    assert_int_equal(answer.status, 200);
    for (char *line = strtok_r(answer.body.data, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest)) {
        json_error_t where;
        json_t *json;

        if (strncmp(line, "data: {", 7) != 0) continue;
        json = json_loads(line + 6, 0, &where);
        assert_non_null(json);
        if (at(json, "choices.0.text") != NULL) add_text(&joined.content, at(json, "choices.0.text"));
        add_message(&joined, at(json, "choices.0.delta"), at(json, "choices.0.finish_reason"));
        json_decref(json);
    }
    http_answer_fini(&answer);
    return joined;
}

static void same_text(const char *what, const struct ash_str *a, const struct ash_str *b)
{
    const char *x = a->data != NULL ? a->data : "", *y = b->data != NULL ? b->data : "";

    if (strcmp(x, y) != 0) fail_msg("%s: whole '%s', streamed '%s'", what, x, y);
}

static const char *const scripts[] = {
    "Hello there, a friend of the sea.",
    "<think>Let me see: 1 < 2, so</think>The answer is 2.",
    "<think>never ends",
    "Well. <tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"R\\u00f6m \\\"x\\\"\"}}\n</tool_call>",
    ("<tool_call>\n{\"name\": \"clock\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n{\"name\": \"weather\", "
     "\"arguments\": {\"city\": \"A\"}}\n</tool_call>"),
    "<tool_call>{\"name\": \"clo",
    "<tool_call>this is none</tool_call> and text",
    "a < b <tool and <think",
    "\xc3\xa9\xe6\x9d\xb1\xf0\x9f\x99\x82 tokens of bytes",
};

#define TOOLS                                                                                                          \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"weather\",\"parameters\":{\"type\":\"object\","        \
    "\"properties\":{\"city\":{\"type\":\"string\"}},\"required\":[\"city\"]}}},{\"type\":\"function\",\"function\":{" \
    "\"name\":\"clock\"}}]"

/* Every script, with and without tools and stop strings: what is streamed joins to what is whole. */
static void test_streams_join_to_the_whole(void **state)
{
    static const char *const extras[] = {"", "," TOOLS, ",\"stop\":[\"see\",\"none\",\"tool\"]", ",\"max_tokens\":7",
                                         "," TOOLS ",\"parallel_tool_calls\":false"};
    char body[1024];
    (void)state;

    for (size_t s = 0; s < ASH_COUNT(scripts); s++) {
        api_say(&server, scripts[s]);
        for (size_t e = 0; e < ASH_COUNT(extras); e++) {
            struct joined whole = {0}, streamed;
            json_t *json;

            snprintf(body, sizeof(body), "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"temperature\":0%s}",
                     extras[e]);
            json = post("/v1/chat/completions", body, 200);
            add_message(&whole, at(json, "choices.0.message"), at(json, "choices.0.finish_reason"));
            json_decref(json);
            body[strlen(body) - 1] = '\0';
            strcat(body, ",\"stream\":true}");
            streamed = read_stream("/v1/chat/completions", body);
            same_text("content", &whole.content, &streamed.content);
            same_text("reasoning", &whole.reasoning, &streamed.reasoning);
            same_text("calls", &whole.calls, &streamed.calls);
            assert_string_equal(whole.reason, streamed.reason);
            joined_fini(&whole);
            joined_fini(&streamed);
        }
    }
}

/* What the model says is what the parts say: nothing is lost between them. */
static void test_parts(void **state)
{
    json_t *json;
    (void)state;

    api_say(&server, scripts[1]);
    json =
        post("/v1/chat/completions", "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"temperature\":0}", 200);
    assert_string_equal(text_at(json, "choices.0.message.reasoning_content"), "Let me see: 1 < 2, so");
    assert_string_equal(text_at(json, "choices.0.message.content"), "The answer is 2.");
    json_decref(json);
    api_say(&server, scripts[4]);
    json = post("/v1/chat/completions",
                "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"temperature\":0," TOOLS "}", 200);
    assert_string_equal(text_at(json, "choices.0.message.tool_calls.0.function.name"), "clock");
    assert_string_equal(text_at(json, "choices.0.message.tool_calls.1.function.arguments"), "{\"city\": \"A\"}");
    assert_string_equal(text_at(json, "choices.0.finish_reason"), "tool_calls");
    json_decref(json);
    json =
        post("/v1/messages",
             "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"max_tokens\":200,\"temperature\":0,\"tools\":["
             "{\"name\":\"clock\",\"input_schema\":{\"type\":\"object\"}},{\"name\":\"weather\",\"input_schema\":{"
             "\"type\":\"object\"}}]}",
             200);
    assert_string_equal(text_at(json, "content.0.type"), "tool_use");
    assert_string_equal(text_at(json, "content.1.input.city"), "A");
    assert_string_equal(text_at(json, "stop_reason"), "tool_use");
    json_decref(json);
}

static json_int_t int_at(json_t *json, const char *path)
{
    return json_integer_value(at(json, path));
}

/* The fewest tokens of an answer that hold its first `bytes` bytes; it follows a prompt after a space. */
static size_t tokens_until(const char *text, size_t bytes)
{
    struct ash_ids ids = {0};
    struct ash_err err = {0};
    struct ash_str begun = {0};
    size_t count = 0;

    assert_int_equal(ash_tokenizer_encode(server.tokenizer, text, strlen(text), false, &ids, &err), 0);
    while (bytes > 0 && begun.size_bytes < bytes + 1)
        assert_int_equal(ash_tokenizer_add_bytes(server.tokenizer, ids.data[count++], &begun), 0);
    ash_str_fini(&begun);
    ash_ids_fini(&ids);
    return count;
}

/* Tokens of thoughts are counted to the end of their closing tag, whole and streamed, in both of OpenAI's forms. */
static void test_reasoning_tokens(void **state)
{
    static const char body[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"temperature\":0%s}";
    char text[256];
    struct http_answer answer;
    json_t *json;
    (void)state;

    for (size_t i = 0; i < 3; i++) { /* none, closed, never closed */
        size_t bytes = i == 0 ? 0 : i == 1 ? strlen("<think>Let me see: 1 < 2, so</think>") : strlen(scripts[2]);
        size_t thoughts = tokens_until(scripts[i], bytes);
        char count[64];

        api_say(&server, scripts[i]);
        snprintf(text, sizeof(text), body, "");
        json = post("/v1/chat/completions", text, 200);
        assert_int_equal(int_at(json, "usage.completion_tokens_details.reasoning_tokens"), thoughts);
        assert_true(int_at(json, "usage.completion_tokens") >= (json_int_t)thoughts);
        json_decref(json);
        json = post("/v1/responses", "{\"input\":\"Hi\",\"temperature\":0}", 200);
        assert_int_equal(int_at(json, "usage.output_tokens_details.reasoning_tokens"), thoughts);
        json_decref(json);
        snprintf(text, sizeof(text), body, ",\"stream\":true,\"stream_options\":{\"include_usage\":true}");
        answer = http_do(server.port, "POST", "/v1/chat/completions", "", text);
        snprintf(count, sizeof(count), "\"reasoning_tokens\":%zu}", thoughts);
        assert_non_null(strstr(answer.body.data, count));
        http_answer_fini(&answer);
    }
}

/* A budget for thoughts is refused where the model has no token that ends them. Here "." does, from then on: it comes
 * after think_max tokens, and not before think_min. */
static void test_budget_of_thoughts(void **state)
{
    static const char chat[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"temperature\":0,"
                               "\"max_tokens\":40%s}";
    struct ash_think_words *words = &server.api->think_words;
    struct ash_err err = {0};
    char text[256];
    json_t *json;
    (void)state;

    api_say(&server, "Hello. there is a friend of the sea");
    snprintf(text, sizeof(text), chat, ",\"think_max\":3");
    json_decref(post("/v1/chat/completions", text, 400));
    assert_int_equal(ash_think_words_init(words, ".", NULL, server.tokenizer, &err), 0);
    snprintf(text, sizeof(text), chat, ",\"think_min\":9");
    json = post("/v1/chat/completions", text, 200);
    assert_non_null(strstr(text_at(json, "choices.0.message.content"), "Wait"));
    json_decref(json);
    api_say(&server, "Hello there is a friend of the sea");
    snprintf(text, sizeof(text), chat, ",\"think_max\":1,\"n\":2");
    json = post("/v1/chat/completions", text, 200);
    for (size_t i = 0; i < 2; i++) {
        const char *content = text_at(json_array_get(json_object_get(json, "choices"), i), "message.content");

        assert_non_null(strchr(content, '.'));
        assert_true(strchr(content, '.') - content < (ptrdiff_t)strlen(" Hello there"));
    }
    json_decref(json);
    json = post("/v1/messages",
                "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"max_tokens\":40,\"temperature\":0,"
                "\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":1}}",
                200);
    assert_non_null(strchr(text_at(json, "content.0.text"), '.'));
    json_decref(json);
    snprintf(text, sizeof(text), chat, ",\"think_min\":9,\"think_max\":3");
    json_decref(post("/v1/chat/completions", text, 400));
    snprintf(text, sizeof(text), chat, ",\"think_min\":9,\"guided_choice\":[\"yes\",\"no\"]");
    json_decref(post("/v1/chat/completions", text, 400));
    ash_think_words_fini(words);
}

/* llama.cpp's own settings: what is asked for is done, or refused by name. */
static void test_llama_settings(void **state)
{
    static const struct {
        const char *fields, *word; /* NULL: it works */
    } cases[] = {
        {"\"samplers\":[\"penalties\",\"dry\",\"top_n_sigma\",\"top_k\",\"typ_p\",\"top_p\",\"min_p\",\"xtc\","
         "\"temperature\"]",
         NULL},
        {"\"samplers\":[\"temperature\",\"top_k\",\"top_p\"]", NULL},
        {"\"samplers\":[]", NULL},
        {"\"samplers\":[\"top_p\",\"top_k\"]", "order"},
        {"\"samplers\":[\"top_k\",\"temperature\",\"top_p\"]", "between"},
        {"\"samplers\":[\"magic\"]", "magic"},
        {"\"samplers\":[7]", "no name"},
        {"\"id_slot\":3", NULL},
        {"\"id_slot\":16", "id_slot"},
        {"\"mirostat\":0,\"xtc_probability\":0,\"dry_multiplier\":0.0,\"n_keep\":4", NULL},
        {"\"mirostat\":2", "mirostat"},
        {"\"xtc_probability\":0.5", "xtc_probability"},
        {"\"post_sampling_probs\":true", "post_sampling_probs"},
        {"\"t_max_predict_ms\":100", "t_max_predict_ms"},
        {"\"response_fields\":[1]", "response_fields"},
    };
    char body[512];
    json_t *json;
    (void)state;

    api_say(&server, scripts[0]);
    for (size_t i = 0; i < ASH_COUNT(cases); i++) {
        snprintf(body, sizeof(body), "{\"prompt\":\"Once\",\"n_predict\":4,%s}", cases[i].fields);
        json = post("/completion", body, cases[i].word != NULL ? 400 : 200);
        if (cases[i].word != NULL) assert_non_null(strstr(text_at(json, "error.message"), cases[i].word));
        if (strcmp(cases[i].fields, "\"id_slot\":3") == 0) assert_int_equal(int_at(json, "id_slot"), 3);
        json_decref(json);
    }
    json = post("/completion",
                "{\"prompt\":\"Once\",\"n_predict\":4,\"response_fields\":[\"content\",\"none\",\"content/x\","
                "\"generation_settings/n_predict\"]}",
                200);
    assert_int_equal(json_object_size(json), 2);
    assert_non_null(text_at(json, "content"));
    assert_int_equal(json_integer_value(json_object_get(json, "generation_settings/n_predict")), 4);
    json_decref(json);
}

/* The prefix of a prompt is found again, until the cache is reset; that takes the admin key. */
static void test_reset_prefix(void **state)
{
    char body[1024] = "{\"max_tokens\":1,\"prompt\":[1";
    json_t *json;
    (void)state;

    for (size_t i = 0; i < 150; i++)
        strcat(body, ",300");
    strcat(body, "]}");
    for (int i = 0; i < 3; i++) {
        size_t pages = 0;

        json = post("/v1/completions", body, 200);
        assert_int_equal(int_at(json, "usage.prompt_tokens_details.cached_tokens") > 1,
                         i == 1); /* others begin with <s> too */
        json_decref(json);
        if (i != 1) continue;
        assert_int_equal(ash_runner_reset_prefix(server.runner, 10, &pages), 0);
        assert_true(pages >= 2);
        assert_int_equal(ash_runner_stats(server.runner).pages_cached, 0);
    }
    json_decref(post("/reset_prefix_cache", "", 401));
}

/* Texts at drawn places of a drawn script as stop strings: the answer ends before the first, whole and streamed. */
static void test_stops_anywhere(void **state)
{
    static const char text[] = "the little girl was happy and the dog was big and the sun was in the sky";
    char body[256];
    json_t *all;
    (void)state;

    api_say(&server, text);
    all = post("/v1/completions", "{\"prompt\":\"Once\",\"max_tokens\":200,\"temperature\":0}", 200);
    for (uint64_t i = 0; i < 60; i++) {
        size_t begin = ash_rng_below(7, 0, i, sizeof(text) - 6), bytes = 1 + ash_rng_below(7, 1, i, 5);
        struct joined streamed;
        const char *expected;
        json_t *json;
        char stop[8];

        snprintf(stop, sizeof(stop), "%.*s", (int)bytes, text + begin);
        snprintf(body, sizeof(body), "{\"prompt\":\"Once\",\"max_tokens\":200,\"temperature\":0,\"stop\":\"%s\"}",
                 stop);
        json = post("/v1/completions", body, 200);
        expected = text_at(json, "choices.0.text");
        assert_null(strstr(expected, stop));
        assert_int_equal(strlen(expected),
                         strstr(text_at(all, "choices.0.text"), stop) - text_at(all, "choices.0.text"));
        snprintf(body, sizeof(body),
                 "{\"prompt\":\"Once\",\"max_tokens\":200,\"temperature\":0,\"stop\":\"%s\",\"stream\":true}", stop);
        streamed = read_stream("/v1/completions", body);
        assert_string_equal(streamed.content.data != NULL ? streamed.content.data : "", expected);
        joined_fini(&streamed);
        json_decref(json);
    }
    json_decref(all);
}

/* ---- what goes wrong ----------------------------------------------------------------------------------------------- */

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

static void wait_for_running(size_t running, size_t waiting)
{
    for (int i = 0; i < 4000; i++) {
        struct ash_core_stats stats = ash_runner_stats(server.runner);

        if (stats.running + stats.waiting == running + waiting) return;
        pause_ms(5);
    }
    fail_msg("%zu running and %zu waiting are never reached", running, waiting);
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
        for (int t = 0; t < 400 && ash_http_get_stats(server.http).exchanges < (size_t)i + 1; t++)
            pause_ms(5);
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
    for (int i = 0; i < 2000 && ash_runner_stats(own.runner).waiting < MANY - 1; i++)
        pause_ms(5);
    atomic_store(&own.pause_us, 2000);
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

/* A client that never reads holds up nobody, and is dropped. */
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
    for (int i = 0; i < 2000 && ash_http_get_stats(server.http).exchanges > 0; i++)
        pause_ms(5);
    assert_int_equal(ash_http_get_stats(server.http).exchanges, 0);
    assert_true(ash_clock_ns() - begin_ns > 500000000ull);
    close(fd);
}

static void test_strict_and_unknown(void **state)
{
    struct http_answer answer =
        http_do(server.port, "POST", "/v1/completions", "", "{\"prompt\":\"x\",\"max_tokens\":1,\"foo\":1,\"bar\":{}}");
    char value[64];
    (void)state;

    assert_int_equal(answer.status, 200);
    assert_string_equal(http_header(&answer, "x-ignored-fields: ", value, sizeof(value)), "foo, bar");
    http_answer_fini(&answer);
}

/* What never fits into the queue is refused for good; numbers beyond 64 bits and half characters are JSON. */
static void test_bodies_that_never_fit(void **state)
{
    static const struct {
        const char *body;
        unsigned status;
    } cases[] = {
        {"{\"prompt\":\"x\",\"max_tokens\":1,\"n\":7}", 400},
        {"{\"prompt\":[\"a\",\"b\",\"c\",\"d\"],\"max_tokens\":1,\"n\":2}", 400},
        {"{\"prompt\":\"cut \\ud83d\",\"max_tokens\":1}", 200},
        {"{\"prompt\":\"x\",\"max_tokens\":1,\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\","
         "\"strict\":true,\"schema\":{\"type\":\"integer\",\"maximum\":18446744073709551615}}}}",
         200},
        {"{\"prompt\":\"x\",\"max_tokens\":1,\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\","
         "\"strict\":true,\"schema\":{\"type\":\"array\",\"uniqueItems\":true}}}}",
         400},
        {"{\"prompt\":\"x\",\"max_tokens\":1,\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\","
         "\"schema\":{\"type\":\"array\",\"uniqueItems\":true}}}}",
         200},
        {"{\"prompt\":\"x\",\"max_tokens\":1,\"temperature\":NaN}", 400},
        {"{\"prompt\":\"x\",\"max_tokens\":18446744073709551615}", 400},
    };
    (void)state;

    for (size_t i = 0; i < ASH_COUNT(cases); i++)
        json_decref(post("/v1/completions", cases[i].body, cases[i].status));
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

/* The second turn of a conversation with tools: a content of null is null to the template, which writes calls only then;
 * what it would write as "None" is empty. */
static void test_null_contents(void **state)
{
    static const struct {
        const char *path, *body, *prompt;
    } cases[] = {
        {"/apply-template",
         "{\"messages\":[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"c\",\"type\":\"function\","
         "\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]},{\"role\":\"tool\",\"content\":\"None\"}]}",
         "[assistant] calls f[tool] None"},
        {"/apply-template", "{\"messages\":[{\"role\":\"assistant\",\"content\":null},{\"role\":\"user\"}]}",
         "[assistant] [user] "},
        {"/apply-template",
         "{\"messages\":[{\"role\":\"assistant\",\"content\":null}],\"continue_final_message\":true}", NULL},
    };
    (void)state;

    for (size_t i = 0; i < ASH_COUNT(cases); i++) {
        json_t *json = post(cases[i].path, cases[i].body, cases[i].prompt != NULL ? 200 : 400);

        if (cases[i].prompt != NULL) assert_string_equal(text_at(json, "prompt"), cases[i].prompt);
        json_decref(json);
    }
}

static int setup(void **state)
{
    (void)state;
    ash_log_set_level(ASH_LOG_WARN);
    api_server_init(&server);
    server.template = "{# <tool_call> <think> #}{% for m in messages %}[{{ m.role }}] {% if m.content is none and "
                      "m.tool_calls %}calls {{ m.tool_calls[0].function.name }}{% else %}{{ m.content }}{% endif %}"
                      "{% endfor %}";
    server.api_opts.queue_max = 6;
    server.api_opts.stall_seconds = 0.3;
    server.http_opts.stall_seconds = 1;
    api_server_open(&server, TEST_DATA);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    api_server_close(&server);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_streams_join_to_the_whole),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_reasoning_tokens),
        cmocka_unit_test(test_budget_of_thoughts),
        cmocka_unit_test(test_llama_settings),
        cmocka_unit_test(test_reset_prefix),
        cmocka_unit_test(test_stops_anywhere),
        cmocka_unit_test(test_broken_logits),
        cmocka_unit_test(test_queue_and_health),
        cmocka_unit_test(test_clients_that_leave),
        cmocka_unit_test(test_keys_share),
        cmocka_unit_test(test_client_that_does_not_read),
        cmocka_unit_test(test_strict_and_unknown),
        cmocka_unit_test(test_bodies_that_never_fit),
        cmocka_unit_test(test_null_contents),
        cmocka_unit_test(test_ending),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
