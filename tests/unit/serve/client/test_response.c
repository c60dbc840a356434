/* Responses as servers send them, whole and in every cut into two. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/assert.h"
#include "serve/client/load_priv.h"
#include "serve/client/response.h"

#define STREAM "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"

struct expect {
    const char *text;
    int rc; /* of the last push, or of the end */
    unsigned status;
    const char *events; /* each followed by | */
    const char *body;
    bool keeps_open;
};

static int see(void *ctx, const char *data, size_t size_bytes)
{
    int rc = ash_str_add(ctx, data, size_bytes);

    return rc == 0 ? ash_str_adds(ctx, "|") : rc;
}

static void check_cut(const struct expect *expect, size_t cut)
{
    struct ash_str events = {0};
    struct ash_response response;
    size_t bytes = strlen(expect->text);
    int rc;

    ash_response_init(&response, see, &events);
    rc = ash_response_push(&response, expect->text, cut);
    if (rc >= 0 && cut < bytes) rc = ash_response_push(&response, expect->text + cut, bytes - cut);
    if (rc == 0) rc = ash_response_end(&response);
    assert_int_equal(rc, expect->rc);
    if (rc == 1) {
        assert_int_equal(response.status, expect->status);
        assert_string_equal(events.data != NULL ? events.data : "", expect->events);
        assert_string_equal(response.body.data != NULL ? response.body.data : "", expect->body);
        assert_int_equal(response.keeps_open, expect->keeps_open);
    }
    ash_response_fini(&response);
    ash_str_fini(&events);
}

static void test_every_cut_reads_the_same(void **state)
{
    static const struct expect expects[] = {
        {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 1, 200, "", "hello", true},
        {"HTTP/1.1 200 OK\r\nConnection: close\r\ncontent-length: 5\r\n\r\nhello", 1, 200, "", "hello", false},
        {"HTTP/1.0 200 OK\r\n\r\nhello", 1, 200, "", "hello", false},
        {"HTTP/1.1 204 No Content\r\n\r\n", 1, 204, "", "", true},
        {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n", 1, 404, "", "", true},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA;x\r\n0123456789\r\n0\r\nT: u\r\n\r\n", 1,
         200, "", "abc0123456789", true},
        {STREAM "\r\ndata: a\n\ndata:b\ndata: c\n\n: no\nevent: e\ndata\n\ndata: \xc3\xa9\r\n\r\n", 1, 200,
         "a|b\nc|\xc3\xa9|", "", false},
        {STREAM "Transfer-Encoding: chunked\r\n\r\n7\r\ndata: a\r\n5\r\nb\n\nda\r\n8\r\nta: 12\n\n\r\n0\r\n\r\n", 1,
         200, "ab|12|", "", true},
        {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell", -ECONNRESET, 0, "", "", false},
        {"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhello", -EPROTO, 0, "", "", false},
        {"HTTP/1.1 200 OK\r\nContent-Length: -4\r\n\r\n", -EPROTO, 0, "", "", false},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n", -EPROTO, 0, "", "", false},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n", -EPROTO, 0, "", "", false},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", -EPROTO, 0, "", "", false},
        {"SSH-2.0-OpenSSH\r\n", -EPROTO, 0, "", "", false},
        {"", -ECONNRESET, 0, "", "", false},
    };

    (void)state;
    for (size_t i = 0; i < ASH_COUNT(expects); i++)
        for (size_t cut = 0; cut <= strlen(expects[i].text); cut++)
            check_cut(&expects[i], cut);
}

static void test_lines_have_a_limit(void **state)
{
    struct ash_response response;
    char many[1024];
    int rc = 0;

    (void)state;
    memset(many, 'x', sizeof(many));
    ash_response_init(&response, NULL, NULL);
    for (int i = 0; i < 100 && rc == 0; i++)
        rc = ash_response_push(&response, many, sizeof(many));
    assert_int_equal(rc, -EMSGSIZE);
    ash_response_fini(&response);
}

