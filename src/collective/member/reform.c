/* Re-forming. Everyone tries the ranks below its own, lowest first: a process that is gone refuses at once, one that
 * still works with the old group hangs up, and the coordinator answers when all have come. Where the network is cut,
 * both sides do so; only the larger one continues, or there would be two jobs. */
#include "collective/member/reform.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/interrupt.h"
#include "collective/member/reach.h"
#include "collective/member/rendezvous.h"

#define MAGIC 0x46485341u /* "ASHF" */
#define HELLO_S 0.5
#define REACH_S 0.005 /* to see whether somebody listens */
#define TRY_S 0.2     /* the same where the host answers others */
#define PROBE_MS 20   /* between checks whether those who have not come are gone */
#define PAUSE_NS 2000000

struct hello {
    uint32_t magic, epoch; /* that is over */
    uint64_t job;
    uint32_t rank, size, rejoins, payload_bytes;
};

struct answer {
    uint32_t magic;
    int32_t status; /* 0: the payloads follow */
    uint32_t epoch, rank, size;
    char reason[ASH_ERR_TEXT_BYTES];
};

/* ---- the coordinator --------------------------------------------------------------------------------------------- */

struct coordinator {
    struct ash_reform *reform;
    size_t payload_bytes, here;
    char *payloads;       /* [size] by old rank */
    int *joiners;         /* by old rank; -1: not here */
    bool *gone;           /* by old rank: no process listens there, or it cannot be reached, */
    bool *cut;            /* and only the latter */
    int fds[2];           /* listening: its own address, the job's address (or -1) */
    uint64_t complete_ns; /* since when all that are left are here; 0: not yet */
};

static bool is_here(const struct coordinator *coordinator, size_t rank)
{
    return rank == coordinator->reform->rank || coordinator->joiners[rank] >= 0;
}

/* Admit one joining rank, or hang up. */
static int admit(struct coordinator *coordinator, int fd, struct ash_err *err)
{
    const struct ash_reform *reform = coordinator->reform;
    struct hello hello;
    uint64_t deadline_ns = ash_deadline_in(HELLO_S);

    if (ash_socket_recv(fd, &hello, sizeof(hello), deadline_ns) < 0 || hello.magic != MAGIC ||
        hello.job != reform->job || hello.size != reform->size || hello.rank >= reform->size ||
        hello.payload_bytes != coordinator->payload_bytes || (hello.rejoins == 0 && hello.epoch != reform->epoch)) {
        close(fd); /* of another job, or of another epoch */
        return 0;
    }
    if (is_here(coordinator, hello.rank)) {
        close(fd);
        return ash_err_set(err, -EEXIST, "two processes claim rank %u", hello.rank);
    }
    if (ash_socket_recv(fd, coordinator->payloads + hello.rank * coordinator->payload_bytes, coordinator->payload_bytes,
                        deadline_ns) < 0) {
        close(fd);
        return 0;
    }
    coordinator->joiners[hello.rank] = fd;
    coordinator->here++;
    return 0;
}

/* Those whose hosts do not answer are not waited for. */
/* Find the ranks on hosts that do not answer. */
static int find_cuts(struct coordinator *coordinator, struct ash_err *err)
{
    const struct ash_reform *reform = coordinator->reform;

    if (ash_reach_hosts(reform->members, reform->size, reform->rank, coordinator->cut) < 0)
        return ash_err_set(err, -ENOMEM, "out of memory to find %zu ranks", reform->size);
    for (size_t r = 0; r < reform->size; r++)
        if (coordinator->cut[r]) coordinator->gone[r] = true;
    return 0;
}

/* Are all that may still come here? Ranks whose address refuses connections are not waited for. */
static bool all_left_are_here(struct coordinator *coordinator)
{
    const struct ash_reform *reform = coordinator->reform;
    bool all = true;

    for (size_t r = 0; r < reform->size; r++) {
        int fd;

        if (is_here(coordinator, r) || r == reform->failed_rank || coordinator->gone[r]) continue;
        fd = ash_socket_connect(reform->members[r].address, reform->members[r].port, ash_deadline_in(REACH_S), NULL);
        if (fd >= 0) close(fd); /* it lives and will come */
        coordinator->gone[r] = fd == -ECONNREFUSED;
        if (!coordinator->gone[r]) all = false;
    }
    return all;
}

