/* Who lives. Providers differ in what they say about a peer that is gone (some connect again for ever), so every
 * process holds a TCP connection to each of its peers on which nothing is sent. The kernel ends it when the process
 * ends, however that happens, and its keep-alive probes find machines that do not answer. A farewell byte tells an
 * orderly end. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "fabric/ofi/ofi_priv.h"

#define GRACE_NS 100000000ull /* for what a peer sent last */
#define BACKLOG 4096
#define READY_MAX 64

static void set_int(int fd, int level, int option, int value)
{
    setsockopt(fd, level, option, &value, sizeof(value));
}

static int new_socket(void)
{
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd >= 0) set_int(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0);
    return fd;
}

static bool watch(struct ash_ofi *ofi, int fd, uint32_t events, void *who)
{
    struct epoll_event event = {.events = events, .data = {.ptr = who}};

    return epoll_ctl(ofi->heartbeat_epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

/* ---- this process's end ------------------------------------------------------------------------------------------ */

int ash_heartbeat_open(struct ash_ofi *ofi, struct ash_err *err)
{
    struct sockaddr_in6 addr = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_ANY_INIT};
    socklen_t size = sizeof(addr);

    ofi->heartbeat_epoll = epoll_create1(EPOLL_CLOEXEC);
    ofi->listen_fd = new_socket();
    if (ofi->heartbeat_epoll < 0 || ofi->listen_fd < 0 ||
        bind(ofi->listen_fd, (struct sockaddr *)(void *)&addr, sizeof(addr)) < 0 ||
        listen(ofi->listen_fd, BACKLOG) < 0 ||
        getsockname(ofi->listen_fd, (struct sockaddr *)(void *)&addr, &size) < 0 ||
        !watch(ofi, ofi->listen_fd, EPOLLIN, NULL) || ash_fabric_watch(ofi->fabric, ofi->heartbeat_epoll) < 0)
        return ash_err_set(err, -errno, "a TCP port for peers cannot be opened: %s", strerror(errno));
    ofi->port = ntohs(addr.sin6_port);
    return 0;
}

void ash_heartbeat_close(struct ash_ofi *ofi)
{
    for (size_t i = 0; i < ofi->watcher_count; i++) {
        send(ofi->watchers[i], "", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
        close(ofi->watchers[i]);
    }
    free(ofi->watchers);
    if (ofi->listen_fd >= 0) close(ofi->listen_fd);
    if (ofi->heartbeat_epoll >= 0) close(ofi->heartbeat_epoll);
}

/* Peers that watch this process connect; nothing is ever read from them. */
static void accept_watchers(struct ash_ofi *ofi)
{
    int fd;

    while ((fd = accept4(ofi->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        if (ash_array_reserve(&ofi->watchers, &ofi->watcher_room, ofi->watcher_count + 1, sizeof(int)) < 0) {
            close(fd);
            return;
        }
        ofi->watchers[ofi->watcher_count++] = fd;
    }
}

/* Those that are gone leave. */
static void sweep_watchers(struct ash_ofi *ofi)
{
    size_t kept = 0;
    char byte;

    for (size_t i = 0; i < ofi->watcher_count; i++) {
        ssize_t got = recv(ofi->watchers[i], &byte, 1, MSG_DONTWAIT);

        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            ofi->watchers[kept++] = ofi->watchers[i];
        else
            close(ofi->watchers[i]);
    }
    ofi->watcher_count = kept;
}

/* ---- the peers' ends --------------------------------------------------------------------------------------------- */

/* What an error of the connection says of the peer. */
static int meaning(int error)
{
    switch (error) {
    case ECONNREFUSED:
    case EPIPE:
        return -ECONNRESET;
    case EHOSTUNREACH:
    case ENETUNREACH:
    case ENETDOWN:
        return -ETIMEDOUT;
    default:
        return -error;
    }
}

/* The peer is gone; its earlier messages are still in flight. */
static void begin_dying(struct ash_ofi_link *link, int status)
{
    link->dying = status;
    link->since_ns = ash_clock_ns();
    ash_heartbeat_unwatch(link);
}

void ash_heartbeat_watch(struct ash_ofi_link *link, const struct ash_wire_addr *addr)
{
    struct sockaddr_in6 to = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)addr->heartbeat_port)};
    int silence_s = (int)(link->ofi->silence_ns / 1000000000u), fd = addr->heartbeat_port == 0 ? -1 : new_socket();

    link->heartbeat_fd = fd;
    link->since_ns = ash_clock_ns(); /* the last tick may be long ago, or none has been */
    if (fd < 0) return;              /* too many are open: then failing transfers show a loss */
    memcpy(&to.sin6_addr, addr->heartbeat_ip, sizeof(to.sin6_addr));
    set_int(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_int(fd, IPPROTO_TCP, TCP_KEEPIDLE, 1);
    set_int(fd, IPPROTO_TCP, TCP_KEEPINTVL, 1);
    set_int(fd, IPPROTO_TCP, TCP_KEEPCNT, silence_s > 1 ? silence_s - 1 : 1);
    if ((connect(fd, (struct sockaddr *)(void *)&to, sizeof(to)) < 0 && errno != EINPROGRESS && errno != EAGAIN) ||
        !watch(link->ofi, fd, EPOLLIN | EPOLLOUT, link)) {
        begin_dying(link, meaning(errno));
    }
}

void ash_heartbeat_unwatch(struct ash_ofi_link *link)
{
    if (link->heartbeat_fd >= 0) close(link->heartbeat_fd);
    link->heartbeat_fd = -1;
}

static void connected(struct ash_ofi_link *link)
{
    struct epoll_event event = {.events = EPOLLIN, .data = {.ptr = link}};

    link->connected = true;
    epoll_ctl(link->ofi->heartbeat_epoll, EPOLL_CTL_MOD, link->heartbeat_fd, &event);
}

/* The heartbeat socket of a link has an event. */
static void on_event(struct ash_ofi_link *link)
{
    int error = 0;
    socklen_t size = sizeof(error);
    char byte;
    ssize_t got;

    if (!link->connected) {
        getsockopt(link->heartbeat_fd, SOL_SOCKET, SO_ERROR, &error, &size);
        if (error == 0)
            connected(link);
        else
            begin_dying(link, meaning(error));
        return;
    }
    got = recv(link->heartbeat_fd, &byte, 1, MSG_DONTWAIT);
    if (got == 1)
        begin_dying(link, -ESHUTDOWN);
    else if (got == 0)
        begin_dying(link, -ECONNRESET);
    else if (errno != EAGAIN && errno != EINTR)
        begin_dying(link, meaning(errno));
}

void ash_heartbeat_tick(struct ash_ofi *ofi)
{
    struct epoll_event ready[READY_MAX];
    int count = epoll_wait(ofi->heartbeat_epoll, ready, READY_MAX, 0);

    for (int i = 0; i < count; i++)
        if (ready[i].data.ptr != NULL)
            on_event(ready[i].data.ptr);
        else
            accept_watchers(ofi);
    if (count > 0) sweep_watchers(ofi);
    for (size_t i = 0; i < ofi->link_count; i++) {
        struct ash_ofi_link *link = ofi->links[i];

        if (link->dying == 0 && !link->connected && link->heartbeat_fd >= 0 &&
            ofi->now_ns > link->since_ns + ofi->silence_ns)
            begin_dying(link, -ETIMEDOUT);
        if (link->dying != 0 && link->peer->status == 0 && ofi->quiet && ofi->now_ns > link->since_ns + GRACE_NS)
            ash_flow_lose(link, link->dying);
    }
}
