/* Requests to the HTTP server over real sockets: routes, methods, sizes, keys, rates, pages of other origins. */
#include "unit/http/http_fixture.h"

#include "base/file.h"

static void write_file(const char *path, const char *text)
{
    struct ash_err err = {0};

    if (ash_file_replace(path, text, strlen(text), &err) < 0) fail_msg("%s", err.text);
}

static void test_routes_and_methods(void **state)
{
    struct fixture *fixture = new_fixture();
    struct http_answer answer;
    char value[64];
    (void)state;

    open_server(fixture);
    check_status(fixture->port, "GET", "/echo?q=1%202", "", NULL, 200, "GET:1 2:");
    check_status(fixture->port, "POST", "/echo", "", "hello", 200, "POST::hello");
    check_status(fixture->port, "GET", "/quick", "", NULL, 200, "GET");
    check_status(fixture->port, "GET", "/nothing", "", NULL, 404, "not_found");
    check_status(fixture->port, "POST", "/nothing", "", "{}", 404, "not_found");
    check_status(fixture->port, "DELETE", "/echo", "", NULL, 405, "method_not_allowed");
    check_status(fixture->port, "POST", "/admin", "", "{}", 401, "admin");
    answer = http_do(fixture->port, "DELETE", "/echo", "", NULL);
    assert_string_equal(http_header(&answer, "allow: ", value, sizeof(value)), "GET, POST");
    http_answer_fini(&answer);
    answer = http_do(fixture->port, "HEAD", "/echo", "X-Request-Id: my-id.1\r\n", NULL);
    assert_int_equal(answer.status, 200);
    assert_string_equal(http_header(&answer, "x-request-id: ", value, sizeof(value)), "my-id.1");
    http_answer_fini(&answer);
    answer = http_do(fixture->port, "GET", "/echo", "X-Request-Id: a\"b\r\n", NULL); /* not taken over */
    assert_null(strstr(http_header(&answer, "x-request-id: ", value, sizeof(value)), "\""));
    http_answer_fini(&answer);
    close_server(fixture);
}

/* A refused request leaves the connection usable; a body that is too large does not have to. */
static void test_keep_alive_and_sizes(void **state)
{
    struct fixture *fixture = new_fixture();
    struct http_answer answer;
    char *large = calloc(1, 3000001);
    int fd;
    (void)state;

    fixture->opts.body_bytes_max = 100000;
    open_server(fixture);
    fd = http_connect(fixture->port);
    for (int i = 0; i < 3; i++) {
        assert_true(http_send_request(fd, "POST", "/nothing", "", "{}"));
        answer = http_read(fd, false);
        assert_int_equal(answer.status, 404);
        http_answer_fini(&answer);
        assert_true(http_send_request(fd, "POST", "/echo", "", "again"));
        answer = http_read(fd, false);
        assert_string_equal(answer.body.data, "POST::again");
        http_answer_fini(&answer);
    }
    close(fd);
    memset(large, 'x', 100000);
    check_status(fixture->port, "POST", "/echo", "", large, 200, "POST::xxx");
    memset(large, 'x', 100001);
    check_status(fixture->port, "POST", "/echo", "", large, 413, "100001");
    fd = http_connect(fixture->port); /* chunked: the size is not known before */
    assert_true(http_send(fd, "POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n30d40\r\n"));
    memset(large, 'x', 200000);
    send(fd, large, 200000, MSG_NOSIGNAL);
    http_send(fd, "\r\n0\r\n\r\n");
    answer = http_read(fd, false);
    assert_int_equal(answer.status, 413);
    http_answer_fini(&answer);
    close(fd);
    free(large);
    close_server(fixture);
}

