/* What the ranks of a group do together, by the operations of its communicator. */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "collective/call_priv.h"
#include "record/flight.h"
#include "collective/group_priv.h"
#include "collective/host/window.h"

/* A call that is under way. */
struct call {
    const struct ash_coll_ops *ops; /* the communicator's */
    uint64_t number;                /* in the flight recorder */
    struct ash_flight_call what;
};

/* Before a call: started calls complete first. `what` describes it. */
static struct call begin(struct ash_group *group, struct ash_flight_call what)
{
    struct call call = {.ops = group->ops, .what = what};

    ash_assert(group->comm != NULL);
    ash_call_drain(group, ASH_NATURE_COLLECTIVE);
    call.number = ash_group_record(group, &call.what);
    return call;
}

/* An error that this rank has found ends the calls of all ranks, so that none waits until it finds the error itself. */
static int settle(struct ash_group *group, const struct call *call, int rc)
{
    struct ash_err first = {0};

    if (call != NULL) ash_group_recorded(group, call->number, &call->what, rc);
    if (rc < 0 && rc != -ECONNRESET && ash_local_check(group->local, &first) < 0)
        ash_group_propagate(group, ash_local_failed_rank(group->local), first.code, first.text);
    return rc;
}

/* After a call whose values may have been staged. */
static int finish(struct ash_group *group, const struct call *call, struct ash_staged *staged, int rc,
                  struct ash_err *err)
{
    return settle(group, call, ash_staging_end(&group->root->staging, staged, rc, err));
}

/* What the recorder keeps of a call without a root. */
static struct ash_flight_call sized(enum ash_flight_op op, size_t bytes)
{
    return (struct ash_flight_call){.op = (uint16_t)op, .bytes = bytes, .peer = UINT32_MAX};
}

/* ... of a reduction. */
static struct ash_flight_call reduction(enum ash_flight_op kind, size_t count, enum ash_coll_dtype dtype,
                                        enum ash_coll_op op)
{
    struct ash_flight_call what = sized(kind, count * ash_coll_dtype_bytes(dtype));

    what.reduction = (uint8_t)op;
    snprintf(what.dtype, sizeof(what.dtype), "%s", ash_coll_dtype_name(dtype));
    return what;
}

/* Are its values in the memory of a device? */
static bool is_device(const struct ash_group *group, const void *data)
{
    return ash_staging_holds(&group->root->staging, data);
}

/* ... of a sum that a device can make? */
static bool is_device_sum(const struct ash_group *group, const void *const *parts, const struct ash_shares *shares,
                          const void *out)
{
    bool has_part = shares->first[group->rank + 1] > shares->first[group->rank];

    return shares->tree.part_count <= ASH_DEVICE_SUM_PARTS_MAX && is_device(group, out) &&
           (!has_part || is_device(group, parts[0]));
}

/* What every call of one rank comes to. Returns 0. */
static int keep(const void *in, void *out, size_t size_bytes)
{
    if (out != in && size_bytes > 0) memmove(out, in, size_bytes);
    return 0;
}

void ash_group_set_cost(struct ash_group *group, const struct ash_cost *cost)
{
    ash_call_drain(group, ASH_NATURE_COLLECTIVE);
    group->ops->set_cost(group->comm, cost);
}

int ash_group_barrier(struct ash_group *group, struct ash_err *err)
{
    struct call call;

    if (group == NULL) return 0;
    call = begin(group, sized(ASH_FLIGHT_BARRIER, 0));
    return settle(group, &call, call.ops->barrier(group->comm, err));
}

int ash_group_all_reduce(struct ash_group *group, const void *in, void *out, size_t count, enum ash_coll_dtype dtype,
                         enum ash_coll_op op, struct ash_err *err)
{
    if (group == NULL) return keep(in, out, count * ash_coll_dtype_bytes(dtype));
    return ash_group_all_reduce_parts(group, &in, group->ops->even(group->comm), out, count, dtype, op, err);
}

int ash_group_reduce_scatter(struct ash_group *group, const void *in, void *out, size_t count,
                             enum ash_coll_dtype dtype, enum ash_coll_op op, struct ash_err *err)
{
    if (group == NULL) return keep(in, out, count * ash_coll_dtype_bytes(dtype));
    return ash_group_reduce_scatter_parts(group, &in, group->ops->even(group->comm), out, count, dtype, op, err);
}