static void test_events_of_the_api_are_understood(void **state)
{
    static const struct {
        const char *text;
        bool has_text, is_error;
        size_t answer_tokens, cached_tokens;
    } events[] = {
        {"{\"choices\":[{\"text\":\"a\"}]}", true, false, 0, 0},
        {"{\"choices\":[{\"text\":\"\"}],\"usage\":null}", false, false, 0, 0},
        {"{\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}", false, false, 0, 0},
        {"{\"choices\":[{\"delta\":{\"content\":\"x\"}}]}", true, false, 0, 0},
        {"{\"choices\":[{\"delta\":{\"reasoning_content\":\"x\"}}]}", true, false, 0, 0},
        {"{\"choices\":[{\"delta\":{\"tool_calls\":[{}]}}]}", true, false, 0, 0},
        {"{\"choices\":[],\"usage\":{\"completion_tokens\":7,\"prompt_tokens_details\":{\"cached_tokens\":3}}}", false,
         false, 7, 3},
        {"{\"error\":{\"message\":\"no\"}}", false, true, 0, 0},
    };

    (void)state;
    for (size_t i = 0; i < ASH_COUNT(events); i++) {
        struct ash_load_event event;

        assert_int_equal(ash_load_read_event(events[i].text, strlen(events[i].text), &event), 0);
        assert_int_equal(event.has_text, events[i].has_text);
        assert_int_equal(event.is_error, events[i].is_error);
        assert_int_equal(event.answer_tokens, events[i].answer_tokens);
        assert_int_equal(event.cached_tokens, events[i].cached_tokens);
    }
    assert_int_equal(ash_load_read_event("[1]", 3, &(struct ash_load_event){0}), -EPROTO);
}

static void test_addresses(void **state)
{
    struct ash_load_url url;
    struct ash_err err = {0};
    static const char *const wrong[] = {"",           "localhost:8000", "https://a",     "http://",      "http://a:0",
                                        "http://a:x", "http://[::1",    "http://a b:80", "http://a:1x/", "http://:80"};

    (void)state;
    assert_int_equal(ash_load_url_parse("http://127.0.0.1:8000", &url, &err), 0);
    assert_string_equal(url.host, "127.0.0.1");
    assert_int_equal(url.port, 8000);
    assert_string_equal(url.path, "");
    assert_int_equal(ash_load_url_parse("http://[::1]:81/a/v1/", &url, &err), 0);
    assert_string_equal(url.host, "::1");
    assert_int_equal(url.port, 81);
    assert_string_equal(url.path, "/a");
    assert_int_equal(ash_load_url_parse("http://name", &url, &err), 0);
    assert_int_equal(url.port, 80);
    for (size_t i = 0; i < ASH_COUNT(wrong); i++)
        assert_int_equal(ash_load_url_parse(wrong[i], &url, &err), -EINVAL);
}

static int see_header(void *ctx, const char *name, const char *value)
{
    return ash_str_addf(ctx, "%s=%s|", name, value);
}

static int see_body(void *ctx, const char *bytes, size_t size_bytes)
{
    return ash_str_add(ctx, bytes, size_bytes);
}

static void test_headers_and_body_are_shown_as_they_come(void **state)
{
    static const char text[] =
        STREAM "Transfer-Encoding: chunked\r\nX-A:  b: c\r\n\r\n5\r\ndata:\r\n4\r\n x\n\n\r\n0\r\n\r\n";
    struct ash_str seen = {0};
    struct ash_response response;

    (void)state;
    ash_response_init(&response, NULL, &seen);
    response.see_header = see_header;
    response.see_body = see_body;
    for (size_t i = 0; i + 1 < sizeof(text); i++)
        assert_int_equal(ash_response_push(&response, text + i, 1), i + 2 == sizeof(text));
    assert_string_equal(seen.data, "Content-Type=text/event-stream; charset=utf-8|Transfer-Encoding=chunked|X-A=b: c|"
                                   "data: x\n\n");
    ash_response_fini(&response);
    ash_str_fini(&seen);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_headers_and_body_are_shown_as_they_come),
        cmocka_unit_test(test_every_cut_reads_the_same),
        cmocka_unit_test(test_lines_have_a_limit),
        cmocka_unit_test(test_events_of_the_api_are_understood),
        cmocka_unit_test(test_addresses),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
