/* The router's thread: an epoll of connections to replicas, an inbox of calls from the HTTP threads, and a look at the
 * clock a few times a second. */
#include "serve/route/router.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/thread.h"
#include "serve/route/route_priv.h"

#define EVENTS_MAX 256
#define TICK_MS 20 /* between looks at deadlines */

struct ash_router_opts ash_router_defaults(void)
{
    return (struct ash_router_opts){.policy = ASH_ROUTE_PREFIX,
                                    .index_blocks = 65536,
                                    .tries = 4,
                                    .apart_blocks = 8,
                                    .probe_seconds = 0.5,
                                    .silence_seconds = 2,
                                    .wait_seconds = 10,
                                    .load_seconds = 300,
                                    .answer_bytes_max = (size_t)64 << 20};
}

/* ---- the thread -------------------------------------------------------------------------------------------------- */

/* Replicas that are not listed any more go, new ones come. */
static void take_targets(struct ash_router *router, const struct ash_route_targets *targets)
{
    for (struct ash_replica *replica = router->replicas; replica != NULL; replica = replica->next) {
        bool is_there = false;

        for (size_t i = 0; i < targets->count; i++)
            is_there = is_there || strcmp(targets->items[i].name, replica->target.name) == 0;
        if (!replica->is_listed || is_there) continue;
        replica->is_listed = false;
        ash_replica_drain(replica);
    }
    for (size_t i = 0; i < targets->count; i++) {
        struct ash_replica *replica = ash_replica_find(router, targets->items[i].name);

        if (replica == NULL) {
            if (ash_replica_add(router, &targets->items[i], true) == NULL)
                ash_log(ASH_LOG_ERROR, "no memory for the replica %s", targets->items[i].name);
            continue;
        }
        replica->is_listed = true;
        replica->is_draining = false;
        replica->target = targets->items[i]; /* the name may have another address now */
    }
    ash_router_recount(router);
}

static void open_call(struct ash_route_call *call)
{
    struct ash_router *router = call->router;

    ash_assert(!call->is_listed && !call->is_ended);
    call->is_listed = true;
    call->next = router->calls;
    if (call->next != NULL) call->next->prev = call;
    router->calls = call;
    call->handle(call);
}

static void take_call(struct ash_route_call *call)
{
    bool is_gone = atomic_load(&call->is_gone);

    if (!call->is_listed) open_call(call);
    if (call->is_ended) return;
    if (is_gone || atomic_load(&call->is_gone)) {
        if (!call->has_begun) ash_http_respond(call->exchange, 499, NULL, &(struct ash_str){0});
        ash_route_call_end(call);
    } else if (atomic_exchange(&call->wants_more, false) && call->conn != NULL) {
        ash_route_conn_read(call->conn);
    }
}

/* Calls and targets that others have left. Returns false when the thread must end. */
static bool take_inbox(struct ash_router *router)
{
    struct ash_route_targets targets = {0};
    struct ash_route_call *call;
    bool is_stopping, has_targets, cancels;

    pthread_mutex_lock(&router->lock);
    call = router->inbox;
    router->inbox = NULL;
    router->inbox_end = &router->inbox;
    for (struct ash_route_call *at = call; at != NULL; at = at->next_inbox) {
        at->is_in_inbox = false; /* from now on it may be posted again */
        at->next_taken = at->next_inbox;
    }
    has_targets = router->has_targets;
    if (has_targets) targets = router->targets;
    if (has_targets) router->targets = (struct ash_route_targets){0};
    router->has_targets = false;
    cancels = router->cancels;
    router->cancels = false;
    is_stopping = router->is_stopping;
    pthread_mutex_unlock(&router->lock);
    if (has_targets) take_targets(router, &targets);
    ash_route_targets_fini(&targets);
    while (call != NULL) {
        struct ash_route_call *next = call->next_taken;

        take_call(call);
        ash_route_call_put(call);
        call = next;
    }
    while (cancels && router->calls != NULL)
        ash_route_call_refuse(router->calls, 503, "shutting_down",
                              "the router is shutting down, and the time for answers is over: try again");
    return !is_stopping;
}

/* Calls that wait for a replica are tried again, or have waited long enough. */
static void serve_waiting(struct ash_router *router, uint64_t now_ns)
{
    struct ash_route_call *call = router->calls, *next;
    uint64_t changes = router->opts.models != NULL ? ash_route_models_changes(router->opts.models) : 0;
    bool has_news = router->has_news || changes != router->changes;

    router->changes = changes;
    router->has_news = false;
    for (; call != NULL; call = next) {
        next = call->next;
        if (call->wait_end_ns != 0 && (has_news || now_ns > call->wait_end_ns)) ash_route_call_forward(call);
    }
}

