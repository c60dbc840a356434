/* Connections to replicas. They stay open between requests. A closed one is freed only after the events that were read
 * together, which may refer to it. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/assert.h"
#include "serve/route/route_priv.h"

static int see_header(void *ctx, const char *name, const char *value)
{
    struct ash_route_conn *conn = ctx;

    return conn->ops->take_header != NULL ? conn->ops->take_header(conn, name, value) : 0;
}

static int see_body(void *ctx, const char *bytes, size_t size_bytes)
{
    struct ash_route_conn *conn = ctx;

    return conn->ops->take_body(conn, bytes, size_bytes);
}

/* ---- opening and closing ----------------------------------------------------------------------------------------- */

static int connect_to(struct ash_route_conn *conn)
{
    const struct ash_route_target *target = &conn->replica->target;
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET | EPOLLRDHUP, .data.ptr = conn};
    int one = 1;

    conn->fd = socket(target->addr.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (conn->fd < 0) return -errno;
    (void)setsockopt(conn->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)); /* a wish */
    if (connect(conn->fd, (const struct sockaddr *)&target->addr, target->addr_bytes) < 0 && errno != EINPROGRESS)
        return -errno;
    return epoll_ctl(conn->replica->router->epoll_fd, EPOLL_CTL_ADD, conn->fd, &event) < 0 ? -errno : 0;
}

static struct ash_route_conn *open_conn(struct ash_replica *replica, int *rc_out)
{
    struct ash_route_conn *conn = calloc(1, sizeof(*conn));

    *rc_out = -ENOMEM;
    if (conn == NULL) return NULL;
    conn->replica = replica;
    ash_response_init(&conn->response, NULL, conn);
    conn->next = replica->conns;
    if (conn->next != NULL) conn->next->prev = conn;
    replica->conns = conn;
    *rc_out = connect_to(conn);
    if (*rc_out == 0) return conn;
    ash_route_conn_close(conn);
    return NULL;
}

void ash_route_conn_close(struct ash_route_conn *conn)
{
    struct ash_replica *replica = conn->replica;

    ash_assert(replica != NULL);
    *(conn->prev != NULL ? &conn->prev->next : &replica->conns) = conn->next;
    if (conn->next != NULL) conn->next->prev = conn->prev;
    if (replica->probe == conn) replica->probe = NULL;
    if (replica->events == conn) replica->events = NULL;
    if (conn->call != NULL) *(conn->call->prefill == conn ? &conn->call->prefill : &conn->call->conn) = NULL;
    conn->call = NULL;
    conn->ops = NULL;
    if (conn->fd >= 0) { /* closing alone leaves it in the epoll while a child, not yet at its exec, has a copy */
        (void)epoll_ctl(replica->router->epoll_fd, EPOLL_CTL_DEL, conn->fd, NULL);
        close(conn->fd);
    }
    conn->fd = -1;
    conn->next_dead = replica->router->dead;
    replica->router->dead = conn;
    conn->replica = NULL;
}

void ash_route_conns_bury(struct ash_router *router)
{
    while (router->dead != NULL) {
        struct ash_route_conn *conn = router->dead;

        router->dead = conn->next_dead;
        ash_str_fini(&conn->out);
        ash_response_fini(&conn->response);
        free(conn);
    }
}

struct ash_route_conn *ash_route_conn_get(struct ash_replica *replica, const struct ash_route_conn_ops *ops,
                                          int *rc_out)
{
    struct ash_route_conn *conn = replica->conns;

    while (conn != NULL && conn->ops != NULL)
        conn = conn->next;
    if (conn == NULL) conn = open_conn(replica, rc_out);
    if (conn == NULL) return NULL;
    ash_str_clear(&conn->out);
    conn->sent_bytes = 0;
    conn->was_idle = conn->was_used;
    conn->ops = ops;
    return conn;
}

int ash_route_conn_write_get(struct ash_route_conn *conn, const char *path, const char *key)
{
    const struct ash_route_target *target = &conn->replica->target;
    int rc = ash_str_addf(&conn->out, "GET %s%s HTTP/1.1\r\nHost: %s\r\nAccept: */*\r\n", target->url.path, path,
                          target->host);

    if (rc == 0 && key != NULL) rc = ash_str_addf(&conn->out, "Authorization: Bearer %s\r\n", key);
    return rc == 0 ? ash_str_adds(&conn->out, "\r\n") : rc;
}

