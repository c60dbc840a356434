/* The HTTP server over real sockets: routes, keys, limits, deadlines, clients that leave or do not read, draining. */
#include "http/http.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <cmocka.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "harness/http_client.h"

/* ---- handlers ---------------------------------------------------------------------------------------------------- */

struct fixture {
    struct ash_keys_opts keys_opts;
    struct ash_keys *keys;
    struct ash_http_opts opts;
    struct ash_http *http;
    int port;
    _Atomic int gone, ended, streamed, held;
    struct ash_http_exchange *_Atomic waiting;
    _Atomic bool is_open;
};

static void echo(void *ctx, struct ash_http_exchange *exchange)
{
    struct ash_str body = {0};
    size_t size_bytes = 0;
    const char *text = ash_http_body(exchange, &size_bytes), *query = ash_http_query(exchange, "q");
    (void)ctx;

    ash_str_addf(&body, "%s:%s:", ash_http_method(exchange), query != NULL ? query : "");
    ash_str_add(&body, text, size_bytes);
    ash_http_respond(exchange, 200, "text/plain", &body);
}

static void count_gone(void *ctx)
{
    struct fixture *fixture = ctx;

    atomic_fetch_add(&fixture->gone, 1);
}

static void count_end(void *ctx)
{
    struct fixture *fixture = ctx;

    atomic_fetch_add(&fixture->ended, 1);
}

/* Answers never, unless somebody else does. */
static void hold(void *ctx, struct ash_http_exchange *exchange)
{
    struct fixture *fixture = ctx;

    ash_http_exchange_get(exchange);
    ash_http_on_gone(exchange, count_gone, fixture);
    ash_http_on_end(exchange, count_end, fixture);
    atomic_store(&fixture->waiting, exchange);
    atomic_fetch_add(&fixture->held, 1);
}

/* Events without end, as fast as the client takes them. */
static int flood(void *ctx, struct ash_str *out)
{
    struct fixture *fixture = ctx;
    char block[1024];

    memset(block, 'x', sizeof(block));
    atomic_fetch_add(&fixture->streamed, 1);
    return ash_str_add(out, block, sizeof(block)) < 0 ? -ENOMEM : 1;
}

static void stream_flood(void *ctx, struct ash_http_exchange *exchange)
{
    ash_http_on_gone(exchange, count_gone, ctx);
    ash_http_on_end(exchange, count_end, ctx);
    ash_http_stream(exchange, 200, "text/event-stream", flood, ctx);
}

static void refuse(void *ctx, struct ash_http_exchange *exchange, unsigned status, const char *code, const char *text)
{
    struct ash_str body = {0};
    (void)ctx;

    ash_str_addf(&body, "%s: %s", code, text);
    ash_http_respond(exchange, status, "text/plain", &body);
}

static const struct ash_http_route routes[] = {
    {.method = "GET", .path = "/quick", .handle = echo, .is_open = true, .is_quick = true},
    {.method = "GET", .path = "/echo", .handle = echo},
    {.method = "POST", .path = "/echo", .handle = echo, .takes_requests = true},
    {.method = "POST", .path = "/admin", .handle = echo, .needs_admin = true},
    {.method = "POST", .path = "/hold", .handle = hold},
    {.method = "POST", .path = "/flood", .handle = stream_flood},
};

static void open_server(struct fixture *fixture)
{
    struct ash_err err = {0};

    if (ash_keys_open(&fixture->keys_opts, &fixture->keys, &err) < 0) fail_msg("%s", err.text);
    fixture->opts.port = 0;
    fixture->opts.routes = routes;
    fixture->opts.route_count = ASH_COUNT(routes);
    fixture->opts.refuse = refuse;
    fixture->opts.ctx = fixture;
    fixture->opts.keys = fixture->keys;
    if (ash_http_open(&fixture->opts, &fixture->http, &err) < 0) fail_msg("%s", err.text);
    fixture->port = ash_http_port(fixture->http);
}

static void close_server(struct fixture *fixture)
{
    ash_http_close(fixture->http);
    ash_keys_close(fixture->keys);
}

static struct fixture *new_fixture(void)
{
    static struct fixture fixture;

