/* Admission of requests: routes, methods, keys, limits, sizes, and pages of other origins. */
#include "http/http_priv.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define RETRY_SECONDS "5"

static void set_refusal(struct ash_http_exchange *exchange, unsigned status, const char *code, const char *text)
{
    exchange->refused_status = status;
    exchange->refused_code = code;
    snprintf(exchange->refused_text, sizeof(exchange->refused_text), "%s", text);
}

/* ---- routes ------------------------------------------------------------------------------------------------------ */

static bool serves(const struct ash_http_route *route, const char *method)
{
    return strcmp(route->method, method) == 0 ||
           (strcmp(method, MHD_HTTP_METHOD_HEAD) == 0 && strcmp(route->method, MHD_HTTP_METHOD_GET) == 0);
}

/* Is it the route's path? One that ends in a star has all that begin as it does. */
static bool has_path(const struct ash_http_route *route, const char *path)
{
    size_t size = strlen(route->path);

    if (route->path[size - 1] != '*') return strcmp(route->path, path) == 0;
    return strncmp(route->path, path, size - 1) == 0 && path[size - 1] != '\0';
}

/* The methods that a path has, for the Allow header. */
static void list_methods(const struct ash_http *http, const char *path, char *buf, size_t buf_bytes)
{
    size_t used = 0;

    buf[0] = '\0';
    for (size_t i = 0; i < http->opts.route_count; i++)
        if (has_path(&http->opts.routes[i], path) && used < buf_bytes)
            used += (size_t)snprintf(buf + used, buf_bytes - used, "%s%s", used > 0 ? ", " : "",
                                     http->opts.routes[i].method);
}

static void find_route(struct ash_http_exchange *exchange)
{
    const struct ash_http_opts *opts = &exchange->http->opts;
    char methods[64], text[192];

    for (size_t i = 0; i < opts->route_count; i++)
        if (has_path(&opts->routes[i], exchange->path) && serves(&opts->routes[i], exchange->method))
            exchange->route = &opts->routes[i];
    if (exchange->route != NULL) return;
    list_methods(exchange->http, exchange->path, methods, sizeof(methods));
    if (methods[0] == '\0') {
        set_refusal(exchange, MHD_HTTP_NOT_FOUND, "not_found", "there is nothing at this path");
        return;
    }
    snprintf(text, sizeof(text), "the method %s is not served here, %s is", exchange->method, methods);
    set_refusal(exchange, MHD_HTTP_METHOD_NOT_ALLOWED, "method_not_allowed", text);
    ash_http_add_header(exchange, MHD_HTTP_HEADER_ALLOW, methods);
}

/* ---- keys -------------------------------------------------------------------------------------------------------- */

/* The key of a request: OpenAI's, Anthropic's and Azure's header. */
static const char *given_key(struct MHD_Connection *connection)
{
    const char *value = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_AUTHORIZATION);

    if (value != NULL && strncasecmp(value, "Bearer ", 7) == 0) {
        value += 7;
        return value + strspn(value, " ");
    }
    value = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "x-api-key");
    return value != NULL ? value : MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "api-key");
}

