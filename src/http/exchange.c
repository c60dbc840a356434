/* An exchange from its header to its end: body, handler, response. libmicrohttpd calls in from its one thread; handlers
 * answer from others. A connection whose client waits for us is suspended, so it costs nothing. */
#include "http/http_priv.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/hash.h"

#define ID_CHARACTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."
#define BODY_PER_SECOND 65536 /* bytes a client must take or send at least, for the deadlines of large bodies */
#define DISCARD_BYTES_MAX ((size_t)1 << 20) /* of a refused body that are read, to keep the connection */

/* ---- life -------------------------------------------------------------------------------------------------------- */

static void set_id(struct ash_http_exchange *exchange, const char *given)
{
    struct ash_http *http = exchange->http;
    uint64_t number = atomic_fetch_add(&http->next_id, 1);

    if (given != NULL && given[0] != '\0' && strlen(given) < ASH_HTTP_ID_BYTES &&
        strspn(given, ID_CHARACTERS) == strlen(given))
        snprintf(exchange->id, sizeof(exchange->id), "%s", given);
    else
        snprintf(exchange->id, sizeof(exchange->id), "%016llx%08llx",
                 (unsigned long long)ash_hash_mix(http->id_seed ^ number), (unsigned long long)(number & 0xffffffff));
}

static void set_client(struct ash_http_exchange *exchange, struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    const struct sockaddr *address = info != NULL ? info->client_addr : NULL;

    if (address != NULL && address->sa_family == AF_INET)
        inet_ntop(AF_INET, &((const struct sockaddr_in *)(const void *)address)->sin_addr, exchange->client,
                  sizeof(exchange->client));
    else if (address != NULL && address->sa_family == AF_INET6)
        inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr, exchange->client,
                  sizeof(exchange->client));
}

static struct ash_http_exchange *open_exchange(struct ash_http *http, struct MHD_Connection *connection,
                                               const char *url, const char *method)
{
    struct ash_http_exchange *exchange = calloc(1, sizeof(*exchange));
    const union MHD_ConnectionInfo *info;

    if (exchange == NULL) return NULL;
    exchange->http = http;
    exchange->refs = 1;
    exchange->connection = connection;
    exchange->started_ns = ash_clock_ns();
    exchange->key = ash_keys_anonymous(http->opts.keys);
    pthread_mutex_init(&exchange->lock, NULL);
    pthread_mutex_init(&exchange->gone_lock, NULL);
    snprintf(exchange->path, sizeof(exchange->path), "%s", url);
    snprintf(exchange->method, sizeof(exchange->method), "%s", method);
    set_id(exchange, MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "X-Request-Id"));
    set_client(exchange, connection);
    info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    exchange->record = info != NULL ? info->socket_context : NULL;
    return exchange;
}

void ash_http_exchange_get(struct ash_http_exchange *exchange)
{
    atomic_fetch_add(&exchange->refs, 1);
}

void ash_http_exchange_put(struct ash_http_exchange *exchange)
{
    if (atomic_fetch_sub(&exchange->refs, 1) != 1) return;
    for (size_t i = 0; i < exchange->header_count; i++)
        free(exchange->headers[i].value);
    ash_str_fini(&exchange->body);
    ash_str_fini(&exchange->out);
    pthread_mutex_destroy(&exchange->lock);
    pthread_mutex_destroy(&exchange->gone_lock);
    free(exchange);
}

/* ---- the request ------------------------------------------------------------------------------------------------- */

static void refuse(struct ash_http_exchange *exchange)
{
    const struct ash_http_opts *opts = &exchange->http->opts;

    exchange->state = ASH_HTTP_HANDLED;
    opts->refuse(opts->ctx, exchange, exchange->refused_status, exchange->refused_code, exchange->refused_text);
}

static void run_handler(void *ctx)
{
    struct ash_http_exchange *exchange = ctx;

    exchange->route->handle(exchange->http->opts.ctx, exchange);
    ash_http_exchange_put(exchange);
}