    fixture = (struct fixture){.opts = ash_http_defaults()};
    return &fixture;
}

/* Wait until *value is at least `least`. */
static void wait_for(const _Atomic int *value, int least)
{
    uint64_t end_ns = ash_clock_ns() + 20000000000ull;

    while (atomic_load(value) < least) {
        if (ash_clock_ns() > end_ns) fail_msg("waited for %d, there are %d", least, atomic_load(value));
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

static void check_status(int port, const char *method, const char *path, const char *headers, const char *body,
                         int status, const char *word)
{
    struct http_answer answer = http_do(port, method, path, headers, body);

    if (answer.status != status || strstr(answer.body.data, word) == NULL)
        fail_msg("%s %s: %d '%s', expected %d and '%s'", method, path, answer.status, answer.body.data, status, word);
    http_answer_fini(&answer);
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

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

static void write_file(const char *path, const char *text)
{
    struct ash_err err = {0};

    if (ash_file_replace(path, text, strlen(text), &err) < 0) fail_msg("%s", err.text);
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

/* A client that leaves, and one that closes its end only: both within a moment. */
static void test_clients_that_leave(void **state)
{
    struct fixture *fixture = new_fixture();
    int fd;
    (void)state;

    open_server(fixture);
    for (int round = 0; round < 2; round++) {
        fd = http_connect(fixture->port);
        assert_true(http_send_request(fd, "POST", "/hold", "", "{}"));
        wait_for(&fixture->held, round + 1);
        if (round == 0)
            close(fd);
        else
            shutdown(fd, SHUT_WR);
        wait_for(&fixture->gone, round + 1);
        wait_for(&fixture->ended, round + 1);
        assert_true(ash_http_is_gone(fixture->waiting));
        ash_http_respond(fixture->waiting, 200, "text/plain", &(struct ash_str){0}); /* too late, and harmless */
        ash_http_exchange_put(fixture->waiting);
        if (round == 1) close(fd);
    }
    fd = http_connect(fixture->port);
    assert_true(http_send_request(fd, "POST", "/flood", "", "{}"));
    wait_for(&fixture->streamed, 1);
    close(fd);
    wait_for(&fixture->gone, 3);
    wait_for(&fixture->ended, 3);
    close_server(fixture);
}

static void test_deadlines(void **state)
{
    struct fixture *fixture = new_fixture();
    int header, body, stalled, idle;
    struct ash_str text = {0};
    struct http_answer answer;
    uint64_t begin_ns;
    (void)state;

    fixture->opts.header_seconds = fixture->opts.body_seconds = fixture->opts.stall_seconds =
        fixture->opts.idle_seconds = 1;
    open_server(fixture);
    begin_ns = ash_clock_ns();
    header = http_connect(fixture->port);
    body = http_connect(fixture->port);
    stalled = http_connect(fixture->port);
    idle = http_connect(fixture->port);
    assert_true(http_send(header, "GET /echo HTTP/1.1\r\n"));
    assert_true(http_send(body, "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n"));
    assert_true(http_send_request(stalled, "POST", "/flood", "", "{}"));
    assert_true(http_send_request(idle, "GET", "/echo", "", NULL));
    answer = http_read(idle, false);
    assert_int_equal(answer.status, 200);
    http_answer_fini(&answer);
    for (int i = 0; i < 12; i++) { /* a byte now and then keeps no connection alive */
        send(header, "X", 1, MSG_NOSIGNAL);
        send(body, "x", 1, MSG_NOSIGNAL);
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    }
    assert_false(http_read_until(header, "never", &text));
    assert_false(http_read_until(body, "never", &text));
    assert_false(http_read_until(idle, "never", &text));
    wait_for(&fixture->gone, 1); /* the one that does not read is dropped, and its handler told */
    assert_in_range(ash_clock_ns() - begin_ns, 1000000000ull, 60000000000ull);
    close(header), close(body), close(stalled), close(idle);
    ash_str_fini(&text);
    close_server(fixture);
}

/* A connection that has a request for good: an answer without end, of which the client reads the first bytes. */
static int connect_busy(int port)
{
    struct ash_str text = {0};
    int fd = http_connect(port);

    assert_true(http_send_request(fd, "POST", "/flood", "", "{}"));
    assert_true(http_read_until(fd, "xxx", &text));
    ash_str_fini(&text);
    return fd;
}

static void wait_for_connections(struct fixture *fixture, size_t most)
{
    for (int i = 0; i < 6000 && ash_http_get_stats(fixture->http).connections > most; i++)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
}

static void test_connections_over_the_limit(void **state)
{
    struct fixture *fixture = new_fixture();
    struct http_answer answer;
    int fds[10];
    char value[64];
    (void)state;

    fixture->opts.connections_max = ASH_COUNT(fds);
    open_server(fixture);
    for (size_t i = 0; i < ASH_COUNT(fds); i++)
        fds[i] = connect_busy(fixture->port);
    answer = http_do(fixture->port, "GET", "/echo", "", NULL);
    assert_int_equal(answer.status, 503);
    assert_non_null(http_header(&answer, "retry-after: ", value, sizeof(value)));
    http_answer_fini(&answer);
    check_status(fixture->port, "GET", "/quick", "", NULL, 200, "GET"); /* health has no limit */
    for (size_t i = 0; i < ASH_COUNT(fds); i++)
        close(fds[i]);
    wait_for_connections(fixture, 0);
    check_status(fixture->port, "GET", "/echo", "", NULL, 200, "GET");
    close_server(fixture);
}

/* Idle connections give way, the longest idle one first; those with a request stay. */
static void test_idle_connections_give_way(void **state)
{
    struct fixture *fixture = new_fixture();
    struct ash_str text = {0};
    int busy, first, fds[300];
    (void)state;

    fixture->opts.connections_max = 8;
    open_server(fixture);
    busy = connect_busy(fixture->port);
    first = http_connect(fixture->port);
    assert_true(http_send_request(first, "GET", "/echo", "", NULL));
    assert_true(http_read_until(first, "GET::", &text));
    for (size_t i = 0; i < ASH_COUNT(fds); i++)
        fds[i] = http_connect(fixture->port); /* sends nothing */
    check_status(fixture->port, "GET", "/echo", "", NULL, 200, "GET");
    assert_false(http_read_until(first, "never", &text)); /* it was closed */
    ash_str_clear(&text);
    assert_true(http_read_until(busy, "xxx", &text));
    for (size_t i = 0; i < ASH_COUNT(fds); i++)
        close(fds[i]);
    wait_for_connections(fixture, 1);
    check_status(fixture->port, "GET", "/echo", "", NULL, 200, "GET");
    close(busy), close(first);
    ash_str_fini(&text);
    close_server(fixture);
}

static void test_connections_of_one_client(void **state)
{
    struct fixture *fixture = new_fixture();
    struct sockaddr_in other = {.sin_family = AF_INET}, to = {.sin_family = AF_INET};
    struct http_answer answer;
    int fds[4], fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    (void)state;

    fixture->opts.client_connections_max = ASH_COUNT(fds);
    open_server(fixture);
    for (size_t i = 0; i < ASH_COUNT(fds); i++)
        fds[i] = connect_busy(fixture->port);
    check_status(fixture->port, "GET", "/echo", "", NULL, 503, "too_many_connections");
    other.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons((uint16_t)fixture->port);
    assert_int_equal(bind(fd, (struct sockaddr *)&other, sizeof(other)), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    assert_true(http_send_request(fd, "GET", "/echo", "", NULL));
    answer = http_read(fd, false);
    assert_int_equal(answer.status, 200);
    http_answer_fini(&answer);
    close(fd);
    for (size_t i = 0; i < ASH_COUNT(fds); i++)
        close(fds[i]);
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

static double cpu_seconds(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

/* Clients are in a child: their descriptors are not ours. */
static pid_t start_clients(int port, int count, const struct rlimit *limit, int *pipe_out)
{
    int fds[2];
    pid_t child;

    assert_int_equal(pipe(fds), 0);
    child = fork();
    if (child == 0) {
        char byte;

        close(fds[1]);
        setrlimit(RLIMIT_NOFILE, limit);
        for (int i = 0; i < count; i++)
            if (http_connect(port) < 0) _exit(1);
        if (read(fds[0], &byte, 1) < 0) _exit(1); /* until the parent closes its end */
        _exit(0);
    }
    close(fds[0]);
    *pipe_out = fds[1];
    return child;
}

/* Without descriptors the server waits without using the processor, and continues when there are some again. */
static void test_no_descriptors(void **state)
{
    struct fixture *fixture = new_fixture();
    struct rlimit limit, small;
    double before;
    int status = 0, hold_open = -1, probe;
    pid_t child;
    (void)state;

    open_server(fixture);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    small = limit;
    probe = dup(0);
    close(probe);
    small.rlim_cur = (rlim_t)probe + 12;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &small), 0);
    ash_log_set_level(ASH_LOG_ERROR);
    child = start_clients(fixture->port, 40, &limit, &hold_open);
    for (int i = 0; i < 600 && ash_http_get_stats(fixture->http).accepted == 0; i++)
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    nanosleep(&(struct timespec){.tv_nsec = 400000000}, NULL);
    before = cpu_seconds();
    nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
    assert_true(cpu_seconds() - before < 0.2);
    assert_in_range(ash_http_get_stats(fixture->http).accepted, 1, 12);
    ash_log_set_level(ASH_LOG_INFO);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    close(hold_open);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    check_status(fixture->port, "GET", "/echo", "", NULL, 200, "GET");
    close_server(fixture);
}

static void *drain(void *arg)
{
    struct fixture *fixture = arg;

    assert_int_equal(ash_http_drain(fixture->http, 20), 0);
    return NULL;
}

static void test_drain(void **state)
{
    struct fixture *fixture = new_fixture();
    struct http_answer answer;
    struct ash_str body = {0};
    pthread_t thread;
    char value[64];
    int fd;
    (void)state;

    open_server(fixture);
    fd = http_connect(fixture->port);
    assert_true(http_send_request(fd, "POST", "/hold", "", "{}"));
    wait_for(&fixture->held, 1);
    assert_int_equal(ash_http_drain(fixture->http, 0.01), -ETIMEDOUT);
    assert_int_equal(pthread_create(&thread, NULL, drain, fixture), 0);
    answer = http_do(fixture->port, "POST", "/echo", "", "{}");
    assert_int_equal(answer.status, 503);
    assert_non_null(http_header(&answer, "retry-after: ", value, sizeof(value)));
    http_answer_fini(&answer);
    check_status(fixture->port, "GET", "/quick", "", NULL, 200, "GET");
    ash_str_adds(&body, "late");
    ash_http_respond(fixture->waiting, 200, "text/plain", &body);
    ash_http_exchange_put(fixture->waiting);
    answer = http_read(fd, false);
    assert_string_equal(answer.body.data, "late");
    http_answer_fini(&answer);
    pthread_join(thread, NULL);
    close(fd);
    close_server(fixture);
}

/* Closing ends what is open: exchanges that wait, and streams. */
static void test_close_with_open_exchanges(void **state)
{
    struct fixture *fixture = new_fixture();
    int held, flooded;
    (void)state;

    open_server(fixture);
    held = http_connect(fixture->port);
    flooded = http_connect(fixture->port);
    assert_true(http_send_request(held, "POST", "/hold", "", "{}"));
    assert_true(http_send_request(flooded, "POST", "/flood", "", "{}"));
    wait_for(&fixture->held, 1);
    wait_for(&fixture->streamed, 1);
    close_server(fixture);
    assert_int_equal(atomic_load(&fixture->gone), 2);
    assert_int_equal(atomic_load(&fixture->ended), 2);
    ash_http_exchange_put(fixture->waiting);
    close(held), close(flooded);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_routes_and_methods),
        cmocka_unit_test(test_keep_alive_and_sizes),
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_rate_limits),
        cmocka_unit_test(test_cors),
        cmocka_unit_test(test_clients_that_leave),
        cmocka_unit_test(test_deadlines),
        cmocka_unit_test(test_connections_over_the_limit),
        cmocka_unit_test(test_idle_connections_give_way),
        cmocka_unit_test(test_connections_of_one_client),
        cmocka_unit_test(test_pages_of_others),
        cmocka_unit_test(test_no_descriptors),
        cmocka_unit_test(test_drain),
        cmocka_unit_test(test_close_with_open_exchanges),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
