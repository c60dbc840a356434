/* Sockets are non-blocking; poll(2) with the rest of the deadline does all waiting. */
#include "base/socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"

#define BACKLOG 1024
#define RETRY_NS 10000000 /* between two tries to connect */
#define FREE_FIRST 12000  /* below those of Slurm's jobs, and those that the system takes for connections */
#define FREE_END 20000
#define FREE_TRIES 100

uint64_t ash_deadline_in(double seconds)
{
    return ash_clock_ns() + (uint64_t)(seconds * 1e9);
}

int ash_deadline_ms(uint64_t deadline_ns)
{
    uint64_t now_ns = ash_clock_ns(), left_ms;

    if (now_ns >= deadline_ns) return 0;
    left_ms = (deadline_ns - now_ns + 999999) / 1000000;
    return left_ms < INT_MAX ? (int)left_ms : INT_MAX;
}

/* Wait for the descriptor. Returns 0, -ETIMEDOUT or another negative errno. */
static int wait_for(int fd, short events, uint64_t deadline_ns)
{
    for (;;) {
        struct pollfd entry = {.fd = fd, .events = events};
        int count = poll(&entry, 1, ash_deadline_ms(deadline_ns));

        if (count > 0) return 0;
        if (count == 0 && ash_clock_ns() >= deadline_ns) return -ETIMEDOUT;
        if (count < 0 && errno != EINTR) return -errno;
    }
}

int ash_socket_wait(int fd, uint64_t deadline_ns)
{
    return wait_for(fd, POLLIN, deadline_ns);
}

static struct addrinfo *resolve(const char *host, int port, struct ash_err *err)
{
    struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = host == NULL ? AI_PASSIVE : 0};
    struct addrinfo *found = NULL;
    char service[16];
    int rc;

    snprintf(service, sizeof(service), "%d", port);
    rc = getaddrinfo(host, service, &hints, &found);
    if (rc == 0) return found;
    ash_err_set(err, -ENOENT, "'%s' cannot be resolved: %s", host != NULL ? host : "*", gai_strerror(rc));
    return NULL;
}

static void set_option(int fd, int level, int name)
{
    int one = 1;

    setsockopt(fd, level, name, &one, sizeof(one)); /* only ever helps: a refusal is no error */
}

static int listen_at(const struct addrinfo *at)
{
    int fd = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, at->ai_protocol), cause;

    if (fd < 0) return -errno;
    set_option(fd, SOL_SOCKET, SO_REUSEADDR);
    if (bind(fd, at->ai_addr, at->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0) return fd;
    cause = errno;
    close(fd);
    return -cause;
}

int ash_socket_listen(const char *host, int port, struct ash_err *err)
{
    struct addrinfo *found = resolve(host, port, err);
    int fd = -EADDRNOTAVAIL;

    if (found == NULL) return -ENOENT;
    for (const struct addrinfo *at = found; at != NULL && fd < 0; at = at->ai_next)
        fd = listen_at(at);
    freeaddrinfo(found);
    return fd >= 0 ? fd : ash_err_set(err, fd, "cannot listen on port %d: %s", port, strerror(-fd));
}

const char *ash_socket_job_host(const char *host)
{
    return host != NULL && (strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0) ? host : NULL;
}

/* Bound while no other process is, then open to a listener of the same port. */
static int reserve_at(const struct addrinfo *at)
{
    int fd = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol), cause;

    if (fd < 0) return -errno;
    if (bind(fd, at->ai_addr, at->ai_addrlen) == 0) {
        set_option(fd, SOL_SOCKET, SO_REUSEADDR);
        return fd;
    }
    cause = errno;
    close(fd);
    return -cause;
}

int ash_socket_reserve(int *port_out, struct ash_err *err)
{
    uint64_t seed = ash_hash_mix(ash_clock_ns() ^ (uint64_t)getpid() << 32);

    for (uint64_t i = 0; i < FREE_TRIES; i++) {
        int port = FREE_FIRST + (int)((seed + i * 7919) % (FREE_END - FREE_FIRST)), fd = -EADDRNOTAVAIL;
        struct addrinfo *found = resolve(NULL, port, err);

        if (found == NULL) return -ENOENT;
        for (const struct addrinfo *at = found; at != NULL && fd < 0; at = at->ai_next)
            fd = reserve_at(at);
        freeaddrinfo(found);
        if (fd < 0) continue;
        *port_out = port;
        return fd;
    }
    return ash_err_set(err, -EADDRINUSE, "no free port was found");
}

int ash_socket_port(int fd)
{
    struct sockaddr_storage addr;
    socklen_t bytes = sizeof(addr);

    if (getsockname(fd, (struct sockaddr *)&addr, &bytes) < 0) return -errno;
    return ntohs(addr.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&addr)->sin6_port
                                            : ((struct sockaddr_in *)&addr)->sin_port);
}

