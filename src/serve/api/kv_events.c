/* Events of the cache's pages, for routers: vLLM's, as server-sent events. Their hashes are of prompts of all keys, so
 * where keys are needed the admin's opens them. */
#include "serve/api/handlers.h"

#include <stdlib.h>
#include <string.h>

#include "serve/api/request.h"
#include "serve/engine/page_events.h"

struct subscription {
    struct ash_http_exchange *exchange;
    struct ash_page_reader *reader;
};

static void wake(void *ctx)
{
    ash_http_wake(ctx);
}

static int read_events(void *ctx, struct ash_str *out)
{
    struct subscription *subscription = ctx;

    return ash_page_reader_read(subscription->reader, out);
}

static void end(void *ctx)
{
    struct subscription *subscription = ctx;

    ash_page_reader_close(subscription->reader);
    ash_http_exchange_put(subscription->exchange);
    free(subscription);
}

/* May this request read events? Else err says why not. */
static bool check(const struct ash_api *api, struct ash_http_exchange *exchange, struct ash_api_err *err)
{
    struct ash_key *key = ash_http_key(exchange);

    if (!atomic_load(&api->is_ready))
        ash_api_err_set(err, 503, "model_loading", NULL, "the model is being loaded: try again");
    else if (key != NULL && !ash_key_is_admin(key) && !ash_key_is_anonymous(key))
        ash_api_err_set(err, 403, "admin_key_needed", NULL, "events of the cache need the admin key (--admin-key)");
    else if (api->engine.page_events == NULL)
        ash_api_err_set(err, 404, "not_published", NULL,
                        "this server has no prefix cache, and publishes nothing of it");
    return err->status == 0;
}

void ash_api_kv_events(void *ctx, struct ash_http_exchange *exchange)
{
    struct ash_api *api = ctx;
    const char *tokens = ash_http_query(exchange, "token_ids");
    struct subscription *subscription = NULL;
    struct ash_api_err err = {0};

    if (check(api, exchange, &err)) subscription = calloc(1, sizeof(*subscription));
    if (err.status == 0 && (subscription == NULL ||
                            ash_page_reader_open(api->engine.page_events, tokens != NULL && strcmp(tokens, "1") == 0,
                                                 wake, exchange, &subscription->reader) < 0))
        ash_api_err_set(&err, 503, "out_of_memory", NULL, "no memory for the request");
    if (err.status != 0) {
        free(subscription);
        ash_api_respond_err(exchange, &err);
        return;
    }
    subscription->exchange = exchange;
    ash_http_exchange_get(exchange);
    ash_http_on_end(exchange, end, subscription);
    ash_http_stream(exchange, 200, ASH_API_EVENT_STREAM, read_events, subscription);
}