/* Queue the handler. The exchange is kept until it has run. */
static void post_handler(struct ash_http_exchange *exchange, struct ash_http_workers *workers)
{
    ash_http_exchange_get(exchange);
    if (ash_http_workers_post(workers, run_handler, exchange) == 0) return;
    ash_http_exchange_put(exchange);
    ash_http_exchange_gone(exchange);
}

bool ash_http_may_defer(const struct ash_http_exchange *exchange)
{
    return exchange->http != NULL && exchange->http->opts.slow_workers > 0 && !exchange->is_deferred;
}

void ash_http_defer(struct ash_http_exchange *exchange)
{
    ash_assert(ash_http_may_defer(exchange));
    atomic_fetch_add(&exchange->http->deferred, 1);
    exchange->is_deferred = true; /* before the queue's lock: the slow worker sees it */
    post_handler(exchange, &exchange->http->slow_workers);
}

/* Hand the request to a worker, or run its handler here, with the connection suspended. */
static enum MHD_Result dispatch(struct ash_http_exchange *exchange)
{
    bool is_gone;

    ash_http_watch_enter(exchange->http, exchange->record, ASH_HTTP_WORKING, 0);
    pthread_mutex_lock(&exchange->lock);
    exchange->state = ASH_HTTP_HANDLED;
    is_gone = exchange->is_gone;
    if (!is_gone) ash_http_suspend(exchange);
    pthread_mutex_unlock(&exchange->lock);
    if (is_gone) return MHD_NO;
    if (!exchange->route->is_inline) {
        post_handler(exchange, &exchange->http->workers);
        return MHD_YES;
    }
    ash_http_exchange_get(exchange);
    run_handler(exchange);
    return MHD_YES;
}

/* The whole request is there. */
static enum MHD_Result handle(struct ash_http_exchange *exchange, struct MHD_Connection *connection)
{
    bool has_left;

    if (exchange->refused_status != 0) {
        refuse(exchange);
        return ash_http_queue(exchange, connection);
    }
    if (exchange->route->is_quick) {
        exchange->state = ASH_HTTP_HANDLED;
        exchange->route->handle(exchange->http->opts.ctx, exchange);
        if (exchange->state == ASH_HTTP_READY) return ash_http_queue(exchange, connection);
    }
    has_left = ash_http_watch_bind(exchange->http, exchange->record, exchange);
    if (has_left) return MHD_NO;
    return dispatch(exchange);
}

static enum MHD_Result begin(struct ash_http *http, struct MHD_Connection *connection, const char *url,
                             const char *method, void **request)
{
    struct ash_http_exchange *exchange = open_exchange(http, connection, url, method);
    const char *length = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);
    unsigned long long bytes = length != NULL ? strtoull(length, NULL, 10) : 0;
    double seconds = http->opts.body_seconds + (double)bytes / BODY_PER_SECOND;

    if (exchange == NULL) return MHD_NO;
    *request = exchange;
    ash_http_admit(exchange, connection);
    ash_http_add_cors(exchange, connection);
    ash_http_watch_enter(http, exchange->record, ASH_HTTP_READING,
                         seconds < 2 * http->opts.body_seconds ? seconds : 2 * http->opts.body_seconds);
    if (exchange->refused_status == 0 || bytes <= DISCARD_BYTES_MAX) return MHD_YES;
    exchange->must_close = true; /* do not read that much to drop it */
    refuse(exchange);
    return ash_http_queue(exchange, connection);
}

static void take_body(struct ash_http_exchange *exchange, const char *upload, size_t size_bytes)
{
    size_t most = exchange->http->opts.body_bytes_max;

    exchange->received_bytes += size_bytes;
    if (exchange->refused_status != 0) return;
    if (exchange->body.size_bytes + size_bytes > most) {
        exchange->refused_status = MHD_HTTP_CONTENT_TOO_LARGE;
        exchange->refused_code = "request_too_large";
        exchange->must_close = true;
        snprintf(exchange->refused_text, sizeof(exchange->refused_text), "the body is larger than %zu bytes", most);
    } else if (ash_str_add(&exchange->body, upload, size_bytes) < 0) {
        exchange->refused_status = MHD_HTTP_SERVICE_UNAVAILABLE;
        exchange->refused_code = "out_of_memory";
        snprintf(exchange->refused_text, sizeof(exchange->refused_text), "no memory for the request");
    }
    if (exchange->refused_status != 0) ash_str_fini(&exchange->body);
}

