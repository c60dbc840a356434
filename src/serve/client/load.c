/* The loop that sends a workload: connections in one epoll, a timer for the next request that is due. Every byte's time
 * is taken when it is read, before it is looked at. Latencies count from when a request was due, so that a late client
 * does not flatter the server. */
#include "serve/client/load.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/interrupt.h"
#include "base/math.h"
#include "serve/client/load_priv.h"
#include "serve/client/response.h"

#define EVENTS_MAX 256
#define WAIT_MS 100 /* at most, between looks at deadlines and interrupts */
#define READ_BYTES ((size_t)64 << 10)

struct run;

/* A connection: idle (request NONE), or with a request on its way. */
struct conn {
    struct run *run;
    int fd;
    size_t request; /* its index, or NONE */
    size_t sent_bytes;
    bool was_used; /* an answer came over it: the server may close it */
    double read_s; /* when the bytes that are being read came */
    uint64_t deadline_ns;
    struct ash_str out;
    struct ash_response response;
};
#define NONE SIZE_MAX

struct run {
    const struct ash_load_opts *opts;
    const struct ash_workload *workload;
    struct ash_load_results *results;
    struct sockaddr_storage addr;
    socklen_t addr_bytes;
    int epoll_fd, timer_fd;
    uint64_t start_ns;
    struct conn *conns;
    size_t conn_count, active;
    size_t next, done;   /* requests that are not sent yet begin at next */
    struct ash_str body; /* of request next, where has_body */
    bool has_body;
    char *bytes;
};

static double now_s(const struct run *run)
{
    return (double)(ash_clock_ns() - run->start_ns) * 1e-9;
}

/* ---- ends of requests -------------------------------------------------------------------------------------------- */

static void close_conn(struct conn *conn)
{
    if (conn->fd >= 0) close(conn->fd); /* which takes it out of the epoll too */
    conn->fd = -1;
    conn->was_used = false;
}

/* The request of a connection has ended; err NULL: well. */
static void finish(struct conn *conn, const struct ash_err *err)
{
    struct run *run = conn->run;
    struct ash_load_result *result = &run->results->items[conn->request];

    result->end_s = now_s(run);
    result->status = conn->response.status;
    result->is_ok = err == NULL;
    if (err != NULL && !run->results->has_error) {
        run->results->first = *err;
        run->results->has_error = true;
    }
    if (err != NULL || !conn->response.keeps_open)
        close_conn(conn);
    else
        conn->was_used = true;
    conn->request = NONE;
    run->active--;
    run->done++;
}

static void fail(struct conn *conn, int rc, const char *what)
{
    struct ash_err err = {0};

    ash_err_set(&err, rc, "%s: %s", what, rc == -EPROTO ? "this is no answer of the API" : strerror(-rc));
    finish(conn, &err);
}

/* The response is complete. */
static void complete(struct conn *conn)
{
    const struct ash_load_result *result = &conn->run->results->items[conn->request];
    struct ash_err err = {0};

    if (conn->response.status != 200) {
        ash_load_server_err(conn->response.status, conn->response.body.data, &err);
        finish(conn, &err);
    } else if (!conn->response.is_stream) {
        fail(conn, -EPROTO, "the server does not stream");
    } else if (result->answer_tokens == 0 && result->chunks == 0) {
        fail(conn, -EPROTO, "the stream has no token");
    } else {
        finish(conn, NULL);
    }
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

static int see_event(void *ctx, const char *data, size_t size_bytes)
{
    struct conn *conn = ctx;
    struct ash_load_event event;
    int rc = 0;

    if (size_bytes == 6 && memcmp(data, "[DONE]", 6) == 0) return 0;
    rc = ash_load_read_event(data, size_bytes, &event);
    if (rc < 0) return rc;
    if (event.is_error) return -EREMOTEIO;
    return ash_load_results_note(conn->run->results, conn->request, &event, conn->read_s);
}

/* ---- connections ------------------------------------------------------------------------------------------------- */

static int open_conn(struct conn *conn)
{
    struct run *run = conn->run;
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET | EPOLLRDHUP, .data.ptr = conn};
    int one = 1, rc = 0;

    conn->fd = socket(run->addr.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (conn->fd < 0) return -errno;
    (void)setsockopt(conn->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)); /* a wish */
    if (connect(conn->fd, (const struct sockaddr *)&run->addr, run->addr_bytes) < 0 && errno != EINPROGRESS)
        rc = -errno;
    if (rc == 0 && epoll_ctl(run->epoll_fd, EPOLL_CTL_ADD, conn->fd, &event) < 0) rc = -errno;
    if (rc < 0) close_conn(conn);
    return rc;
}

