/* The calls of a group over several nodes. */
#include "collective/core/coll_ops.h"

#include "base/assert.h"
#include "collective/host/window.h"
#include "collective/net/net_priv.h"

static const struct ash_shares *even(const void *comm)
{
    return &((const struct ash_net *)comm)->even;
}

static void set_cost(void *comm, const struct ash_cost *cost)
{
    struct ash_net *net = comm;

    net->opts.cost = *cost;
    ash_local_set_cost(net->opts.local, cost);
}

static int barrier(void *comm, struct ash_err *err)
{
    return ash_net_barrier(comm, err);
}

static int all_reduce(void *comm, const void *const *parts, const struct ash_shares *shares, void *out, size_t count,
                      enum ash_coll_dtype dtype, enum ash_coll_op op, struct ash_err *err)
{
    return ash_net_all_reduce(comm, parts, shares, out, count, dtype, op, err);
}

static int reduce_scatter(void *comm, const void *const *parts, const struct ash_shares *shares, void *out,
                          size_t count, enum ash_coll_dtype dtype, enum ash_coll_op op, struct ash_err *err)
{
    return ash_net_reduce_scatter(comm, parts, shares, out, count, dtype, op, err);
}

static int all_gather(void *comm, const void *in, void *out, size_t size_bytes, struct ash_err *err)
{
    return ash_net_all_gather(comm, in, out, size_bytes, err);
}

static int broadcast(void *comm, void *data, size_t size_bytes, size_t root, struct ash_err *err)
{
    return ash_net_broadcast(comm, data, size_bytes, root, err);
}

static int all_to_all(void *comm, const void *in, const size_t *send_bytes, void *out, const size_t *recv_bytes,
                      struct ash_err *err)
{
    return ash_net_all_to_all(comm, in, send_bytes, out, recv_bytes, err);
}

/* Windows are those of a node: between nodes they are memory like any other. */
static int window_all_reduce(void *comm, struct ash_window *const *windows, const struct ash_shares *shares,
                             size_t count, enum ash_coll_dtype dtype, enum ash_coll_op op, struct ash_err *err)
{
    const struct ash_net *net = comm;
    size_t own = shares->first[net->opts.rank + 1] - shares->first[net->opts.rank];
    const void *parts[ASH_TREE_PARTS_MAX];

    ash_assert(own <= ASH_TREE_PARTS_MAX);
    for (size_t i = 0; i < own; i++)
        parts[i] = ash_window_data(windows[i]);
    return ash_net_all_reduce(comm, parts, shares, ash_window_data(windows[0]), count, dtype, op, err);
}

/* Every rank gets all of it. */
static int window_reduce(void *comm, struct ash_window *const *windows, const struct ash_shares *shares, size_t count,
                         const struct ash_range *runs, size_t run_count, enum ash_coll_dtype dtype, enum ash_coll_op op,
                         struct ash_err *err)
{
    (void)runs;
    (void)run_count;
    return window_all_reduce(comm, windows, shares, count, dtype, op, err);
}

const struct ash_coll_ops ash_net_ops = {.size = sizeof(ash_net_ops),
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
