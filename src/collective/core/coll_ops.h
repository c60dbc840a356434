/* coll_ops - what a communicator does: the calls of collective/group.h for the ranks of one node (host/) or of several
 * (net/). */
#ifndef ASH_COLLECTIVE_CORE_COLL_OPS_H
#define ASH_COLLECTIVE_CORE_COLL_OPS_H

#include <stddef.h>
#include "ashlar/err.h"
#include "collective/core/cost.h"
#include "collective/core/sum.h"

struct ash_window;

/* comm is the communicator: struct ash_local or struct ash_net. Every call returns 0 or a negative errno with its
 * sentence; counts are in elements, sizes in bytes. */
struct ash_coll_ops {
    size_t size; /* of this struct */
    /* One part from each rank. Borrowed while the communicator lives. */
    const struct ash_shares *(*even)(const void *comm);
    /* Choose algorithms by another cost model from now on; every rank sets the same, between calls. */
    void (*set_cost)(void *comm, const struct ash_cost *cost);
    int (*barrier)(void *comm, struct ash_err *err);
    /* parts[i] is this rank's i-th part by shares. */
    int (*all_reduce)(void *comm, const void *const *parts, const struct ash_shares *shares, void *out, size_t count,
                      enum ash_coll_dtype dtype, enum ash_coll_op op, struct ash_err *err);
    int (*reduce_scatter)(void *comm, const void *const *parts, const struct ash_shares *shares, void *out,
                          size_t count, enum ash_coll_dtype dtype, enum ash_coll_op op, struct ash_err *err);
    int (*all_gather)(void *comm, const void *in, void *out, size_t size_bytes, struct ash_err *err);
    int (*broadcast)(void *comm, void *data, size_t size_bytes, size_t root, struct ash_err *err);
    int (*all_to_all)(void *comm, const void *in, const size_t *send_bytes, void *out, const size_t *recv_bytes,
                      struct ash_err *err);
    /* Sums where the data lie: the sum is in windows[0] of all ranks, or (reduce) a rank's own runs of it in its own
     * windows. */
    int (*window_all_reduce)(void *comm, struct ash_window *const *windows, const struct ash_shares *shares,
                             size_t count, enum ash_coll_dtype dtype, enum ash_coll_op op, struct ash_err *err);
    int (*window_reduce)(void *comm, struct ash_window *const *windows, const struct ash_shares *shares, size_t count,
                         const struct ash_range *runs, size_t run_count, enum ash_coll_dtype dtype, enum ash_coll_op op,
                         struct ash_err *err);
};

#endif
