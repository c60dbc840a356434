/* The router's routes: those of the server, passed on, but for what only the router can say. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "serve/api/api.h"
#include "serve/api/errors.h"
#include "serve/api/request.h"
#include "serve/route/route_priv.h"

static void forward(void *ctx, struct ash_http_exchange *exchange)
{
    ash_route_call_post(ctx, exchange, ash_route_call_forward);
}

static void forward_to_all_call(struct ash_route_call *call)
{
    call->goes_to_all = true;
    ash_route_call_forward(call);
}

static void forward_to_all(void *ctx, struct ash_http_exchange *exchange)
{
    ash_route_call_post(ctx, exchange, forward_to_all_call);
}

static void health(void *ctx, struct ash_http_exchange *exchange)
{
    struct ash_api_err err = {.status = 503, .code = "no_replica", .text = "no replica takes requests now"};
    size_t usable = ash_router_usable(ctx);

    if (usable == 0)
        ash_api_respond_err(exchange, &err);
    else
        ash_api_respond_json(exchange, 200, json_pack("{s:s, s:I}", "status", "ok", "replicas", (json_int_t)usable));
}

static void list_replicas(void *ctx, struct ash_http_exchange *exchange)
{
    ash_route_call_post(ctx, exchange, ash_route_list_replicas);
}

static void change_replicas(void *ctx, struct ash_http_exchange *exchange)
{
    ash_route_call_post(ctx, exchange, ash_route_change_replicas);
}

static void list_models(void *ctx, struct ash_http_exchange *exchange)
{
    ash_route_call_post(ctx, exchange, ash_route_list_models);
}

static void show_metrics(void *ctx, struct ash_http_exchange *exchange)
{
    ash_route_call_post(ctx, exchange, ash_route_show_metrics);
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
    {.method = "GET", .path = "/v1/models", .handle = list_models, INLINE},
    {.method = "GET", .path = "/models", .handle = list_models, INLINE},
    {.method = "GET", .path = "/replicas", .handle = list_replicas, INLINE},
    {.method = "POST", .path = "/replicas", .handle = change_replicas, INLINE, .needs_admin = true},
};

static bool is_own(const struct ash_http_route *route)
{
    for (size_t i = 0; i < ASH_COUNT(own); i++)
        if (strcmp(own[i].method, route->method) == 0 && strcmp(own[i].path, route->path) == 0) return true;
    return false;
}

int ash_route_make_routes(struct ash_router *router)
{
    size_t count = 0;
    const struct ash_http_route *routes = ash_api_routes(&count);

    router->routes = calloc(count + ASH_COUNT(own), sizeof(*router->routes));
    if (router->routes == NULL) return -ENOMEM;
    for (size_t i = 0; i < ASH_COUNT(own); i++)
        router->routes[router->route_count++] = own[i];
    for (size_t i = 0; i < count; i++) {
        struct ash_http_route route = routes[i];

        if (is_own(&route)) continue;
        route.handle = route.needs_admin ? forward_to_all : forward;
        route.is_quick = false;
        route.is_inline = true;
        router->routes[router->route_count++] = route;
    }
    return 0;
}
