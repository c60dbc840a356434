/* Responses: one buffer, or a stream that is pulled. libmicrohttpd pulls bytes when the client takes them; if there are
 * none the connection is suspended until ash_http_wake. So a slow client delays only itself. */
#include "http/http_priv.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"

#define BLOCK_BYTES 16384

/* ---- suspending and waking --------------------------------------------------------------------------------------- */

void ash_http_suspend(struct ash_http_exchange *exchange)
{
    exchange->is_woken = false;
    exchange->is_suspended = true;
    MHD_suspend_connection(exchange->connection);
}

/* With the lock held. */
static void resume(struct ash_http_exchange *exchange)
{
    exchange->is_woken = !exchange->is_suspended;
    if (!exchange->is_suspended || exchange->connection == NULL) return;
    exchange->is_suspended = false;
    MHD_resume_connection(exchange->connection);
}

void ash_http_wake(struct ash_http_exchange *exchange)
{
    pthread_mutex_lock(&exchange->lock);
    /* Before it has responded there is no reader: only its response, or its end, wakes the connection. */
    if (exchange->state != ASH_HTTP_HANDLED || exchange->is_gone) resume(exchange);
    pthread_mutex_unlock(&exchange->lock);
}

/* ---- responses of handlers --------------------------------------------------------------------------------------- */

void ash_http_add_header(struct ash_http_exchange *exchange, const char *name, const char *value)
{
    char *copy = strndup(value, strcspn(value, "\r\n"));

    pthread_mutex_lock(&exchange->lock);
    if (copy != NULL && exchange->header_count < ASH_HTTP_HEADERS_MAX) {
        exchange->headers[exchange->header_count++] = (struct ash_http_header){name, copy};
        copy = NULL;
    }
    pthread_mutex_unlock(&exchange->lock);
    free(copy);
}

void ash_http_respond(struct ash_http_exchange *exchange, unsigned status, const char *type, struct ash_str *body)
{
    pthread_mutex_lock(&exchange->lock);
    ash_assert(exchange->state == ASH_HTTP_HANDLED);
    exchange->status = status;
    exchange->type = type;
    exchange->out = *body;
    *body = (struct ash_str){0};
    exchange->state = ASH_HTTP_READY;
    resume(exchange);
    pthread_mutex_unlock(&exchange->lock);
}

void ash_http_stream(struct ash_http_exchange *exchange, unsigned status, const char *type, ash_http_read_fn read,
                     void *ctx)
{
    pthread_mutex_lock(&exchange->lock);
    ash_assert(exchange->state == ASH_HTTP_HANDLED && read != NULL);
    exchange->status = status;
    exchange->type = type;
    exchange->read = read;
    exchange->read_ctx = ctx;
    exchange->state = ASH_HTTP_READY;
    resume(exchange);
    pthread_mutex_unlock(&exchange->lock);
}

/* ---- callbacks of libmicrohttpd ---------------------------------------------------------------------------------- */

/* The client has gone and its socket is shut down: a byte that cannot be sent closes the connection at once, where an
 * error of ours would leave it to libmicrohttpd's next event. */
static int give_up(struct ash_http_exchange *exchange)
{
    exchange->read_ended = true;
    return ash_str_adds(&exchange->out, "\n");
}

/* Fill out from the handler's read. Returns what read does, or 2 when the connection was suspended. */
static int pull(struct ash_http_exchange *exchange)
{
    int rc;

    ash_str_clear(&exchange->out);
    exchange->out_sent = 0;
    for (;;) {
        bool is_gone;

        pthread_mutex_lock(&exchange->lock);
        exchange->is_woken = false;
        is_gone = exchange->is_gone;
        pthread_mutex_unlock(&exchange->lock);
        if (is_gone) return give_up(exchange);
        rc = exchange->read(exchange->read_ctx, &exchange->out);
        if (rc <= 0) exchange->read_ended = true;
        if (rc <= 0 || exchange->out.size_bytes > 0) return rc;
        pthread_mutex_lock(&exchange->lock);
        if (!exchange->is_woken) {
            ash_http_suspend(exchange);
            pthread_mutex_unlock(&exchange->lock);
            return 2;
        }
        pthread_mutex_unlock(&exchange->lock);
    }
}

/* size_bytes were copied; is_last: there will be no more. */
static ssize_t note_sent(struct ash_http_exchange *exchange, size_t size_bytes, bool is_last)
{
    exchange->sent_bytes += size_bytes;
    if (is_last) {
        pthread_mutex_lock(&exchange->lock);
        exchange->is_whole = !exchange->is_gone;
        pthread_mutex_unlock(&exchange->lock);
    }
    return (ssize_t)size_bytes;
}

