/* Accepting and watching. libmicrohttpd does not see that a suspended client leaves, its timeout counts idleness only,
 * and without descriptors it spins: so connections are accepted here, every one has a deadline, and epoll reports
 * hang-ups. A connection is cut by shutting its socket down, which libmicrohttpd notices; the record is removed before
 * the descriptor is closed, so no other connection can be hit. */
#include "http/http_priv.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"

#define SCAN_MS 250
#define PAUSE_NS 200000000ull /* without descriptors, accepting waits this long */
#define EVENTS_MAX 64
#define ACCEPTS_MAX 64 /* in one go */
#define NS_PER_S 1e9
#define TAG_LISTEN UINT64_MAX
#define TAG_WAKE (UINT64_MAX - 1)

/* ---- the thread -------------------------------------------------------------------------------------------------- */

/* The exchange of a connection, kept for the caller, or NULL. The lock is held. */
static struct ash_http_exchange *keep_exchange(const struct ash_http_connection *connection)
{
    if (connection->exchange != NULL) ash_http_exchange_get(connection->exchange);
    return connection->exchange;
}

/* The client behind tag has closed its end. */
static void hang_up(struct ash_http *http, uint64_t tag)
{
    struct ash_http_watch *watch = &http->watch;
    struct ash_http_connection *connection = &watch->slots[(uint32_t)tag];
    struct ash_http_exchange *exchange = NULL;

    pthread_mutex_lock(&watch->lock);
    if (connection->fd >= 0 && connection->generation == tag >> 32) {
        connection->has_left = true; /* the edge is seen once, perhaps before the request is read */
        exchange = keep_exchange(connection);
    }
    pthread_mutex_unlock(&watch->lock);
    if (exchange == NULL) return;
    ash_http_exchange_gone(exchange);
    ash_http_exchange_put(exchange);
}

/* Cut the connections whose deadline has passed. */
static void cut_late(struct ash_http *http)
{
    struct ash_http_watch *watch = &http->watch;
    uint64_t now_ns = ash_clock_ns();

    for (size_t i = 0; i < watch->slot_count; i++) {
        struct ash_http_connection *connection = &watch->slots[i];
        struct ash_http_exchange *exchange = NULL;

        pthread_mutex_lock(&watch->lock);
        if (connection->fd >= 0 && connection->deadline_ns != 0 && now_ns > connection->deadline_ns &&
            !connection->was_cut) {
            ash_http_slot_cut(watch, connection);
            exchange = keep_exchange(connection);
        }
        pthread_mutex_unlock(&watch->lock);
        if (exchange == NULL) continue;
        ash_http_exchange_gone(exchange);
        ash_http_exchange_put(exchange);
    }
}

/* Listen, or do not. */
static void set_listening(struct ash_http_watch *watch, bool wanted)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = TAG_LISTEN};

    if (watch->is_listening == wanted) return;
    watch->is_listening = wanted;
    epoll_ctl(watch->epoll_fd, wanted ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, watch->listen_fd, &event);
}

static void pause_accepting(struct ash_http_watch *watch)
{
    set_listening(watch, false);
    watch->resume_accept_ns = ash_clock_ns() + PAUSE_NS;
}

static void accept_all(struct ash_http *http)
{
    struct ash_http_watch *watch = &http->watch;
    struct sockaddr_storage address;
    int one = 1;

    for (int i = 0; i < ACCEPTS_MAX; i++) {
        socklen_t bytes = sizeof(address);
        int fd;

        if (!ash_http_slot_reserve(watch)) {
            pause_accepting(watch);
            return;
        }
        fd = accept4(watch->listen_fd, (struct sockaddr *)&address, &bytes, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) ash_http_slot_unreserve(watch);
        if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
            ash_log(ASH_LOG_WARN, "cannot accept a connection: %s; trying again in %.1f s", strerror(errno),
                    (double)PAUSE_NS / NS_PER_S);
            pause_accepting(watch);
        }
        if (fd < 0) return;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        atomic_fetch_add(&watch->accepted, 1);
        if (MHD_add_connection(http->daemon, fd, (struct sockaddr *)&address, bytes) != MHD_YES) /* it closed fd */
            ash_http_slot_unreserve(watch);
    }
}