/* Of the ranks that may live on both sides of a cut, are more here, or as many with the lowest rank? */
static bool is_larger_side(const struct coordinator *coordinator, size_t *cut_out)
{
    size_t cut = 0, lowest = SIZE_MAX;

    for (size_t r = 0; r < coordinator->reform->size; r++) {
        bool away = !is_here(coordinator, r) && coordinator->cut[r];

        cut += away;
        if (lowest == SIZE_MAX && (away || is_here(coordinator, r))) lowest = r;
    }
    *cut_out = cut;
    return cut < coordinator->here || (cut == coordinator->here && is_here(coordinator, lowest));
}

/* Wait a little for a rank to connect. */
static int serve(struct coordinator *coordinator, struct ash_err *err)
{
    struct pollfd entries[2] = {{.fd = coordinator->fds[0], .events = POLLIN},
                                {.fd = coordinator->fds[1], .events = POLLIN}};
    int rc = 0;

    if (poll(entries, 2, PROBE_MS) <= 0) return 0;
    for (size_t i = 0; i < 2 && rc == 0; i++) {
        int fd = entries[i].revents != 0 ? ash_socket_accept(coordinator->fds[i], 0) : -1;

        if (fd >= 0) rc = admit(coordinator, fd, err);
    }
    return rc;
}

/* Admit ranks until none is left to wait for. */
static int wait_for_all(struct coordinator *coordinator, uint64_t deadline_ns, struct ash_err *err)
{
    const struct ash_reform *reform = coordinator->reform;
    int rc = 0;

    while (rc == 0 && coordinator->here < reform->size) {
        uint64_t now_ns = ash_clock_ns();

        if (coordinator->complete_ns == 0 && all_left_are_here(coordinator)) coordinator->complete_ns = now_ns;
        if (coordinator->complete_ns != 0 && now_ns - coordinator->complete_ns >= (uint64_t)(reform->wait_s * 1e9))
            return 0;
        if (now_ns >= deadline_ns) return 0; /* without those who have not come */
        if (ash_interrupt_ends_wait(0))
            return ash_err_set(err, -EINTR, "rank %zu was told to stop while %zu of %zu ranks had come", reform->rank,
                               coordinator->here, reform->size);
        rc = serve(coordinator, err);
    }
    return rc;
}

static int gather(struct coordinator *coordinator, uint64_t deadline_ns, struct ash_err *err)
{
    size_t cut = 0;
    int rc = find_cuts(coordinator, err);

    if (rc < 0) return rc;
    rc = wait_for_all(coordinator, deadline_ns, err);
    if (rc < 0 || is_larger_side(coordinator, &cut)) return rc;
    return ash_err_set(err, -EHOSTUNREACH,
                       "the network is cut: %zu of %zu ranks cannot be reached and may continue; "
                       "the %zu on this side end",
                       cut, coordinator->reform->size, coordinator->here);
}

/* Send everyone the outcome. Ranks above empty places move down. */
static void dismiss(struct coordinator *coordinator, int status, const char *reason)
{
    struct ash_reform *reform = coordinator->reform;
    struct answer answer = {
        .magic = MAGIC, .status = status, .epoch = reform->epoch + 1, .size = (uint32_t)coordinator->here};
    uint32_t rank = 0;

    snprintf(answer.reason, sizeof(answer.reason), "%s", reason);
    for (size_t r = 0; r < reform->size; r++)
        if (is_here(coordinator, r))
            memmove(coordinator->payloads + rank++ * coordinator->payload_bytes,
                    coordinator->payloads + r * coordinator->payload_bytes, coordinator->payload_bytes);
    for (size_t r = 0, at = 0; r < reform->size; r++) {
        uint64_t deadline_ns = ash_deadline_in(HELLO_S);

        if (!is_here(coordinator, r)) continue;
        answer.rank = (uint32_t)at++;
        if (r == reform->rank) reform->new_rank = answer.rank;
        if (r == reform->rank) continue;
        if (ash_socket_send(coordinator->joiners[r], &answer, sizeof(answer), deadline_ns) == 0 && status == 0)
            ash_socket_send(coordinator->joiners[r], coordinator->payloads,
                            coordinator->here * coordinator->payload_bytes, deadline_ns);
        close(coordinator->joiners[r]); /* one that has gone is the watch's business */
    }
    reform->new_size = coordinator->here;
    reform->new_epoch = answer.epoch;
}

