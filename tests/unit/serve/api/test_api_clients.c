/* What clients of OpenAI and Anthropic expect beyond plain answers: models by name, choices among tools, forms, begun
 * answers, usage that agrees, thoughts with signatures, and refusals by name. */
#include "unit/serve/api/api_client.h"

#define HELLO "\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]"
#define TOOLS                                                                                                          \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"clock\"}},{\"type\":\"function\",\"function\":{"       \
    "\"name\":\"weather\",\"parameters\":{\"type\":\"object\",\"properties\":{\"city\":{\"enum\":[\"Bern\"]}},"        \
    "\"required\":[\"city\"]}}}]"

static json_t *get(const char *path, int status)
{
    struct http_answer answer = http_do(server.port, "GET", path, "", NULL);
    json_t *json = json_loads(answer.body.data, 0, NULL);

    if (answer.status != status || json == NULL) fail_msg("%s: %d %s", path, answer.status, answer.body.data);
    http_answer_fini(&answer);
    return json;
}

static void test_models_by_name(void **state)
{
    json_t *json = get("/v1/models/tiny", 200);
    (void)state;

    assert_string_equal(text_at(json, "id"), "tiny");
    assert_string_equal(text_at(json, "object"), "model");
    json_decref(json);
    json = get("/v1/models/org/other", 404);
    assert_string_equal(text_at(json, "error.code"), "model_not_found");
    assert_non_null(strstr(text_at(json, "error.message"), "`org/other` does not exist: this server has `tiny`"));
    json_decref(json);
}

/* The name of the first call, whose arguments must be an object. */
static void check_call(const char *choice, const char *name, const char *arguments)
{
    char body[1024];
    json_t *json;

    snprintf(body, sizeof(body), "{" HELLO "," TOOLS ",\"max_tokens\":60,\"temperature\":0,\"tool_choice\":%s}",
             choice);
    json = post("/v1/chat/completions", body, 200);
    if (text_at(json, "choices.0.message.tool_calls.0.id") == NULL)
        fail_msg("%s: %s", choice, text_at(json, "choices.0.message.content"));
    assert_string_equal(text_at(json, "choices.0.message.tool_calls.0.function.name"), name);
    assert_string_equal(text_at(json, "choices.0.message.tool_calls.0.function.arguments"), arguments);
    json_decref(json);
}

static void test_choices_among_tools(void **state)
{
    json_t *json;
    (void)state;

    api_say(&server, "<tool_call>\n{\"name\": \"clock\", \"arguments\": {\"zone\": 1}}\n</tool_call>");
    check_call("{\"type\":\"function\",\"function\":{\"name\":\"clock\"}}", "clock", "{}");
    check_call("{\"type\":\"allowed_tools\",\"allowed_tools\":{\"mode\":\"required\",\"tools\":[{\"type\":\"function\","
               "\"function\":{\"name\":\"weather\"}}]}}",
               "weather", "{\"city\": \"Bern\"}");
    check_call(
        "{\"type\":\"allowed_tools\",\"mode\":\"required\",\"tools\":[{\"type\":\"function\",\"name\":\"clock\"}]}",
        "clock", "{}");
    json = post("/v1/chat/completions",
                "{" HELLO "," TOOLS ",\"tool_choice\":{\"type\":\"allowed_tools\",\"allowed_tools\":{\"mode\":\"auto\","
                "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"none\"}}]}}}",
                400);
    assert_non_null(strstr(text_at(json, "error.message"), "none, which is not among the tools"));
    json_decref(json);
    api_say(&server, "<tool_call>\n{\"name\": \"clock\"}\n</tool_call>"); /* the model forgets the arguments */
    json = post("/v1/chat/completions",
                "{" HELLO ",\"temperature\":0,\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"clock\","
                "\"parameters\":{\"not\":{}}}}]}",
                200);
    assert_string_equal(text_at(json, "choices.0.message.tool_calls.0.function.arguments"), "{}");
    json_decref(json);
}

