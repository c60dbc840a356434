/* local_ranks - ranks that are processes of one node with a communicator through shared memory. */
#ifndef ASH_TESTS_HARNESS_LOCAL_RANKS_H
#define ASH_TESTS_HARNESS_LOCAL_RANKS_H

#include "collective/host/local.h"
#include "harness/ranks.h"

/* What the processes share before they have control blocks. */
struct meeting {
    _Atomic uint32_t arrived;
    struct ash_segment_key keys[ASH_LOCAL_RANKS_MAX];
    _Atomic uint64_t word[4]; /* for the test's own use */
};

struct local_ranks {
    size_t size;
    uint64_t timeout_ns;
    int (*run)(struct ash_local *local, struct meeting *meeting, const void *arg);
    const void *arg;
    struct meeting *meeting; /* set by run_local_ranks */
};

static inline int local_rank_main(void *ctx, size_t rank)
{
    const struct local_ranks *ranks = ctx;
    const struct ash_wait_limits limits = {.timeout_ns = ranks->timeout_ns};
    struct meeting *meeting = ranks->meeting;
    struct ash_local *local = NULL;
    struct ash_err err = {0};
    int rc = ash_local_open(&limits, &local, &err);

    if (rc == 0) {
        meeting->keys[rank] = ash_local_key(local);
        ranks_barrier(&meeting->arrived, ranks->size);
        rc = ash_local_connect(local, rank, ranks->size, ranks->size > 2, meeting->keys, NULL, &err);
        ranks_barrier(&meeting->arrived, ranks->size); /* no rank leaves before all have come */
    }
    if (rc == 0) rc = ranks->run(local, meeting, ranks->arg);
    if (rc != 0) fprintf(stderr, "rank %zu of %zu: %d (%s)\n", rank, ranks->size, rc, err.text);
    ash_local_close(local);
    return rc != 0;
}

/* As ranks_run. */
static inline int run_local_ranks(const struct local_ranks *ranks, int *kills_out)
{
    struct local_ranks own = *ranks;
    int failed;

    own.meeting = ranks_share(sizeof(*own.meeting));
    failed = ranks_run(ranks->size, local_rank_main, &own, kills_out);
    ranks_unshare(own.meeting, sizeof(*own.meeting));
    return failed;
}

#endif
