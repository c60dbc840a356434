/* Connections to one process of every host are begun together; those without an answer are begun once more, in
 * case a packet was lost. */
#include "collective/member/reach.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"

#define TRIES 2
#define TRY_S 0.03 /* for an answer; hosts of a job are a millisecond apart */

/* One connection for each host; entries[h].fd is -1 once it has answered, or where it cannot be tried. */
struct probe {
    size_t count, open;
    size_t *ranks; /* that are probed */
    bool *answered;
    struct pollfd *entries;
};

/* Begin to connect. Returns a descriptor, -1 where that is not possible; *answered: the host has refused,
 * because no process listens. */
static int begin(const struct ash_watch_member *member, bool *answered)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *found = NULL;
    char service[16];
    int fd;

    snprintf(service, sizeof(service), "%d", (int)member->port);
    if (getaddrinfo(member->address, service, &hints, &found) != 0) return -1;
    fd = socket(found->ai_family, found->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, found->ai_protocol);
    if (fd >= 0 && connect(fd, found->ai_addr, found->ai_addrlen) < 0 && errno != EINPROGRESS) {
        *answered = errno == ECONNREFUSED;
        close(fd);
        fd = -1;
    }
    freeaddrinfo(found);
    return fd;
}

/* A connection has been made or has failed. */
static void settle(struct probe *probe, size_t h)
{
    int cause = 0;
    socklen_t bytes = sizeof(cause);

    if (getsockopt(probe->entries[h].fd, SOL_SOCKET, SO_ERROR, &cause, &bytes) < 0) cause = errno;
    probe->answered[h] = cause == 0 || cause == ECONNREFUSED;
    close(probe->entries[h].fd);
    probe->entries[h].fd = -1;
    probe->open--;
}

/* Ask all that have not answered yet. */
static void ask(struct probe *probe, const struct ash_watch_member *members)
{
    uint64_t deadline_ns = ash_deadline_in(TRY_S);

    for (size_t h = 0; h < probe->count; h++) {
        probe->entries[h] = (struct pollfd){.fd = -1, .events = POLLOUT};
        if (!probe->answered[h]) probe->entries[h].fd = begin(&members[probe->ranks[h]], &probe->answered[h]);
        probe->open += probe->entries[h].fd >= 0;
    }
    while (probe->open > 0 && ash_clock_ns() < deadline_ns) {
        if (poll(probe->entries, probe->count, ash_deadline_ms(deadline_ns)) <= 0) continue;
        for (size_t h = 0; h < probe->count; h++)
            if (probe->entries[h].fd >= 0 && probe->entries[h].revents != 0) settle(probe, h);
    }
    for (size_t h = 0; h < probe->count; h++)
        if (probe->entries[h].fd >= 0) close(probe->entries[h].fd);
    probe->open = 0;
}

static bool same_host(const struct ash_watch_member *a, const struct ash_watch_member *b)
{
    return strcmp(a->address, b->address) == 0;
}

/* The first rank of every host but this one's. */
static void choose(struct probe *probe, const struct ash_watch_member *members, size_t size, size_t own)
{
    for (size_t r = 0; r < size; r++) {
        bool known = same_host(&members[r], &members[own]);

        for (size_t h = 0; h < probe->count && !known; h++)
            known = same_host(&members[r], &members[probe->ranks[h]]);
        if (!known) probe->ranks[probe->count++] = r;
    }
}

int ash_reach_hosts(const struct ash_watch_member *members, size_t size, size_t own, bool *cut_out)
{
    struct probe probe = {.ranks = calloc(size, sizeof(*probe.ranks)),
                          .answered = calloc(size, sizeof(*probe.answered)),
                          .entries = calloc(size, sizeof(*probe.entries))};
    int rc = probe.ranks != NULL && probe.answered != NULL && probe.entries != NULL ? 0 : -ENOMEM;

    if (rc == 0) {
        choose(&probe, members, size, own);
        for (size_t i = 0; i < TRIES; i++)
            ask(&probe, members);
        memset(cut_out, 0, size * sizeof(*cut_out));
        for (size_t r = 0; r < size; r++)
            for (size_t h = 0; h < probe.count; h++)
                if (same_host(&members[r], &members[probe.ranks[h]])) cut_out[r] = !probe.answered[h];
    }
    free(probe.entries);
    free(probe.answered);
    free(probe.ranks);
    return rc;
}