/* Parts that a rank contributes by shares. */
static size_t parts_of(const struct ash_group *group, const struct ash_shares *shares)
{
    return shares->first[group->rank + 1] - shares->first[group->rank];
}

int ash_group_all_reduce_parts(struct ash_group *group, const void *const *parts, const struct ash_shares *shares,
                               void *out, size_t count, enum ash_coll_dtype dtype, enum ash_coll_op op,
                               struct ash_err *err)
{
    struct call call = begin(group, reduction(ASH_FLIGHT_ALL_REDUCE, count, dtype, op));
    size_t bytes = count * ash_coll_dtype_bytes(dtype);
    struct ash_staging_io io = {parts, parts_of(group, shares), bytes, out, bytes};
    const struct ash_device_reduction what = {parts, shares, out, count, dtype, op};
    const struct ash_coll_call coll = {
        .kind = ASH_CALL_ALL_REDUCE, .dtype = (uint8_t)dtype, .op = (uint8_t)op, .size_bytes = bytes};
    struct ash_staged staged;
    int rc = ash_group_choose_device(group, &coll, is_device_sum(group, parts, shares, out), err);

    if (rc == 0) rc = ash_group_device_done(group, ash_device_all_reduce(group->device, &what, err), err);
    if (rc <= 0) return settle(group, &call, rc);
    rc = ash_staging_begin(&group->root->staging, &io, &staged, err);
    if (rc == 0) rc = call.ops->all_reduce(group->comm, staged.parts, shares, staged.out, count, dtype, op, err);
    return finish(group, &call, &staged, rc, err);
}

int ash_group_reduce_scatter_parts(struct ash_group *group, const void *const *parts, const struct ash_shares *shares,
                                   void *out, size_t count, enum ash_coll_dtype dtype, enum ash_coll_op op,
                                   struct ash_err *err)
{
    struct call call = begin(group, reduction(ASH_FLIGHT_REDUCE_SCATTER, count, dtype, op));
    size_t bytes = count * ash_coll_dtype_bytes(dtype);
    struct ash_staging_io io = {parts, parts_of(group, shares), group->size * bytes, out, bytes};
    const struct ash_device_reduction what = {parts, shares, out, count, dtype, op};
    const struct ash_coll_call coll = {
        .kind = ASH_CALL_REDUCE_SCATTER, .dtype = (uint8_t)dtype, .op = (uint8_t)op, .size_bytes = bytes};
    struct ash_staged staged;
    int rc = ash_group_choose_device(group, &coll, is_device_sum(group, parts, shares, out), err);

    if (rc == 0) rc = ash_group_device_done(group, ash_device_reduce_scatter(group->device, &what, err), err);
    if (rc <= 0) return settle(group, &call, rc);
    rc = ash_staging_begin(&group->root->staging, &io, &staged, err);
    if (rc == 0) rc = call.ops->reduce_scatter(group->comm, staged.parts, shares, staged.out, count, dtype, op, err);
    return finish(group, &call, &staged, rc, err);
}

int ash_group_window_open(struct ash_group *group, size_t size_bytes, struct ash_window **window_out,
                          struct ash_err *err)
{
    ash_call_drain(group, ASH_NATURE_COLLECTIVE);
    return settle(group, NULL, ash_window_open(group->local, size_bytes, window_out, err));
}

int ash_group_window_show(struct ash_group *group, const struct ash_window *shown, size_t rank,
                          struct ash_window **window_out, struct ash_err *err)
{
    ash_call_drain(group, ASH_NATURE_COLLECTIVE);
    return settle(group, NULL, ash_window_show(group->local, shown, rank, window_out, err));
}

int ash_group_window_wait(struct ash_group *group, struct ash_window *window, size_t rank, size_t counter,
                          uint64_t value, struct ash_err *err)
{
    return settle(group, NULL, ash_window_wait(window, rank, counter, value, err));
}

int ash_group_window_all_reduce(struct ash_group *group, struct ash_window *const *windows,
                                const struct ash_shares *shares, size_t count, enum ash_coll_dtype dtype,
                                enum ash_coll_op op, struct ash_err *err)
{
    struct call call = begin(group, reduction(ASH_FLIGHT_WINDOW_ALL_REDUCE, count, dtype, op));

    return settle(group, &call, call.ops->window_all_reduce(group->comm, windows, shares, count, dtype, op, err));
}

