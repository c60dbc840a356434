/* The table of connections. If all slots are taken, the connection that has been idle for longest is cut for the new
 * one; the new one is refused only if every one has a request. */
#include "http/http_priv.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

#define SPARE_SLOTS 192 /* beyond the limit: connections being refused or closed */
#define NS_PER_S 1e9
#define NONE UINT32_MAX

int ash_http_slots_init(struct ash_http *http)
{
    struct ash_http_watch *watch = &http->watch;

    watch->slot_count = http->opts.connections_max + SPARE_SLOTS;
    watch->slots = calloc(watch->slot_count, sizeof(*watch->slots));
    if (watch->slots == NULL) return -ENOMEM;
    for (size_t i = 0; i < watch->slot_count; i++) {
        watch->slots[i].fd = -1;
        watch->slots[i].next_free = i + 1 < watch->slot_count ? (uint32_t)i + 1 : NONE;
    }
    return 0;
}

bool ash_http_slot_reserve(struct ash_http_watch *watch)
{
    bool has_room;

    pthread_mutex_lock(&watch->lock);
    has_room = watch->accepted_count < watch->slot_count;
    if (has_room) watch->accepted_count++;
    watch->is_full = !has_room;
    pthread_mutex_unlock(&watch->lock);
    return has_room;
}

void ash_http_slot_unreserve(struct ash_http_watch *watch)
{
    pthread_mutex_lock(&watch->lock);
    watch->accepted_count--;
    pthread_mutex_unlock(&watch->lock);
}

uint64_t ash_http_slot_tag(const struct ash_http_watch *watch, const struct ash_http_connection *connection)
{
    return (uint64_t)connection->generation << 32 | (uint64_t)(connection - watch->slots);
}

void ash_http_slot_cut(struct ash_http_watch *watch, struct ash_http_connection *connection)
{
    connection->was_cut = true;
    watch->cut++;
    shutdown(connection->fd, SHUT_RDWR);
}

/* ---- limits ------------------------------------------------------------------------------------------------------ */