static void check_refused(const char *path, const char *field, const char *param)
{
    char body[512];
    json_t *json;

    snprintf(body, sizeof(body), "{" HELLO ",\"max_tokens\":4,%s}", field);
    json = post(path, body, 400);
    if (strstr(text_at(json, "error.message"), param) == NULL)
        fail_msg("%s: %s", field, text_at(json, "error.message"));
    json_decref(json);
}

static void test_what_is_not_served_is_refused_by_name(void **state)
{
    (void)state;
    check_refused("/v1/chat/completions", "\"modalities\":[\"text\",\"audio\"]", "modalities");
    check_refused("/v1/chat/completions", "\"web_search_options\":{}", "web_search_options");
    check_refused("/v1/messages", "\"mcp_servers\":[{\"type\":\"url\",\"url\":\"http://x\",\"name\":\"x\"}]",
                  "mcp_servers");
    json_decref(post("/v1/chat/completions", "{" HELLO ",\"max_tokens\":2,\"modalities\":[\"text\"]}", 200));
    json_decref(post("/v1/messages", "{" HELLO ",\"max_tokens\":2,\"mcp_servers\":[]}", 200));
}

/* ---- Anthropic's form -------------------------------------------------------------------------------------------- */

static void test_messages_in_a_form(void **state)
{
    json_t *json =
        post("/v1/messages",
             "{" HELLO ",\"max_tokens\":40,\"output_config\":{\"format\":{\"type\":\"json_schema\",\"schema\":{"
             "\"type\":\"object\",\"properties\":{\"n\":{\"const\":5}},\"required\":[\"n\"]}}}}",
             200);
    (void)state;

    assert_string_equal(text_at(json, "content.0.text"), "{\"n\": 5}");
    json_decref(json);
    json = post("/v1/messages", "{" HELLO ",\"max_tokens\":4,\"output_config\":{\"format\":{\"type\":\"xml\"}}}", 400);
    assert_non_null(strstr(text_at(json, "error.message"), "output_config.format"));
    json_decref(json);
}

static void test_messages_continue_a_begun_answer(void **state)
{
    json_t *json;
    (void)state;

    api_say(&server, "one two three");
    json =
        post("/v1/messages",
             "{\"messages\":[{\"role\":\"user\",\"content\":\"Count\"},{\"role\":\"assistant\",\"content\":[{\"type\":"
             "\"text\",\"text\":\"one two\"}]}],\"max_tokens\":40,\"temperature\":0}",
             200);
    assert_string_equal(text_at(json, "content.0.text"), " three");
    json_decref(json);
}

/* A field of the first event of a type, or NULL. */
static json_t *event_of(const char *stream, const char *type, const char *path)
{
    char mark[64];
    const char *from;
    json_t *json, *value;

    snprintf(mark, sizeof(mark), "event: %s\ndata: ", type);
    from = strstr(stream, mark);
    if (from == NULL) fail_msg("no %s in %s", type, stream);
    from += strlen(mark);
    json = json_loadb(from, strcspn(from, "\n"), 0, NULL);
    value = json_incref(at(json, path));
    json_decref(json);
    return value;
}

/* message_start says what message_delta says of the prompt, with and without a cached prefix. */
static void test_usage_agrees(void **state)
{
    static const char *const keys[] = {"input_tokens", "cache_read_input_tokens"};
    char body[2048] = "{\"stream\":true,\"max_tokens\":3,\"messages\":[{\"role\":\"user\",\"content\":\"";
    json_int_t cached = 0;
    (void)state;

    for (int i = 0; i < 60; i++)
        strcat(body, "again and ");
    strcat(body, "\"}]}");
    for (int round = 0; round < 2; round++) {
        struct http_answer answer = http_do(server.port, "POST", "/v1/messages", "", body);
        char value[80];

        assert_int_equal(answer.status, 200);
        assert_true(strlen(http_header(&answer, "request-id: ", value, sizeof(value))) > 8);
        for (size_t i = 0; i < ASH_COUNT(keys); i++) {
            char path[64];
            json_t *before, *after;

            snprintf(path, sizeof(path), "message.usage.%s", keys[i]);
            before = event_of(answer.body.data, "message_start", path);
            after = event_of(answer.body.data, "message_delta", path + strlen("message."));
            assert_int_equal(json_integer_value(before), json_integer_value(after));
            cached = json_integer_value(after);
            json_decref(before);
            json_decref(after);
        }
        http_answer_fini(&answer);
    }
    assert_true(cached > 0);
}