static int coordinate(struct ash_reform *reform, const void *payload, size_t payload_bytes, void **payloads_out,
                      uint64_t deadline_ns, struct ash_err *err)
{
    struct coordinator coordinator = {.reform = reform,
                                      .payload_bytes = payload_bytes,
                                      .here = 1,
                                      .payloads = calloc(reform->size, payload_bytes),
                                      .joiners = malloc(reform->size * sizeof(*coordinator.joiners)),
                                      .gone = calloc(reform->size, sizeof(*coordinator.gone)),
                                      .cut = calloc(reform->size, sizeof(*coordinator.cut)),
                                      .fds = {reform->listen_fd, ash_socket_listen(NULL, reform->port, NULL)}};
    struct ash_err why = {0};
    int rc = coordinator.payloads != NULL && coordinator.joiners != NULL && coordinator.gone != NULL &&
                     coordinator.cut != NULL
                 ? 0
                 : ash_err_set(err, -ENOMEM, "out of memory to join %zu ranks", reform->size);

    if (rc == 0) {
        for (size_t r = 0; r < reform->size; r++)
            coordinator.joiners[r] = -1;
        memcpy(coordinator.payloads + reform->rank * payload_bytes, payload, payload_bytes);
        rc = gather(&coordinator, deadline_ns, &why);
        dismiss(&coordinator, rc, why.text);
        if (rc < 0) ash_err_set(err, rc, "%s", why.text);
    }
    if (coordinator.fds[1] >= 0) close(coordinator.fds[1]);
    free(coordinator.cut);
    free(coordinator.gone);
    free(coordinator.joiners);
    if (rc < 0) {
        free(coordinator.payloads);
        return rc;
    }
    *payloads_out = coordinator.payloads;
    return 0;
}

/* ---- the others -------------------------------------------------------------------------------------------------- */

/* A rank that tries to join the coordinator. */
struct joining {
    struct ash_reform *reform;
    void *payload; /* [payload_bytes] its own copy */
    size_t payload_bytes;
    uint64_t deadline_ns;
    bool *cut;       /* by old rank: its host does not answer */
    void **payloads; /* everyone's, once it has joined */
    struct ash_err *err;
};

/* Send a hello and wait for the answer. -ECONNRESET: this one does not coordinate now. */
static int join(const struct joining *joining, int fd)
{
    struct ash_reform *reform = joining->reform;
    size_t payload_bytes = joining->payload_bytes;
    uint64_t deadline_ns = joining->deadline_ns;
    struct hello hello = {.magic = MAGIC,
                          .epoch = reform->epoch,
                          .job = reform->job,
                          .rank = (uint32_t)reform->rank,
                          .size = (uint32_t)reform->size,
                          .rejoins = reform->rejoins,
                          .payload_bytes = (uint32_t)payload_bytes};
    struct answer answer;
    char *payloads;
    int rc = ash_socket_send(fd, &hello, sizeof(hello), deadline_ns);

    if (reform->rejoins)
        ash_socket_own_address(fd, (char *)joining->payload + reform->address_offset, ASH_SOCKET_ADDR_BYTES);
    if (rc == 0) rc = ash_socket_send(fd, joining->payload, payload_bytes, deadline_ns);
    if (rc == 0) rc = ash_rendezvous_wait(fd, deadline_ns);
    if (rc == 0) rc = ash_socket_recv(fd, &answer, sizeof(answer), deadline_ns);
    if (rc < 0) return rc == -EPIPE ? -ECONNRESET : rc;
    answer.reason[sizeof(answer.reason) - 1] = '\0';
    if (answer.magic != MAGIC || answer.size > reform->size || answer.rank >= answer.size) return -ECONNRESET;
    if (answer.status < 0)
        return ash_err_set(joining->err, -EPERM, "the surviving ranks did not form a group: %s", answer.reason);
    payloads = malloc(answer.size * payload_bytes);
    rc = payloads != NULL ? ash_socket_recv(fd, payloads, answer.size * payload_bytes, deadline_ns) : -ENOMEM;
    if (rc < 0) {
        free(payloads);
        return ash_err_set(joining->err, -EPERM, "the coordinating rank was lost, too: %s", strerror(-rc));
    }
    reform->new_epoch = answer.epoch;
    reform->new_rank = answer.rank;
    reform->new_size = answer.size;
    *joining->payloads = payloads;
    return 0;
}

