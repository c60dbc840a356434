/* Connections of an agent. Who accepts sends a nonce; every frame carries a proof over that nonce and its own number.
 * So a frame that was recorded is good for nothing, and what has no key gets no further than its first frame. */
#include "collective/member/membership_priv.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <linux/sockios.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/math.h"
#include "collective/member/member_wire.h"

#define MAGIC 0x4d485341u /* "ASHM" */
#define MS 1000000ull
#define ANSWER_NS (60 * MS)  /* for a host to answer; a second connection is tried, a packet may be lost */
#define STALL_NS (100 * MS)  /* for a host to take what was sent */
#define AGAIN_NS (200 * MS)  /* between tries after that */
#define FAREWELL_NS (5 * MS) /* a goodbye may be on its way while the connection is gone already */
#define IDLE_NS (2000 * MS)  /* a connection that is not used is closed */
#define STRANGER_NS (1000 * MS)
#define STRANGER_BYTES 65536 /* of a frame whose sender has proved nothing yet */
#define INLETS_MAX 8192
#define OUT_MAX ((size_t)512 << 20)

struct frame_head {
    uint32_t magic, body_bytes;
};

/* ---- addresses --------------------------------------------------------------------------------------------------- */

static void learn(struct ash_membership *agent, uint64_t id, const void *card)
{
    struct ash_membership_entry *entry = NULL;

    if (id == agent->opts.id || id == 0) return;
    for (size_t i = 0; i < agent->book_count && entry == NULL; i++)
        if (agent->book[i].id == id) entry = &agent->book[i];
    if (entry == NULL) {
        if (agent->book_count == agent->book_room) {
            size_t room = ash_max(2 * agent->book_room, 16);
            struct ash_membership_entry *more = realloc(agent->book, room * sizeof(*more));

            if (more == NULL) return;
            agent->book = more;
            agent->book_room = room;
        }
        entry = &agent->book[agent->book_count++];
    }
    entry->id = id;
    memcpy(&entry->address, card, sizeof(entry->address));
    entry->address.address[sizeof(entry->address.address) - 1] = '\0';
    entry->address.host[sizeof(entry->address.host) - 1] = '\0';
}

void ash_membership_learn_view(struct ash_membership *agent, const struct ash_view *view)
{
    if (view->cards == NULL) return;
    for (size_t r = 0; r < view->size; r++)
        learn(agent, view->members[r].id, ash_view_card(view, r));
}

static const struct ash_membership_address *find_address(const struct ash_membership *agent, uint64_t id)
{
    for (size_t i = 0; i < agent->book_count; i++)
        if (agent->book[i].id == id) return &agent->book[i].address;
    return NULL;
}

/* ---- links: what this process has to say ------------------------------------------------------------------------- */

static void drop_link(struct ash_membership *agent, size_t i)
{
    struct ash_membership_link *link = &agent->links[i];

    if (link->fd >= 0) close(link->fd);
    ash_str_fini(&link->out);
    ash_str_fini(&link->waiting);
    *link = agent->links[--agent->link_count];
}

/* Begin to connect. Returns a descriptor or a negative errno. */
static int begin_connect(const struct ash_membership_address *address)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *found = NULL;
    char service[16];
    int fd, one = 1;

    snprintf(service, sizeof(service), "%d", (int)address->port);
    if (getaddrinfo(address->address, service, &hints, &found) != 0) return -EHOSTUNREACH;
    fd = socket(found->ai_family, found->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, found->ai_protocol);
    if (fd >= 0) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    if (fd < 0 || (connect(fd, found->ai_addr, found->ai_addrlen) < 0 && errno != EINPROGRESS)) {
        int rc = -errno;

        if (fd >= 0) close(fd);
        fd = rc;
    }
    freeaddrinfo(found);
    return fd;
}

static struct ash_membership_link *get_link(struct ash_membership *agent, uint64_t id)
{
    const struct ash_membership_address *known = id != 0 ? find_address(agent, id) : NULL;
    struct ash_membership_address contact;
    struct ash_membership_link *link;

