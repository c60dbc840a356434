/* device_queue - work of calls between ranks on a device: a second queue, beside the one that computes, memory that
 * the ranks of a node open, and counters by which their queues wait for each other. The host waits for nothing but the
 * mark at a call's end, and may look at it. One owner at a time, in any thread. */
#ifndef ASH_INFRA_DEVICE_QUEUE_H
#define ASH_INFRA_DEVICE_QUEUE_H

#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"

struct ash_device_queue;
struct ash_shared_memory;

#define ASH_DEVICE_SUM_PARTS_MAX 256
/* A counter that has this value lets every wait for it pass. */
#define ASH_DEVICE_COUNTER_MOST ((uint64_t)1 << 62)

/* out[i] = the reduction of parts[0 ... part_count - 1][i] in the order of a tree (collective/core/sum.h): after part p
 * the last two sums are added joins[p] times. */
struct ash_device_sum {
    int dtype, op; /* enum ash_coll_dtype, enum ash_coll_op */
    const void *parts[ASH_DEVICE_SUM_PARTS_MAX];
    const uint8_t *joins;
    size_t part_count, count;
    void *out, *also; /* also: a second place, or NULL */
};

struct ash_device_queue_ops {
    size_t size; /* of this struct */
    /* A queue of the device. Returns 0, -ENOTSUP where the device has no counters, -ENOMEM or -EIO. On 0 the caller
     * owns *queue_out. */
    int (*open)(void *device, struct ash_device_queue **queue_out, struct ash_err *err);
    /* Waits for its work. NULL is a no-op. */
    void (*close)(struct ash_device_queue *queue);
    /* Memory of the device that other processes can open, and that of another process: see shared_memory.h. */
    int (*share)(struct ash_device_queue *queue, size_t size_bytes, struct ash_shared_memory **memory_out,
                 struct ash_err *err);
    /* What arrives over a Unix socket. */
    int (*receive)(struct ash_device_queue *queue, int socket, struct ash_shared_memory **memory_out,
                   struct ash_err *err);
    /* Whole pages of the host's memory have counters. Returns 0 or a negative errno. */
    int (*add_counters)(struct ash_device_queue *queue, void *data, size_t size_bytes, struct ash_err *err);
    /* They have none any more; nothing on the queue uses them. */
    void (*remove_counters)(struct ash_device_queue *queue, void *data);

    /* ---- work, in order. What fails is kept for poll, and what follows is left out. ---- */
    /* What comes runs after all that is on the device's own queue by now. */
    void (*begin)(struct ash_device_queue *queue);
    void (*copy)(struct ash_device_queue *queue, void *dst, const void *src, size_t size_bytes);
    void (*sum)(struct ash_device_queue *queue, const struct ash_device_sum *sum);
    /* A counter gets a value when all work before is done, and all see that. */
    void (*write)(struct ash_device_queue *queue, void *counter, uint64_t value);
    /* Wait until a counter is at least value. */
    void (*wait)(struct ash_device_queue *queue, void *counter, uint64_t value);
    /* A call ends here: the mark. */
    void (*end)(struct ash_device_queue *queue);
    /* Has the mark been reached? Returns 1, 0 (not yet), or -EIO with the first failure. Does not wait. */
    int (*poll)(struct ash_device_queue *queue, struct ash_err *err);
};

#endif
