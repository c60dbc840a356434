/* Events of streams as the router reads them, and the addresses of replicas. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/assert.h"
#include "serve/route/event.h"
#include "serve/route/target.h"

static struct ash_route_event read_event(const char *text)
{
    struct ash_route_event event;

    ash_route_event_read(text, strlen(text), &event);
    return event;
}

static void test_an_event_ends_with_an_empty_line(void **state)
{
    static const struct {
        const char *text;
        size_t bytes;
    } cases[] = {{"", 0},
                 {"data: a", 0},
                 {"data: a\n", 0},
                 {"data: a\n\n", 9},
                 {"data: a\n\ndata: b", 9},
                 {"event: x\ndata: a\r\n\r\nmore\n\n", 20},
                 {"\n", 1},
                 {"\r\n", 2},
                 {": ping\n\n", 8}};

    (void)state;
    for (size_t i = 0; i < ASH_COUNT(cases); i++)
        assert_int_equal(ash_route_event_bytes(cases[i].text, strlen(cases[i].text)), cases[i].bytes);
}

static void test_times_and_counts_are_not_in_the_digest(void **state)
{
    static const char *const same[][2] = {
        {"data: {\"a\":1,\"usage\":{\"x\":[1,{\"y\":2}]},\"b\":\"}\"}\n\n",
         "data: {\"a\":1,\"usage\":{\"x\":[]},\"b\":\"}\"}\n\n"},
        {"data: {\"system_fingerprint\":null,\"b\":2}\n\n", "data: {\"system_fingerprint\":\"fp_1,}\",\"b\":2}\n\n"},
        {"data: {\"b\":2,\"timings\":{\"t\":1.5}}\n\n", "data: {\"b\":2,\"timings\":{\"t\":2,\"u\":\"}\"}}\n\n"},
        {"data: {\"b\":2,\"usage\":null}\n\n", "data: {\"b\":2,\"usage\":{\"n\":4}}\n\n"},
    };
    static const char *const other[][2] = {
        {"data: {\"text\":\"a\"}\n\n", "data: {\"text\":\"b\"}\n\n"},
        {"data: {\"usage\":{},\"text\":\"a\"}\n\n", "data: {\"usage\":{},\"text\":\"b\"}\n\n"},
        {"data: {\"text\":\"\\\"usage\\\":1\"}\n\n", "data: {\"text\":\"\\\"usage\\\":2\"}\n\n"},
        {"data: {\"a\":{\"usage\":1},\"b\":1}\n\n", "data: {\"a\":{\"usage\":1},\"b\":2}\n\n"},
        {"data: [DONE]\n\n", "data: [DON]\n\n"},
    };

    (void)state;
    for (size_t i = 0; i < ASH_COUNT(same); i++)
        assert_true(read_event(same[i][0]).digest == read_event(same[i][1]).digest);
    for (size_t i = 0; i < ASH_COUNT(other); i++)
        assert_true(read_event(other[i][0]).digest != read_event(other[i][1]).digest);
}

static void test_choices_tokens_and_errors_are_found(void **state)
{
    struct ash_route_event event =
        read_event("data: {\"id\":\"x\",\"choices\":[{\"index\":3,\"delta\":{\"tool_calls\":[{\"index\":1}]}}]}\n\n");

    (void)state;
    assert_true(event.has_data && !event.is_error);
    assert_int_equal(event.choice, 3);
    event = read_event("data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":20,"
                       "\"prompt_tokens_details\":{\"cached_tokens\":4}}}\n\n");
    assert_int_equal(event.usage.prompt_tokens, 7);
    assert_int_equal(event.usage.answer_tokens, 20);
    assert_int_equal(event.usage.cached_tokens, 4);
    event = read_event("data: {\"error\":{\"message\":\"no\",\"code\":\"shutting_down\"}}\n\n");
    assert_true(event.is_error && event.is_shutdown);
    event = read_event("event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n");
    assert_true(event.is_error && event.is_shutdown);
    event = read_event("data: {\"error\":null,\"text\":\"shutting_down\"}\n\n");
    assert_false(event.is_error || event.is_shutdown);
    event = read_event(": keep-alive\n\n");
    assert_false(event.has_data);
}

static void test_addresses(void **state)
{
    static const char *const wrong[] = {
        "",       "127.0.0.1:80",       "https://127.0.0.1",     "http://", "http://[::1",
        "dns://", "http://127.0.0.1:0", "http://127.0.0.1:99999"};
    struct ash_route_targets targets = {0};
    struct ash_err err = {0};

    (void)state;
    assert_int_equal(ash_route_targets_add(&targets, "http://127.0.0.1:8001", &err), 0);
    assert_int_equal(ash_route_targets_add(&targets, "http://127.0.0.1:8001/v1/", &err), 0); /* the same one */
    assert_int_equal(ash_route_targets_add(&targets, "http://[::1]:8002/a", &err), 0);
    assert_int_equal(ash_route_targets_add(&targets, "dns://127.0.0.1:8003", &err), 0);
    assert_int_equal(targets.count, 3);
    assert_string_equal(targets.items[0].name, "http://127.0.0.1:8001");
    assert_string_equal(targets.items[1].name, "http://[::1]:8002/a");
    assert_string_equal(targets.items[1].host, "[::1]:8002");
    assert_string_equal(targets.items[2].name, "http://127.0.0.1:8003");
    for (size_t i = 0; i < ASH_COUNT(wrong); i++)
        assert_int_equal(ash_route_targets_add(&targets, wrong[i], &err), -EINVAL);
    assert_int_equal(ash_route_targets_add_lines(
                         &targets, "# all\n\n  http://127.0.0.1:8004 # new\r\nhttp://127.0.0.1:8001", "list", &err),
                     0);
    assert_int_equal(targets.count, 4);
    assert_int_equal(ash_route_targets_add_lines(&targets, "\nnonsense\n", "list", &err), -EINVAL);
    assert_non_null(strstr(err.text, "list:2"));
    ash_route_targets_fini(&targets);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_event_ends_with_an_empty_line),
        cmocka_unit_test(test_times_and_counts_are_not_in_the_digest),
        cmocka_unit_test(test_choices_tokens_and_errors_are_found),
        cmocka_unit_test(test_addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