/* Send what the socket takes. */
static int send_some(struct conn *conn)
{
    struct ash_load_result *result = &conn->run->results->items[conn->request];

    while (conn->sent_bytes < conn->out.size_bytes) {
        ssize_t count =
            send(conn->fd, conn->out.data + conn->sent_bytes, conn->out.size_bytes - conn->sent_bytes, MSG_NOSIGNAL);

        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return errno == EAGAIN || errno == ENOTCONN ? 0 : -errno;
        if (conn->sent_bytes == 0) result->sent_s = now_s(conn->run);
        conn->sent_bytes += (size_t)count;
    }
    return 0;
}

/* A server may close a connection that idles just when it is used again: then the request is sent once more, on a new
 * one. */
static bool may_retry(const struct conn *conn)
{
    return conn->was_used && conn->response.stage == ASH_RESPONSE_STATUS && conn->response.line.size_bytes == 0;
}

static int retry(struct conn *conn)
{
    int rc;

    close_conn(conn);
    conn->sent_bytes = 0;
    rc = open_conn(conn);
    return rc == 0 ? send_some(conn) : rc;
}

/* Read all available bytes. Returns 1 when the response is complete, 0 when more must come. */
static int read_some(struct conn *conn)
{
    for (;;) {
        ssize_t count = read(conn->fd, conn->run->bytes, READ_BYTES);
        int rc;

        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return errno == EAGAIN ? 0 : -errno;
        conn->read_s = now_s(conn->run);
        rc = count == 0 ? ash_response_end(&conn->response)
                        : ash_response_push(&conn->response, conn->run->bytes, (size_t)count);
        if (rc != 0) return rc;
    }
}

