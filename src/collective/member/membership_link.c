/* Connections of an agent, for what this process has to say: whom they lead to, what goes out, and hosts that do not
 * answer. Who accepts sends a nonce; every frame carries a proof over that nonce and its own number. So a frame that
 * was recorded is good for nothing, and a peer without the key is refused at its first frame. */
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

#include "base/array.h"
#include "base/assert.h"
#include "base/clock.h"
#include "collective/member/member_wire.h"

#define MS 1000000ull
#define ANSWER_NS (60 * MS)    /* for a host to answer; a second connection is tried, a packet may be lost */
#define STALL_NS (100 * MS)    /* for a host to take sent bytes */
#define GREETING_NS (300 * MS) /* for a process to greet */
#define AGAIN_NS (200 * MS)    /* between tries after that */
#define FAREWELL_NS (5 * MS)   /* a goodbye may be on its way while the connection is gone already */
#define IDLE_NS (2000 * MS)    /* a connection that is not used is closed */
#define STEADY_NS (10000 * MS) /* a connection that has lasted so long was wanted */
#define ENDS_MAX 3             /* connections that end sooner, before the other end counts as gone */
#define OUT_MAX ((size_t)512 << 20)
#define WAITING_MAX                                                                                                    \
    ((size_t)4 << 20) /* of frames for a connection that is being opened: repeated frames need not pile up */

/* ---- addresses --------------------------------------------------------------------------------------------------- */

void ash_membership_learn(struct ash_membership *agent, uint64_t id, const void *card)
{
    struct ash_membership_entry *entry = NULL;

    if (id == agent->opts.id || id == 0) return;
    for (size_t i = 0; i < agent->book_count && entry == NULL; i++)
        if (agent->book[i].id == id) entry = &agent->book[i];
    if (entry == NULL) {
        if (ash_array_reserve(&agent->book, &agent->book_room, agent->book_count + 1, sizeof(*agent->book)) < 0) return;
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
        ash_membership_learn(agent, view->members[r].id, ash_view_card(view, r));
}

static const struct ash_membership_address *find_address(const struct ash_membership *agent, uint64_t id)
{
    for (size_t i = 0; i < agent->book_count; i++)
        if (agent->book[i].id == id) return &agent->book[i].address;
    return NULL;
}

/* ---- what goes out ----------------------------------------------------------------------------------------------- */

void ash_membership_drop_link(struct ash_membership *agent, size_t i)
{
    struct ash_membership_link *link = &agent->links[i];

    ash_assert(i < agent->link_count);
    if (link->fd >= 0) close(link->fd);
    ash_str_fini(&link->out);
    ash_str_fini(&link->waiting);
    *link = agent->links[--agent->link_count];
}

int ash_membership_connect(const struct ash_membership_address *address)
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
    if (ash_array_reserve(&agent->links, &agent->link_room, agent->link_count + 1, sizeof(*agent->links)) < 0)
        return NULL;
    if (id == 0) {
        ash_membership_next_contact(agent, &contact);
        known = &contact;
    }
    link = &agent->links[agent->link_count++];
    *link = (struct ash_membership_link){.id = id, .address = *known, .since_ns = ash_clock_ns(), .fd = -1};
    link->idle_ns = link->since_ns;
    link->fd = ash_membership_connect(known);
    return link;
}

