/* /v1/responses: a bounded memory of the last ones, log-probabilities, long inputs, counts of tokens. */
#include "unit/serve/api/api_client.h"

#include "serve/api/responses_memory.h"

#define GREEDY "\"temperature\":0,\"max_output_tokens\":40"

static json_t *respond(const char *fields, int status)
{
    char body[16384];

    snprintf(body, sizeof(body), "{" GREEDY ",%s}", fields);
    return post("/v1/responses", body, status);
}

static json_int_t count_tokens(const char *fields)
{
    char body[4096];
    json_int_t count;
    json_t *json;

    snprintf(body, sizeof(body), "{%s}", fields);
    json = post("/v1/responses/input_tokens", body, 200);
    assert_string_equal(text_at(json, "object"), "response.input_tokens");
    count = int_at(json, "input_tokens");
    json_decref(json);
    return count;
}

/* What follows a response sees the same prompt as a client that sends all again; also by references to its items. */
static void test_what_follows_a_response(void **state)
{
    json_t *first, *next;
    char fields[1024];
    json_int_t whole;
    (void)state;

    api_say(&server, "there was a dog");
    first = respond("\"input\":\"Who?\"", 200);
    assert_true(json_is_true(at(first, "store")));
    assert_string_equal(text_at(first, "output.0.content.0.text"), " there was a dog");
    whole = count_tokens("\"input\":[{\"role\":\"user\",\"content\":\"Who?\"},{\"role\":\"assistant\",\"content\":"
                         "\" there was a dog\"},{\"role\":\"user\",\"content\":\"And then?\"}]");
    snprintf(fields, sizeof(fields), "\"previous_response_id\":\"%s\",\"input\":\"And then?\"", text_at(first, "id"));
    assert_int_equal(count_tokens(fields), whole);
    next = respond(fields, 200);
    assert_int_equal(int_at(next, "usage.input_tokens"), whole);
    assert_string_equal(text_at(next, "previous_response_id"), text_at(first, "id"));
    snprintf(
        fields, sizeof(fields),
        "\"input\":[{\"role\":\"user\",\"content\":\"Who?\"},{\"type\":\"item_reference\",\"id\":\"%s\"},{\"role\":"
        "\"user\",\"content\":\"And then?\"}]",
        text_at(first, "output.0.id"));
    assert_int_equal(count_tokens(fields), whole);
    snprintf(fields, sizeof(fields), "\"previous_response_id\":\"%s\",\"input\":\"More\"", text_at(next, "id"));
    assert_true(count_tokens(fields) > whole);
    json_decref(next);
    json_decref(first);
}

static void check_refused(const char *fields, int status, const char *code)
{
    json_t *json = respond(fields, status);

    assert_string_equal(text_at(json, "error.code"), code);
    assert_non_null(strstr(text_at(json, "error.message"), "--responses-memory"));
    json_decref(json);
}

static void test_what_is_not_kept(void **state)
{
    char fields[256];
    json_t *json;
    (void)state;

    check_refused("\"previous_response_id\":\"resp_none\",\"input\":\"x\"", 400, "previous_response_not_found");
    check_refused("\"input\":[{\"type\":\"item_reference\",\"id\":\"msg_none\"}]", 404, "item_not_found");
    json = respond("\"input\":\"Who?\",\"store\":false", 200);
    assert_true(json_is_false(at(json, "store")));
    snprintf(fields, sizeof(fields), "\"previous_response_id\":\"%s\",\"input\":\"x\"", text_at(json, "id"));
    check_refused(fields, 400, "previous_response_not_found");
    json_decref(json);
}

