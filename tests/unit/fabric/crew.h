/* crew - runs a function in several processes, each with an endpoint that knows all others, and collects verdicts. */
#ifndef ASH_TESTS_CREW_H
#define ASH_TESTS_CREW_H

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "fabric/fabric.h"

#define CREW_MAX 8
#define PATIENCE_NS 30000000000ull
/* A check inside a process of a crew: says where it failed and returns from the caller. */
#define CHECK(condition)                                                                                               \
    if (!(condition)) return fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition), 1

struct meeting {
    _Atomic uint32_t arrived;
    struct ash_fabric_addr addrs[CREW_MAX];
    struct ash_fabric_key keys[CREW_MAX];
    _Atomic uint64_t words[CREW_MAX];
};

struct member {
    size_t rank, size;
    struct ash_fabric *fabric;
    struct meeting *meeting;
    const void *arg;
};

struct crew {
    size_t size;
    struct ash_fabric_opts opts;
    bool strangers; /* members do not add each other */
    int (*prepare)(struct member *member,
                   struct ash_fabric_opts *opts); /* before the endpoint is opened; may be NULL */
    int (*run)(struct member *member);            /* 0: as it should be */
    const void *arg;
};

/* Wait until all members are here; nobody polls meanwhile. */
static inline void meet(const struct member *member)
{
    uint32_t before = atomic_fetch_add(&member->meeting->arrived, 1),
             target = (uint32_t)((before / member->size + 1) * member->size);
    uint64_t limit = ash_clock_ns() + PATIENCE_NS;

    while (atomic_load(&member->meeting->arrived) < target && ash_clock_ns() < limit)
        usleep(50);
}

static inline int member_main(const struct crew *crew, struct meeting *meeting, size_t rank)
{
    struct member member = {.rank = rank, .size = crew->size, .meeting = meeting, .arg = crew->arg};
    struct ash_fabric_opts opts = crew->opts;
    struct ash_err err = {0};
    int rc = crew->prepare != NULL ? crew->prepare(&member, &opts) : 0;

    if (rc == 0) rc = ash_fabric_open(&opts, &member.fabric, &err);
    if (rc == 0) ash_fabric_get_addr(member.fabric, &meeting->addrs[rank]);
    meet(&member);
    for (size_t r = 0; r < crew->size && rc == 0 && !crew->strangers; r++)
        if (r != rank) rc = ash_fabric_add_peer(member.fabric, (uint32_t)r, &meeting->addrs[r], &err);
    meet(&member);
    if (rc == 0) rc = crew->run(&member);
    if (rc != 0) fprintf(stderr, "rank %zu of %zu: %d (%s)\n", rank, crew->size, rc, err.text);
    ash_fabric_close(member.fabric);
    return rc != 0;
}

/* Returns how many members failed; those that a signal ended are counted in kills_out (may be NULL: then they failed).
 */
static inline int run_crew(const struct crew *crew, int *kills_out)
{
    struct meeting *meeting = mmap(NULL, sizeof(*meeting), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t pids[CREW_MAX];
    int failed = 0, kills = 0;

    fflush(NULL);
    for (size_t r = 0; r < crew->size; r++) {
        pids[r] = fork();
        if (pids[r] == 0) {
            alarm(60);                            /* a hang is a failure */
            _exit(member_main(crew, meeting, r)); /* leaks are looked for in the parent: here it would take minutes */
        }
    }
    for (size_t r = 0; r < crew->size; r++) {
        int status = 0;

        waitpid(pids[r], &status, 0);
        if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
            kills++;
        else if (status != 0)
            failed++;
    }
    munmap(meeting, sizeof(*meeting));
    if (kills_out != NULL) *kills_out = kills;
    return failed + (kills_out == NULL ? kills : 0);
}

/* The settings of each way that bytes can go; registered: the memory is the test's own. */
struct road {
    const char *name;
    struct ash_fabric_opts opts;
    bool registered;
    uint64_t messages; /* of a stream: as many as it carries in a moment */
    bool leaks;        /* libfabric's doing: an endpoint that is closed leaves memory behind */
};

/* The first MAIN_ROADS are ours in every respect. The others show that a provider is a setting; what libfabric makes of
 * them is its own (killed processes leave files, last words get lost), so only careful tests take them. */
#define MAIN_ROADS ((size_t)4)
static const struct road roads[] = {
    {"mapped", {.path = ASH_FABRIC_SHM}, false, 100, false},
    {"kernel", {.path = ASH_FABRIC_SHM}, true, 100, false},
    {"chunks", {.path = ASH_FABRIC_SHM, .single_copy = ASH_FABRIC_COPY_NEVER}, true, 100, false},
    {"tcp", {.path = ASH_FABRIC_OFI, .provider = "tcp", .interface = "127.0.0.1"}, false, 100, false},
    {"tcp, two rails",
     {.path = ASH_FABRIC_OFI, .provider = "tcp", .interface = "127.0.0.1,127.0.0.1", .stripe_bytes = 65536},
     true,
     100,
     false},
    {"net", {.path = ASH_FABRIC_OFI, .provider = "net", .interface = "127.0.0.1"}, false, 50, true},
    {"udp", {.path = ASH_FABRIC_OFI, .provider = "udp", .interface = "127.0.0.1"}, false, 20, false},
    {"libfabric's shm", {.path = ASH_FABRIC_OFI, .provider = "shm"}, false, 50, false},
};
#define ROADS (sizeof(roads) / sizeof(roads[0]))

/* Is this road built and permitted here? Tried in a process of its own: libfabric remembers what it saw first. */
static inline bool road_open(const struct road *road)
{
    struct ash_fabric *fabric = NULL;
    int status = 1;
    pid_t child = fork();

    if (child == 0) {
        status = ash_fabric_open(&road->opts, &fabric, NULL) < 0;
        ash_fabric_close(fabric);
        _exit(status);
    }
    waitpid(child, &status, 0);
    return status == 0;
}

#endif
