/* device_calls - collectives between the processes of one node over values in the memory of a device, which stay there:
 * every rank copies pieces into its window, and reads those of the others; sums are made by the device in the order of
 * collective/core/sum.h. The queues wait for each other by words in host memory. So the host sees how far each rank is:
 * it ends a wait that takes too long, names the rank, and throws the result away.
 *
 * All ranks make the same calls in the same order, each after ash_local_agree, by which they meet. Values are in the
 * device's memory on all ranks. One owner thread. Returns as the calls of local.h do, and -EIO where the own device has
 * failed; -ENOTSUP, on all ranks, where windows cannot be had: nothing has been done then. */
#ifndef ASH_COLLECTIVE_HOST_DEVICE_CALLS_H
#define ASH_COLLECTIVE_HOST_DEVICE_CALLS_H

#include "collective/host/local.h"
#include "infra/device_memory.h"

struct ash_device_calls;

/* No rank waits for another here. Borrows both. */
int ash_device_calls_open(struct ash_local *local, const struct ash_device_memory *memory,
                          struct ash_device_calls **calls_out, struct ash_err *err);
/* NULL is a no-op. */
void ash_device_calls_close(struct ash_device_calls *calls);

/* What ash_local_all_reduce_parts and ash_local_reduce_scatter_parts take. */
struct ash_device_reduction {
    const void *const *parts;
    const struct ash_shares *shares;
    void *out;
    size_t count;
    enum ash_coll_dtype dtype;
    enum ash_coll_op op;
};
/* As ash_local_all_reduce_parts. */
int ash_device_all_reduce(struct ash_device_calls *calls, const struct ash_device_reduction *what, struct ash_err *err);
/* As ash_local_reduce_scatter_parts. */
int ash_device_reduce_scatter(struct ash_device_calls *calls, const struct ash_device_reduction *what,
                              struct ash_err *err);
/* As ash_local_all_gather. */
int ash_device_all_gather(struct ash_device_calls *calls, const void *in, void *out, size_t size_bytes,
                          struct ash_err *err);
/* As ash_local_broadcast. */
int ash_device_broadcast(struct ash_device_calls *calls, void *data, size_t size_bytes, size_t root,
                         struct ash_err *err);
/* As ash_local_all_to_all. */
int ash_device_all_to_all(struct ash_device_calls *calls, const void *in, const size_t *send_bytes, void *out,
                          const size_t *recv_bytes, struct ash_err *err);

#endif