int ash_socket_own_address(int fd, char *buf, size_t buf_bytes)
{
    struct sockaddr_storage addr;
    socklen_t bytes = sizeof(addr);

    const char *mapped = "::ffff:";

    if (getsockname(fd, (struct sockaddr *)&addr, &bytes) < 0) return -errno;
    if (getnameinfo((struct sockaddr *)&addr, bytes, buf, (socklen_t)buf_bytes, NULL, 0, NI_NUMERICHOST) != 0)
        return -EINVAL;
    if (strncmp(buf, mapped, strlen(mapped)) == 0 && strchr(buf, '.') != NULL)
        memmove(buf, buf + strlen(mapped), strlen(buf) - strlen(mapped) + 1); /* IPv4, seen by a socket of both */
    return 0;
}

int ash_socket_address_towards(const char *host, char *buf, size_t buf_bytes)
{
    struct addrinfo *found = resolve(host, 9, NULL);
    int fd, rc;

    if (found == NULL) return -ENOENT;
    fd = socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0); /* to connect it only looks for the way */
    rc = fd < 0 || connect(fd, found->ai_addr, found->ai_addrlen) < 0 ? -errno
                                                                      : ash_socket_own_address(fd, buf, buf_bytes);
    if (fd >= 0) close(fd);
    freeaddrinfo(found);
    return rc;
}

static int connect_to(const struct addrinfo *at, uint64_t deadline_ns)
{
    int fd = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, at->ai_protocol), cause = 0;
    socklen_t bytes = sizeof(cause);

    if (fd < 0) return -errno;
    if (connect(fd, at->ai_addr, at->ai_addrlen) < 0 && errno != EINPROGRESS) cause = errno;
    if (cause == 0) cause = -wait_for(fd, POLLOUT, deadline_ns);
    if (cause == 0 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &cause, &bytes) < 0) cause = errno;
    if (cause == 0) {
        set_option(fd, IPPROTO_TCP, TCP_NODELAY);
        return fd;
    }
    close(fd);
    return -cause;
}

/* May it work a moment later? */
static int transient(int rc)
{
    return rc == -ECONNREFUSED || rc == -ECONNRESET || rc == -EHOSTUNREACH || rc == -ENETUNREACH ||
           rc == -EADDRNOTAVAIL;
}

int ash_socket_connect(const char *host, int port, uint64_t deadline_ns, struct ash_err *err)
{
    const struct timespec pause = {.tv_nsec = RETRY_NS};
    struct addrinfo *found = resolve(host, port, err);
    int fd = -ECONNREFUSED;

    if (found == NULL) return -ENOENT;
    for (;;) {
        for (const struct addrinfo *at = found; at != NULL && fd < 0; at = at->ai_next)
            fd = connect_to(at, deadline_ns);
        if (fd >= 0 || !transient(fd) || ash_clock_ns() >= deadline_ns) break;
        nanosleep(&pause, NULL); /* there is no notification of a new listener */
    }
    freeaddrinfo(found);
    return fd >= 0 ? fd : ash_err_set(err, fd, "cannot connect to %s, port %d: %s", host, port, strerror(-fd));
}

int ash_socket_accept(int listen_fd, uint64_t deadline_ns)
{
    for (;;) {
        int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK), rc;

        if (fd >= 0) {
            set_option(fd, IPPROTO_TCP, TCP_NODELAY);
            return fd;
        }
        if (errno == ECONNABORTED || errno == EINTR) continue;
        if (errno != EAGAIN && errno != EWOULDBLOCK) return -errno;
        rc = wait_for(listen_fd, POLLIN, deadline_ns);
        if (rc < 0) return rc;
    }
}

int ash_socket_send(int fd, const void *data, size_t size_bytes, uint64_t deadline_ns)
{
    const char *at = data;

    while (size_bytes > 0) {
        ssize_t done = send(fd, at, size_bytes, MSG_NOSIGNAL);
        int rc = 0;

        if (done >= 0) {
            at += done;
            size_bytes -= (size_t)done;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            rc = wait_for(fd, POLLOUT, deadline_ns);
        } else if (errno != EINTR) {
            rc = errno == EPIPE ? -ECONNRESET : -errno;
        }
        if (rc < 0) return rc;
    }
    return 0;
}

int ash_socket_recv(int fd, void *data, size_t size_bytes, uint64_t deadline_ns)
{
    char *at = data;

    while (size_bytes > 0) {
        ssize_t done = recv(fd, at, size_bytes, 0);
        int rc = 0;

        if (done == 0) return -ECONNRESET;
        if (done > 0) {
            at += done;
            size_bytes -= (size_t)done;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            rc = wait_for(fd, POLLIN, deadline_ns);
        } else if (errno != EINTR) {
            rc = -errno;
        }
        if (rc < 0) return rc;
    }
    return 0;
}
