/* call - collectives that overlap with their owner's work. A call that is started runs on a thread of the group's own,
 * in the order of the starts; every rank starts the same ones in the same order. Only a send and a receive may
 * pass each other: two ranks can start what they send to each other and then what they receive, and who passes a
 * message on waits for it before. A call's operands and results (arrays of sizes and of parts, too) belong to it until
 * it is done. A call that is made instead has the same place in the order: it waits for all calls started before. The
 * threads exist once something has been started. */
#ifndef ASH_COLLECTIVE_CALL_H
#define ASH_COLLECTIVE_CALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "collective/group.h"

struct ash_call;

/* Start a call of group.h. Each returns 0, -ENOMEM or -EAGAIN (no thread can be had); on 0 the caller owns *call_out,
 * and errors of the call itself come out of ash_call_wait. The group's owner thread calls them. */
/* ash_group_all_reduce */
int ash_group_all_reduce_start(struct ash_group *group, const void *in, void *out, size_t count,
                               enum ash_coll_dtype dtype, enum ash_coll_op op, struct ash_call **call_out,
                               struct ash_err *err);
/* ash_group_all_reduce_parts */
int ash_group_all_reduce_parts_start(struct ash_group *group, const void *const *parts, const struct ash_shares *shares,
                                     void *out, size_t count, enum ash_coll_dtype dtype, enum ash_coll_op op,
                                     struct ash_call **call_out, struct ash_err *err);
/* ash_group_reduce_scatter_parts */
int ash_group_reduce_scatter_parts_start(struct ash_group *group, const void *const *parts,
                                         const struct ash_shares *shares, void *out, size_t count,
                                         enum ash_coll_dtype dtype, enum ash_coll_op op, struct ash_call **call_out,
                                         struct ash_err *err);
/* ash_group_all_gather */
int ash_group_all_gather_start(struct ash_group *group, const void *in, void *out, size_t size_bytes,
                               struct ash_call **call_out, struct ash_err *err);
/* ash_group_all_to_all */
int ash_group_all_to_all_start(struct ash_group *group, const void *in, const size_t *send_bytes, void *out,
                               const size_t *recv_bytes, struct ash_call **call_out, struct ash_err *err);
/* ash_group_send */
int ash_group_send_start(struct ash_group *group, size_t to, const void *data, size_t size_bytes,
                         struct ash_call **call_out, struct ash_err *err);
/* ash_group_recv */
int ash_group_recv_start(struct ash_group *group, size_t from, void *data, size_t size_bytes,
                         struct ash_call **call_out, struct ash_err *err);

/* Has it ended? Does not wait. Any thread. */
bool ash_call_done(const struct ash_call *call);
/* Wait for its end, free it, and return what the call returned, with its sentence in err. Once per call; also after the
 * group has been closed. The group's owner thread. NULL is a no-op: 0. */
int ash_call_wait(struct ash_call *call, struct ash_err *err);

/* Started calls that this thread has waited for: overlapped with its own work, or exposed. */
struct ash_call_counts {
    uint64_t overlapped, exposed;
};
/* This thread has done a piece of work, a layer say: calls that it started before that and waits for after it are
 * overlapped. */
void ash_call_note_work(void);
/* The calling thread's counts; over all threads they are in ashlar_calls_total. */
struct ash_call_counts ash_call_get_counts(void);

#endif