    for (size_t i = 0; i < agent->link_count && id != 0; i++)
        if (agent->links[i].id == id) return &agent->links[i];
    if (id != 0 && known == NULL) return NULL;
    if (agent->link_count == agent->link_room) {
        size_t room = ash_max(2 * agent->link_room, 8);
        struct ash_membership_link *more = realloc(agent->links, room * sizeof(*more));

        if (more == NULL) return NULL;
        agent->links = more;
        agent->link_room = room;
    }
    if (id == 0) {
        ash_membership_next_contact(agent, &contact);
        known = &contact;
    }
    link = &agent->links[agent->link_count++];
    *link = (struct ash_membership_link){.id = id, .address = *known, .since_ns = ash_clock_ns(), .fd = -1};
    link->idle_ns = link->since_ns;
    link->fd = begin_connect(known);
    return link;
}

/* A frame with its proof, at the end of what goes out. */
static void add_frame(struct ash_membership *agent, struct ash_membership_link *link, const void *body,
                      size_t body_bytes)
{
    struct frame_head head = {.magic = MAGIC, .body_bytes = (uint32_t)body_bytes};
    uint8_t place[ASH_MEMBERSHIP_NONCE_BYTES + sizeof(uint64_t)], mac[ASH_MAC_BYTES];

    memcpy(place, link->nonce, sizeof(link->nonce));
    memcpy(place + sizeof(link->nonce), &link->sequence, sizeof(link->sequence));
    if (link->out.size_bytes > OUT_MAX || ash_mac(agent->key, place, sizeof(place), body, body_bytes, mac) < 0) return;
    link->sequence++;
    ash_str_add(&link->out, &head, sizeof(head));
    ash_str_add(&link->out, body, body_bytes);
    ash_str_add(&link->out, mac,
                sizeof(mac)); /* out of memory: the other end finds the frame bad, and all is repeated */
}

static void flush(struct ash_membership_link *link)
{
    while (link->state == ASH_MEMBERSHIP_LINK_OPEN && link->sent_bytes < link->out.size_bytes) {
        ssize_t done = send(link->fd, link->out.data + link->sent_bytes, link->out.size_bytes - link->sent_bytes,
                            MSG_NOSIGNAL | MSG_DONTWAIT);

        if (done <= 0) return; /* the loop sees why */
        link->sent_bytes += (size_t)done;
    }
    if (link->sent_bytes == link->out.size_bytes) {
        ash_str_clear(&link->out);
        link->sent_bytes = 0;
    }
}

void ash_membership_post(struct ash_membership *agent, uint64_t to, const struct ash_member_msg *msg)
{
    struct ash_str body = {0};
    struct ash_membership_link *link;
    uint64_t one = 1;

    if (msg->kind == ASH_MEMBER_PROPOSE && msg->view->cards != NULL)
        for (size_t r = 0; r < msg->view->size; r++)
            if (msg->view->members[r].id == to) learn(agent, to, ash_view_card(msg->view, r));
    link = get_link(agent, to);
    if (link == NULL || ash_member_wire_encode(msg, agent->opts.card_bytes, &body) < 0) {
        ash_str_fini(&body);
        return;
    }
    link->idle_ns = ash_clock_ns();
    if (link->state == ASH_MEMBERSHIP_LINK_OPEN) {
        add_frame(agent, link, body.data, body.size_bytes);
        flush(link);
    } else if (link->waiting.size_bytes < STRANGER_BYTES * 64) { /* what is repeated need not pile up */
        uint32_t bytes = (uint32_t)body.size_bytes;

        ash_str_add(&link->waiting, &bytes, sizeof(bytes));
        ash_str_add(&link->waiting, body.data, body.size_bytes);
    }
    ash_str_fini(&body);
    if (write(agent->wake_fd, &one, sizeof(one)) < 0) return; /* it is awake */
}

/* The nonce is there: what waited goes out. */
static void open_link(struct ash_membership *agent, struct ash_membership_link *link)
{
    size_t at = 0;

    link->state = ASH_MEMBERSHIP_LINK_OPEN;
    while (at + sizeof(uint32_t) <= link->waiting.size_bytes) {
        uint32_t bytes;

        memcpy(&bytes, link->waiting.data + at, sizeof(bytes));
        at += sizeof(bytes);
        add_frame(agent, link, link->waiting.data + at, bytes);
        at += bytes;
    }
    ash_str_fini(&link->waiting);
    flush(link);
}

static void close_link_end(struct ash_membership_link *link)
{
    close(link->fd);
    link->fd = -1;
    link->closed_ns = ash_clock_ns();
}

