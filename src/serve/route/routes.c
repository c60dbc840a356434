/* The router's routes: those of the server, passed on, but for what only the router can say. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "serve/api/api.h"
#include "serve/api/errors.h"
#include "serve/api/handlers.h"
#include "serve/api/request.h"
#include "serve/page/page.h"
#include "serve/route/route_priv.h"

static void forward_to_all_call(struct ash_route_call *call)
{
    call->goes_to_all = true;
    ash_route_call_forward(call);
}

static void health(void *ctx, struct ash_http_exchange *exchange)
{
    struct ash_api_err err = {.status = 503, .code = "no_replica", .text = "no replica takes requests now"};
    const struct ash_router *router = ctx;
    size_t usable = ash_router_usable(ctx);

    if (router->opts.models != NULL) /* well without any: they are loaded by requests */
        ash_api_respond_json(exchange, 200,
                             json_pack("{s:s, s:I}", "status", "ok", "models_loaded", (json_int_t)usable));
    else if (usable == 0)
        ash_api_respond_err(exchange, &err);
    else
        ash_api_respond_json(exchange, 200, json_pack("{s:s, s:I}", "status", "ok", "replicas", (json_int_t)usable));
}

/* A handler that hands its call to the router's thread. */
#define POSTED(name, handle)                                                                                           \
    static void name(void *ctx, struct ash_http_exchange *exchange)                                                    \
    {                                                                                                                  \
        ash_route_call_post(ctx, exchange, handle);                                                                    \
    }

POSTED(forward, ash_route_call_forward)
POSTED(forward_to_all, forward_to_all_call)
POSTED(list_replicas, ash_route_list_replicas)
POSTED(change_replicas, ash_route_change_replicas)
POSTED(list_models, ash_route_list_models)
POSTED(show_metrics, ash_route_show_metrics)
POSTED(list_all_models, ash_route_list_all_models)
POSTED(show_model, ash_route_show_model)
POSTED(list_tags, ash_route_list_tags)
POSTED(list_running, ash_route_list_running)
POSTED(load_model, ash_route_load_model)
POSTED(unload_model, ash_route_unload_model)

static void kv_events(void *ctx, struct ash_http_exchange *exchange)
{
    static const struct ash_api_err err = {
        .status = 404, .code = "not_published", .text = "replicas publish what their caches hold: ask one of them"};

    (void)ctx;
    ash_api_respond_err(exchange, &err);
}

#define QUICK .is_open = true, .is_quick = true
#define INLINE .is_inline = true

static const struct ash_http_route own[] = {
    {.method = "GET", .path = "/health", .handle = health, QUICK},
    {.method = "GET", .path = "/v1/health", .handle = health, QUICK},
    {.method = "GET", .path = "/ping", .handle = health, QUICK},
    {.method = "POST", .path = "/ping", .handle = health, QUICK},
    {.method = "GET", .path = "/ready", .handle = health, QUICK},
    {.method = "GET", .path = "/metrics", .handle = show_metrics, INLINE, .is_open = true},
    {.method = "GET", .path = "/kv_events", .handle = kv_events, INLINE},
    {.method = "GET", .path = "/v1/models", .handle = list_models, INLINE},
    {.method = "GET", .path = "/models", .handle = list_models, INLINE},
    {.method = "GET", .path = "/replicas", .handle = list_replicas, INLINE},
    {.method = "POST", .path = "/replicas", .handle = change_replicas, INLINE, .needs_admin = true},
};

/* With several models: routes that need none of them. */
static const struct ash_http_route of_models[] = {
    {.method = "GET", .path = "/v1/models", .handle = list_all_models, INLINE},
    {.method = "GET", .path = "/models", .handle = list_all_models, INLINE},
    {.method = "GET", .path = "/v1/models/*", .handle = show_model, INLINE},
    {.method = "POST", .path = "/models/load", .handle = load_model, INLINE},
    {.method = "POST", .path = "/models/unload", .handle = unload_model, INLINE},
    {.method = "GET", .path = "/api/tags", .handle = list_tags, INLINE},
    {.method = "GET", .path = "/api/ps", .handle = list_running, INLINE},
    {.method = "GET", .path = "/api/version", .handle = ash_api_ollama_version, QUICK},
    {.method = "GET", .path = "/version", .handle = ash_api_version, QUICK},
    {.method = "GET", .path = "/", .handle = ash_page_respond, QUICK},
};

/* Add a route, unless one of the same method and path is there. */
static void add_route(struct ash_router *router, const struct ash_http_route *route)
{
    for (size_t i = 0; i < router->route_count; i++)
        if (strcmp(router->routes[i].method, route->method) == 0 && strcmp(router->routes[i].path, route->path) == 0)
            return;
    router->routes[router->route_count++] = *route;
}

int ash_route_make_routes(struct ash_router *router)
{
    size_t count = 0;
    const struct ash_http_route *routes = ash_api_routes(&count);

    router->routes = calloc(count + ASH_COUNT(own) + ASH_COUNT(of_models), sizeof(*router->routes));
    if (router->routes == NULL) return -ENOMEM;
    for (size_t i = 0; i < ASH_COUNT(of_models) && router->opts.models != NULL; i++)
        add_route(router, &of_models[i]);
    for (size_t i = 0; i < ASH_COUNT(own); i++)
        add_route(router, &own[i]);
    for (size_t i = 0; i < count; i++) {
        struct ash_http_route route = routes[i];

        route.handle = route.needs_admin ? forward_to_all : forward;
        route.is_quick = false;
        route.is_inline = true;
        add_route(router, &route);
    }
    return 0;
}