/* Does a connection wait for libmicrohttpd to begin it, or to see that its client has left? */
static bool has_waiting(struct ash_http_watch *watch)
{
    bool waits;

    pthread_mutex_lock(&watch->lock);
    waits = watch->accepted_count > watch->used;
    for (size_t i = 0; i < watch->slot_count && !waits; i++)
        waits = watch->slots[i].fd >= 0 && watch->slots[i].has_left && watch->slots[i].exchange == NULL;
    pthread_mutex_unlock(&watch->lock);
    return waits;
}

/* libmicrohttpd collects events, 128 at a time, before it acts on them, and waits for more after exactly 128: one more
 * event ends that. It is a connection that is closed already. */
static void wake_daemon(struct ash_http *http)
{
    const struct sockaddr nobody = {.sa_family = AF_UNIX};
    int ends[2];

    if (!ash_http_slot_reserve(&http->watch)) return;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0) {
        ash_http_slot_unreserve(&http->watch);
        return;
    }
    close(ends[1]);
    if (MHD_add_connection(http->daemon, ends[0], &nobody, sizeof(nobody)) != MHD_YES) /* it closed the socket */
        ash_http_slot_unreserve(&http->watch);
}

/* A slot is free. */
static void resume_accepting(struct ash_http_watch *watch)
{
    uint64_t count;

    if (read(watch->wake_fd, &count, sizeof(count)) == sizeof(count)) watch->resume_accept_ns = 0;
}

static void *watch_main(void *arg)
{
    struct ash_http *http = arg;
    struct ash_http_watch *watch = &http->watch;
    struct epoll_event events[EVENTS_MAX];
    uint64_t scanned_ns = ash_clock_ns();

    while (!atomic_load(&watch->is_stopping)) {
        int count = epoll_wait(watch->epoll_fd, events, EVENTS_MAX, SCAN_MS);

        for (int i = 0; i < count; i++) {
            if (events[i].data.u64 == TAG_LISTEN)
                accept_all(http);
            else if (events[i].data.u64 == TAG_WAKE)
                resume_accepting(watch);
            else
                hang_up(http, events[i].data.u64);
        }
        if (!watch->is_listening && ash_clock_ns() >= watch->resume_accept_ns) set_listening(watch, true);
        if (ash_clock_ns() - scanned_ns < (uint64_t)SCAN_MS * 1000000) continue;
        scanned_ns = ash_clock_ns();
        cut_late(http);
        if (has_waiting(watch)) wake_daemon(http);
    }
    return NULL;
}

/* ---- open and close ---------------------------------------------------------------------------------------------- */

int ash_http_watch_init(struct ash_http *http, struct ash_err *err)
{
    struct ash_http_watch *watch = &http->watch;
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = TAG_WAKE};
    int rc = ash_http_slots_init(http);

    if (rc < 0) return ash_err_set(err, rc, "no memory for %zu connections", http->opts.connections_max);
    watch->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    watch->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (watch->epoll_fd < 0 || watch->wake_fd < 0)
        return ash_err_set(err, -errno, "cannot watch connections: %s", strerror(errno));
    epoll_ctl(watch->epoll_fd, EPOLL_CTL_ADD, watch->wake_fd, &event);
    return 0;
}

int ash_http_watch_start(struct ash_http *http, struct ash_err *err)
{
    int rc;

    set_listening(&http->watch, true);
    rc = ash_thread_start(&http->watch.thread, watch_main, http);
    if (rc < 0) return ash_err_set(err, rc, "cannot start a thread: %s", strerror(-rc));
    http->watch.has_thread = true;
    return 0;
}

void ash_http_watch_stop(struct ash_http *http)
{
    struct ash_http_watch *watch = &http->watch;
    uint64_t one = 1;

    if (!watch->has_thread) return;
    atomic_store(&watch->is_stopping, true);
    if (write(watch->wake_fd, &one, sizeof(one)) < 0) ash_log(ASH_LOG_DEBUG, "eventfd: %s", strerror(errno));
    pthread_join(watch->thread, NULL);
    watch->has_thread = false;
}

void ash_http_watch_fini(struct ash_http *http)
{
    struct ash_http_watch *watch = &http->watch;
    int fds[] = {watch->listen_fd, watch->epoll_fd, watch->wake_fd};

    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
        if (fds[i] >= 0) close(fds[i]);
    free(watch->slots);
    watch->slots = NULL;
}