int ash_group_window_reduce(struct ash_group *group, struct ash_window *const *windows, const struct ash_shares *shares,
                            size_t count, const struct ash_range *runs, size_t run_count, enum ash_coll_dtype dtype,
                            enum ash_coll_op op, struct ash_err *err)
{
    struct call call = begin(group, reduction(ASH_FLIGHT_WINDOW_REDUCE, count, dtype, op));

    return settle(group, &call,
                  call.ops->window_reduce(group->comm, windows, shares, count, runs, run_count, dtype, op, err));
}

int ash_group_all_gather(struct ash_group *group, const void *in, void *out, size_t size_bytes, struct ash_err *err)
{
    struct ash_staging_io io = {&in, 1, size_bytes, out, size_bytes};
    struct ash_staged staged;
    struct call call;
    int rc;

    if (group == NULL) return keep(in, out, size_bytes);
    io.out_bytes = group->size * size_bytes;
    call = begin(group, sized(ASH_FLIGHT_ALL_GATHER, size_bytes));
    rc = ash_group_choose_device(group, &(struct ash_coll_call){.kind = ASH_CALL_ALL_GATHER, .size_bytes = size_bytes},
                                 is_device(group, in) && is_device(group, out), err);
    if (rc == 0) rc = ash_group_device_done(group, ash_device_all_gather(group->device, in, out, size_bytes, err), err);
    if (rc <= 0) return settle(group, &call, rc);
    rc = ash_staging_begin(&group->root->staging, &io, &staged, err);
    if (rc == 0) rc = call.ops->all_gather(group->comm, staged.parts[0], staged.out, size_bytes, err);
    return finish(group, &call, &staged, rc, err);
}

int ash_group_broadcast(struct ash_group *group, void *data, size_t size_bytes, size_t root, struct ash_err *err)
{
    struct ash_flight_call what = sized(ASH_FLIGHT_BROADCAST, size_bytes);
    struct ash_staging_io io = {.out = data, .out_bytes = size_bytes};
    const void *in = data;
    struct ash_staged staged;
    struct call call;
    int rc;

    if (group == NULL) return 0;
    what.peer = (uint32_t)root;
    call = begin(group, what);
    rc = ash_group_choose_device(
        group, &(struct ash_coll_call){.kind = ASH_CALL_BROADCAST, .root = (uint16_t)root, .size_bytes = size_bytes},
        is_device(group, data), err);
    if (rc == 0)
        rc = ash_group_device_done(group, ash_device_broadcast(group->device, data, size_bytes, root, err), err);
    if (rc <= 0) return settle(group, &call, rc);
    if (group->rank == root) io = (struct ash_staging_io){.parts = &in, .part_count = 1, .part_bytes = size_bytes};
    rc = ash_staging_begin(&group->root->staging, &io, &staged, err);
    if (rc == 0 && staged.copies != NULL) data = (void *)(uintptr_t)staged.parts[0];
    if (rc == 0 && staged.target != NULL) data = staged.out;
    if (rc == 0) rc = call.ops->broadcast(group->comm, data, size_bytes, root, err);
    return finish(group, &call, &staged, rc, err);
}

int ash_group_all_to_all(struct ash_group *group, const void *in, const size_t *send_bytes, void *out,
                         const size_t *recv_bytes, struct ash_err *err)
{
    struct ash_flight_call what = sized(ASH_FLIGHT_ALL_TO_ALL, 0);
    struct ash_staging_io io = {.parts = &in, .part_count = 1, .out = out};
    struct ash_staged staged;
    int rc;

    if (group == NULL) return keep(in, out, send_bytes[0]);
    for (size_t r = 0; r < group->size; r++) {
        io.part_bytes += send_bytes[r]; /* differs from rank to rank */
        io.out_bytes += recv_bytes[r];
    }
    what.bytes = io.part_bytes;
    struct call call = begin(group, what);
    rc = ash_group_choose_device(group, &(struct ash_coll_call){.kind = ASH_CALL_ALL_TO_ALL},
                                 is_device(group, in) && is_device(group, out), err);
    if (rc == 0)
        rc = ash_group_device_done(group, ash_device_all_to_all(group->device, in, send_bytes, out, recv_bytes, err),
                                   err);
    if (rc <= 0) return settle(group, &call, rc);
    rc = ash_staging_begin(&group->root->staging, &io, &staged, err);
    if (rc == 0) rc = call.ops->all_to_all(group->comm, staged.parts[0], send_bytes, staged.out, recv_bytes, err);
    return finish(group, &call, &staged, rc, err);
}
