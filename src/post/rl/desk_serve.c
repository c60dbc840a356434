/* desk: its thread. Sockets never block; a sampler that sends anything else than messages is dropped. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/array.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/math.h"
#include "post/rl/desk_priv.h"

#define SAMPLERS_MAX 4096
#define POLL_MS 20 /* with a port, which wants to be polled */
#define READ_BYTES 65536
#define HELLO_BYTES 65536 /* of a body, before one is known */

/* ---- samplers ---------------------------------------------------------------------------------------------------- */

static void drop(struct ash_desk *desk, struct ash_desk_sampler *sampler, const char *why)
{
    if (sampler->fd < 0) return;
    if (sampler->is_known && !desk->ends)
        ash_log(ASH_LOG_WARN, "sampler %llu %s: its prompts are drawn by others", (unsigned long long)sampler->id, why);
    close(sampler->fd);
    sampler->fd = -1;
    ash_desk_take_back(desk, sampler);
    pthread_cond_broadcast(&desk->changed);
}

static void accept_all(struct ash_desk *desk)
{
    int fd;

    while ((fd = accept4(desk->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
        struct ash_desk_sampler *sampler;

        if (desk->sampler_count == SAMPLERS_MAX ||
            ash_array_reserve(&desk->samplers, &desk->sampler_room, desk->sampler_count + 1, sizeof(*sampler)) < 0) {
            close(fd);
            return;
        }
        sampler = &desk->samplers[desk->sampler_count++];
        *sampler = (struct ash_desk_sampler){.fd = fd, .id = ++desk->last_id, .heard_ns = ash_clock_ns()};
    }
}

static void forget_lost(struct ash_desk *desk)
{
    size_t kept = 0;

    for (size_t i = 0; i < desk->sampler_count; i++) {
        struct ash_desk_sampler *sampler = &desk->samplers[i];

        if (sampler->fd >= 0) {
            desk->samplers[kept++] = *sampler;
            continue;
        }
        ash_str_fini(&sampler->in);
        ash_str_fini(&sampler->out);
    }
    desk->sampler_count = kept;
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

/* The first line in which a sampler's facts differ, as a sentence; empty: none does. */
static void compare_facts(const char *ours, const char *theirs, char *why, size_t why_bytes)
{
    why[0] = '\0';
    while (*ours != '\0' || *theirs != '\0') {
        size_t own = strcspn(ours, "\n"), other = strcspn(theirs, "\n");

        if (own != other || memcmp(ours, theirs, own) != 0) {
            snprintf(why, why_bytes, "the sampler has '%.*s', and the run '%.*s'", (int)ash_min(other, 200), theirs,
                     (int)ash_min(own, 200), ours);
            return;
        }
        ours += own + (ours[own] == '\n');
        theirs += other + (theirs[other] == '\n');
    }
}

static int take_hello(struct ash_desk *desk, struct ash_desk_sampler *sampler, const struct ash_wire_reader *body)
{
    char why[512], *text = strndup((const char *)body->data, body->size_bytes);
    ssize_t start;
    int rc;

    if (text == NULL) return -ENOMEM;
    compare_facts(desk->facts, text, why, sizeof(why));
    free(text);
    if (why[0] != '\0') {
        sampler->is_leaving = true;
        return ash_wire_add_text(&sampler->out, ASH_WIRE_REFUSED, why);
    }
    start = ash_wire_begin(&sampler->out, ASH_WIRE_WELCOME);
    rc = start < 0 ? (int)start : ash_str_add(&sampler->out, desk->weights, desk->opts.weights_bytes);
    if (rc < 0) return rc;
    ash_wire_end(&sampler->out, (size_t)start);
    sampler->is_known = true;
    pthread_cond_broadcast(&desk->changed);
    return 0;
}

static int take_message(struct ash_desk *desk, struct ash_desk_sampler *sampler, uint32_t kind,
                        struct ash_wire_reader *body)
{
    struct ash_wire_times times;

    if (!sampler->is_known && kind == ASH_WIRE_HELLO) return take_hello(desk, sampler, body);
    if (!sampler->is_known) return -EBADMSG;
    if (kind == ASH_WIRE_PULSE) return 0;
    if (kind != ASH_WIRE_ANSWERS || ash_wire_read(body, &times, sizeof(times)) < 0) return -EBADMSG;
    desk->figures.times.sampling += times.sampling;
    desk->figures.times.transfer += times.transfer;
    desk->figures.times.waiting += times.waiting;
    return ash_desk_take_answers(desk, sampler, body);
}

/* The messages that have come. Returns 0, or a negative errno: the sampler is to be dropped. */
static int take_messages(struct ash_desk *desk, struct ash_desk_sampler *sampler)
{
    size_t at = 0;
    int rc = 0;

    while (rc == 0) {
        const uint8_t *data = (const uint8_t *)sampler->in.data + at;
        struct ash_wire_head head = {0};
        struct ash_wire_reader body;

        rc = at < sampler->in.size_bytes ? ash_wire_peek(data, sampler->in.size_bytes - at, &head) : 0;
        if (rc == 0 && !sampler->is_known && sampler->in.size_bytes > HELLO_BYTES) rc = -EBADMSG;
        if (rc <= 0) break;
        body = (struct ash_wire_reader){data + sizeof(head), head.size_bytes, 0};
        at += sizeof(head) + head.size_bytes;
        rc = take_message(desk, sampler, head.kind, &body);
    }
    if (at == 0) return rc;
    memmove(sampler->in.data, sampler->in.data + at, sampler->in.size_bytes - at);
    ash_str_cut(&sampler->in, sampler->in.size_bytes - at);
    return rc;
}

static void receive(struct ash_desk *desk, struct ash_desk_sampler *sampler)
{
    char buf[READ_BYTES];
    ssize_t got;
    int rc = 0;

    while ((got = recv(sampler->fd, buf, sizeof(buf), 0)) > 0 && rc == 0)
        rc = ash_str_add(&sampler->in, buf, (size_t)got);
    sampler->heard_ns = ash_clock_ns();
    if (rc == 0) rc = take_messages(desk, sampler);
    if (rc < 0)
        drop(desk, sampler, "has sent no answer but other bytes");
    else if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
        drop(desk, sampler, "is lost");
}

static void send_out(struct ash_desk *desk, struct ash_desk_sampler *sampler)
{
    while (sampler->fd >= 0 && sampler->out_at < sampler->out.size_bytes) {
        ssize_t sent = send(sampler->fd, sampler->out.data + sampler->out_at, sampler->out.size_bytes - sampler->out_at,
                            MSG_NOSIGNAL);

        if (sent < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (sent < 0) drop(desk, sampler, "is lost");
        if (sent > 0) sampler->out_at += (size_t)sent;
    }
    if (sampler->fd < 0) return;
    ash_str_clear(&sampler->out);
    sampler->out_at = 0;
    if (sampler->is_leaving) drop(desk, sampler, "leaves");
}

/* ---- the loop ---------------------------------------------------------------------------------------------------- */

/* A sampler with work that has said nothing for too long: others draw the same. */
static void find_silent(struct ash_desk *desk)
{
    uint64_t now_ns = ash_clock_ns(), limit_ns = (uint64_t)(desk->opts.silence_s * 1e9);

    for (size_t i = 0; i < desk->sampler_count; i++) {
        struct ash_desk_sampler *sampler = &desk->samplers[i];

        if (sampler->fd < 0) continue;
        if (!sampler->is_known && now_ns - sampler->heard_ns > limit_ns) drop(desk, sampler, "says nothing");
        if (sampler->fd >= 0 && sampler->is_known && !sampler->is_silent) desk->seen_ns = now_ns;
        if (!sampler->is_busy || sampler->is_silent || now_ns - sampler->heard_ns <= limit_ns) continue;
        ash_log(ASH_LOG_WARN,
                "sampler %llu has said nothing for %g s (rollout.silence): its prompts are drawn by others",
                (unsigned long long)sampler->id, desk->opts.silence_s);
        sampler->is_silent = true;
        ash_desk_take_back(desk, sampler);
        pthread_cond_broadcast(&desk->changed);
    }
}

static void poll_port(struct ash_desk *desk)
{
    struct ash_port_event events[8];

    while (desk->opts.port != NULL && ash_port_poll(desk->opts.port, events, 8) > 0)
        ;
}

/* One round, under the lock but for the wait itself. polls: [sampler_count + 2]. */
static void serve_once(struct ash_desk *desk, struct pollfd *polls, size_t count)
{
    pthread_mutex_unlock(&desk->lock);
    poll(polls, count, POLL_MS);
    pthread_mutex_lock(&desk->lock);
    if (polls[1].revents != 0) {
        char bytes[64];

        while (read(desk->wake_fds[0], bytes, sizeof(bytes)) > 0)
            ;
    }
    for (size_t i = 2; i < count; i++)
        if (polls[i].revents != 0) receive(desk, &desk->samplers[i - 2]);
    if (polls[0].revents != 0) accept_all(desk);
    poll_port(desk);
    find_silent(desk);
    ash_desk_hand_out(desk);
    for (size_t i = 0; i < desk->sampler_count; i++)
        if (desk->samplers[i].fd >= 0) send_out(desk, &desk->samplers[i]);
    forget_lost(desk);
    desk->figures.samplers = 0;
    for (size_t i = 0; i < desk->sampler_count; i++)
        desk->figures.samplers += desk->samplers[i].is_known && !desk->samplers[i].is_silent;
}

void *ash_desk_serve(void *arg)
{
    struct ash_desk *desk = arg;
    struct pollfd *polls = NULL;
    size_t room = 0;

    pthread_mutex_lock(&desk->lock);
    while (!desk->ends) {
        size_t count = desk->sampler_count + 2;

        if (ash_array_reserve(&polls, &room, count, sizeof(*polls)) < 0) break;
        polls[0] = (struct pollfd){.fd = desk->listen_fd, .events = POLLIN};
        polls[1] = (struct pollfd){.fd = desk->wake_fds[0], .events = POLLIN};
        for (size_t i = 2; i < count; i++) {
            const struct ash_desk_sampler *sampler = &desk->samplers[i - 2];
            bool more_follows = sampler->out_at < sampler->out.size_bytes;

            polls[i] = (struct pollfd){.fd = sampler->fd, .events = (short)(POLLIN | (more_follows ? POLLOUT : 0))};
        }
        serve_once(desk, polls, count);
    }
    for (size_t i = 0; i < desk->sampler_count; i++)
        if (ash_wire_add_text(&desk->samplers[i].out, ASH_WIRE_BYE, NULL) == 0) send_out(desk, &desk->samplers[i]);
    pthread_mutex_unlock(&desk->lock);
    free(polls);
    return NULL;
}