/* Something has happened on a link: it is connected, has a nonce, is gone. */
static void serve_link(struct ash_membership *agent, struct ash_membership_link *link)
{
    char rest[64];
    ssize_t got;

    if (link->state == ASH_MEMBERSHIP_LINK_CONNECTING) {
        int cause = 0;
        socklen_t bytes = sizeof(cause);

        if (getsockopt(link->fd, SOL_SOCKET, SO_ERROR, &cause, &bytes) < 0) cause = errno;
        if (cause == ECONNREFUSED || cause == ECONNRESET) {
            close_link_end(link);
            return;
        }
        if (cause != 0) {
            close(link->fd);
            link->fd = -1; /* tried again */
            return;
        }
        link->state = ASH_MEMBERSHIP_LINK_GREETING;
        return;
    }
    if (link->state == ASH_MEMBERSHIP_LINK_GREETING) {
        got = recv(link->fd, link->nonce + link->nonce_bytes, sizeof(link->nonce) - link->nonce_bytes, MSG_DONTWAIT);
        if (got > 0) link->nonce_bytes += (size_t)got;
        if (link->nonce_bytes == sizeof(link->nonce)) open_link(agent, link);
    } else {
        got = recv(link->fd, rest, sizeof(rest), MSG_DONTWAIT); /* nothing comes this way but the end */
    }
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR))
        close_link_end(link);
    else
        flush(link);
}

/* Has the other host not taken bytes for a while? The kernel takes them, even of a process that sleeps. */
static bool has_stalled(struct ash_membership_link *link, uint64_t now_ns)
{
    int unsent = 0;

    if (link->state != ASH_MEMBERSHIP_LINK_OPEN || link->fd < 0 || ioctl(link->fd, SIOCOUTQ, &unsent) < 0 ||
        unsent == 0) {
        link->stalled_ns = 0;
        return false;
    }
    if (link->stalled_ns == 0) link->stalled_ns = now_ns;
    return now_ns >= link->stalled_ns + STALL_NS;
}

/* Hosts that do not answer, ends that nobody has announced, connections that nobody uses. Returns when to look
 * again. */
static uint64_t review_links(struct ash_membership *agent, uint64_t now_ns)
{
    uint64_t next_ns = UINT64_MAX;

    for (size_t i = agent->link_count; i-- > 0;) {
        struct ash_membership_link *link = &agent->links[i];
        uint64_t id = link->id, wait_ns = link->is_reported ? AGAIN_NS : ANSWER_NS;

        if (link->closed_ns != 0 && now_ns >= link->closed_ns + FAREWELL_NS) {
            drop_link(agent, i);
            if (id != 0) ash_member_peer_died(agent->member, id, now_ns);
        } else if (link->closed_ns != 0) {
            next_ns = link->closed_ns + FAREWELL_NS < next_ns ? link->closed_ns + FAREWELL_NS : next_ns;
        } else if (link->state == ASH_MEMBERSHIP_LINK_CONNECTING && now_ns >= link->since_ns + wait_ns) {
            bool tells = link->has_retried; /* again and again: it counts once a meeting is held */

            if (id == 0) {
                drop_link(agent, i);
                continue;
            }
            if (link->fd >= 0) close(link->fd);
            link->fd = begin_connect(&link->address);
            link->since_ns = now_ns;
            link->is_reported = link->has_retried;
            link->has_retried = true;
            if (tells) ash_member_peer_unreachable(agent->member, id, now_ns);
            next_ns = now_ns + ANSWER_NS < next_ns ? now_ns + ANSWER_NS : next_ns;
        } else if (link->state == ASH_MEMBERSHIP_LINK_CONNECTING) {
            next_ns = link->since_ns + wait_ns < next_ns ? link->since_ns + wait_ns : next_ns;
        } else if (link->out.size_bytes == 0 && now_ns >= link->idle_ns + IDLE_NS) {
            drop_link(agent, i);
        } else if (id != 0 && has_stalled(link, now_ns)) { /* is the host still there? */
            close(link->fd);
            ash_str_clear(&link->out);
            *link = (struct ash_membership_link){
                .id = id, .address = link->address, .since_ns = now_ns, .idle_ns = now_ns, .fd = -1, .out = link->out};
            link->fd = begin_connect(&link->address);
            next_ns = now_ns + ANSWER_NS < next_ns ? now_ns + ANSWER_NS : next_ns;
        } else if (link->stalled_ns != 0) {
            next_ns = link->stalled_ns + STALL_NS < next_ns ? link->stalled_ns + STALL_NS : next_ns;
        }
    }
    return next_ns;
}