void ash_route_conn_release(struct ash_route_conn *conn)
{
    ash_assert(conn->ops != NULL && conn->response.stage == ASH_RESPONSE_DONE);
    conn->call = NULL;
    conn->ops = NULL;
    conn->was_used = true;
    if (!conn->response.keeps_open) ash_route_conn_close(conn);
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

/* The connection broke, or its bytes are no answer. One that had idled was perhaps closed by the replica just then. */
static void fail(struct ash_route_conn *conn, int rc)
{
    bool is_stale = conn->was_idle && conn->response.stage == ASH_RESPONSE_STATUS &&
                    conn->response.line.size_bytes == 0 && (rc == -ECONNRESET || rc == -EPIPE);

    ash_assert(rc < 0 && conn->ops != NULL);
    conn->ops->fail(conn, rc, is_stale);
}

static int send_some(struct ash_route_conn *conn)
{
    while (conn->sent_bytes < conn->out.size_bytes) {
        ssize_t count =
            send(conn->fd, conn->out.data + conn->sent_bytes, conn->out.size_bytes - conn->sent_bytes, MSG_NOSIGNAL);

        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return errno == EAGAIN || errno == ENOTCONN ? 0 : -errno;
        conn->sent_bytes += (size_t)count;
    }
    return 0;
}

void ash_route_conn_start(struct ash_route_conn *conn)
{
    int rc;

    ash_assert(conn->fd >= 0 && conn->ops != NULL && conn->sent_bytes == 0);
    ash_response_reset(&conn->response);
    conn->response.see_header = see_header;
    conn->response.see_body = conn->ops->take_body != NULL ? see_body : NULL;
    rc = send_some(conn);
    if (rc < 0) fail(conn, rc);
}

static bool is_throttled(const struct ash_route_conn *conn)
{
    bool is;

    if (conn->call == NULL || conn->call->prefill == conn) return false; /* nothing of it goes to a client */
    pthread_mutex_lock(&conn->call->lock);
    is = conn->call->out.size_bytes > ASH_ROUTE_OUT_BYTES_MAX;
    conn->call->is_throttled = is;
    pthread_mutex_unlock(&conn->call->lock);
    return is;
}

/* Read all available bytes. Returns 1 when the response is complete, 0 when more must come. */
static int read_some(struct ash_route_conn *conn)
{
    char *bytes = conn->replica->router->bytes;

    for (;;) {
        ssize_t count;
        int rc;

        if (is_throttled(conn)) return 0;
        count = read(conn->fd, bytes, ASH_ROUTE_READ_BYTES);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return errno == EAGAIN || errno == ENOTCONN ? 0 : -errno;
        rc = count == 0 ? ash_response_end(&conn->response) : ash_response_push(&conn->response, bytes, (size_t)count);
        if (rc != 0) return rc;
        if (count < (ssize_t)ASH_ROUTE_READ_BYTES && !conn->has_hung_up) return 0; /* more is another event */
    }
}

void ash_route_conn_read(struct ash_route_conn *conn)
{
    int rc = read_some(conn);

    if (rc < 0)
        fail(conn, rc);
    else if (rc > 0)
        conn->ops->complete(conn);
    else if (conn->ops->advance != NULL)
        conn->ops->advance(conn);
}

void ash_route_conn_handle(struct ash_route_conn *conn, bool has_hung_up)
{
    int rc;

    if (conn->fd < 0) return;
    if (has_hung_up) conn->has_hung_up = true;
    if (conn->ops == NULL) { /* an idle one has nothing to say: it was closed, or waits to be used */
        char byte;

        if (recv(conn->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 || (errno != EAGAIN && errno != ENOTCONN))
            ash_route_conn_close(conn);
        return;
    }
    rc = send_some(conn);
    if (rc < 0)
        fail(conn, rc);
    else
        ash_route_conn_read(conn);
}
