/* device_memory - memory that the host cannot touch, as calls between ranks see it: values go through host memory, or
 * from window to window by a queue of the device. */
#ifndef ASH_INFRA_DEVICE_MEMORY_H
#define ASH_INFRA_DEVICE_MEMORY_H

#include "infra/memory.h"

struct ash_device_queue_ops;

struct ash_device_memory {
    const struct ash_memory_ops *ops;
    bool (*holds)(const void *data);        /* is it in this memory? Any thread */
    const struct ash_memory_ops *host_side; /* host memory that copies are fastest to and from */
    /* How ranks of a node read each other's values where they lie (infra/device_queue.h); NULL: not at all. */
    const struct ash_device_queue_ops *queues;
    void *device; /* of the queues */
};

#endif
