/* What the ranks of a group do together, by the operations of its communicator. */
#include <errno.h>

#include "base/assert.h"
#include "collective/call_priv.h"
#include "collective/group_priv.h"
#include "collective/host/window.h"

/* An error that this rank has found ends the calls of all ranks, so that none waits until it finds the error itself. */
static int settle(struct ash_group *group, int rc)
{
    struct ash_err first = {0};

    if (rc < 0 && rc != -ECONNRESET && ash_local_check(group->local, &first) < 0)
        ash_group_propagate(group, ash_local_failed_rank(group->local), first.code, first.text);
    return rc;
}

/* Before a call: what was started before it comes first. Returns the communicator's operations. */
static const struct ash_coll_ops *begin(struct ash_group *group)
{
    ash_assert(group != NULL && group->comm != NULL);
    ash_call_drain(group, ASH_NATURE_COLLECTIVE);
    return group->ops;
}

void ash_group_set_cost(struct ash_group *group, const struct ash_cost *cost)
{
    begin(group)->set_cost(group->comm, cost);
}

int ash_group_barrier(struct ash_group *group, struct ash_err *err)
{
    return settle(group, begin(group)->barrier(group->comm, err));
}

int ash_group_all_reduce(struct ash_group *group, const void *in, void *out, size_t count, enum ash_coll_dtype dtype,
                         enum ash_coll_op op, struct ash_err *err)
{
    return ash_group_all_reduce_parts(group, &in, group->ops->even(group->comm), out, count, dtype, op, err);
}

int ash_group_reduce_scatter(struct ash_group *group, const void *in, void *out, size_t count,
                             enum ash_coll_dtype dtype, enum ash_coll_op op, struct ash_err *err)
{
    return ash_group_reduce_scatter_parts(group, &in, group->ops->even(group->comm), out, count, dtype, op, err);
}

int ash_group_all_reduce_parts(struct ash_group *group, const void *const *parts, const struct ash_shares *shares,
                               void *out, size_t count, enum ash_coll_dtype dtype, enum ash_coll_op op,
                               struct ash_err *err)
{
    return settle(group, begin(group)->all_reduce(group->comm, parts, shares, out, count, dtype, op, err));
}

int ash_group_reduce_scatter_parts(struct ash_group *group, const void *const *parts, const struct ash_shares *shares,
                                   void *out, size_t count, enum ash_coll_dtype dtype, enum ash_coll_op op,
                                   struct ash_err *err)
{
    return settle(group, begin(group)->reduce_scatter(group->comm, parts, shares, out, count, dtype, op, err));
}

int ash_group_window_open(struct ash_group *group, size_t size_bytes, struct ash_window **window_out,
                          struct ash_err *err)
{
    begin(group);
    return settle(group, ash_window_open(group->local, size_bytes, window_out, err));
}

int ash_group_window_show(struct ash_group *group, const struct ash_window *shown, size_t rank,
                          struct ash_window **window_out, struct ash_err *err)
{
    begin(group);
    return settle(group, ash_window_show(group->local, shown, rank, window_out, err));
}

int ash_group_window_wait(struct ash_group *group, struct ash_window *window, size_t rank, size_t counter,
                          uint64_t value, struct ash_err *err)
{
    return settle(group, ash_window_wait(window, rank, counter, value, err));
}

int ash_group_window_all_reduce(struct ash_group *group, struct ash_window *const *windows,
                                const struct ash_shares *shares, size_t count, enum ash_coll_dtype dtype,
                                enum ash_coll_op op, struct ash_err *err)
{
    return settle(group, begin(group)->window_all_reduce(group->comm, windows, shares, count, dtype, op, err));
}

int ash_group_window_reduce(struct ash_group *group, struct ash_window *const *windows, const struct ash_shares *shares,
                            size_t count, const struct ash_range *runs, size_t run_count, enum ash_coll_dtype dtype,
                            enum ash_coll_op op, struct ash_err *err)
{
    return settle(group,
                  begin(group)->window_reduce(group->comm, windows, shares, count, runs, run_count, dtype, op, err));
}

int ash_group_all_gather(struct ash_group *group, const void *in, void *out, size_t size_bytes, struct ash_err *err)
{
    return settle(group, begin(group)->all_gather(group->comm, in, out, size_bytes, err));
}

int ash_group_broadcast(struct ash_group *group, void *data, size_t size_bytes, size_t root, struct ash_err *err)
{
    return settle(group, begin(group)->broadcast(group->comm, data, size_bytes, root, err));
}

int ash_group_all_to_all(struct ash_group *group, const void *in, const size_t *send_bytes, void *out,
                         const size_t *recv_bytes, struct ash_err *err)
{
    return settle(group, begin(group)->all_to_all(group->comm, in, send_bytes, out, recv_bytes, err));
}
