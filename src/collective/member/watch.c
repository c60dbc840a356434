/* The watching thread: one poll loop over the listening socket, the parent and the children, with a heartbeat every
 * tenth of a second. */
#include "collective/member/watch.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/thread.h"

#define MAGIC 0x57485341u /* "ASHW" */
#define HEARTBEAT_NS 100000000ull
#define NEIGHBOURS 3       /* the parent, two children */
#define UNIDENTIFIED_MAX 8 /* connections that have not sent their rank */
#define SEND_S 0.05        /* a neighbour that does not read for so long has its silence counted */

enum frame_kind { FRAME_HELLO, FRAME_HEARTBEAT, FRAME_LOST, FRAME_BYE };

struct frame {
    uint32_t magic, kind;
    uint64_t job;
    uint32_t epoch, rank; /* hello: who speaks; lost: who is lost */
    int32_t code;         /* lost: the error of all calls */
    char why[ASH_ERR_TEXT_BYTES];
};

/* A connection, and as much of the next frame as has arrived. */
struct connection {
    int fd; /* -1: none (not yet, or no longer) */
    size_t rank;
    uint64_t received_ns;
    bool expected;     /* a silence counts: it has sent no farewell */
    bool is_connected; /* both sides know that the other is there */
    size_t filled;
    struct frame frame;
};

struct ash_watch {
    struct ash_watch_opts opts;
    pthread_t thread;
    int wake_fd;
    struct connection neighbours[NEIGHBOURS]; /* the parent is neighbours[0], if there is one */
    struct connection unidentified[UNIDENTIFIED_MAX];
    bool lost; /* a loss has been reported: */
    struct frame loss;
    pthread_mutex_t lock; /* of what follows: shared with other threads */
    pthread_cond_t connected;
    bool all_connected, stop, abort;
    size_t failed_rank; /* of the abort */
    int code;
    char why[sizeof(((struct frame *)0)->why)];
};

static struct frame make_frame(const struct ash_watch *watch, enum frame_kind kind, size_t rank, const char *why)
{
    struct frame frame = {
        .magic = MAGIC, .kind = kind, .job = watch->opts.job, .epoch = watch->opts.epoch, .rank = (uint32_t)rank};

    snprintf(frame.why, sizeof(frame.why), "%s", why);
    return frame;
}

static void drop(struct connection *connection)
{
    if (connection->fd >= 0) close(connection->fd);
    connection->fd = -1;
    connection->filled = 0;
}

static void send_frame(struct connection *connection, const struct frame *frame)
{
    if (connection->fd >= 0)
        ash_socket_send(connection->fd, frame, sizeof(*frame),
                        ash_deadline_in(SEND_S)); /* a failure shows as silence */
}

/* ---- losses ------------------------------------------------------------------------------------------------------ */

/* Once every neighbour is connected, the owner may continue. */
static void check_connected(struct ash_watch *watch)
{
    bool all = true;

    for (size_t i = 0; i < NEIGHBOURS; i++)
        if (watch->neighbours[i].expected && !watch->neighbours[i].is_connected) all = false;
    if (!all && !watch->lost) return;
    pthread_mutex_lock(&watch->lock);
    watch->all_connected = true;
    pthread_cond_signal(&watch->connected);
    pthread_mutex_unlock(&watch->lock);
}

/* The first loss goes to the owner and to all neighbours; later ones are its consequences. */
static void spread_loss(struct ash_watch *watch, size_t rank, int code, const char *why, const struct connection *from)
{
    if (watch->lost) return;
    watch->lost = true;
    watch->loss = make_frame(watch, FRAME_LOST, rank, why);
    watch->loss.code = code;
    for (size_t i = 0; i < NEIGHBOURS; i++)
        if (&watch->neighbours[i] != from) send_frame(&watch->neighbours[i], &watch->loss);
    watch->opts.on_loss(watch->opts.ctx, rank, code, watch->loss.why);
    check_connected(watch);
}

static void lose(struct ash_watch *watch, struct connection *connection, const char *how)
{
    const struct ash_watch_member *member = &watch->opts.members[connection->rank];
    char why[ASH_ERR_TEXT_BYTES];

    snprintf(why, sizeof(why), "rank %zu (host %.60s, process %d) %s", connection->rank, member->host, (int)member->pid,
             how);
    connection->expected = false;
    drop(connection);
    spread_loss(watch, connection->rank, -ECONNRESET, why, connection);
}

static void check_silence(struct ash_watch *watch, struct connection *connection)
{
    double silent_s = (double)(ash_clock_ns() - connection->received_ns) * 1e-9;
    char how[64];

    if (!connection->expected || silent_s < watch->opts.silent_s) return;
    snprintf(how, sizeof(how), "has been silent for %.1f s", silent_s);
    lose(watch, connection, how);
}

/* ---- frames ------------------------------------------------------------------------------------------------------ */

