/* What the ranks of a group do together: through shared memory where all are on one node, else over the network too. */
#include <errno.h>

#include "collective/call_priv.h"
#include "collective/group_priv.h"
#include "collective/host/window.h"

/* An error that this rank has found by itself ends everyone's calls: no other rank has to wait until it finds it, too.
 */
static int settle(struct ash_group *group, int rc)
{
    struct ash_err first = {0};

    if (rc < 0 && rc != -ECONNRESET && ash_local_check(group->local, &first) < 0)
        ash_group_tell(group, ash_local_culprit(group->local), first.code, first.text);
    return rc;
}

int ash_group_barrier(struct ash_group *group, struct ash_err *err)
{
    ash_call_drain(group, ASH_NATURE_COLLECTIVE);
    return settle(group, group->net != NULL ? ash_net_barrier(group->net, err) : ash_local_barrier(group->local, err));
}

int ash_group_all_reduce(struct ash_group *group, const void *in, void *out, size_t count, enum ash_coll_dtype dtype,
                         enum ash_coll_op op, struct ash_err *err)
{
    ash_call_drain(group, ASH_NATURE_COLLECTIVE);
    return settle(group, group->net != NULL
                             ? ash_net_all_reduce(group->net, &in, ash_net_even(group->net), out, count, dtype, op, err)
                             : ash_local_all_reduce(group->local, in, out, count, dtype, op, err));
}

int ash_group_reduce_scatter(struct ash_group *group, const void *in, void *out, size_t count,
                             enum ash_coll_dtype dtype, enum ash_coll_op op, struct ash_err *err)
{
    ash_call_drain(group, ASH_NATURE_COLLECTIVE);
    return settle(group, group->net != NULL ? ash_net_reduce_scatter(group->net, &in, ash_net_even(group->net), out,
                                                                     count, dtype, op, err)
                                            : ash_local_reduce_scatter(group->local, in, out, count, dtype, op, err));
}

int ash_group_all_reduce_parts(struct ash_group *group, const void *const *parts, const struct ash_shares *shares,
                               void *out, size_t count, enum ash_coll_dtype dtype, enum ash_coll_op op,
                               struct ash_err *err)
{
    ash_call_drain(group, ASH_NATURE_COLLECTIVE);
    return settle(group, group->net != NULL
                             ? ash_net_all_reduce(group->net, parts, shares, out, count, dtype, op, err)
                             : ash_local_all_reduce_parts(group->local, parts, shares, out, count, dtype, op, err));
}

int ash_group_reduce_scatter_parts(struct ash_group *group, const void *const *parts, const struct ash_shares *shares,
                                   void *out, size_t count, enum ash_coll_dtype dtype, enum ash_coll_op op,
                                   struct ash_err *err)
{
    ash_call_drain(group, ASH_NATURE_COLLECTIVE);
    return settle(group, group->net != NULL
                             ? ash_net_reduce_scatter(group->net, parts, shares, out, count, dtype, op, err)
                             : ash_local_reduce_scatter_parts(group->local, parts, shares, out, count, dtype, op, err));
}

int ash_group_window_open(struct ash_group *group, size_t size_bytes, struct ash_window **window_out,
                          struct ash_err *err)
{
    ash_call_drain(group, ASH_NATURE_COLLECTIVE);
    return settle(group, ash_window_open(group->local, size_bytes, window_out, err));
}

int ash_group_window_show(struct ash_group *group, const struct ash_window *shown, size_t rank,
                          struct ash_window **window_out, struct ash_err *err)
{
    ash_call_drain(group, ASH_NATURE_COLLECTIVE);
    return settle(group, ash_window_show(group->local, shown, rank, window_out, err));
}

int ash_group_window_wait(struct ash_group *group, struct ash_window *window, size_t rank, size_t counter,
                          uint64_t value, struct ash_err *err)
{
    return settle(group, ash_window_wait(window, rank, counter, value, err));
}

/* Windows are those of a node: across nodes they are memory like any other. */
static int reduce_across(struct ash_group *group, struct ash_window *const *windows, const struct ash_shares *shares,
                         size_t count, enum ash_coll_dtype dtype, enum ash_coll_op op, struct ash_err *err)
{
    size_t own = shares->first[group->rank + 1] - shares->first[group->rank];
    const void *parts[ASH_TREE_PARTS_MAX];

    for (size_t i = 0; i < own; i++)
        parts[i] = ash_window_data(windows[i]);
    return ash_net_all_reduce(group->net, parts, shares, ash_window_data(windows[0]), count, dtype, op, err);
}

int ash_group_window_all_reduce(struct ash_group *group, struct ash_window *const *windows,
                                const struct ash_shares *shares, size_t count, enum ash_coll_dtype dtype,
                                enum ash_coll_op op, struct ash_err *err)
{
    ash_call_drain(group, ASH_NATURE_COLLECTIVE);
    return settle(group, group->net != NULL ? reduce_across(group, windows, shares, count, dtype, op, err)
                                            : ash_window_all_reduce(windows, shares, count, dtype, op, err));
}

int ash_group_window_reduce(struct ash_group *group, struct ash_window *const *windows, const struct ash_shares *shares,
                            size_t count, const struct ash_range *runs, size_t run_count, enum ash_coll_dtype dtype,
                            enum ash_coll_op op, struct ash_err *err)
{
    ash_call_drain(group, ASH_NATURE_COLLECTIVE);
    return settle(group, group->net != NULL
                             ? reduce_across(group, windows, shares, count, dtype, op, err)
                             : ash_window_reduce(windows, shares, count, runs, run_count, dtype, op, err));
}

int ash_group_all_gather(struct ash_group *group, const void *in, void *out, size_t size_bytes, struct ash_err *err)
{
    ash_call_drain(group, ASH_NATURE_COLLECTIVE);
    return settle(group, group->net != NULL ? ash_net_all_gather(group->net, in, out, size_bytes, err)
                                            : ash_local_all_gather(group->local, in, out, size_bytes, err));
}

int ash_group_broadcast(struct ash_group *group, void *data, size_t size_bytes, size_t root, struct ash_err *err)
{
    ash_call_drain(group, ASH_NATURE_COLLECTIVE);
    return settle(group, group->net != NULL ? ash_net_broadcast(group->net, data, size_bytes, root, err)
                                            : ash_local_broadcast(group->local, data, size_bytes, root, err));
}

int ash_group_all_to_all(struct ash_group *group, const void *in, const size_t *send_bytes, void *out,
                         const size_t *recv_bytes, struct ash_err *err)
{
    ash_call_drain(group, ASH_NATURE_COLLECTIVE);
    return settle(group, group->net != NULL ? ash_net_all_to_all(group->net, in, send_bytes, out, recv_bytes, err)
                                            : ash_local_all_to_all(group->local, in, send_bytes, out, recv_bytes, err));
}