/* The oldest goes first, owners do not see each other's, and nothing is larger than the limit. */
static void test_memory_is_bounded(void **state)
{
    struct ash_responses_memory *memory = ash_responses_memory_open(4096);
    char items[1200] = "[{\"id\":\"first\",\"text\":\"";
    json_t *json;
    (void)state;

    memset(items + strlen(items), 'x', 1000);
    strcat(items, "\"}]");
    for (int i = 0; i < 20; i++) {
        char id[16];

        snprintf(id, sizeof(id), "r%d", i);
        ash_responses_memory_add(memory, 1, id, items, strlen(items));
        json = ash_responses_memory_get(memory, 1, id);
        assert_int_equal(json_array_size(json), 1);
        json_decref(json);
        assert_null(ash_responses_memory_get(memory, 2, id));
        assert_null(ash_responses_memory_find_item(memory, 2, "first"));
    }
    assert_null(ash_responses_memory_get(memory, 1, "r16"));
    json = ash_responses_memory_find_item(memory, 1, "first");
    assert_non_null(json);
    json_decref(json);
    for (int i = 0; i < 5000; i++)
        assert_null(ash_responses_memory_find_item(memory, 1, "second"));
    ash_responses_memory_close(memory);
    memory = ash_responses_memory_open(100);
    ash_responses_memory_add(memory, 1, "r", items, strlen(items));
    assert_null(ash_responses_memory_get(memory, 1, "r"));
    ash_responses_memory_close(memory);
}

/* Every token of the message has its log-probability, whole and streamed alike. */
static void test_logprobs(void **state)
{
    static const char ask[] = "\"input\":\"Who?\",\"include\":[\"message.output_text.logprobs\"],\"top_logprobs\":2";
    struct http_answer answer;
    char body[512];
    const char *last;
    json_t *whole, *streamed;
    (void)state;

    api_say(&server, "<think>so</think>there was a dog");
    whole = respond(ask, 200);
    assert_int_equal(json_array_size(at(whole, "output")), 2);
    assert_true(json_array_size(at(whole, "output.1.content.0.logprobs")) >= 3);
    assert_int_equal(json_array_size(at(whole, "output.1.content.0.logprobs.0.top_logprobs")), 2);
    assert_non_null(at(whole, "output.1.content.0.logprobs.0.bytes"));
    snprintf(body, sizeof(body), "{" GREEDY ",%s,\"stream\":true}", ask);
    answer = http_do(server.port, "POST", "/v1/responses", "", body);
    last = strstr(answer.body.data, "event: response.completed\ndata: ");
    assert_non_null(last);
    last += strlen("event: response.completed\ndata: ");
    streamed = json_loadb(last, strcspn(last, "\n"), 0, NULL);
    assert_true(json_equal(at(streamed, "response.output.1.content"), at(whole, "output.1.content")));
    json_decref(streamed);
    json_decref(whole);
    http_answer_fini(&answer);
}

/* With truncation auto the oldest messages go until the rest fits; the instructions stay. */
static void test_long_inputs_are_cut(void **state)
{
    struct ash_str fields = {0};
    json_t *json;
    (void)state;

    api_say(&server, "yes");
    ash_str_adds(&fields, "\"instructions\":\"Be brief\",\"input\":[");
    for (int i = 0; i < 200; i++)
        ash_str_addf(&fields, "{\"role\":\"user\",\"content\":\"number %d of a long talk\"},", i);
    ash_str_adds(&fields, "{\"role\":\"user\",\"content\":\"last\"}]");
    json = respond(fields.data, 400);
    assert_string_equal(text_at(json, "error.code"), "context_length_exceeded");
    json_decref(json);
    ash_str_adds(&fields, ",\"truncation\":\"auto\"");
    json = respond(fields.data, 200);
    assert_in_range(int_at(json, "usage.input_tokens"), 200, 2048);
    json_decref(json);
    json_decref(respond("\"input\":\"x\",\"truncation\":\"some\"", 400));
    ash_str_fini(&fields);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_follows_a_response), cmocka_unit_test(test_what_is_not_kept),
        cmocka_unit_test(test_memory_is_bounded),       cmocka_unit_test(test_logprobs),
        cmocka_unit_test(test_long_inputs_are_cut),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