static void on_frame(struct ash_watch *watch, struct connection *connection)
{
    struct frame *frame = &connection->frame;

    frame->why[sizeof(frame->why) - 1] = '\0';
    connection->is_connected = true;
    if (frame->kind == FRAME_BYE) {
        connection->expected = false;
        drop(connection);
    } else if (frame->kind == FRAME_LOST && frame->rank < watch->opts.size) {
        spread_loss(watch, frame->rank, frame->code < 0 ? frame->code : -ECONNRESET, frame->why, connection);
    }
    check_connected(watch);
}

static bool of_this_job(const struct ash_watch *watch, const struct frame *frame)
{
    return frame->magic == MAGIC && frame->job == watch->opts.job && frame->epoch == watch->opts.epoch;
}

/* Read what has come, frame by frame. Returns false when the connection is over. */
static bool read_frames(struct ash_watch *watch, struct connection *connection,
                        void (*on)(struct ash_watch *, struct connection *))
{
    while (connection->fd >= 0) {
        ssize_t got = read(connection->fd, (char *)&connection->frame + connection->filled,
                           sizeof(connection->frame) - connection->filled);

        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return true;
        if (got <= 0) return false;
        connection->filled += (size_t)got;
        if (connection->filled < sizeof(connection->frame)) continue;
        connection->filled = 0;
        connection->received_ns = ash_clock_ns();
        if (!of_this_job(watch, &connection->frame)) return false;
        on(watch, connection);
    }
    return true;
}

/* An unidentified connection is that of one of our children: keep it, and answer. */
static void adopt(struct ash_watch *watch, struct connection *unidentified)
{
    struct frame answer = make_frame(watch, FRAME_HELLO, watch->opts.rank, "");

    for (size_t i = 1; i < NEIGHBOURS; i++) {
        struct connection *connection = &watch->neighbours[i];

        if (!connection->expected || connection->fd >= 0 || unidentified->frame.kind != FRAME_HELLO ||
            connection->rank != unidentified->frame.rank)
            continue;
        connection->fd = unidentified->fd;
        connection->received_ns = ash_clock_ns();
        connection->is_connected = true;
        unidentified->fd = -1;
        send_frame(connection, &answer);
        if (watch->lost) send_frame(connection, &watch->loss); /* it has missed the news */
        check_connected(watch);
        return;
    }
    drop(unidentified);
}

static void accept_connections(struct ash_watch *watch)
{
    int fd;

    while ((fd = ash_socket_accept(watch->opts.listen_fd, 0)) >= 0) {
        struct connection *connection = &watch->unidentified[0]; /* when all are taken, the first has had its time */

        for (size_t i = 0; i < UNIDENTIFIED_MAX; i++)
            if (watch->unidentified[i].fd < 0) connection = &watch->unidentified[i];
        drop(connection);
        connection->fd = fd;
    }
}

/* ---- the thread -------------------------------------------------------------------------------------------------- */

static void send_heartbeats(struct ash_watch *watch)
{
    struct frame frame = make_frame(watch, FRAME_HEARTBEAT, watch->opts.rank, "");

    for (size_t i = 0; i < NEIGHBOURS; i++) {
        send_frame(&watch->neighbours[i], &frame);
        check_silence(watch, &watch->neighbours[i]);
    }
}

/* Do what other threads requested. Returns false at the end. */
static bool handle_requests(struct ash_watch *watch)
{
    bool stop, abort;
    size_t failed_rank;
    int code;
    char why[sizeof(watch->why)];
    uint64_t count;

    if (read(watch->wake_fd, &count, sizeof(count)) < 0) count = 0; /* no request */
    pthread_mutex_lock(&watch->lock);
    stop = watch->stop;
    abort = watch->abort;
    watch->abort = false;
    failed_rank = watch->failed_rank;
    code = watch->code;
    memcpy(why, watch->why, sizeof(why));
    pthread_mutex_unlock(&watch->lock);
    if (abort) spread_loss(watch, failed_rank, code, why, NULL);
    return !stop;
}

static void serve(struct ash_watch *watch, uint64_t until_ns)
{
    struct pollfd polls[2 + NEIGHBOURS + UNIDENTIFIED_MAX] = {{.fd = watch->wake_fd, .events = POLLIN},
                                                              {.fd = watch->opts.listen_fd, .events = POLLIN}};

    for (size_t i = 0; i < NEIGHBOURS; i++)
        polls[2 + i] = (struct pollfd){.fd = watch->neighbours[i].fd, .events = POLLIN};
    for (size_t i = 0; i < UNIDENTIFIED_MAX; i++)
        polls[2 + NEIGHBOURS + i] = (struct pollfd){.fd = watch->unidentified[i].fd, .events = POLLIN};
    if (poll(polls, 2 + NEIGHBOURS + UNIDENTIFIED_MAX, ash_deadline_ms(until_ns)) <= 0) return;
    for (size_t i = 0; i < NEIGHBOURS; i++)
        if (polls[2 + i].revents != 0 && !read_frames(watch, &watch->neighbours[i], on_frame))
            lose(watch, &watch->neighbours[i], "has died: its connection is gone");
    for (size_t i = 0; i < UNIDENTIFIED_MAX; i++)
        if (polls[2 + NEIGHBOURS + i].revents != 0 && !read_frames(watch, &watch->unidentified[i], adopt))
            drop(&watch->unidentified[i]);
    if (polls[1].revents != 0) accept_connections(watch);
}