static void set_client(struct ash_http_connection *connection, struct MHD_Connection *mhd)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    const struct sockaddr *address = info != NULL ? info->client_addr : NULL;

    if (address != NULL && address->sa_family == AF_INET6) {
        connection->client = ((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
    } else if (address != NULL && address->sa_family == AF_INET) {
        connection->client.s6_addr[10] = connection->client.s6_addr[11] = 0xff;
        memcpy(&connection->client.s6_addr[12], &((const struct sockaddr_in *)(const void *)address)->sin_addr, 4);
    }
}

static bool is_this_machine(const struct in6_addr *client)
{
    return IN6_IS_ADDR_LOOPBACK(client) || (IN6_IS_ADDR_V4MAPPED(client) && client->s6_addr[12] == 127);
}

/* Connections that one address may have. A proxy on this machine stands for many clients. */
static size_t client_max(const struct ash_http_opts *opts, const struct in6_addr *client)
{
    if (opts->client_connections_max > 0) return opts->client_connections_max;
    return is_this_machine(client) ? opts->connections_max : opts->connections_max - opts->connections_max / 4;
}

static bool is_idle(const struct ash_http_connection *connection)
{
    return connection->phase == ASH_HTTP_HEADER || connection->phase == ASH_HTTP_IDLE;
}

/* Statistics of the other connections: their counts, and the one that has been idle for longest. */
struct census {
    size_t within, own;                                  /* not refused; of the same client */
    struct ash_http_connection *idle, *own_idle, *extra; /* the longest idle one: of within, of own, of the refused */
};

static void keep_longest(struct ash_http_connection **longest, struct ash_http_connection *other)
{
    if (is_idle(other) && (*longest == NULL || other->since_ns < (*longest)->since_ns)) *longest = other;
}

static struct census take_census(struct ash_http_watch *watch, const struct ash_http_connection *newcomer)
{
    struct census census = {0};

    for (size_t i = 0; i < watch->slot_count; i++) {
        struct ash_http_connection *other = &watch->slots[i];

        if (other->fd < 0 || other == newcomer || other->was_cut) continue;
        if (other->is_over_limit) {
            keep_longest(&census.extra, other);
            continue;
        }
        census.within++;
        keep_longest(&census.idle, other);
        if (!IN6_ARE_ADDR_EQUAL(&other->client, &newcomer->client)) continue;
        census.own++;
        keep_longest(&census.own_idle, other);
    }
    return census;
}

/* Find a place for a new connection, or mark it as over the limit. The lock is held. */
static void make_room(struct ash_http *http, struct ash_http_connection *newcomer)
{
    struct ash_http_watch *watch = &http->watch;
    size_t own_max = client_max(&http->opts, &newcomer->client);
    bool is_over_own, is_over;
    struct ash_http_connection *longest;
    struct census census;

    if (watch->used - watch->cut <= own_max) return; /* it cannot be over any limit */
    census = take_census(watch, newcomer);
    is_over_own = census.own >= own_max;
    is_over = census.within >= http->opts.connections_max;
    if (!is_over_own && !is_over) return;
    longest = is_over_own ? census.own_idle : census.idle;
    newcomer->is_over_limit = longest == NULL;
    if (longest == NULL) {
        atomic_fetch_add(&watch->refused, 1);
        longest = watch->used - watch->cut > http->opts.connections_max + SPARE_SLOTS / 2 ? census.extra : NULL;
    }
    if (longest != NULL) ash_http_slot_cut(watch, longest);
}

/* ---- opening and closing ----------------------------------------------------------------------------------------- */

static struct ash_http_connection *take_slot(struct ash_http *http, struct MHD_Connection *mhd, int fd)
{
    struct ash_http_watch *watch = &http->watch;
    struct ash_http_connection *connection = NULL;
    uint64_t now_ns = ash_clock_ns();

    pthread_mutex_lock(&watch->lock);
    if (watch->first_free != NONE) {
        connection = &watch->slots[watch->first_free];
        watch->first_free = connection->next_free;
        *connection =
            (struct ash_http_connection){.fd = fd,
                                         .generation = connection->generation + 1,
                                         .since_ns = now_ns,
                                         .deadline_ns = now_ns + (uint64_t)(http->opts.header_seconds * NS_PER_S)};
        set_client(connection, mhd);
        watch->used++;
        make_room(http, connection);
    }
    pthread_mutex_unlock(&watch->lock);
    return connection;
}

static void free_slot(struct ash_http_watch *watch, struct ash_http_connection *connection)
{
    uint64_t one = 1;
    bool was_full;

    pthread_mutex_lock(&watch->lock);
    watch->cut -= connection->was_cut;
    connection->fd = -1;
    connection->exchange = NULL;
    connection->next_free = watch->first_free;
    watch->first_free = (uint32_t)(connection - watch->slots);
    watch->used--;
    watch->accepted_count--;
    was_full = watch->is_full;
    watch->is_full = false;
    pthread_mutex_unlock(&watch->lock);
    if (was_full && write(watch->wake_fd, &one, sizeof(one)) < 0)
        ash_log(ASH_LOG_DEBUG, "eventfd: %s", strerror(errno));
}

void ash_http_watch_notify(void *ctx, struct MHD_Connection *mhd, void **socket_ctx,
                           enum MHD_ConnectionNotificationCode code)
{
    struct ash_http *http = ctx;
    struct epoll_event event = {.events = EPOLLRDHUP | EPOLLET};
    struct ash_http_connection *connection = *socket_ctx;
    const union MHD_ConnectionInfo *info;

    if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
        if (connection == NULL) return;
        epoll_ctl(http->watch.epoll_fd, EPOLL_CTL_DEL, connection->fd, NULL);
        free_slot(&http->watch, connection);
        *socket_ctx = NULL;
        return;
    }
    info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (info == NULL) return;
    connection = take_slot(http, mhd, info->connect_fd);
    *socket_ctx = connection;
    if (connection == NULL) return;
    event.data.u64 = ash_http_slot_tag(&http->watch, connection);
    epoll_ctl(http->watch.epoll_fd, EPOLL_CTL_ADD, info->connect_fd, &event);
}

void ash_http_watch_enter(struct ash_http *http, struct ash_http_connection *connection, enum ash_http_phase phase,
                          double seconds)
{
    uint64_t now_ns = ash_clock_ns();

    if (connection == NULL) return;
    pthread_mutex_lock(&http->watch.lock);
    connection->phase = phase;
    connection->since_ns = now_ns;
    connection->deadline_ns = seconds > 0 ? now_ns + (uint64_t)(seconds * NS_PER_S) : 0;
    pthread_mutex_unlock(&http->watch.lock);
}

bool ash_http_watch_bind(struct ash_http *http, struct ash_http_connection *connection,
                         struct ash_http_exchange *exchange)
{
    bool has_left;

    if (connection == NULL) return false;
    pthread_mutex_lock(&http->watch.lock);
    connection->exchange = exchange;
    has_left = connection->has_left;
    pthread_mutex_unlock(&http->watch.lock);
    return has_left;
}

void ash_http_watch_cut(struct ash_http *http, struct ash_http_exchange *exchange)
{
    struct ash_http_connection *connection = exchange->record;

    if (connection == NULL) return;
    pthread_mutex_lock(&http->watch.lock);
    if (connection->fd >= 0 && connection->exchange == exchange) shutdown(connection->fd, SHUT_RDWR);
    pthread_mutex_unlock(&http->watch.lock);
}