static void check_key(struct ash_http_exchange *exchange, struct MHD_Connection *connection)
{
    struct ash_keys *keys = exchange->http->opts.keys;
    const char *given = given_key(connection);
    struct ash_key *key = given != NULL ? ash_keys_find(keys, given) : NULL;

    if (key != NULL) exchange->key = key;
    if (exchange->route->is_open) return;
    if (exchange->route->needs_admin && (key == NULL || !ash_key_is_admin(key))) {
        set_refusal(exchange, MHD_HTTP_UNAUTHORIZED, "invalid_api_key", "this route needs the admin key (--admin-key)");
        return;
    }
    if (key != NULL || !ash_keys_are_needed(keys)) return;
    set_refusal(exchange, MHD_HTTP_UNAUTHORIZED, "invalid_api_key",
                given != NULL ? "the API key is not one of this server's"
                              : "an API key is missing: send it as Authorization: Bearer KEY");
    ash_http_add_header(exchange, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
}

static void check_limits(struct ash_http_exchange *exchange)
{
    char seconds[32];
    double wait = 0;

    if (!exchange->route->takes_requests || ash_key_take_request(exchange->key, &wait) == 0) return;
    snprintf(seconds, sizeof(seconds), "%.0f", ceil(wait));
    set_refusal(exchange, MHD_HTTP_TOO_MANY_REQUESTS, "rate_limit_exceeded",
                "the limit of this API key is reached: try again after Retry-After");
    ash_http_add_header(exchange, MHD_HTTP_HEADER_RETRY_AFTER, seconds);
}

/* ---- other origins ----------------------------------------------------------------------------------------------- */

/* Is host, perhaps with a port, this name? */
static bool is_named(const char *host, const char *name)
{
    size_t bytes = strlen(name);
    const char *rest = host + bytes;

    if (strncasecmp(host, name, bytes) != 0) return false;
    return rest[0] == '\0' || (rest[0] == ':' && strspn(rest + 1, "0123456789") == strlen(rest + 1));
}

static bool is_this_machine(const char *host)
{
    return is_named(host, "localhost") || is_named(host, "127.0.0.1") || is_named(host, "[::1]");
}

/* The part of an origin after http:// or https://, or NULL. */
static const char *host_of(const char *origin)
{
    if (strncmp(origin, "http://", 7) == 0) return origin + 7;
    return strncmp(origin, "https://", 8) == 0 ? origin + 8 : NULL;
}

static bool is_allowed(const struct ash_http_opts *opts, const char *origin)
{
    const char *host = host_of(origin);

    for (size_t i = 0; i < opts->origin_count; i++)
        if (strcmp(opts->origins[i], "*") == 0 || strcmp(opts->origins[i], origin) == 0) return true;
    return opts->origin_count == 0 && host != NULL && is_this_machine(host);
}

/* Can only programs of this machine connect? */
static bool is_loopback(const char *address)
{
    return strncmp(address, "127.", 4) == 0 || strcmp(address, "::1") == 0 || strcmp(address, "localhost") == 0;
}

/* A web page whose name was made to lead to this machine (DNS rebinding) calls as a page of this server, but with its
 * own name in Host. Where keys are needed, it has none. */
static void check_host(struct ash_http_exchange *exchange, const char *host)
{
    const struct ash_http_opts *opts = &exchange->http->opts;
    char text[192];

    if (host == NULL || !is_loopback(opts->host) || ash_keys_are_needed(opts->keys)) return;
    if (is_this_machine(host) || is_named(host, opts->host)) return;
    for (size_t i = 0; i < opts->name_count; i++)
        if (strcmp(opts->names[i], "*") == 0 || is_named(host, opts->names[i])) return;
    snprintf(text, sizeof(text),
             "this server has other names than '%.60s': call it localhost, or allow this one with --allowed-hosts",
             host);
    set_refusal(exchange, MHD_HTTP_FORBIDDEN, "host_not_allowed", text);
}

/* Browsers send a plain-text POST from any page without a CORS preflight; JSON has one. */
static void check_origin(struct ash_http_exchange *exchange, struct MHD_Connection *connection, const char *host)
{
    const char *origin = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_ORIGIN);
    const char *type = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_TYPE);
    const char *page = origin != NULL ? host_of(origin) : NULL;

    if (origin == NULL || strcmp(exchange->method, MHD_HTTP_METHOD_POST) != 0) return;
    if (is_allowed(&exchange->http->opts, origin)) return;
    if (page != NULL && host != NULL && strcasecmp(page, host) == 0) return; /* a page of this server */
    if (type != NULL && strncasecmp(type, "application/json", strlen("application/json")) == 0) return;
    set_refusal(exchange, MHD_HTTP_UNSUPPORTED_MEDIA_TYPE, "content_type_not_allowed",
                "pages of other origins must post application/json; --cors-origins names those that may call");
}