enum MHD_Result ash_http_on_request(void *ctx, struct MHD_Connection *connection, const char *url, const char *method,
                                    const char *version, const char *upload, size_t *upload_bytes, void **request)
{
    struct ash_http_exchange *exchange = *request;
    enum ash_http_state state;
    bool is_gone;

    (void)version;
    if (exchange == NULL) return begin(ctx, connection, url, method, request);
    pthread_mutex_lock(&exchange->lock);
    state = exchange->state;
    is_gone = exchange->is_gone;
    if (!is_gone && state == ASH_HTTP_HANDLED) ash_http_suspend(exchange); /* called without cause */
    pthread_mutex_unlock(&exchange->lock);
    if (is_gone) return MHD_NO;
    if (state == ASH_HTTP_TAKING_BODY && *upload_bytes > 0) {
        take_body(exchange, upload, *upload_bytes);
        *upload_bytes = 0;
        return MHD_YES;
    }
    if (state == ASH_HTTP_TAKING_BODY) return handle(exchange, connection);
    return state == ASH_HTTP_READY ? ash_http_queue(exchange, connection) : MHD_YES;
}

/* ---- its end ----------------------------------------------------------------------------------------------------- */

/* Call the handler's gone once, if there is one. */
static void tell_gone(struct ash_http_exchange *exchange)
{
    void (*gone)(void *ctx) = NULL;
    void *ctx = NULL;

    pthread_mutex_lock(&exchange->gone_lock);
    pthread_mutex_lock(&exchange->lock);
    if (!exchange->is_complete) {
        exchange->is_gone = true;
        gone = exchange->gone;
        ctx = exchange->gone_ctx;
        exchange->gone = NULL;
    }
    pthread_mutex_unlock(&exchange->lock);
    if (gone != NULL) gone(ctx);
    pthread_mutex_unlock(&exchange->gone_lock);
}

void ash_http_exchange_gone(struct ash_http_exchange *exchange)
{
    tell_gone(exchange);
    ash_http_watch_cut(exchange->http, exchange);
    ash_http_wake(exchange);
}

bool ash_http_is_gone(struct ash_http_exchange *exchange)
{
    bool is_gone;

    pthread_mutex_lock(&exchange->lock);
    is_gone = exchange->is_gone;
    pthread_mutex_unlock(&exchange->lock);
    return is_gone;
}

void ash_http_on_gone(struct ash_http_exchange *exchange, void (*gone)(void *ctx), void *ctx)
{
    bool is_gone;

    pthread_mutex_lock(&exchange->lock);
    is_gone = exchange->is_gone;
    if (!is_gone) {
        exchange->gone = gone;
        exchange->gone_ctx = ctx;
    }
    pthread_mutex_unlock(&exchange->lock);
    if (is_gone) gone(ctx);
}

void ash_http_on_end(struct ash_http_exchange *exchange, void (*end)(void *ctx), void *ctx)
{
    bool is_over;

    pthread_mutex_lock(&exchange->lock);
    is_over = exchange->is_over;
    if (!is_over) {
        exchange->end = end;
        exchange->end_ctx = ctx;
    }
    pthread_mutex_unlock(&exchange->lock);
    if (is_over) end(ctx);
}

void ash_http_exchange_end(struct ash_http_exchange *exchange)
{
    void (*end)(void *ctx);
    void *ctx;

    pthread_mutex_lock(&exchange->gone_lock);
    pthread_mutex_lock(&exchange->lock);
    exchange->is_over = true;
    end = exchange->end;
    ctx = exchange->end_ctx;
    exchange->end = NULL;
    pthread_mutex_unlock(&exchange->lock);
    pthread_mutex_unlock(&exchange->gone_lock);
    if (end != NULL) end(ctx);
}

static void count_down(struct ash_http *http)
{
    pthread_mutex_lock(&http->lock);
    atomic_fetch_sub(&http->exchanges, 1);
    pthread_cond_broadcast(&http->idle);
    pthread_mutex_unlock(&http->lock);
}

