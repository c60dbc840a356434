/* fabric ROWS ROUNDS SHM_US SHM_GBS TCP_US TCP_GBS: transfers between two processes on every road, as ping-pong: the
 * time of a notification one way, and the bandwidth of 1 MiB writes each announced by a notification. The last four are
 * what a peer's ping-pong gave on shared memory and on TCP; 0: it is not here. */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "fabric/fabric.h"
#include "lib/row.h"
#include "lib/team.h"

#define WRITE_BYTES ((size_t)1 << 20)
#define LIMIT_NS 60000000000ull

static const struct road {
    const char *name;
    struct ash_fabric_opts opts;
    bool registered; /* the caller's memory, which cannot be mapped */
    size_t notes, writes;
    int peer; /* 0: shm, 1: tcp */
} roads[] = {
    {"mapped", {.path = ASH_FABRIC_SHM}, false, 200000, 2000, 0},
    {"kernel", {.path = ASH_FABRIC_SHM}, true, 0, 2000, 0},
    {"chunks", {.path = ASH_FABRIC_SHM, .single_copy = ASH_FABRIC_COPY_NEVER}, true, 0, 1000, 0},
    {"tcp", {.path = ASH_FABRIC_OFI, .provider = "tcp", .interface = "127.0.0.1"}, false, 10000, 1000, 1},
};

struct meeting {
    _Atomic int arrived;
    struct ash_fabric_addr addrs[2];
    struct ash_fabric_key keys[2];
};

struct side {
    uint32_t rank;
    struct ash_fabric *fabric;
    struct ash_region *from, *into;
    struct ash_remote *remote;
    void *own[2];
    struct meeting *meeting;
};

static int meet(struct side *side)
{
    int target = (atomic_fetch_add(&side->meeting->arrived, 1) / 2 + 1) * 2;
    uint64_t limit = ash_clock_ns() + LIMIT_NS;

    while (atomic_load(&side->meeting->arrived) < target)
        if (ash_clock_ns() > limit) return -ETIMEDOUT;
    return 0;
}

static int make_region(struct side *side, const struct road *road, int which, struct ash_region **out)
{
    if (!road->registered) return ash_region_alloc(side->fabric, WRITE_BYTES, out, NULL);
    side->own[which] = calloc(1, WRITE_BYTES);
    return side->own[which] == NULL ? -ENOMEM
                                    : ash_region_register(side->fabric, side->own[which], WRITE_BYTES, out, NULL);
}

static int open_side(struct side *side, const struct road *road)
{
    struct ash_err err = {0};
    int rc = ash_fabric_open(&road->opts, &side->fabric, &err);

    if (rc == 0) ash_fabric_get_addr(side->fabric, &side->meeting->addrs[side->rank]);
    if (rc == 0) rc = make_region(side, road, 0, &side->from);
    if (rc == 0) rc = make_region(side, road, 1, &side->into);
    if (rc == 0) ash_region_key(side->into, &side->meeting->keys[side->rank]);
    if (meet(side) < 0) return -ETIMEDOUT;
    if (rc == 0) rc = ash_fabric_add_peer(side->fabric, 1 - side->rank, &side->meeting->addrs[1 - side->rank], &err);
    if (rc == 0)
        rc = ash_remote_open(side->fabric, 1 - side->rank, &side->meeting->keys[1 - side->rank], &side->remote, &err);
    if (rc < 0) fprintf(stderr, "fabric: %s: %s\n", road->name, err.text);
    return meet(side) < 0 ? -ETIMEDOUT : rc;
}

static void close_side(struct side *side)
{
    ash_remote_close(side->remote);
    ash_region_close(side->from);
    ash_region_close(side->into);
    ash_fabric_close(side->fabric);
    free(side->own[0]);
    free(side->own[1]);
}

/* Take events until the other side has spoken (word), or once. Ends of writes need no answer: the other side's word
 * comes after them. */
static int take_events(struct side *side, bool word)
{
    do {
        struct ash_fabric_event events[8];
        size_t count = ash_fabric_poll(side->fabric, events, 8);

        for (size_t e = 0; e < count; e++) {
            if (events[e].kind == ASH_FABRIC_LOST || events[e].status < 0) return -ECONNRESET;
            if (events[e].kind == ASH_FABRIC_NOTIFIED) word = false;
        }
    } while (word);
    return 0;
}

