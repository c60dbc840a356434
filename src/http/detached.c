/* Exchanges without a connection. */
#include "http/detached.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "http/http_priv.h"

/* Collect the handler's whole response. */
static int collect(struct ash_http_exchange *exchange, struct ash_str *out)
{
    int rc = 1;

    if (exchange->state != ASH_HTTP_READY) return -EAGAIN;
    if (exchange->read == NULL)
        return ash_str_add(out, exchange->out.data, exchange->out.size_bytes) < 0 ? -ENOMEM : (int)exchange->status;
    while (rc == 1) {
        size_t before = out->size_bytes;

        rc = exchange->read(exchange->read_ctx, out);
        if (rc == 1 && out->size_bytes == before) return -EAGAIN;
    }
    return rc < 0 ? rc : (int)exchange->status;
}

int ash_http_detached_call(const struct ash_http_route *route, void *ctx, struct ash_keys *keys, const char *body,
                           size_t size_bytes, struct ash_str *out)
{
    struct ash_http_exchange *exchange = calloc(1, sizeof(*exchange));
    int rc;

    if (exchange == NULL) return -ENOMEM;
    exchange->refs = 1;
    exchange->route = route;
    exchange->state = ASH_HTTP_HANDLED;
    exchange->key = ash_keys_anonymous(keys);
    pthread_mutex_init(&exchange->lock, NULL);
    pthread_mutex_init(&exchange->gone_lock, NULL);
    snprintf(exchange->path, sizeof(exchange->path), "%s", route->path);
    snprintf(exchange->method, sizeof(exchange->method), "%s", route->method);
    snprintf(exchange->id, sizeof(exchange->id), "detached");
    rc = ash_str_add(&exchange->body, body, size_bytes);
    if (rc == 0) {
        route->handle(ctx, exchange);
        rc = collect(exchange, out);
    }
    ash_http_exchange_end(exchange);
    ash_http_exchange_put(exchange);
    return rc;
}