/* A frame with its proof, at the end of what goes out. */
static void add_frame(struct ash_membership *agent, struct ash_membership_link *link, const void *body,
                      size_t body_bytes)
{
    struct ash_membership_frame head = {.magic = ASH_MEMBERSHIP_MAGIC, .body_bytes = (uint32_t)body_bytes};
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
            if (msg->view->members[r].id == to) ash_membership_learn(agent, to, ash_view_card(msg->view, r));
    link = get_link(agent, to);
    if (link == NULL || ash_member_wire_encode(msg, agent->opts.card_bytes, &body) < 0) {
        ash_str_fini(&body);
        return;
    }
    link->idle_ns = ash_clock_ns();
    if (link->state == ASH_MEMBERSHIP_LINK_OPEN) {
        add_frame(agent, link, body.data, body.size_bytes);
        flush(link);
    } else if (link->waiting.size_bytes < WAITING_MAX) {
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
        ash_assert(at + bytes <= link->waiting.size_bytes);
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

void ash_membership_serve_link(struct ash_membership *agent, struct ash_membership_link *link)
{
    char rest[64];
    ssize_t got;

    if (link->state == ASH_MEMBERSHIP_LINK_CONNECTING) {
        int cause = 0;
        socklen_t bytes = sizeof(cause);

        if (getsockopt(link->fd, SOL_SOCKET, SO_ERROR, &cause, &bytes) < 0) cause = errno;
        if (cause == ECONNREFUSED || cause == ECONNRESET) {
            close_link_end(link);
            link->is_refused = cause == ECONNREFUSED;
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

/* Does the other end not answer? The kernel connects for a process that sleeps, which then does not greet. */
static bool is_deaf(const struct ash_membership_link *link, uint64_t now_ns)
{
    if (link->state == ASH_MEMBERSHIP_LINK_CONNECTING) return link->has_retried;
    return link->state == ASH_MEMBERSHIP_LINK_GREETING && now_ns >= link->since_ns + GREETING_NS;
}

/* A link that is only being opened has something to say, too: why this process gives up, perhaps. Not to one that does
 * not answer, and a contact is asked again by others. */
bool ash_membership_has_output(const struct ash_membership *agent)
{
    uint64_t now_ns = ash_clock_ns();

    for (size_t i = 0; i < agent->link_count; i++) {
        const struct ash_membership_link *link = &agent->links[i];

        if (link->fd < 0 || link->id == 0 || is_deaf(link, now_ns)) continue;
        if (link->sent_bytes < link->out.size_bytes || link->waiting.size_bytes > 0) return true;
    }
    return false;
}

/* ---- hosts that do not answer ------------------------------------------------------------------------------------ */

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

/* A connection has ended: that of a process that died, or of one that took this one for a stranger, because its proof
 * was late. Its port tells which: connect again. Unsent frames wait for that. */
static void ask_port(struct ash_membership_link *link, uint64_t now_ns)
{
    struct ash_str waiting = link->waiting;
    unsigned end_count = now_ns < link->since_ns + STEADY_NS ? link->end_count + 1 : 1;

    ash_str_clear(&link->out);
    *link = (struct ash_membership_link){.id = link->id,
                                         .address = link->address,
                                         .since_ns = now_ns,
                                         .idle_ns = now_ns,
                                         .fd = ash_membership_connect(&link->address),
                                         .end_count = end_count,
                                         .out = link->out,
                                         .waiting = waiting};
    link->is_refused = link->fd == -ECONNREFUSED;
}

/* Due work of a connection whose other end is gone. Each of these returns when to look again. */
static uint64_t review_closed(struct ash_membership *agent, size_t i, uint64_t now_ns)
{
    struct ash_membership_link *link = &agent->links[i];
    uint64_t id = link->id, until_ns = link->closed_ns + (link->end_count > 0 ? 0 : FAREWELL_NS);

    ash_assert(i < agent->link_count);
    if (now_ns < until_ns) return until_ns;
    if (id != 0 && !link->is_refused && link->end_count < ENDS_MAX) {
        ask_port(link, now_ns);
        if (!link->is_refused) return now_ns + ANSWER_NS;
    }
    ash_membership_drop_link(agent, i);
    if (id != 0) ash_member_peer_died(agent->member, id, now_ns);
    return UINT64_MAX;
}

/* For one that is being opened: a host that does not answer is tried again and again, which counts once a meeting is
 * held. */
static uint64_t review_connecting(struct ash_membership *agent, size_t i, uint64_t now_ns)
{
    struct ash_membership_link *link = &agent->links[i];
    uint64_t id = link->id, until_ns = link->since_ns + (link->is_reported ? AGAIN_NS : ANSWER_NS);
    bool tells = link->has_retried;

    ash_assert(i < agent->link_count);
    if (now_ns < until_ns) return until_ns;
    if (id == 0) {
        ash_membership_drop_link(agent, i);
        return UINT64_MAX;
    }
    if (link->fd >= 0) close(link->fd);
    link->fd = ash_membership_connect(&link->address);
    link->since_ns = now_ns;
    link->is_reported = tells;
    link->has_retried = true;
    if (tells) ash_member_peer_unreachable(agent->member, id, now_ns);
    return now_ns + ANSWER_NS;
}

/* For one that is open: it is unused, or the other host takes nothing any more and is asked whether it is there. */
static uint64_t review_open(struct ash_membership *agent, size_t i, uint64_t now_ns)
{
    struct ash_membership_link *link = &agent->links[i];

    ash_assert(i < agent->link_count);
    if (link->out.size_bytes == 0 && now_ns >= link->idle_ns + IDLE_NS) {
        ash_membership_drop_link(agent, i);
        return UINT64_MAX;
    }
    if (link->id == 0 || !has_stalled(link, now_ns))
        return link->stalled_ns != 0 ? link->stalled_ns + STALL_NS : UINT64_MAX;
    close(link->fd);
    ash_str_clear(&link->out);
    *link = (struct ash_membership_link){.id = link->id,
                                         .address = link->address,
                                         .since_ns = now_ns,
                                         .idle_ns = now_ns,
                                         .fd = ash_membership_connect(&link->address),
                                         .out = link->out};
    return now_ns + ANSWER_NS;
}

uint64_t ash_membership_review_links(struct ash_membership *agent, uint64_t now_ns)
{
    uint64_t next_ns = UINT64_MAX;

    for (size_t i = agent->link_count; i-- > 0;) {
        const struct ash_membership_link *link = &agent->links[i];
        uint64_t at_ns = link->closed_ns != 0                            ? review_closed(agent, i, now_ns)
                         : link->state == ASH_MEMBERSHIP_LINK_CONNECTING ? review_connecting(agent, i, now_ns)
                                                                         : review_open(agent, i, now_ns);

        if (at_ns < next_ns) next_ns = at_ns;
    }
    return next_ns;
}
