/* faults - the rows of `chaos matrix`: what happens to a small job, and how it is seen that the job got
 * over it. */
#ifndef ASH_TESTS_CHAOS_FAULTS_H
#define ASH_TESTS_CHAOS_FAULTS_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/fault_point.h"
#include "cmd/chaos_job.h"
#include "chaos/words.h"

#define ASH_CHAOS_CELL_LIMIT_S 120.0

/* A column. */
struct ash_chaos_layout {
    const char *name, *words;
    bool has_experts;
    bool has_copies;     /* ranks hold copies of each other's parts; elsewhere replicas are there anyway */
    bool has_neighbours; /* at least three ranks have separate grains, so that an audit can find the wrong one */
};

/* One fault in one layout. */
struct ash_chaos_cell {
    const char *scratch;
    const struct ash_chaos_fault *fault;
    const struct ash_chaos_layout *layout;
    size_t nodes, ranks; /* of the mesh, spread evenly */
    bool has_net;        /* nodes have networks of their own */
    struct ash_chaos_job job;
    uint64_t deadline_ns;
    char dir[PATH_MAX], out[PATH_MAX];
};

struct ash_chaos_fault {
    const char *name, *launch, *words;
    bool has_spares;                            /* one a node */
    int (*happen)(struct ash_chaos_cell *cell); /* returns 0, -ETIMEDOUT, or -ESRCH where the job has ended */
    bool is_bf16;                               /* trains in bf16 */
    bool needs_copies;                          /* only in layouts that have some */
    bool needs_neighbours;                      /* the same */
    bool validates;                             /* every fifth step */
    enum ash_fault_point point;                 /* where a rank dies */
    bool needs_net;                             /* gives the two nodes networks of their own: only where root runs it */
};

extern const struct ash_chaos_fault ash_chaos_faults[];
extern const size_t ash_chaos_fault_count;

/* Until this many steps are logged. Returns as happen. */
int ash_chaos_wait_steps(struct ash_chaos_cell *cell, uint64_t steps);
/* Wait until the job has printed a text so often. */
int ash_chaos_wait_text(struct ash_chaos_cell *cell, const char *text, size_t times);
/* Wait until it has reported this often that it continues with this many ranks. All of them: a process has rejoined, in
 * a separate epoch or already in the one after the loss. */
int ash_chaos_wait_ranks(struct ash_chaos_cell *cell, size_t ranks, size_t times);
/* Until the job has taken the last request, and a step later: all ranks have it then. */
int ash_chaos_wait_taken(struct ash_chaos_cell *cell);
/* Until `left` of these processes are there, or fewer. */
int ash_chaos_wait_left(struct ash_chaos_cell *cell, const pid_t *pids, size_t count, size_t left);
/* Resize the run to this many ranks, and wait until it reports that. */
int ash_chaos_resize(struct ash_chaos_cell *cell, size_t ranks);
/* Let a rank die at the fault's point. Returns 0 or -EIO. */
int ash_chaos_arm(struct ash_chaos_cell *cell, int64_t rank);
/* Send a signal to count ranks, from the first-th process on. */
void ash_chaos_strike(const struct ash_chaos_cell *cell, size_t first, size_t count, int number);
/* The words that launch it, up to the flags of the fault's row. */
void ash_chaos_add_launch(struct ash_chaos_words *words, const struct ash_chaos_cell *cell);
/* The job has ended: restart it from its checkpoint. Returns 0 or a negative errno. */
int ash_chaos_resume(struct ash_chaos_cell *cell);

#endif