static int say(struct side *side, bool write)
{
    struct ash_transfer transfer = {.local = side->from, .remote = side->remote, .size_bytes = WRITE_BYTES};
    int rc = write ? ash_fabric_write(side->fabric, &transfer) : 0;

    if (rc < 0) return rc;
    for (;;) {
        rc = ash_fabric_notify(side->fabric, 1 - side->rank, 1);
        if (rc != -EAGAIN) return rc;
        rc = take_events(side, false);
        if (rc < 0) return rc;
    }
}

/* Seconds for count round trips, or a negative errno. */
static double ping_pong(struct side *side, size_t count, bool write)
{
    uint64_t began = ash_clock_ns();
    int rc = 0;

    for (size_t i = 0; i < count && rc == 0; i++) {
        if (side->rank == 0) rc = say(side, write);
        if (rc == 0) rc = take_events(side, true);
        if (rc == 0 && side->rank == 1) rc = say(side, write);
    }
    return rc < 0 ? rc : (double)(ash_clock_ns() - began) / 1e9;
}

/* Both sides: a tenth to warm up, then rounds of each kind. values: [rounds] of notifications, then of writes. */
static int run_side(struct side *side, const struct road *road, size_t rounds, double *values)
{
    int rc = open_side(side, road);

    for (size_t kind = 0; kind < 2 && rc == 0; kind++) {
        size_t count = kind == 0 ? road->notes : road->writes;

        if (count == 0) continue;
        if (ping_pong(side, count / 10, kind == 1) < 0) rc = -EIO;
        for (size_t round = 0; round < rounds && rc == 0; round++) {
            double seconds = ping_pong(side, count, kind == 1);

            if (seconds < 0) rc = -EIO;
            values[kind * rounds + round] =
                kind == 0 ? seconds / (double)count / 2 * 1e6 : 2 * (double)count * (double)WRITE_BYTES / seconds / 1e9;
        }
    }
    if (meet(side) < 0) rc = -ETIMEDOUT;
    close_side(side);
    return rc;
}

static int add_rows(const char *rows, const struct road *road, double *values, size_t rounds, const double *peers)
{
    static const char *const peer_names[] = {"fi_pingpong shm", "fi_pingpong tcp"};
    char name[64];
    int rc = 0;

    for (size_t kind = 0; kind < 2 && rc == 0; kind++) {
        double peer = peers[2 * road->peer + (int)kind];

        if ((kind == 0 ? road->notes : road->writes) == 0) continue;
        snprintf(name, sizeof(name), "fabric/%s-%s", road->name, kind == 0 ? "notify" : "write-1MiB");
        rc = bench_row_add(rows, &(struct bench_row){.name = name,
                                                     .unit = kind == 0 ? "us" : "GB/s",
                                                     .peer = peer > 0 ? peer_names[road->peer] : NULL,
                                                     .ours = bench_median(values + kind * rounds, rounds),
                                                     .peer_value = peer,
                                                     .lower_is_better = kind == 0});
    }
    return rc;
}

/* Measure a road between this process and a child. A road that cannot be opened here gives no rows. */
static int measure(const struct road *road, const char *rows, size_t rounds, const double *peers)
{
    struct meeting *meeting = mmap(NULL, sizeof(*meeting), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    double values[2 * BENCH_ROUNDS_MAX];
    struct side side = {.meeting = meeting};
    pid_t child;
    int rc;

    if (meeting == MAP_FAILED) return -ENOMEM;
    child = fork();
    side.rank = child == 0;
    if (child == 0) alarm(120);
    rc = run_side(&side, road, rounds, values);
    if (child == 0) _exit(rc < 0);
    waitpid(child, NULL, 0);
    munmap(meeting, sizeof(*meeting));
    return rc < 0 ? 0 : add_rows(rows, road, values, rounds, peers);
}

int main(int argc, char **argv)
{
    long rounds = argc == 7 ? strtol(argv[2], NULL, 10) : 0;
    double peers[4];

    if (rounds < 1 || rounds > BENCH_ROUNDS_MAX) {
        fprintf(stderr, "usage: fabric ROWS ROUNDS (1 to %d) SHM_US SHM_GBS TCP_US TCP_GBS\n", BENCH_ROUNDS_MAX);
        return 2;
    }
    for (int i = 0; i < 4; i++)
        peers[i] = strtod(argv[3 + i], NULL);
    alarm(600);
    for (size_t r = 0; r < sizeof(roads) / sizeof(roads[0]); r++)
        if (measure(&roads[r], argv[1], (size_t)rounds, peers) < 0) return 1;
    return 0;
}