static void wait_events(struct ash_router *router)
{
    struct epoll_event events[EVENTS_MAX];
    int count = epoll_wait(router->epoll_fd, events, EVENTS_MAX, TICK_MS);

    for (int i = 0; i < count; i++) {
        uint64_t ticks;
        bool has_hung_up = (events[i].events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;

        if (events[i].data.ptr != NULL)
            ash_route_conn_handle(events[i].data.ptr, has_hung_up);
        else if (read(router->wake_fd, &ticks, sizeof(ticks)) < 0 && errno != EAGAIN)
            ash_log(ASH_LOG_DEBUG, "eventfd: %s", strerror(errno));
    }
}

static void *router_main(void *arg)
{
    struct ash_router *router = arg;
    uint64_t looked_ns = 0;

    while (take_inbox(router)) {
        uint64_t now_ns;

        ash_route_conns_bury(router);
        wait_events(router);
        now_ns = ash_clock_ns();
        if (!router->has_news && now_ns - looked_ns < TICK_MS * 1000000ull) continue;
        looked_ns = now_ns;
        ash_replicas_tick(router, now_ns);
        serve_waiting(router, now_ns);
    }
    while (router->calls != NULL)
        ash_route_call_end(router->calls);
    return NULL;
}

/* ---- open and close ---------------------------------------------------------------------------------------------- */

static int open_loop(struct ash_router *router, struct ash_err *err)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    int rc;

    router->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    router->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (router->epoll_fd < 0 || router->wake_fd < 0 ||
        epoll_ctl(router->epoll_fd, EPOLL_CTL_ADD, router->wake_fd, &event) < 0)
        return ash_err_set(err, -errno, "no descriptors for the router: %s", strerror(errno));
    rc = ash_thread_start(&router->thread, router_main, router);
    if (rc < 0) return ash_err_set(err, rc, "cannot start a thread: %s", strerror(-rc));
    router->has_thread = true;
    return 0;
}

/* As replicas compute it of the header that they get. */
static void set_replica_salt(struct ash_router *router)
{
    struct ash_str value = {0};

    router->has_replica_salt = ash_str_addf(&value, "Bearer %s", router->opts.replica_key) == 0;
    if (router->has_replica_salt) router->replica_salt = ash_hash_str(value.data);
    ash_str_fini(&value);
}

int ash_router_open(const struct ash_router_opts *opts, struct ash_router **router_out, struct ash_err *err)
{
    struct ash_router *router = calloc(1, sizeof(*router));
    uint64_t name = 0;
    int rc = -ENOMEM;

    ash_assert(opts->tries > 0 && opts->tries < ASH_ROUTE_TRIES_MAX && opts->index_blocks > 0);
    if (router == NULL) return ash_err_set(err, rc, "no memory for the router");
    router->opts = *opts;
    if (getrandom(&name, sizeof(name), 0) < 0) name = ash_clock_ns();
    snprintf(router->via, sizeof(router->via), "ashlar-%016llx", (unsigned long long)name);
    if (opts->replica_key != NULL) set_replica_salt(router);
    router->epoll_fd = router->wake_fd = -1;
    router->inbox_end = &router->inbox;
    pthread_mutex_init(&router->lock, NULL);
    router->bytes = malloc(ASH_ROUTE_READ_BYTES);
    if (router->bytes != NULL) rc = ash_route_make_routes(router);
    rc = rc < 0 ? ash_err_set(err, rc, "no memory for the router") : open_loop(router, err);
    if (rc < 0)
        ash_router_close(router);
    else
        *router_out = router;
    return rc;
}

void ash_router_close(struct ash_router *router)
{
    if (router == NULL) return;
    pthread_mutex_lock(&router->lock);
    router->is_stopping = true;
    pthread_mutex_unlock(&router->lock);
    if (router->has_thread) {
        ash_router_wake(router);
        pthread_join(router->thread, NULL);
    }
    while (router->replicas != NULL)
        ash_replica_free(router->replicas);
    ash_route_conns_bury(router);
    if (router->epoll_fd >= 0) close(router->epoll_fd);
    if (router->wake_fd >= 0) close(router->wake_fd);
    ash_route_targets_fini(&router->targets);
    pthread_mutex_destroy(&router->lock);
    free(router->routes);
    free(router->bytes);
    free(router);
}