static void test_keys(void **state)
{
    struct fixture *fixture = new_fixture();
    const char *const keys[] = {"secret-1", "secret-2"};
    char path[] = "/tmp/ashlar_keys_XXXXXX";
    struct ash_err err = {0};
    (void)state;

    close(mkstemp(path));
    write_file(path, "# comment\nfile-key name=alice rpm=1000\n\nother-key\r\n");
    fixture->keys_opts = (struct ash_keys_opts){.keys = keys, .key_count = 2, .file = path, .admin_key = "root"};
    open_server(fixture);
    check_status(fixture->port, "GET", "/quick", "", NULL, 200, "GET");
    check_status(fixture->port, "GET", "/echo", "", NULL, 401, "missing");
    check_status(fixture->port, "GET", "/echo", "Authorization: Bearer secret-3\r\n", NULL, 401, "not one of");
    check_status(fixture->port, "GET", "/echo", "Authorization: Bearer secret-\r\n", NULL, 401, "not one of");
    check_status(fixture->port, "GET", "/echo", "Authorization: Bearer secret-11\r\n", NULL, 401, "not one of");
    check_status(fixture->port, "GET", "/echo", "Authorization: Basic secret-1\r\n", NULL, 401, "missing");
    check_status(fixture->port, "GET", "/echo", "Authorization: Bearer secret-1\r\n", NULL, 200, "GET");
    check_status(fixture->port, "GET", "/echo", "x-api-key: secret-2\r\n", NULL, 200, "GET");
    check_status(fixture->port, "GET", "/echo", "api-key: file-key\r\n", NULL, 200, "GET");
    check_status(fixture->port, "GET", "/echo", "api-key: other-key\r\n", NULL, 200, "GET");
    check_status(fixture->port, "POST", "/admin", "x-api-key: secret-2\r\n", "{}", 401, "admin");
    check_status(fixture->port, "POST", "/admin", "x-api-key: root\r\n", "{}", 200, "POST");
    write_file(path, "other-key\nnew-key tpm=x\n");
    assert_int_equal(ash_keys_reload(fixture->keys, &err), -EINVAL); /* a damaged file changes nothing */
    assert_non_null(strstr(err.text, ":2:"));
    check_status(fixture->port, "GET", "/echo", "api-key: file-key\r\n", NULL, 200, "GET");
    check_status(fixture->port, "GET", "/echo", "api-key: new-key\r\n", NULL, 401, "not one of");
    write_file(path, "other-key\nnew-key\n");
    assert_int_equal(ash_keys_reload(fixture->keys, &err), 0);
    check_status(fixture->port, "GET", "/echo", "api-key: file-key\r\n", NULL, 401, "not one of");
    check_status(fixture->port, "GET", "/echo", "api-key: new-key\r\n", NULL, 200, "GET");
    check_status(fixture->port, "GET", "/echo", "x-api-key: secret-2\r\n", NULL, 200, "GET");
    unlink(path);
    close_server(fixture);
}

static void test_rate_limits(void **state)
{
    struct fixture *fixture = new_fixture();
    struct http_answer answer;
    char value[64];
    (void)state;

    fixture->keys_opts.requests_per_minute = 3;
    fixture->keys_opts.tokens_per_minute = 1000;
    open_server(fixture);
    for (int i = 0; i < 3; i++) {
        answer = http_do(fixture->port, "POST", "/echo", "", "{}");
        assert_int_equal(answer.status, 200);
        assert_int_equal(atoi(http_header(&answer, "x-ratelimit-remaining-requests: ", value, sizeof(value))), 2 - i);
        assert_string_equal(http_header(&answer, "x-ratelimit-limit-tokens: ", value, sizeof(value)), "1000");
        http_answer_fini(&answer);
    }
    answer = http_do(fixture->port, "POST", "/echo", "", "{}");
    assert_int_equal(answer.status, 429);
    assert_in_range(atoi(http_header(&answer, "retry-after: ", value, sizeof(value))), 1, 20);
    http_answer_fini(&answer);
    check_status(fixture->port, "GET", "/echo", "", NULL, 200, "GET"); /* other routes have no limit */
    close_server(fixture);
}

static void test_cors(void **state)
{
    struct fixture *fixture = new_fixture();
    static const struct {
        const char *origin;
        bool is_allowed;
    } cases[] = {{"http://localhost", true},
                 {"http://localhost:3000", true},
                 {"https://127.0.0.1:1", true},
                 {"http://[::1]:8000", true},
                 {"http://localhost.evil.com", false},
                 {"http://evil.com", false},
                 {"http://localhost:3000@evil", false},
                 {"null", false}};
    char headers[128], value[128];
    struct http_answer answer;
    (void)state;

    open_server(fixture);
    for (size_t i = 0; i < ASH_COUNT(cases); i++) {
        snprintf(headers, sizeof(headers), "Origin: %s\r\nAccess-Control-Request-Headers: x-a, x-b\r\n",
                 cases[i].origin);
        answer = http_do(fixture->port, "OPTIONS", "/echo", headers, NULL);
        assert_int_equal(answer.status, 204);
        if (cases[i].is_allowed) {
            assert_string_equal(http_header(&answer, "access-control-allow-origin: ", value, sizeof(value)),
                                cases[i].origin);
            assert_string_equal(http_header(&answer, "access-control-allow-headers: ", value, sizeof(value)),
                                "x-a, x-b");
        } else {
            assert_null(http_header(&answer, "access-control-allow-origin: ", value, sizeof(value)));
        }
        http_answer_fini(&answer);
    }
    close_server(fixture);
}