static ssize_t read_stream(void *ctx, uint64_t position, char *buf, size_t max)
{
    struct ash_http_exchange *exchange = ctx;
    size_t left = exchange->out.size_bytes - exchange->out_sent;
    int rc = 1;

    (void)position;
    if (left == 0 && exchange->read_ended) return MHD_CONTENT_READER_END_OF_STREAM;
    if (left == 0) {
        rc = pull(exchange);
        left = exchange->out.size_bytes;
    }
    if (rc < 0) return MHD_CONTENT_READER_END_WITH_ERROR;
    if (rc == 2) {
        ash_http_watch_enter(exchange->http, exchange->record, ASH_HTTP_WORKING, 0);
        return 0;
    }
    if (left == 0) return MHD_CONTENT_READER_END_OF_STREAM;
    ash_http_watch_enter(exchange->http, exchange->record, ASH_HTTP_SENDING, exchange->http->opts.stall_seconds);
    left = ash_min(left, max);
    memcpy(buf, exchange->out.data + exchange->out_sent, left);
    exchange->out_sent += left;
    return note_sent(exchange, left, exchange->read_ended && exchange->out_sent == exchange->out.size_bytes);
}

/* A buffer, in blocks, so that a client which does not read is seen. */
static ssize_t read_buffer(void *ctx, uint64_t position, char *buf, size_t max)
{
    struct ash_http_exchange *exchange = ctx;
    size_t left = exchange->out.size_bytes - (size_t)position;

    if (left == 0) return MHD_CONTENT_READER_END_OF_STREAM;
    ash_http_watch_enter(exchange->http, exchange->record, ASH_HTTP_SENDING, exchange->http->opts.stall_seconds);
    left = ash_min(left, max);
    memcpy(buf, exchange->out.data + position, left);
    return note_sent(exchange, left, (size_t)position + left == exchange->out.size_bytes);
}

/* The response object gives its hold on the exchange back. */
static void drop_response(void *ctx)
{
    ash_http_exchange_put(ctx);
}

static void add_quota(struct MHD_Response *response, const char *what, const struct ash_key_quota *quota)
{
    char name[64], value[64];

    if (quota->limit == 0) return;
    snprintf(name, sizeof(name), "x-ratelimit-limit-%s", what);
    snprintf(value, sizeof(value), "%.0f", quota->limit);
    MHD_add_response_header(response, name, value);
    snprintf(name, sizeof(name), "x-ratelimit-remaining-%s", what);
    snprintf(value, sizeof(value), "%.0f", floor(quota->left));
    MHD_add_response_header(response, name, value);
    snprintf(name, sizeof(name), "x-ratelimit-reset-%s", what);
    snprintf(value, sizeof(value), "%.3gs", quota->reset_seconds);
    MHD_add_response_header(response, name, value);
}

static void add_headers(struct ash_http_exchange *exchange, struct MHD_Response *response)
{
    struct ash_key_quota requests, tokens;

    if (exchange->type != NULL) MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, exchange->type);
    MHD_add_response_header(response, "x-request-id", exchange->id);
    MHD_add_response_header(response, "request-id", exchange->id); /* the name that Anthropic's clients read */
    MHD_add_response_header(response, "x-content-type-options", "nosniff");
    if (exchange->read != NULL) {
        MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
        MHD_add_response_header(response, "x-accel-buffering", "no"); /* a proxy must pass each event on */
    }
    if (exchange->must_close || atomic_load(&exchange->http->is_draining))
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
    for (size_t i = 0; i < exchange->header_count; i++)
        MHD_add_response_header(response, exchange->headers[i].name, exchange->headers[i].value);
    ash_key_quotas(exchange->key, &requests, &tokens);
    add_quota(response, "requests", &requests);
    add_quota(response, "tokens", &tokens);
}

enum MHD_Result ash_http_queue(struct ash_http_exchange *exchange, struct MHD_Connection *connection)
{
    bool is_stream = exchange->read != NULL;
    struct MHD_Response *response;
    enum MHD_Result result;

    pthread_mutex_lock(&exchange->lock);
    ash_assert(exchange->state == ASH_HTTP_READY);
    exchange->state = ASH_HTTP_QUEUED;
    pthread_mutex_unlock(&exchange->lock);
    ash_http_exchange_get(exchange);
    if (exchange->out.size_bytes == 0 && !is_stream) {
        response = MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
        ash_http_exchange_put(exchange);
    } else {
        response =
            MHD_create_response_from_callback(is_stream ? MHD_SIZE_UNKNOWN : exchange->out.size_bytes, BLOCK_BYTES,
                                              is_stream ? read_stream : read_buffer, exchange, drop_response);
        if (response == NULL) ash_http_exchange_put(exchange);
    }
    if (response == NULL) return MHD_NO;
    ash_http_watch_enter(exchange->http, exchange->record, ASH_HTTP_SENDING, exchange->http->opts.stall_seconds);
    add_headers(exchange, response);
    result = MHD_queue_response(connection, exchange->status, response);
    MHD_destroy_response(response);
    return result;
}
