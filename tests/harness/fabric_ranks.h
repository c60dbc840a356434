/* fabric_ranks - ranks that are processes, each with an endpoint that knows all others. */
#ifndef ASH_TESTS_HARNESS_FABRIC_RANKS_H
#define ASH_TESTS_HARNESS_FABRIC_RANKS_H

#include <string.h>
#include <sys/prctl.h>

#include "fabric/fabric.h"
#include "harness/ranks.h"

#define FABRIC_RANKS_MAX 8
#define PATIENCE_NS RANKS_PATIENCE_NS
#define HANG_S 150 /* a rank that takes longer has failed */
/* A check inside a rank: says where it failed and returns from the caller. */
#define CHECK(condition)                                                                                               \
    if (!(condition)) return fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition), 1

struct meeting {
    _Atomic uint32_t arrived;
    struct ash_fabric_addr addrs[FABRIC_RANKS_MAX];
    struct ash_fabric_key keys[FABRIC_RANKS_MAX];
    _Atomic uint64_t words[FABRIC_RANKS_MAX];
};

struct fabric_rank {
    size_t rank, size;
    struct ash_fabric *fabric;
    struct meeting *meeting;
    const void *arg;
};

struct fabric_ranks {
    size_t size;
    struct ash_fabric_opts opts;
    bool strangers; /* ranks do not add each other */
    /* Before the endpoint is opened; may be NULL. */
    int (*prepare)(struct fabric_rank *rank, struct ash_fabric_opts *opts);
    int (*run)(struct fabric_rank *rank);
    const void *arg;
    struct meeting *meeting; /* set by run_fabric_ranks */
};

/* Wait until all ranks are here; no rank polls meanwhile. */
static inline void meet(const struct fabric_rank *rank)
{
    ranks_barrier(&rank->meeting->arrived, rank->size);
}

static inline int fabric_rank_main(void *ctx, size_t rank)
{
    const struct fabric_ranks *ranks = ctx;
    struct meeting *meeting = ranks->meeting;
    struct fabric_rank own = {.rank = rank, .size = ranks->size, .meeting = meeting, .arg = ranks->arg};
    struct ash_fabric_opts opts = ranks->opts;
    struct ash_err err = {0};
    int rc;

    alarm(HANG_S);
    rc = ranks->prepare != NULL ? ranks->prepare(&own, &opts) : 0;
    if (rc == 0) rc = ash_fabric_open(&opts, &own.fabric, &err);
    if (rc == 0) ash_fabric_get_addr(own.fabric, &meeting->addrs[rank]);
    meet(&own);
    for (size_t r = 0; r < ranks->size && rc == 0 && !ranks->strangers; r++)
        if (r != rank) rc = ash_fabric_add_peer(own.fabric, (uint32_t)r, &meeting->addrs[r], &err);
    meet(&own);
    if (rc == 0) rc = ranks->run(&own);
    if (rc != 0) fprintf(stderr, "rank %zu of %zu: %d (%s)\n", rank, ranks->size, rc, err.text);
    ash_fabric_close(own.fabric);
    return rc != 0;
}

/* As ranks_run. */
static inline int run_fabric_ranks(const struct fabric_ranks *ranks, int *kills_out)
{
    struct fabric_ranks own = *ranks;
    int failed;

    ash_assert(ranks->size <= FABRIC_RANKS_MAX);
    own.meeting = ranks_share(sizeof(*own.meeting));
    failed = ranks_run(ranks->size, fabric_rank_main, &own, kills_out);
    ranks_unshare(own.meeting, sizeof(*own.meeting));
    return failed;
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

/* Is this road built and permitted here? Tried in a process of its own: libfabric caches its first look. */
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
