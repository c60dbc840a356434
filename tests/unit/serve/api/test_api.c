/* Answers of the request forms over a model that says a given text: streams join to the whole answer for every script,
 * stop string and form; thoughts are counted and limited. */
#include "unit/serve/api/api_client.h"

#include "base/rng.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_streams_join_to_the_whole),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_reasoning_tokens),
        cmocka_unit_test(test_budget_of_thoughts),
        cmocka_unit_test(test_stops_anywhere),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
