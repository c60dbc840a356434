/* Ollama's API: lines that join to the whole answer, calls of tools, thoughts, forms, raw prompts, models, and errors in
 * its shape. */
#include "unit/serve/api/api_client.h"

#define GREEDY "\"options\":{\"temperature\":0,\"num_predict\":60,\"num_ctx\":4096}"
#define HELLO "\"model\":\"tiny:latest\",\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]," GREEDY
#define TOOLS                                                                                                          \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"weather\",\"parameters\":{\"type\":\"object\","        \
    "\"properties\":{\"city\":{\"type\":\"string\"}}}}}]"

/* The lines of a stream, as a list. */
static json_t *stream(const char *path, const char *body)
{
    struct http_answer answer = http_do(server.port, "POST", path, "", body);
    json_t *lines = json_array();
    char *rest = NULL, type[64];

    if (answer.status != 200) fail_msg("%s: %d %s", body, answer.status, answer.body.data);
    assert_string_equal(http_header(&answer, "content-type: ", type, sizeof(type)), "application/x-ndjson");
    for (char *line = strtok_r(answer.body.data, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest)) {
        json_t *json = json_loads(line, 0, NULL);

        if (json == NULL) fail_msg("not JSON: %s", line);
        json_array_append_new(lines, json);
    }
    http_answer_fini(&answer);
    return lines;
}

/* The texts at path of all lines. */
static void join(json_t *lines, const char *path, struct ash_str *out)
{
    ash_str_adds(out, "");
    for (size_t i = 0; i < json_array_size(lines); i++) {
        const char *text = text_at(json_array_get(lines, i), path);

        if (text != NULL) ash_str_adds(out, text);
    }
}

static void check_same(const char *script, const char *more)
{
    static const char *const paths[] = {"message.content", "message.thinking"};
    char body[1024];
    json_t *whole, *lines, *last;

    api_say(&server, script);
    snprintf(body, sizeof(body), "{" HELLO ",\"stream\":false%s}", more);
    whole = post("/api/chat", body, 200);
    snprintf(body, sizeof(body), "{" HELLO "%s}", more);
    lines = stream("/api/chat", body);
    last = json_array_get(lines, json_array_size(lines) - 1);
    for (size_t i = 0; i < ASH_COUNT(paths); i++) {
        const char *text = text_at(whole, paths[i]);
        struct ash_str joined = {0};

        join(lines, paths[i], &joined);
        assert_string_equal(joined.data, text != NULL ? text : "");
        ash_str_fini(&joined);
    }
    for (size_t i = 0; i + 1 < json_array_size(lines); i++) {
        const json_t *calls = at(json_array_get(lines, i), "message.tool_calls");

        assert_true(json_is_false(at(json_array_get(lines, i), "done")));
        if (calls != NULL) assert_true(json_equal(calls, at(whole, "message.tool_calls")));
    }
    assert_true(json_is_true(at(last, "done")));
    assert_string_equal(text_at(last, "done_reason"), text_at(whole, "done_reason"));
    assert_int_equal(int_at(last, "eval_count"), int_at(whole, "eval_count"));
    assert_true(int_at(last, "prompt_eval_count") > 0);
    json_decref(whole);
    json_decref(lines);
}

static void test_lines_join_to_the_whole(void **state)
{
    json_t *json;
    (void)state;

    check_same("there was a \"dog\" <b>", "");
    check_same("<think>so it goes</think>there was", "");
    check_same("Sure. <tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Bern\"}}\n</tool_call>",
               "," TOOLS);
    json = post("/api/chat", "{" HELLO ",\"stream\":false," TOOLS "}", 200);
    assert_string_equal(text_at(json, "message.tool_calls.0.function.name"), "weather");
    assert_string_equal(text_at(json, "message.tool_calls.0.function.arguments.city"), "Bern");
    assert_string_equal(text_at(json, "model"), "tiny");
    json_decref(json);
    json = post(
        "/api/chat",
        "{\"model\":\"tiny\",\"stream\":false," GREEDY ",\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"},"
        "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"function\":{\"name\":\"weather\","
        "\"arguments\":{\"city\":\"Bern\"}}}]},{\"role\":\"tool\",\"tool_name\":\"weather\",\"content\":\"sunny\"}]}",
        200);
    json_decref(json);
}

static void test_generate(void **state)
{
    json_t *json, *lines;
    struct ash_str joined = {0};
    (void)state;

    api_say(&server, "upon a time");
    json = post("/api/generate",
                "{\"model\":\"tiny\",\"prompt\":\"Once\",\"system\":\"Be brief\",\"stream\":false," GREEDY "}", 200);
    assert_string_equal(text_at(json, "response"), " upon a time");
    assert_string_equal(text_at(json, "done_reason"), "stop");
    lines = stream("/api/generate", "{\"model\":\"tiny\",\"prompt\":\"Once\",\"raw\":true," GREEDY "}");
    join(lines, "response", &joined);
    assert_string_equal(joined.data, " upon a time");
    assert_true(int_at(json_array_get(lines, json_array_size(lines) - 1), "prompt_eval_count") <
                int_at(json, "prompt_eval_count"));
    ash_str_fini(&joined);
    json_decref(lines);
    json_decref(json);
    json = post("/api/generate", "{\"model\":\"tiny\"}", 200);
    assert_string_equal(text_at(json, "done_reason"), "load");
    json_decref(json);
    json = post("/api/generate",
                "{\"model\":\"tiny\",\"prompt\":\"Once\",\"stream\":false,\"format\":{\"const\":5}," GREEDY "}", 200);
    assert_string_equal(text_at(json, "response"), "5");
    json_decref(json);
}

static void test_models(void **state)
{
    struct http_answer answer = http_do(server.port, "GET", "/api/tags", "", NULL);
    json_t *json = json_loads(answer.body.data, 0, NULL);
    (void)state;

    assert_string_equal(text_at(json, "models.0.name"), "tiny");
    json_decref(json);
    http_answer_fini(&answer);
    json = post("/api/show", "{\"model\":\"tiny:latest\"}", 200);
    assert_int_equal(int_at(json, "model_info.model.context_length"), 0); /* its key has a dot */
    assert_true(json_integer_value(json_object_get(at(json, "model_info"), "model.context_length")) > 0);
    assert_int_equal(json_array_size(at(json, "capabilities")), 3);
    json_decref(json);
    answer = http_do(server.port, "GET", "/api/version", "", NULL);
    assert_non_null(strstr(answer.body.data, "\"version\""));
    http_answer_fini(&answer);
}

static void check_refused(const char *body, int status, const char *word)
{
    json_t *json = post("/api/chat", body, status);

    if (text_at(json, "error") == NULL || strstr(text_at(json, "error"), word) == NULL)
        fail_msg("%s: %s", body, text_at(json, "error"));
    json_decref(json);
}

static void test_errors_have_its_shape(void **state)
{
    (void)state;
    check_refused("{\"model\":\"other\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}", 404, "does not exist");
    check_refused("{" HELLO ",\"format\":\"yaml\"}", 400, "format");
    check_refused("{\"messages\":[{\"role\":\"user\",\"content\":\"x\",\"images\":[\"AA==\"]}]}", 400, "images");
    check_refused("{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"options\":{\"temperature\":-1}}", 400,
                  "temperature");
    check_refused("{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"options\":{\"mirostat\":1}}", 400,
                  "mirostat");
    check_refused("{", 400, "JSON");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines_join_to_the_whole),
        cmocka_unit_test(test_generate),
        cmocka_unit_test(test_models),
        cmocka_unit_test(test_errors_have_its_shape),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
