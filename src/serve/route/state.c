/* What other threads leave for the router's, and what they see of it. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "serve/route/route_priv.h"

ASH_GAUGE(usable_gauge, "ashlar_route_usable", "replicas that take requests");
ASH_GAUGE(wanted_gauge, "ashlar_route_replicas", "replicas that should take requests: all but those that are drained");

void ash_router_wake(struct ash_router *router)
{
    uint64_t one = 1;

    if (write(router->wake_fd, &one, sizeof(one)) < 0) ash_log(ASH_LOG_DEBUG, "eventfd: %s", strerror(errno));
}

void ash_router_post(struct ash_router *router, struct ash_route_call *call)
{
    bool was_empty = false;

    pthread_mutex_lock(&router->lock);
    if (!call->is_in_inbox) {
        was_empty = router->inbox == NULL;
        call->is_in_inbox = true;
        atomic_fetch_add(&call->refs, 1);
        call->next_inbox = NULL;
        *router->inbox_end = call;
        router->inbox_end = &call->next_inbox;
    }
    pthread_mutex_unlock(&router->lock);
    if (was_empty) ash_router_wake(router);
}

int ash_router_set_targets(struct ash_router *router, struct ash_route_targets *targets)
{
    struct ash_route_targets old;

    pthread_mutex_lock(&router->lock);
    old = router->targets;
    router->targets = *targets;
    router->has_targets = true;
    pthread_mutex_unlock(&router->lock);
    *targets = (struct ash_route_targets){0};
    ash_route_targets_fini(&old);
    ash_router_wake(router);
    return 0;
}

void ash_router_cancel(struct ash_router *router)
{
    pthread_mutex_lock(&router->lock);
    router->cancels = true;
    pthread_mutex_unlock(&router->lock);
    ash_router_wake(router);
}

size_t ash_router_usable(struct ash_router *router)
{
    return atomic_load(&router->usable);
}

const struct ash_http_route *ash_router_routes(struct ash_router *router, size_t *count_out)
{
    *count_out = router->route_count;
    return router->routes;
}

void ash_router_recount(struct ash_router *router)
{
    size_t usable = 0, wanted = 0;

    for (const struct ash_replica *replica = router->replicas; replica != NULL; replica = replica->next) {
        usable += ash_replica_is_usable(replica);
        wanted += !replica->is_draining && !replica->is_held;
    }
    ash_metric_set(&usable_gauge, (double)usable);
    ash_metric_set(&wanted_gauge, (double)wanted);
    atomic_store(&router->usable, usable);
    router->has_news = usable > 0;
}