static void handle(struct conn *conn)
{
    int rc;

    if (conn->fd < 0) return;
    if (conn->request == NONE) { /* an idle one has nothing to say: it was closed, or waits to be used */
        char byte;

        if (recv(conn->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 || errno != EAGAIN) close_conn(conn);
        return;
    }
    rc = send_some(conn);
    if (rc == 0) rc = read_some(conn);
    if (rc == -ENOTCONN) rc = 0; /* still connecting */
    if ((rc == -ECONNRESET || rc == -EPIPE) && may_retry(conn)) rc = retry(conn);
    if (rc == -EREMOTEIO)
        fail(conn, rc, "the stream ended with an error event");
    else if (rc < 0)
        fail(conn, rc, "a request failed");
    else if (rc > 0)
        complete(conn);
}

/* ---- due requests ------------------------------------------------------------------------------------------------ */

static int prepare(struct run *run)
{
    struct ash_str body = {0};
    const char *path = run->opts->is_chat ? "/v1/chat/completions" : "/v1/completions";
    int rc;

    if (run->has_body || run->next == run->workload->count) return 0;
    ash_str_clear(&run->body);
    rc = ash_load_write_body(run->opts, run->workload, &run->workload->items[run->next], &body);
    if (rc == 0) rc = ash_load_write_request(run->opts, path, &body, &run->body);
    run->has_body = rc == 0;
    ash_str_fini(&body);
    return rc;
}

/* An open connection that idles, else a place for a new one. */
static struct conn *find_conn(struct run *run)
{
    struct conn *free_place = NULL;

    for (size_t i = 0; i < run->conn_count; i++) {
        if (run->conns[i].request != NONE) continue;
        if (run->conns[i].fd >= 0) return &run->conns[i];
        if (free_place == NULL) free_place = &run->conns[i];
    }
    return free_place;
}

static void start(struct run *run, struct conn *conn, double due_s)
{
    struct ash_str old = conn->out;
    int rc = 0;

    conn->out = run->body;
    run->body = old;
    run->has_body = false;
    conn->request = run->next++;
    conn->sent_bytes = 0;
    conn->deadline_ns = ash_clock_ns() + (uint64_t)(run->opts->timeout_s * 1e9);
    ash_response_reset(&conn->response);
    run->active++;
    run->results->items[conn->request].is_sent = true;
    run->results->items[conn->request].due_s = due_s;
    if (conn->fd < 0) rc = open_conn(conn);
    if (rc == 0) rc = send_some(conn);
    if ((rc == -EPIPE || rc == -ECONNRESET) && may_retry(conn)) rc = retry(conn);
    if (rc < 0) fail(conn, rc, "a request could not be sent");
}

/* Send all requests that are due. */
static int start_due(struct run *run)
{
    bool has_times = run->workload->has_times;
    size_t most = has_times ? run->conn_count : ash_min(run->opts->clients, run->conn_count);

    while (run->next < run->workload->count && run->active < most) {
        double due_s = has_times ? run->workload->items[run->next].at_s : now_s(run);
        int rc;

        if (has_times && due_s > now_s(run)) break;
        rc = prepare(run);
        if (rc < 0) return rc;
        start(run, find_conn(run), due_s);
    }
    return prepare(run); /* the next one is ready when its time comes */
}

static int set_timer(struct run *run)
{
    struct itimerspec spec = {0};
    uint64_t at_ns;

    if (!run->workload->has_times || run->next == run->workload->count) return 0;
    at_ns = run->start_ns + (uint64_t)(run->workload->items[run->next].at_s * 1e9) + 1;
    spec.it_value.tv_sec = (time_t)(at_ns / 1000000000);
    spec.it_value.tv_nsec = (long)(at_ns % 1000000000);
    return timerfd_settime(run->timer_fd, TFD_TIMER_ABSTIME, &spec, NULL) < 0 ? -errno : 0;
}

static void end_late(struct run *run)
{
    uint64_t now_ns = ash_clock_ns();

    for (size_t i = 0; i < run->conn_count; i++)
        if (run->conns[i].request != NONE && run->conns[i].deadline_ns < now_ns)
            fail(&run->conns[i], -ETIMEDOUT, "a request failed");
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

static int wait_events(struct run *run)
{
    struct epoll_event events[EVENTS_MAX];
    int count = epoll_wait(run->epoll_fd, events, EVENTS_MAX, WAIT_MS);

    if (count < 0) return errno == EINTR ? 0 : -errno;
    for (int i = 0; i < count; i++) {
        uint64_t ticks;

        if (events[i].data.ptr != NULL)
            handle(events[i].data.ptr);
        else if (read(run->timer_fd, &ticks, sizeof(ticks)) < 0 && errno != EAGAIN)
            return -errno;
    }
    return 0;
}

static int loop(struct run *run)
{
    uint64_t looked_ns = ash_clock_ns();
    int rc = 0;

    while (rc == 0 && run->done < run->workload->count && !ash_interrupt_requested()) {
        rc = start_due(run);
        if (rc == 0) rc = set_timer(run);
        if (rc == 0 && run->done < run->workload->count) rc = wait_events(run);
        if (ash_clock_ns() - looked_ns > WAIT_MS * 1000000ull) {
            looked_ns = ash_clock_ns();
            end_late(run);
        }
    }
    return rc;
}

static int open_run(struct run *run, struct ash_err *err)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    int rc = ash_load_resolve(&run->opts->url, &run->addr, &run->addr_bytes, err);

    if (rc < 0) return rc;
    run->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    run->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (run->epoll_fd < 0 || run->timer_fd < 0 || epoll_ctl(run->epoll_fd, EPOLL_CTL_ADD, run->timer_fd, &event) < 0)
        return ash_err_set(err, -errno, "no descriptors for the requests: %s", strerror(errno));
    run->conn_count = ash_min(run->opts->connections_max, run->workload->count);
    if (!run->workload->has_times) run->conn_count = ash_min(run->conn_count, run->opts->clients);
    run->conns = calloc(run->conn_count, sizeof(*run->conns));
    run->bytes = malloc(READ_BYTES);
    run->results->items = calloc(run->workload->count, sizeof(*run->results->items));
    if (run->conns == NULL || run->bytes == NULL || run->results->items == NULL)
        return ash_err_set(err, -ENOMEM, "no memory for %zu requests", run->workload->count);
    run->results->count = run->workload->count;
    for (size_t i = 0; i < run->conn_count; i++) {
        run->conns[i] = (struct conn){.run = run, .fd = -1, .request = NONE};
        ash_response_init(&run->conns[i].response, see_event, &run->conns[i]);
    }
    return 0;
}

static void close_run(struct run *run)
{
    for (size_t i = 0; run->conns != NULL && i < run->conn_count; i++) {
        close_conn(&run->conns[i]);
        ash_str_fini(&run->conns[i].out);
        ash_response_fini(&run->conns[i].response);
    }
    if (run->epoll_fd >= 0) close(run->epoll_fd);
    if (run->timer_fd >= 0) close(run->timer_fd);
    free(run->conns);
    free(run->bytes);
    ash_str_fini(&run->body);
}

int ash_load_run(const struct ash_load_opts *opts, const struct ash_workload *workload,
                 struct ash_load_results *results_out, struct ash_err *err)
{
    struct ash_load_results results = {0};
    struct run run = {.opts = opts, .workload = workload, .results = &results, .epoll_fd = -1, .timer_fd = -1};
    int rc = open_run(&run, err);

    if (rc == 0) rc = prepare(&run);
    if (rc == 0) {
        run.start_ns = ash_clock_ns();
        rc = loop(&run);
        results.seconds = now_s(&run);
        if (rc < 0) ash_err_set(err, rc, "the load could not be sent: %s", strerror(-rc));
    }
    close_run(&run);
    if (rc < 0)
        ash_load_results_fini(&results);
    else
        *results_out = results;
    return rc;
}