void ash_http_on_completed(void *ctx, struct MHD_Connection *connection, void **request,
                           enum MHD_RequestTerminationCode code)
{
    struct ash_http *http = ctx;
    struct ash_http_exchange *exchange = *request;

    (void)connection;
    if (exchange == NULL) return;
    *request = NULL;
    ash_http_watch_bind(http, exchange->record, NULL);
    pthread_mutex_lock(&exchange->lock);
    exchange->is_complete = code == MHD_REQUEST_TERMINATED_COMPLETED_OK && !exchange->is_gone;
    exchange->connection = NULL;
    pthread_mutex_unlock(&exchange->lock);
    tell_gone(exchange);
    ash_http_exchange_end(exchange);
    ash_http_watch_enter(http, exchange->record, ASH_HTTP_IDLE, http->opts.idle_seconds);
    if (http->opts.logs_access) ash_http_log(exchange, code);
    if (exchange->is_counted) count_down(http);
    ash_http_exchange_put(exchange);
}

/* ---- what handlers see ------------------------------------------------------------------------------------------- */

const char *ash_http_method(const struct ash_http_exchange *exchange)
{
    return exchange->method;
}

const char *ash_http_path(const struct ash_http_exchange *exchange)
{
    return exchange->path;
}

const char *ash_http_body(const struct ash_http_exchange *exchange, size_t *size_out)
{
    *size_out = exchange->body.size_bytes;
    return exchange->body.data != NULL ? exchange->body.data : "";
}

void ash_http_drop_body(struct ash_http_exchange *exchange)
{
    ash_str_fini(&exchange->body);
}

static const char *look_up(struct ash_http_exchange *exchange, enum MHD_ValueKind kind, const char *name)
{
    const char *value = NULL;

    pthread_mutex_lock(&exchange->lock);
    if (exchange->connection != NULL) value = MHD_lookup_connection_value(exchange->connection, kind, name);
    pthread_mutex_unlock(&exchange->lock);
    return value;
}

const char *ash_http_query(struct ash_http_exchange *exchange, const char *name)
{
    return look_up(exchange, MHD_GET_ARGUMENT_KIND, name);
}

const char *ash_http_request_header(struct ash_http_exchange *exchange, const char *name)
{
    return look_up(exchange, MHD_HEADER_KIND, name);
}

struct header_visit {
    int (*see)(void *ctx, const char *name, const char *value);
    void *ctx;
    int rc;
};

static enum MHD_Result visit_header(void *ctx, enum MHD_ValueKind kind, const char *name, const char *value)
{
    struct header_visit *visit = ctx;

    (void)kind;
    visit->rc = visit->see(visit->ctx, name, value != NULL ? value : "");
    return visit->rc < 0 ? MHD_NO : MHD_YES;
}

int ash_http_each_header(struct ash_http_exchange *exchange, int (*see)(void *ctx, const char *name, const char *value),
                         void *ctx)
{
    struct header_visit visit = {.see = see, .ctx = ctx};

    pthread_mutex_lock(&exchange->lock);
    if (exchange->connection != NULL)
        MHD_get_connection_values(exchange->connection, MHD_HEADER_KIND, visit_header, &visit);
    pthread_mutex_unlock(&exchange->lock);
    return visit.rc;
}

const char *ash_http_id(const struct ash_http_exchange *exchange)
{
    return exchange->id;
}

struct ash_key *ash_http_key(const struct ash_http_exchange *exchange)
{
    return exchange->key;
}

uint64_t ash_http_started_ns(const struct ash_http_exchange *exchange)
{
    return exchange->started_ns;
}

void ash_http_post(struct ash_http_exchange *exchange, void (*fn)(void *ctx), void *ctx)
{
    if (exchange->http == NULL || ash_http_workers_post(&exchange->http->workers, fn, ctx) < 0) fn(ctx);
}

void ash_http_note(struct ash_http_exchange *exchange, const char *text)
{
    pthread_mutex_lock(&exchange->lock);
    snprintf(exchange->note, sizeof(exchange->note), "%s", text);
    pthread_mutex_unlock(&exchange->lock);
}