/* ---- all together ------------------------------------------------------------------------------------------------ */

static void check_size(struct ash_http_exchange *exchange, struct MHD_Connection *connection)
{
    const char *length = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);
    size_t most = exchange->http->opts.body_bytes_max;
    char text[128];

    if (length == NULL || strtoull(length, NULL, 10) <= most) return;
    snprintf(text, sizeof(text), "the body has %.20s bytes, and %zu are the most", length, most);
    set_refusal(exchange, MHD_HTTP_CONTENT_TOO_LARGE, "request_too_large", text);
}

/* Refusals of the server as a whole. */
static void check_server(struct ash_http_exchange *exchange)
{
    struct ash_http *http = exchange->http;

    bool is_over_limit = exchange->record == NULL || exchange->record->is_over_limit;

    if (is_over_limit) exchange->must_close = true;
    if (is_over_limit && !(exchange->route->is_quick && exchange->route->is_open)) {
        set_refusal(exchange, MHD_HTTP_SERVICE_UNAVAILABLE, "too_many_connections",
                    "too many connections are open: try again after Retry-After");
    } else if (atomic_load(&http->is_draining) && !exchange->route->is_quick) {
        set_refusal(exchange, MHD_HTTP_SERVICE_UNAVAILABLE, "shutting_down",
                    "the server is shutting down: try again after Retry-After");
    }
    if (exchange->refused_status != 0) ash_http_add_header(exchange, MHD_HTTP_HEADER_RETRY_AFTER, RETRY_SECONDS);
}

void ash_http_admit(struct ash_http_exchange *exchange, struct MHD_Connection *connection)
{
    bool is_preflight = strcmp(exchange->method, MHD_HTTP_METHOD_OPTIONS) == 0;
    const char *host = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST);

    if (is_preflight) {
        set_refusal(exchange, MHD_HTTP_NO_CONTENT, "preflight", "");
        return;
    }
    find_route(exchange);
    if (exchange->refused_status == 0) check_server(exchange);
    if (exchange->refused_status == 0) check_host(exchange, host);
    if (exchange->refused_status == 0) check_origin(exchange, connection, host);
    if (exchange->refused_status == 0) check_key(exchange, connection);
    if (exchange->refused_status == 0) check_size(exchange, connection);
    if (exchange->refused_status == 0) check_limits(exchange);
    if (exchange->refused_status != 0 || exchange->route->is_quick) return;
    exchange->is_counted = true;
    atomic_fetch_add(&exchange->http->exchanges, 1);
}

void ash_http_add_cors(struct ash_http_exchange *exchange, struct MHD_Connection *connection)
{
    const char *origin = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Origin"), *wanted;

    if (origin == NULL) return;
    ash_http_add_header(exchange, MHD_HTTP_HEADER_VARY, "Origin");
    if (!is_allowed(&exchange->http->opts, origin)) return;
    ash_http_add_header(exchange, MHD_HTTP_HEADER_ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    ash_http_add_header(exchange, "Access-Control-Expose-Headers",
                        "x-request-id, request-id, x-ignored-fields, retry-after, x-ratelimit-limit-requests, "
                        "x-ratelimit-remaining-requests, x-ratelimit-reset-requests, x-ratelimit-limit-tokens, "
                        "x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens");
    if (strcmp(exchange->method, MHD_HTTP_METHOD_OPTIONS) != 0) return;
    wanted = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Access-Control-Request-Headers");
    ash_http_add_header(exchange, "Access-Control-Allow-Methods", "GET, POST, OPTIONS");
    ash_http_add_header(exchange, "Access-Control-Allow-Headers",
                        wanted != NULL ? wanted : "authorization, content-type, x-api-key");
    ash_http_add_header(exchange, "Access-Control-Max-Age", "600");
}
