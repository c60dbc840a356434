/* The calls of a group whose ranks are all on one node. */
#include "collective/core/coll_ops.h"

#include "collective/host/control.h"
#include "collective/host/window.h"

static const struct ash_shares *even(const void *comm)
{
    return &((const struct ash_local *)comm)->even;
}

static void set_cost(void *comm, const struct ash_cost *cost)
{
    ash_local_set_cost(comm, cost);
}

static int barrier(void *comm, struct ash_err *err)
{
    return ash_local_barrier(comm, err);
}

static int all_reduce(void *comm, const void *const *parts, const struct ash_shares *shares, void *out, size_t count,
                      enum ash_coll_dtype dtype, enum ash_coll_op op, struct ash_err *err)
{
    return ash_local_all_reduce_parts(comm, parts, shares, out, count, dtype, op, err);
}

static int reduce_scatter(void *comm, const void *const *parts, const struct ash_shares *shares, void *out,
                          size_t count, enum ash_coll_dtype dtype, enum ash_coll_op op, struct ash_err *err)
{
    return ash_local_reduce_scatter_parts(comm, parts, shares, out, count, dtype, op, err);
}

static int all_gather(void *comm, const void *in, void *out, size_t size_bytes, struct ash_err *err)
{
    return ash_local_all_gather(comm, in, out, size_bytes, err);
}

static int broadcast(void *comm, void *data, size_t size_bytes, size_t root, struct ash_err *err)
{
    return ash_local_broadcast(comm, data, size_bytes, root, err);
}

static int all_to_all(void *comm, const void *in, const size_t *send_bytes, void *out, const size_t *recv_bytes,
                      struct ash_err *err)
{
    return ash_local_all_to_all(comm, in, send_bytes, out, recv_bytes, err);
}

/* Windows know their communicator. */
static int window_all_reduce(void *comm, struct ash_window *const *windows, const struct ash_shares *shares,
                             size_t count, enum ash_coll_dtype dtype, enum ash_coll_op op, struct ash_err *err)
{
    (void)comm;
    return ash_window_all_reduce(windows, shares, count, dtype, op, err);
}

static int window_reduce(void *comm, struct ash_window *const *windows, const struct ash_shares *shares, size_t count,
                         const struct ash_range *runs, size_t run_count, enum ash_coll_dtype dtype, enum ash_coll_op op,
                         struct ash_err *err)
{
    (void)comm;
    return ash_window_reduce(windows, shares, count, runs, run_count, dtype, op, err);
}

const struct ash_coll_ops ash_local_ops = {.size = sizeof(ash_local_ops),
                                           .even = even,
                                           .set_cost = set_cost,
                                           .barrier = barrier,
                                           .all_reduce = all_reduce,
                                           .reduce_scatter = reduce_scatter,
                                           .all_gather = all_gather,
                                           .broadcast = broadcast,
                                           .all_to_all = all_to_all,
                                           .window_all_reduce = window_all_reduce,
                                           .window_reduce = window_reduce};
