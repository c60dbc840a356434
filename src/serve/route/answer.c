/* What a client gets: an answer as a whole, a stream, an error. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "serve/api/errors.h"
#include "serve/api/request.h"
#include "serve/route/route_priv.h"

/* The server's own come first; these are the replica's. */
static void add_headers(struct ash_route_call *call)
{
    for (size_t i = 0; i < call->answer_header_count; i++)
        ash_http_add_header(call->exchange, call->answer_headers[i].name, call->answer_headers[i].value);
}

static const char *type_of(const struct ash_route_call *call)
{
    return call->type[0] != '\0' ? call->type : NULL;
}

void ash_route_call_answer(struct ash_route_call *call)
{
    ash_assert(!call->has_begun && !call->is_ended);
    add_headers(call);
    call->has_begun = true;
    ash_http_respond(call->exchange, call->status, type_of(call), &call->body);
    ash_route_call_end(call);
}

void ash_route_call_respond(struct ash_route_call *call, json_t *json)
{
    call->has_begun = true;
    ash_api_respond_json(call->exchange, 200, json);
    ash_route_call_end(call);
}

/* ---- streams ----------------------------------------------------------------------------------------------------- */

/* What libmicrohttpd's thread pulls. */
static int read_out(void *ctx, struct ash_str *out)
{
    struct ash_route_call *call = ctx;
    bool has_ended, wants_more;
    int rc = 0;

    pthread_mutex_lock(&call->lock);
    if (out->size_bytes == 0) {
        struct ash_str old = *out;

        *out = call->out;
        call->out = old;
    } else {
        rc = ash_str_add(out, call->out.data != NULL ? call->out.data : "", call->out.size_bytes);
    }
    ash_str_clear(&call->out);
    has_ended = call->has_ended_out;
    wants_more = call->is_throttled;
    call->is_throttled = false;
    pthread_mutex_unlock(&call->lock);
    if (wants_more) {
        atomic_store(&call->wants_more, true);
        ash_router_post(call->router, call);
    }
    if (rc < 0) return rc;
    return has_ended ? 0 : 1;
}

void ash_route_call_begin_stream(struct ash_route_call *call)
{
    if (call->has_begun) return;
    call->has_begun = true;
    add_headers(call);
    ash_http_stream(call->exchange, call->status, type_of(call), read_out, call);
}

int ash_route_call_pass(struct ash_route_call *call, const char *bytes, size_t size_bytes, bool is_last)
{
    int rc;

    ash_assert(call->has_begun && !call->is_ended);
    pthread_mutex_lock(&call->lock);
    rc = ash_str_add(&call->out, bytes, size_bytes);
    call->has_ended_out = is_last;
    pthread_mutex_unlock(&call->lock);
    ash_http_wake(call->exchange);
    return rc;
}

/* ---- errors ------------------------------------------------------------------------------------------------------ */

/* The last event of a stream that cannot go on. */
static int write_event(const struct ash_route_call *call, const struct ash_api_err *err, struct ash_str *out)
{
    const char *path = ash_http_path(call->exchange);
    int rc = strncmp(path, "/v1/messages", 12) == 0 ? ash_str_adds(out, "event: error\n") : 0;

    if (rc == 0) rc = ash_str_adds(out, "data: ");
    if (rc == 0) rc = ash_api_err_write(err, path, ash_http_id(call->exchange), out);
    return rc == 0 ? ash_str_adds(out, "\n\n") : rc;
}

void ash_route_call_refuse(struct ash_route_call *call, unsigned status, const char *code, const char *fmt, ...)
{
    struct ash_api_err err = {.status = status, .code = code};
    struct ash_str event = {0};
    va_list args;

    ash_assert(status >= 400 && !call->is_ended);
    va_start(args, fmt);
    vsnprintf(err.text, sizeof(err.text), fmt, args);
    va_end(args);
    if (!call->has_begun) {
        ash_api_respond_err(call->exchange, &err);
    } else {
        ash_log(ASH_LOG_WARN, "a stream ends with an error: id=%s: %s", ash_http_id(call->exchange), err.text);
        if (write_event(call, &err, &event) < 0) ash_str_clear(&event);
        (void)ash_route_call_pass(call, event.data != NULL ? event.data : "", event.size_bytes, true);
        ash_str_fini(&event);
    }
    ash_route_call_end(call);
}
