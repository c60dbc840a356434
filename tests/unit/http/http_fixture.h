/* For the tests of the HTTP server: one with handlers that echo, hold and flood. */
#ifndef TESTS_UNIT_HTTP_HTTP_FIXTURE_H
#define TESTS_UNIT_HTTP_HTTP_FIXTURE_H

#include "http/http.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <errno.h>
#include <stdatomic.h>
#include <time.h>
#include <cmocka.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "harness/http_client.h"

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

static inline void echo(void *ctx, struct ash_http_exchange *exchange)
{
    struct ash_str body = {0};
    size_t size_bytes = 0;
    const char *text = ash_http_body(exchange, &size_bytes), *query = ash_http_query(exchange, "q");
    (void)ctx;

    ash_str_addf(&body, "%s:%s:", ash_http_method(exchange), query != NULL ? query : "");
    ash_str_add(&body, text, size_bytes);
    ash_http_respond(exchange, 200, "text/plain", &body);
}

static inline void count_gone(void *ctx)
{
    struct fixture *fixture = ctx;

    atomic_fetch_add(&fixture->gone, 1);
}

static inline void count_end(void *ctx)
{
    struct fixture *fixture = ctx;

    atomic_fetch_add(&fixture->ended, 1);
}

/* Answers on a slow worker, once is_open. */
static inline void defer(void *ctx, struct ash_http_exchange *exchange)
{
    struct fixture *fixture = ctx;

    if (ash_http_may_defer(exchange)) {
        ash_http_defer(exchange);
        return;
    }
    atomic_fetch_add(&fixture->held, 1);
    while (!atomic_load(&fixture->is_open))
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    echo(ctx, exchange);
}

/* Never answers by itself. */
static inline void hold(void *ctx, struct ash_http_exchange *exchange)
{
    struct fixture *fixture = ctx;

    ash_http_exchange_get(exchange);
    ash_http_on_gone(exchange, count_gone, fixture);
    ash_http_on_end(exchange, count_end, fixture);
    atomic_store(&fixture->waiting, exchange);
    atomic_fetch_add(&fixture->held, 1);
}

/* Events without end, as fast as the client takes them. */
static inline int flood(void *ctx, struct ash_str *out)
{
    struct fixture *fixture = ctx;
    char block[1024];

    memset(block, 'x', sizeof(block));
    atomic_fetch_add(&fixture->streamed, 1);
    return ash_str_add(out, block, sizeof(block)) < 0 ? -ENOMEM : 1;
}

static inline void stream_flood(void *ctx, struct ash_http_exchange *exchange)
{
    ash_http_on_gone(exchange, count_gone, ctx);
    ash_http_on_end(exchange, count_end, ctx);
    ash_http_stream(exchange, 200, "text/event-stream", flood, ctx);
}

static inline void refuse(void *ctx, struct ash_http_exchange *exchange, unsigned status, const char *code,
                          const char *text)
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
    {.method = "POST", .path = "/defer", .handle = defer},
    {.method = "POST", .path = "/flood", .handle = stream_flood},
};

static inline void open_server(struct fixture *fixture)
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

static inline void close_server(struct fixture *fixture)
{
    ash_http_close(fixture->http);
    ash_keys_close(fixture->keys);
}

static inline struct fixture *new_fixture(void)
{
    static struct fixture fixture;

    fixture = (struct fixture){.opts = ash_http_defaults()};
    return &fixture;
}

/* Wait until *value is at least `least`. */
static inline void wait_for(const _Atomic int *value, int least)
{
    uint64_t end_ns = ash_clock_ns() + 20000000000ull;

    while (atomic_load(value) < least) {
        if (ash_clock_ns() > end_ns) fail_msg("waited for %d, there are %d", least, atomic_load(value));
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

static inline void check_status(int port, const char *method, const char *path, const char *headers, const char *body,
                                int status, const char *word)
{
    struct http_answer answer = http_do(port, method, path, headers, body);

    if (answer.status != status || strstr(answer.body.data, word) == NULL)
        fail_msg("%s %s: %d '%s', expected %d and '%s'", method, path, answer.status, answer.body.data, status, word);
    http_answer_fini(&answer);
}

#endif