/* Try one address until it answers, refuses (-ECONNREFUSED), cannot be reached within reach_s (-EHOSTUNREACH) or the
 * time is over. */
static int try_address(const struct joining *joining, const char *host, int port, double reach_s)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NS};

    for (;;) {
        int fd = ash_socket_connect(host, port, ash_deadline_in(reach_s), NULL), rc;

        if (fd < 0) return fd == -ECONNREFUSED ? fd : -EHOSTUNREACH;
        rc = join(joining, fd);
        close(fd);
        if (rc != -ECONNRESET) return rc;
        if (ash_clock_ns() >= joining->deadline_ns) return -ETIMEDOUT;
        if (ash_interrupt_ends_wait(0)) return -EINTR;
        nanosleep(&pause, NULL); /* it has not noticed the loss yet */
    }
}

/* Join the lowest rank below `end` that is left; -ECONNREFUSED: there is none. Where one does not answer, find which
 * hosts are cut off before each of them is waited for. */
static int join_lowest(const struct joining *joining, size_t end)
{
    const struct ash_reform *reform = joining->reform;
    bool *cut = joining->cut;
    double reach_s = REACH_S;
    int rc = -ECONNREFUSED;

    for (size_t r = 0; r < end && rc == -ECONNREFUSED; r++) {
        const struct ash_watch_member *member = &reform->members[r];

        if (r == reform->rank || r == reform->failed_rank || cut[r]) continue;
        rc = try_address(joining, member->address, member->port, reach_s);
        if (rc == -EHOSTUNREACH && reach_s < TRY_S) {
            reach_s = TRY_S;
            rc = ash_reach_hosts(reform->members, reform->size, reform->rank, cut);
            if (rc == 0 && !cut[r])
                rc = try_address(joining, member->address, member->port, reach_s);
            else if (rc == 0)
                rc = -ECONNREFUSED;
        }
        if (rc == -EHOSTUNREACH) rc = -ECONNREFUSED;
    }
    return rc;
}

int ash_reform_exchange(struct ash_reform *reform, const void *payload, size_t payload_bytes, void **payloads_out,
                        struct ash_err *err)
{
    struct joining joining = {.reform = reform,
                              .payload = malloc(payload_bytes),
                              .payload_bytes = payload_bytes,
                              .deadline_ns = ash_deadline_in(reform->timeout_s),
                              .cut = calloc(reform->size, sizeof(bool)),
                              .payloads = payloads_out,
                              .err = err};
    size_t end = reform->rank == reform->failed_rank
                     ? reform->size
                     : reform->rank; /* a rank that the others skip does not coordinate */
    int rc;

    if (joining.payload == NULL || joining.cut == NULL) {
        rc = ash_err_set(err, -ENOMEM, "out of memory to join the other ranks");
    } else {
        memcpy(joining.payload, payload, payload_bytes);
        rc = reform->rejoins ? try_address(&joining, reform->host, reform->port, reform->timeout_s)
                             : join_lowest(&joining, end);
    }
    free(joining.cut);
    free(joining.payload);
    if (rc == -ECONNREFUSED && !reform->rejoins)
        return coordinate(reform, payload, payload_bytes, payloads_out, joining.deadline_ns, err);
    if (rc == -ECONNREFUSED || rc == -EHOSTUNREACH || rc == -ETIMEDOUT)
        return ash_err_set(err, -ETIMEDOUT, "rank %zu has reached no other rank within %.0f s", reform->rank,
                           reform->timeout_s);
    if (rc == -EINTR)
        return ash_err_set(err, rc, "rank %zu was told to stop before it reached the others", reform->rank);
    return rc;
}
