/* Is a job there? All its contacts are asked at once; one that accepts greets with a nonce. */
#include "collective/member/membership_priv.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/assert.h"

struct probe {
    struct pollfd polls[ASH_MEMBERSHIP_CONTACTS_MAX];
    size_t count; /* of those that may still answer */
};

static void drop(struct probe *probe, size_t i)
{
    ash_assert(i < probe->count);
    close(probe->polls[i].fd);
    probe->polls[i] = probe->polls[--probe->count];
}

static void connect_all(struct probe *probe, const char *job_dir)
{
    struct ash_membership_address contacts[ASH_MEMBERSHIP_CONTACTS_MAX];
    size_t count = ash_membership_read_contacts(job_dir, contacts);

    for (size_t i = 0; i < count; i++) {
        int fd = ash_membership_connect(&contacts[i]);

        if (fd >= 0) probe->polls[probe->count++] = (struct pollfd){.fd = fd, .events = POLLIN};
    }
}

/* Has one of them greeted? Those that have refused are dropped. */
static bool has_greeting(struct probe *probe)
{
    char nonce[ASH_MEMBERSHIP_NONCE_BYTES];

    for (size_t i = probe->count; i-- > 0;) {
        ssize_t got;

        if (probe->polls[i].revents == 0) continue;
        got = recv(probe->polls[i].fd, nonce, sizeof(nonce), MSG_DONTWAIT);
        if (got > 0) return true;
        if (got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) drop(probe, i);
    }
    return false;
}

bool ash_membership_is_answered(const char *job_dir, double timeout_s)
{
    uint64_t deadline_ns = ash_deadline_in(timeout_s);
    struct probe probe = {.count = 0};
    bool is_answered = false;

    connect_all(&probe, job_dir);
    while (probe.count > 0 && !is_answered && ash_deadline_ms(deadline_ns) > 0)
        if (poll(probe.polls, probe.count, ash_deadline_ms(deadline_ns)) > 0) is_answered = has_greeting(&probe);
    while (probe.count > 0)
        drop(&probe, 0);
    return is_answered;
}