/* ---- inlets: what others say ------------------------------------------------------------------------------------- */

static void drop_inlet(struct ash_membership *agent, size_t i)
{
    close(agent->inlets[i].fd);
    ash_str_fini(&agent->inlets[i].in);
    agent->inlets[i] = agent->inlets[--agent->inlet_count];
}

static void accept_all(struct ash_membership *agent, int listen_fd)
{
    int fd, one = 1;

    while ((fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
        struct ash_membership_inlet inlet = {.fd = fd, .since_ns = ash_clock_ns()};

        if (agent->inlet_count == agent->inlet_room && agent->inlet_count < INLETS_MAX) {
            size_t room = ash_max(2 * agent->inlet_room, 8);
            struct ash_membership_inlet *more = realloc(agent->inlets, room * sizeof(*more));

            if (more != NULL) {
                agent->inlets = more;
                agent->inlet_room = room;
            }
        }
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        if (agent->inlet_count == agent->inlet_room || ash_mac_random(inlet.nonce, sizeof(inlet.nonce)) < 0 ||
            send(fd, inlet.nonce, sizeof(inlet.nonce), MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)sizeof(inlet.nonce)) {
            close(fd);
            continue;
        }
        agent->inlets[agent->inlet_count++] = inlet;
    }
}

static void deliver(struct ash_membership *agent, const char *body, size_t body_bytes)
{
    struct ash_member_wire wire;

    if (ash_member_wire_decode(body, body_bytes, agent->opts.card_bytes, &wire) < 0) return;
    if (wire.msg.card != NULL)
        learn(agent, wire.msg.kind == ASH_MEMBER_JOIN ? wire.msg.subject : wire.msg.from, wire.msg.card);
    if (wire.msg.view != NULL && wire.msg.view->cards != NULL)
        for (size_t r = 0; r < wire.msg.view->size; r++)
            learn(agent, wire.msg.view->members[r].id, ash_view_card(wire.msg.view, r));
    ash_member_receive(agent->member, &wire.msg, ash_clock_ns());
    ash_member_wire_fini(&wire);
}

/* Take whole frames. Returns false where the sender is no member of this job, or sends nonsense. */
static bool take_frames(struct ash_membership *agent, struct ash_membership_inlet *inlet)
{
    size_t at = 0;

    for (;;) {
        struct frame_head head;
        uint8_t place[ASH_MEMBERSHIP_NONCE_BYTES + sizeof(uint64_t)], mac[ASH_MAC_BYTES];
        const char *body = inlet->in.data + at + sizeof(head);
        size_t whole;

        if (inlet->in.size_bytes - at < sizeof(head)) break;
        memcpy(&head, inlet->in.data + at, sizeof(head));
        if (head.magic != MAGIC || head.body_bytes > ASH_MEMBER_WIRE_MAX ||
            (!inlet->is_trusted && head.body_bytes > STRANGER_BYTES))
            return false;
        whole = sizeof(head) + head.body_bytes + sizeof(mac);
        if (inlet->in.size_bytes - at < whole) break;
        memcpy(place, inlet->nonce, sizeof(inlet->nonce));
        memcpy(place + sizeof(inlet->nonce), &inlet->sequence, sizeof(inlet->sequence));
        if (ash_mac(agent->key, place, sizeof(place), body, head.body_bytes, mac) < 0 ||
            !ash_mac_equal(mac, (const uint8_t *)body + head.body_bytes))
            return false;
        inlet->sequence++;
        inlet->is_trusted = true;
        deliver(agent, body, head.body_bytes);
        at += whole;
    }
    if (at > 0) {
        memmove(inlet->in.data, inlet->in.data + at, inlet->in.size_bytes - at);
        inlet->in.size_bytes -= at;
    }
    return true;
}

/* Returns false where the connection is over. */
static bool serve_inlet(struct ash_membership *agent, struct ash_membership_inlet *inlet)
{
    char buf[65536];

    for (;;) {
        ssize_t got = recv(inlet->fd, buf, sizeof(buf), MSG_DONTWAIT);

        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0 || ash_str_add(&inlet->in, buf, (size_t)got) < 0 || !take_frames(agent, inlet)) return false;
    }
}

/* ---- waiting ----------------------------------------------------------------------------------------------------- */

