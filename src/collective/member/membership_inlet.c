/* Connections to an agent: what others say, and proof that they may. */
#include "collective/member/membership_priv.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/array.h"
#include "base/assert.h"
#include "base/clock.h"
#include "collective/member/member_wire.h"

#define STRANGER_BYTES 65536 /* of a frame whose sender has proved nothing yet */
#define INLETS_MAX 8192

void ash_membership_drop_inlet(struct ash_membership *agent, size_t i)
{
    ash_assert(i < agent->inlet_count);
    close(agent->inlets[i].fd);
    ash_str_fini(&agent->inlets[i].in);
    agent->inlets[i] = agent->inlets[--agent->inlet_count];
}

/* Room for one more. Returns false if there is none. */
static bool make_room(struct ash_membership *agent)
{
    return agent->inlet_count < INLETS_MAX &&
           ash_array_reserve(&agent->inlets, &agent->inlet_room, agent->inlet_count + 1, sizeof(*agent->inlets)) == 0;
}

void ash_membership_accept(struct ash_membership *agent, int listen_fd)
{
    int fd, one = 1;

    while ((fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
        struct ash_membership_inlet inlet = {.fd = fd, .since_ns = ash_clock_ns()};

        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        if (!make_room(agent) || ash_mac_random(inlet.nonce, sizeof(inlet.nonce)) < 0 ||
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
        ash_membership_learn(agent, wire.msg.kind == ASH_MEMBER_JOIN ? wire.msg.subject : wire.msg.from, wire.msg.card);
    if (wire.msg.view != NULL && wire.msg.view->cards != NULL)
        for (size_t r = 0; r < wire.msg.view->size; r++)
            ash_membership_learn(agent, wire.msg.view->members[r].id, ash_view_card(wire.msg.view, r));
    ash_member_receive(agent->member, &wire.msg, ash_clock_ns());
    ash_member_wire_fini(&wire);
}

/* Take whole frames. Returns false where the sender is no member of this job, or sends nonsense. */
static bool take_frames(struct ash_membership *agent, struct ash_membership_inlet *inlet)
{
    size_t at = 0;

    for (;;) {
        struct ash_membership_frame head;
        uint8_t place[ASH_MEMBERSHIP_NONCE_BYTES + sizeof(uint64_t)], mac[ASH_MAC_BYTES];
        const char *body = inlet->in.data + at + sizeof(head);
        size_t whole;

        if (inlet->in.size_bytes - at < sizeof(head)) break;
        memcpy(&head, inlet->in.data + at, sizeof(head));
        if (head.magic != ASH_MEMBERSHIP_MAGIC || head.body_bytes > ASH_MEMBER_WIRE_MAX ||
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
        ash_assert(at <= inlet->in.size_bytes);
        memmove(inlet->in.data, inlet->in.data + at, inlet->in.size_bytes - at);
        inlet->in.size_bytes -= at;
    }
    return true;
}

bool ash_membership_serve_inlet(struct ash_membership *agent, struct ash_membership_inlet *inlet)
{
    char buf[65536];

    for (;;) {
        ssize_t got = recv(inlet->fd, buf, sizeof(buf), MSG_DONTWAIT);

        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0 || ash_str_add(&inlet->in, buf, (size_t)got) < 0 || !take_frames(agent, inlet)) return false;
    }
}