/* Thoughts that reach the limit are one block, whole and streamed, with a signature. */
static void test_thoughts_at_the_limit(void **state)
{
    json_t *json, *value;
    struct http_answer answer;
    (void)state;

    api_say(&server, "<think>on and on and on and on and on and on");
    json = post("/v1/messages", "{" HELLO ",\"max_tokens\":12,\"temperature\":0}", 200);
    assert_int_equal(json_array_size(at(json, "content")), 1);
    assert_string_equal(text_at(json, "content.0.type"), "thinking");
    assert_string_equal(text_at(json, "content.0.signature"), text_at(json, "id"));
    assert_string_equal(text_at(json, "stop_reason"), "max_tokens");
    json_decref(json);
    answer = http_do(server.port, "POST", "/v1/messages", "",
                     "{" HELLO ",\"max_tokens\":12,\"temperature\":0,\"stream\":true}");
    assert_null(strstr(answer.body.data, "\"type\":\"text\""));
    assert_non_null(strstr(answer.body.data, "\"type\":\"signature_delta\",\"signature\":\"msg_"));
    value = event_of(answer.body.data, "message_delta", "delta.stop_reason");
    assert_string_equal(json_string_value(value), "max_tokens");
    json_decref(value);
    http_answer_fini(&answer);
}

/* ---- llama.cpp's form -------------------------------------------------------------------------------------------- */

/* A limit beyond the context is taken as its end; a prompt beyond it says both sizes. */
static void test_limits_beyond_the_context(void **state)
{
    struct ash_str body = {0};
    json_t *json;
    (void)state;

    api_say(&server, "there was");
    json = post("/completion", "{\"prompt\":\"Once\",\"n_predict\":100000,\"temperature\":0}", 200);
    assert_string_equal(text_at(json, "stop_type"), "eos");
    assert_true(json_is_false(at(json, "truncated")));
    assert_non_null(strstr(text_at(json, "prompt"), "Once"));
    assert_int_equal(json_array_size(at(json, "generation_settings.stop")), 0);
    json_decref(json);
    json_decref(post("/v1/completions", "{\"prompt\":\"Once\",\"max_tokens\":100000}", 400));
    ash_str_adds(&body, "{\"prompt\":\"");
    for (int i = 0; i < 3000; i++)
        ash_str_adds(&body, "again and ");
    ash_str_adds(&body, "\"}");
    json = post("/completion", body.data, 400);
    assert_true(int_at(json, "error.n_prompt_tokens") > int_at(json, "error.n_ctx"));
    assert_true(int_at(json, "error.n_ctx") > 0);
    json_decref(json);
    ash_str_fini(&body);
}

/* A text biases all its tokens. */
static void test_bias_by_text(void **state)
{
    static const char *const bodies[] = {
        "{\"prompt\":\"Once\",\"n_predict\":8,\"temperature\":0,\"logit_bias\":[[\"dog\",false]]}",
        "{\"prompt\":\"Once\",\"n_predict\":8,\"temperature\":0,\"logit_bias\":{\"dog\":-1000}}"};
    json_t *json;
    (void)state;

    api_say(&server, "dog dog dog dog");
    for (size_t i = 0; i < ASH_COUNT(bodies); i++) {
        json = post("/completion", bodies[i], 200);
        assert_null(strstr(text_at(json, "content"), "dog"));
        json_decref(json);
    }
    json_decref(post("/completion", "{\"prompt\":\"Once\",\"logit_bias\":[[600,1]]}", 400));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_models_by_name),
        cmocka_unit_test(test_choices_among_tools),
        cmocka_unit_test(test_what_is_not_served_is_refused_by_name),
        cmocka_unit_test(test_messages_in_a_form),
        cmocka_unit_test(test_messages_continue_a_begun_answer),
        cmocka_unit_test(test_usage_agrees),
        cmocka_unit_test(test_thoughts_at_the_limit),
        cmocka_unit_test(test_limits_beyond_the_context),
        cmocka_unit_test(test_bias_by_text),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