static size_t fill_polls(struct ash_membership *agent, size_t links, size_t inlets)
{
    size_t count = 3 + links + inlets;

    if (count > agent->poll_room) {
        struct pollfd *more = realloc(agent->polls, 2 * count * sizeof(*more));

        if (more == NULL) return 0;
        agent->polls = more;
        agent->poll_room = 2 * count;
    }
    agent->polls[0] = (struct pollfd){.fd = agent->wake_fd, .events = POLLIN};
    agent->polls[1] = (struct pollfd){.fd = agent->opts.listen_fd, .events = POLLIN};
    agent->polls[2] = (struct pollfd){.fd = agent->door_fd, .events = POLLIN};
    for (size_t i = 0; i < links; i++) {
        const struct ash_membership_link *link = &agent->links[i];
        bool wants_out = link->state == ASH_MEMBERSHIP_LINK_CONNECTING || link->sent_bytes < link->out.size_bytes;

        agent->polls[3 + i] =
            (struct pollfd){.fd = link->fd,
                            .events = (short)((link->state != ASH_MEMBERSHIP_LINK_CONNECTING ? POLLIN : 0) |
                                              (wants_out ? POLLOUT : 0))};
    }
    for (size_t i = 0; i < inlets; i++)
        agent->polls[3 + links + i] = (struct pollfd){.fd = agent->inlets[i].fd, .events = POLLIN};
    return count;
}

void ash_membership_serve(struct ash_membership *agent, uint64_t until_ns)
{
    uint64_t now_ns = ash_clock_ns(), review_ns = review_links(agent, now_ns), wait_ns, count64;
    size_t links = agent->link_count, inlets = agent->inlet_count, count = fill_polls(agent, links, inlets);
    struct timespec wait;
    int ready;

    if (review_ns < until_ns) until_ns = review_ns;
    wait_ns = until_ns > now_ns ? until_ns - now_ns : 0;
    if (wait_ns > 1000 * MS) wait_ns = 1000 * MS;
    wait = (struct timespec){.tv_sec = (time_t)(wait_ns / 1000000000u), .tv_nsec = (long)(wait_ns % 1000000000u)};
    pthread_mutex_unlock(&agent->lock);
    ready = ppoll(agent->polls, count, &wait, NULL); /* polls belong to this thread */
    pthread_mutex_lock(&agent->lock);
    now_ns = ash_clock_ns();
    for (size_t i = inlets; i-- > 0;) {
        bool is_over = ready > 0 && agent->polls[3 + links + i].revents != 0 && !serve_inlet(agent, &agent->inlets[i]);

        if (is_over || (!agent->inlets[i].is_trusted && now_ns > agent->inlets[i].since_ns + STRANGER_NS))
            drop_inlet(agent, i);
    }
    if (ready <= 0) return;
    if (read(agent->wake_fd, &count64, sizeof(count64)) < 0) count64 = 0; /* nobody called */
    for (size_t i = links; i-- > 0;)                                      /* others only add links, at the end */
        if (agent->polls[3 + i].revents != 0 && agent->links[i].fd == agent->polls[3 + i].fd && agent->links[i].fd >= 0)
            serve_link(agent, &agent->links[i]);
    if (agent->polls[1].revents != 0) accept_all(agent, agent->opts.listen_fd);
    if (agent->polls[2].revents != 0 && agent->door_fd >= 0) accept_all(agent, agent->door_fd);
}

/* A link that is only being opened has something to say, too: why this process gives up, perhaps. Not to a host that
 * does not answer, and a contact is asked again by others. */
bool ash_membership_has_output(const struct ash_membership *agent)
{
    for (size_t i = 0; i < agent->link_count; i++) {
        const struct ash_membership_link *link = &agent->links[i];
        bool is_deaf = link->state == ASH_MEMBERSHIP_LINK_CONNECTING && link->has_retried;

        if (link->fd < 0 || link->id == 0 || is_deaf) continue;
        if (link->sent_bytes < link->out.size_bytes || link->waiting.size_bytes > 0) return true;
    }
    return false;
}

void ash_membership_hang_up(struct ash_membership *agent)
{
    while (agent->link_count > 0)
        drop_link(agent, agent->link_count - 1);
    while (agent->inlet_count > 0)
        drop_inlet(agent, agent->inlet_count - 1);
    free(agent->links);
    free(agent->inlets);
    free(agent->book);
    free(agent->polls);
}