static void *watch_main(void *arg)
{
    struct ash_watch *watch = arg;
    uint64_t next_ns = ash_clock_ns();
    struct frame bye = make_frame(watch, FRAME_BYE, watch->opts.rank, "");

    while (handle_requests(watch)) {
        if (ash_clock_ns() >= next_ns) {
            send_heartbeats(watch);
            next_ns = ash_clock_ns() + HEARTBEAT_NS;
        }
        serve(watch, next_ns);
    }
    for (size_t i = 0; i < NEIGHBOURS; i++)
        send_frame(&watch->neighbours[i], &bye);
    return NULL;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

static int connect_parent(struct ash_watch *watch, struct ash_err *err)
{
    const struct ash_watch_opts *opts = &watch->opts;
    struct connection *connection = &watch->neighbours[0];
    const struct ash_watch_member *member = &opts->members[connection->rank];
    struct frame hello = make_frame(watch, FRAME_HELLO, opts->rank, "");
    int rc;

    connection->fd = ash_socket_connect(member->address, member->port, ash_deadline_in(opts->silent_s), err);
    rc = connection->fd < 0 ? connection->fd
                            : ash_socket_send(connection->fd, &hello, sizeof(hello), ash_deadline_in(opts->silent_s));
    return rc == 0 ? 0 : ash_err_prefix(err, rc, "rank %zu cannot watch rank %zu", opts->rank, connection->rank);
}

static void set_neighbours(struct ash_watch *watch)
{
    size_t rank = watch->opts.rank, size = watch->opts.size;
    uint64_t now_ns = ash_clock_ns();

    for (size_t i = 0; i < UNIDENTIFIED_MAX; i++)
        watch->unidentified[i].fd = -1;
    watch->neighbours[0] = (struct connection){
        .fd = -1, .rank = rank > 0 ? (rank - 1) / 2 : 0, .received_ns = now_ns, .expected = rank > 0};
    for (size_t i = 1; i < NEIGHBOURS; i++)
        watch->neighbours[i] =
            (struct connection){.fd = -1, .rank = 2 * rank + i, .received_ns = now_ns, .expected = 2 * rank + i < size};
}

static void free_watch(struct ash_watch *watch)
{
    for (size_t i = 0; i < NEIGHBOURS; i++)
        drop(&watch->neighbours[i]);
    for (size_t i = 0; i < UNIDENTIFIED_MAX; i++)
        drop(&watch->unidentified[i]);
    if (watch->wake_fd >= 0) close(watch->wake_fd);
    pthread_cond_destroy(&watch->connected);
    pthread_mutex_destroy(&watch->lock);
    free(watch);
}

/* Until every neighbour is there, or it is clear that one will not come. */
static void wait_connected(struct ash_watch *watch)
{
    pthread_mutex_lock(&watch->lock);
    while (!watch->all_connected) /* a neighbour that stays away is a loss after silent_s, which ends this as well */
        pthread_cond_wait(&watch->connected, &watch->lock);
    pthread_mutex_unlock(&watch->lock);
}

int ash_watch_open(const struct ash_watch_opts *opts, struct ash_watch **watch_out, struct ash_err *err)
{
    struct ash_watch *watch = calloc(1, sizeof(*watch));
    int rc = 0;

    ash_assert(opts->rank < opts->size && opts->on_loss != NULL);
    if (watch == NULL) return ash_err_set(err, -ENOMEM, "out of memory to watch the other ranks");
    watch->opts = *opts;
    pthread_mutex_init(&watch->lock, NULL);
    pthread_cond_init(&watch->connected, NULL);
    set_neighbours(watch);
    watch->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (watch->wake_fd < 0) rc = ash_err_set(err, -errno, "cannot watch the other ranks: %s", strerror(errno));
    if (rc == 0 && opts->rank > 0) rc = connect_parent(watch, err);
    if (rc == 0 && (rc = ash_thread_start(&watch->thread, watch_main, watch)) < 0)
        ash_err_set(err, rc, "cannot start the watching thread: %s", strerror(-rc));
    if (rc < 0) {
        free_watch(watch);
        return rc;
    }
    if (opts->size > 1) wait_connected(watch);
    *watch_out = watch;
    return 0;
}

static void wake(struct ash_watch *watch)
{
    uint64_t one = 1;

    if (write(watch->wake_fd, &one, sizeof(one)) < 0) return; /* it has been called already */
}

void ash_watch_close(struct ash_watch *watch)
{
    if (watch == NULL) return;
    pthread_mutex_lock(&watch->lock);
    watch->stop = true;
    pthread_mutex_unlock(&watch->lock);
    wake(watch);
    pthread_join(watch->thread, NULL);
    free_watch(watch);
}

void ash_watch_abort(struct ash_watch *watch, size_t rank, int code, const char *why)
{
    pthread_mutex_lock(&watch->lock);
    watch->abort = true;
    watch->failed_rank = rank;
    watch->code = code;
    snprintf(watch->why, sizeof(watch->why), "%s", why);
    pthread_mutex_unlock(&watch->lock);
    wake(watch);
}
