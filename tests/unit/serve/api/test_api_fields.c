/* Fields of requests: llama.cpp's settings, unknown fields, bodies that never fit, contents of null, the cached prefix. */
#include "unit/serve/api/api_client.h"

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
    static const char *const samplers[] = {"mirostat", "dry_multiplier", "xtc_probability", "top_n_sigma"};
    char body[512];
    json_t *json;
    (void)state;

    api_say(&server, "Hello there, a friend of the sea.");
    for (size_t i = 0; i < ASH_COUNT(cases); i++) {
        snprintf(body, sizeof(body), "{\"prompt\":\"Once\",\"n_predict\":4,%s}", cases[i].fields);
        json = post("/completion", body, cases[i].word != NULL ? 400 : 200);
        if (cases[i].word != NULL) assert_non_null(strstr(text_at(json, "error.message"), cases[i].word));
        if (strcmp(cases[i].fields, "\"id_slot\":3") == 0) assert_int_equal(int_at(json, "id_slot"), 3);
        json_decref(json);
    }
    /* samplers that change an answer are refused in OpenAI's requests, too */
    for (size_t i = 0; i < ASH_COUNT(samplers); i++) {
        snprintf(body, sizeof(body), "{\"prompt\":\"Once\",\"max_tokens\":4,\"%s\":2}", samplers[i]);
        json = post("/v1/completions", body, 400);
        assert_string_equal(text_at(json, "error.param"), samplers[i]);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_llama_settings),     cmocka_unit_test(test_reset_prefix),
        cmocka_unit_test(test_strict_and_unknown), cmocka_unit_test(test_bodies_that_never_fit),
        cmocka_unit_test(test_null_contents),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
