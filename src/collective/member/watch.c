/* The watching thread: one poll loop over the listening socket, the parent and the children, with a heartbeat every
 * tenth of a second.
 */
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
#define BEAT_NS 100000000ull
#define NEIGHBOURS 3 /* the parent, two children */
#define STRANGERS 8  /* connections that have not said who they are */
#define SEND_S 0.05  /* a neighbour that does not read for so long has its silence counted */

enum frame_kind { FRAME_HELLO, FRAME_BEAT, FRAME_LOST, FRAME_BYE };

struct frame {
    uint32_t magic, kind;
    uint64_t job;
    uint32_t epoch, rank; /* hello: who speaks; lost: who is lost */
    int32_t code;         /* lost: the error of all calls */
    char why[ASH_ERR_TEXT_BYTES];
};

/* A connection, and as much of the next frame as has arrived. */
struct line {
    int fd; /* -1: none (not yet, or no longer) */
    size_t rank;
    uint64_t heard_ns;
    bool expected; /* a silence counts: it has not said goodbye */
    bool met;      /* both sides know that the other is there */
    size_t filled;
    struct frame frame;
};

struct ash_watch {
    struct ash_watch_opts opts;
    pthread_t thread;
    int wake_fd;
    struct line lines[NEIGHBOURS]; /* the parent is lines[0], if there is one */
    struct line strangers[STRANGERS];
    bool lost; /* a loss has been reported: */
    struct frame loss;
    pthread_mutex_t lock; /* of what follows: shared with other threads */
    pthread_cond_t met;
    bool all_met, stop, abort;
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

static void drop(struct line *line)
{
    if (line->fd >= 0) close(line->fd);
    line->fd = -1;
    line->filled = 0;
}

static void send_frame(struct line *line, const struct frame *frame)
{
    if (line->fd >= 0)
        ash_socket_send(line->fd, frame, sizeof(*frame), ash_deadline_in(SEND_S)); /* its silence will tell */
}

/* ---- losses ------------------------------------------------------------------------------------------------------ */

/* Once every neighbour is there, the owner may go on. */
static void check_met(struct ash_watch *watch)
{
    bool all = true;

    for (size_t i = 0; i < NEIGHBOURS; i++)
        if (watch->lines[i].expected && !watch->lines[i].met) all = false;
    if (!all && !watch->lost) return;
    pthread_mutex_lock(&watch->lock);
    watch->all_met = true;
    pthread_cond_signal(&watch->met);
    pthread_mutex_unlock(&watch->lock);
}

/* The first loss goes to the owner and to everyone else; later ones are its consequences. */
static void tell_loss(struct ash_watch *watch, size_t rank, int code, const char *why, const struct line *from)
{
    if (watch->lost) return;
    watch->lost = true;
    watch->loss = make_frame(watch, FRAME_LOST, rank, why);
    watch->loss.code = code;
    for (size_t i = 0; i < NEIGHBOURS; i++)
        if (&watch->lines[i] != from) send_frame(&watch->lines[i], &watch->loss);
    watch->opts.on_loss(watch->opts.ctx, rank, code, watch->loss.why);
    check_met(watch);
}

static void lose(struct ash_watch *watch, struct line *line, const char *how)
{
    const struct ash_watch_member *member = &watch->opts.members[line->rank];
    char why[ASH_ERR_TEXT_BYTES];

    snprintf(why, sizeof(why), "rank %zu (host %.60s, process %d) %s", line->rank, member->host, (int)member->pid, how);
    line->expected = false;
    drop(line);
    tell_loss(watch, line->rank, -ECONNRESET, why, line);
}

static void check_silence(struct ash_watch *watch, struct line *line)
{
    double silent_s = (double)(ash_clock_ns() - line->heard_ns) * 1e-9;
    char how[64];

    if (!line->expected || silent_s < watch->opts.silent_s) return;
    snprintf(how, sizeof(how), "has been silent for %.1f s", silent_s);
    lose(watch, line, how);
}

/* ---- frames ------------------------------------------------------------------------------------------------------ */

static void on_frame(struct ash_watch *watch, struct line *line)
{
    struct frame *frame = &line->frame;

    frame->why[sizeof(frame->why) - 1] = '\0';
    line->met = true;
    if (frame->kind == FRAME_BYE) {
        line->expected = false;
        drop(line);
    } else if (frame->kind == FRAME_LOST && frame->rank < watch->opts.size) {
        tell_loss(watch, frame->rank, frame->code < 0 ? frame->code : -ECONNRESET, frame->why, line);
    }
    check_met(watch);
}

static bool of_this_job(const struct ash_watch *watch, const struct frame *frame)
{
    return frame->magic == MAGIC && frame->job == watch->opts.job && frame->epoch == watch->opts.epoch;
}

/* Read what has come, frame by frame. Returns false when the connection is over. */
static bool read_line(struct ash_watch *watch, struct line *line, void (*on)(struct ash_watch *, struct line *))
{
    while (line->fd >= 0) {
        ssize_t got = read(line->fd, (char *)&line->frame + line->filled, sizeof(line->frame) - line->filled);

        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return true;
        if (got <= 0) return false;
        line->filled += (size_t)got;
        if (line->filled < sizeof(line->frame)) continue;
        line->filled = 0;
        line->heard_ns = ash_clock_ns();
        if (!of_this_job(watch, &line->frame)) return false;
        on(watch, line);
    }
    return true;
}

/* An unidentified connection is that of one of our children: keep it, and answer. */
static void adopt(struct ash_watch *watch, struct line *stranger)
{
    struct frame answer = make_frame(watch, FRAME_HELLO, watch->opts.rank, "");

    for (size_t i = 1; i < NEIGHBOURS; i++) {
        struct line *line = &watch->lines[i];

        if (!line->expected || line->fd >= 0 || stranger->frame.kind != FRAME_HELLO ||
            line->rank != stranger->frame.rank)
            continue;
        line->fd = stranger->fd;
        line->heard_ns = ash_clock_ns();
        line->met = true;
        stranger->fd = -1;
        send_frame(line, &answer);
        if (watch->lost) send_frame(line, &watch->loss); /* it has missed the news */
        check_met(watch);
        return;
    }
    drop(stranger);
}

static void welcome(struct ash_watch *watch)
{
    int fd;

    while ((fd = ash_socket_accept(watch->opts.listen_fd, 0)) >= 0) {
        struct line *line = &watch->strangers[0]; /* when all are taken, the first has had its time */

        for (size_t i = 0; i < STRANGERS; i++)
            if (watch->strangers[i].fd < 0) line = &watch->strangers[i];
        drop(line);
        line->fd = fd;
    }
}

/* ---- the thread -------------------------------------------------------------------------------------------------- */

static void beat(struct ash_watch *watch)
{
    struct frame frame = make_frame(watch, FRAME_BEAT, watch->opts.rank, "");

    for (size_t i = 0; i < NEIGHBOURS; i++) {
        send_frame(&watch->lines[i], &frame);
        check_silence(watch, &watch->lines[i]);
    }
}

/* What other threads asked for. Returns false at the end. */
static bool obey(struct ash_watch *watch)
{
    bool stop, abort;
    size_t failed_rank;
    int code;
    char why[sizeof(watch->why)];
    uint64_t count;

    if (read(watch->wake_fd, &count, sizeof(count)) < 0) count = 0; /* nobody has called */
    pthread_mutex_lock(&watch->lock);
    stop = watch->stop;
    abort = watch->abort;
    watch->abort = false;
    failed_rank = watch->failed_rank;
    code = watch->code;
    memcpy(why, watch->why, sizeof(why));
    pthread_mutex_unlock(&watch->lock);
    if (abort) tell_loss(watch, failed_rank, code, why, NULL);
    return !stop;
}

static void serve(struct ash_watch *watch, uint64_t until_ns)
{
    struct pollfd polls[2 + NEIGHBOURS + STRANGERS] = {{.fd = watch->wake_fd, .events = POLLIN},
                                                       {.fd = watch->opts.listen_fd, .events = POLLIN}};

    for (size_t i = 0; i < NEIGHBOURS; i++)
        polls[2 + i] = (struct pollfd){.fd = watch->lines[i].fd, .events = POLLIN};
    for (size_t i = 0; i < STRANGERS; i++)
        polls[2 + NEIGHBOURS + i] = (struct pollfd){.fd = watch->strangers[i].fd, .events = POLLIN};
    if (poll(polls, 2 + NEIGHBOURS + STRANGERS, ash_deadline_ms(until_ns)) <= 0) return;
    for (size_t i = 0; i < NEIGHBOURS; i++)
        if (polls[2 + i].revents != 0 && !read_line(watch, &watch->lines[i], on_frame))
            lose(watch, &watch->lines[i], "has died: its connection is gone");
    for (size_t i = 0; i < STRANGERS; i++)
        if (polls[2 + NEIGHBOURS + i].revents != 0 && !read_line(watch, &watch->strangers[i], adopt))
            drop(&watch->strangers[i]);
    if (polls[1].revents != 0) welcome(watch);
}

static void *watch_main(void *arg)
{
    struct ash_watch *watch = arg;
    uint64_t next_ns = ash_clock_ns();
    struct frame bye = make_frame(watch, FRAME_BYE, watch->opts.rank, "");

    while (obey(watch)) {
        if (ash_clock_ns() >= next_ns) {
            beat(watch);
            next_ns = ash_clock_ns() + BEAT_NS;
        }
        serve(watch, next_ns);
    }
    for (size_t i = 0; i < NEIGHBOURS; i++)
        send_frame(&watch->lines[i], &bye);
    return NULL;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

static int connect_parent(struct ash_watch *watch, struct ash_err *err)
{
    const struct ash_watch_opts *opts = &watch->opts;
    struct line *line = &watch->lines[0];
    const struct ash_watch_member *member = &opts->members[line->rank];
    struct frame hello = make_frame(watch, FRAME_HELLO, opts->rank, "");
    int rc;

    line->fd = ash_socket_connect(member->address, member->port, ash_deadline_in(opts->silent_s), err);
    rc = line->fd < 0 ? line->fd : ash_socket_send(line->fd, &hello, sizeof(hello), ash_deadline_in(opts->silent_s));
    return rc == 0 ? 0 : ash_err_prefix(err, rc, "rank %zu cannot watch rank %zu", opts->rank, line->rank);
}

static void set_lines(struct ash_watch *watch)
{
    size_t rank = watch->opts.rank, size = watch->opts.size;
    uint64_t now_ns = ash_clock_ns();

    for (size_t i = 0; i < STRANGERS; i++)
        watch->strangers[i].fd = -1;
    watch->lines[0] =
        (struct line){.fd = -1, .rank = rank > 0 ? (rank - 1) / 2 : 0, .heard_ns = now_ns, .expected = rank > 0};
    for (size_t i = 1; i < NEIGHBOURS; i++)
        watch->lines[i] =
            (struct line){.fd = -1, .rank = 2 * rank + i, .heard_ns = now_ns, .expected = 2 * rank + i < size};
}

static void free_watch(struct ash_watch *watch)
{
    for (size_t i = 0; i < NEIGHBOURS; i++)
        drop(&watch->lines[i]);
    for (size_t i = 0; i < STRANGERS; i++)
        drop(&watch->strangers[i]);
    if (watch->wake_fd >= 0) close(watch->wake_fd);
    pthread_cond_destroy(&watch->met);
    pthread_mutex_destroy(&watch->lock);
    free(watch);
}

/* Until every neighbour is there, or it is clear that one will not come. */
static void wait_met(struct ash_watch *watch)
{
    pthread_mutex_lock(&watch->lock);
    while (!watch->all_met) /* a neighbour that stays away is a loss after silent_s, which ends this as well */
        pthread_cond_wait(&watch->met, &watch->lock);
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
    pthread_cond_init(&watch->met, NULL);
    set_lines(watch);
    watch->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (watch->wake_fd < 0) rc = ash_err_set(err, -errno, "cannot watch the other ranks: %s", strerror(errno));
    if (rc == 0 && opts->rank > 0) rc = connect_parent(watch, err);
    if (rc == 0 && (rc = ash_thread_start(&watch->thread, watch_main, watch)) < 0)
        ash_err_set(err, rc, "cannot start the watching thread: %s", strerror(-rc));
    if (rc < 0) {
        free_watch(watch);
        return rc;
    }
    if (opts->size > 1) wait_met(watch);
    *watch_out = watch;
    return 0;
}

static void call(struct ash_watch *watch)
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
    call(watch);
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
    call(watch);
}
