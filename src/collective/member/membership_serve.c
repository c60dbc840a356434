/* The wait of an agent's thread: for its connections both ways, for new ones, and for its owner. */
#include "collective/member/membership_priv.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/array.h"
#include "base/assert.h"
#include "base/clock.h"

#define OWN_POLLS 3               /* the owner's calls, the port, the job's address; then links, then inlets */
#define WAIT_NS 1000000000ull     /* at most */
#define STRANGER_NS 5000000000ull /* for one that connects to prove its identity: on a busy host that takes its time */

static size_t fill_polls(struct ash_membership *agent, size_t links, size_t inlets)
{
    size_t count = OWN_POLLS + links + inlets;

    if (ash_array_reserve(&agent->polls, &agent->poll_room, count, sizeof(*agent->polls)) < 0) return 0;
    ash_assert(links <= agent->link_count && inlets <= agent->inlet_count && count <= agent->poll_room);
    agent->polls[0] = (struct pollfd){.fd = agent->wake_fd, .events = POLLIN};
    agent->polls[1] = (struct pollfd){.fd = agent->opts.listen_fd, .events = POLLIN};
    agent->polls[2] = (struct pollfd){.fd = agent->door_fd, .events = POLLIN};
    for (size_t i = 0; i < links; i++) {
        const struct ash_membership_link *link = &agent->links[i];
        bool wants_out = link->state == ASH_MEMBERSHIP_LINK_CONNECTING || link->sent_bytes < link->out.size_bytes;

        agent->polls[OWN_POLLS + i] =
            (struct pollfd){.fd = link->fd,
                            .events = (short)((link->state != ASH_MEMBERSHIP_LINK_CONNECTING ? POLLIN : 0) |
                                              (wants_out ? POLLOUT : 0))};
    }
    for (size_t i = 0; i < inlets; i++)
        agent->polls[OWN_POLLS + links + i] = (struct pollfd){.fd = agent->inlets[i].fd, .events = POLLIN};
    return count;
}

/* Wait until something is ready, at most until until_ns. The lock is dropped meanwhile. Returns what ppoll does. */
static int wait_ready(struct ash_membership *agent, size_t count, uint64_t now_ns, uint64_t until_ns)
{
    uint64_t wait_ns = until_ns > now_ns ? until_ns - now_ns : 0;
    struct timespec wait;
    int ready;

    ash_assert(count <= agent->poll_room);
    if (wait_ns > WAIT_NS) wait_ns = WAIT_NS;
    wait = (struct timespec){.tv_sec = (time_t)(wait_ns / 1000000000u), .tv_nsec = (long)(wait_ns % 1000000000u)};
    pthread_mutex_unlock(&agent->lock);
    ready = ppoll(agent->polls, count, &wait, NULL); /* polls belong to this thread */
    pthread_mutex_lock(&agent->lock);
    return ready;
}

/* Take what others say first: a goodbye comes before the end of its connection. Strangers get only so much time. */
static void serve_inlets(struct ash_membership *agent, const struct pollfd *polls, size_t count)
{
    uint64_t now_ns = ash_clock_ns();

    ash_assert(count <= agent->inlet_count);
    for (size_t i = count; i-- > 0;) {
        bool is_over = polls != NULL && polls[i].revents != 0 && !ash_membership_serve_inlet(agent, &agent->inlets[i]);

        if (is_over || (!agent->inlets[i].is_trusted && now_ns > agent->inlets[i].since_ns + STRANGER_NS))
            ash_membership_drop_inlet(agent, i);
    }
}

static void serve_links(struct ash_membership *agent, const struct pollfd *polls, size_t count)
{
    ash_assert(count <= agent->link_count);
    for (size_t i = count; i-- > 0;) { /* others only add links, at the end */
        struct ash_membership_link *link = &agent->links[i];

        if (polls[i].revents != 0 && link->fd == polls[i].fd && link->fd >= 0) ash_membership_serve_link(agent, link);
    }
}

void ash_membership_serve(struct ash_membership *agent, uint64_t until_ns)
{
    uint64_t now_ns = ash_clock_ns(), review_ns = ash_membership_review_links(agent, now_ns), calls;
    uint64_t door_ns = ash_membership_try_door(agent, now_ns);
    size_t links = agent->link_count, inlets = agent->inlet_count, count = fill_polls(agent, links, inlets);
    int ready;

    if (review_ns < until_ns) until_ns = review_ns;
    ready = wait_ready(agent, count, now_ns, door_ns < until_ns ? door_ns : until_ns);
    serve_inlets(agent, ready > 0 ? agent->polls + OWN_POLLS + links : NULL, inlets);
    if (ready <= 0) return;
    if (read(agent->wake_fd, &calls, sizeof(calls)) < 0) calls = 0; /* no wake-up was sent */
    serve_links(agent, agent->polls + OWN_POLLS, links);
    if (agent->polls[1].revents != 0) ash_membership_accept(agent, agent->opts.listen_fd);
    if (agent->polls[2].revents != 0 && agent->door_fd >= 0) ash_membership_accept(agent, agent->door_fd);
}

void ash_membership_hang_up(struct ash_membership *agent)
{
    while (agent->link_count > 0)
        ash_membership_drop_link(agent, agent->link_count - 1);
    while (agent->inlet_count > 0)
        ash_membership_drop_inlet(agent, agent->inlet_count - 1);
    free(agent->links);
    free(agent->inlets);
    free(agent->book);
    free(agent->polls);
}