/* What a web page can do to a server of this machine: call it by the page's own name, or post without asking. */
static void test_pages_of_others(void **state)
{
    static const struct {
        const char *host, *headers;
        int status;
    } cases[] = {
        {"localhost:8000", "", 200},
        {"127.0.0.1", "", 200},
        {"[::1]:9", "", 200},
        {"evil.com:8000", "", 403},
        {"localhost.evil.com", "", 403},
        {"my.name:80", "", 200}, /* allowed by name */
        {"localhost", "Origin: http://evil.com\r\nContent-Type: text/plain\r\n", 415},
        {"localhost", "Origin: http://evil.com\r\n", 415},
        {"localhost", "Origin: null\r\nContent-Type: text/plain\r\n", 415},
        {"localhost", "Origin: http://evil.com\r\nContent-Type: application/json\r\n", 200}, /* browsers ask first */
        {"localhost", "Origin: http://localhost:3000\r\nContent-Type: text/plain\r\n", 200},
        {"my.name:80", "Origin: http://my.name:80\r\nContent-Type: text/plain\r\n", 200}, /* our own page */
    };
    static const char *const names[] = {"my.name"}, *const keys[] = {"k"};
    struct fixture *fixture = new_fixture();
    (void)state;

    fixture->opts.names = names;
    fixture->opts.name_count = ASH_COUNT(names);
    for (int has_key = 0; has_key < 2; has_key++) {
        fixture->keys_opts = (struct ash_keys_opts){.keys = keys, .key_count = (size_t)has_key};
        open_server(fixture);
        for (size_t i = 0; i < ASH_COUNT(cases); i++) {
            int fd = http_connect(fixture->port);
            struct http_answer answer;
            char text[512];

            snprintf(text, sizeof(text),
                     "POST /echo HTTP/1.1\r\nHost: %s\r\n%sAuthorization: Bearer k\r\nContent-Length: 2\r\n\r\n{}",
                     cases[i].host, cases[i].headers);
            assert_true(http_send(fd, text));
            answer = http_read(fd, false);
            if (answer.status != (has_key && cases[i].status == 403 ? 200 : cases[i].status))
                fail_msg("%s %s: %d", cases[i].host, cases[i].headers, answer.status);
            http_answer_fini(&answer);
            close(fd);
        }
        close_server(fixture);
    }
}

/* A deferred handler takes no worker from the others, and gets the whole request again. */
static void test_deferred_handlers(void **state)
{
    struct fixture *fixture = new_fixture();
    struct http_answer answer;
    int fds[3];
    (void)state;

    fixture->opts.workers = fixture->opts.slow_workers = 1;
    open_server(fixture);
    for (size_t i = 0; i < ASH_COUNT(fds); i++) {
        fds[i] = http_connect(fixture->port);
        assert_true(http_send_request(fds[i], "POST", "/defer", "", "later"));
    }
    wait_for(&fixture->held, 1);
    check_status(fixture->port, "POST", "/echo", "", "now", 200, "POST::now");
    atomic_store(&fixture->is_open, true);
    for (size_t i = 0; i < ASH_COUNT(fds); i++) {
        answer = http_read(fds[i], false);
        assert_int_equal(answer.status, 200);
        assert_string_equal(answer.body.data, "POST::later");
        http_answer_fini(&answer);
        close(fds[i]);
    }
    close_server(fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_routes_and_methods),
        cmocka_unit_test(test_keep_alive_and_sizes),
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_rate_limits),
        cmocka_unit_test(test_cors),
        cmocka_unit_test(test_pages_of_others),
        cmocka_unit_test(test_deferred_handlers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
