/* shared_memory_priv - the two kinds of memory that other processes can open. */
#ifndef ASH_INFRA_DEVICE_SHARED_MEMORY_PRIV_H
#define ASH_INFRA_DEVICE_SHARED_MEMORY_PRIV_H

#include <stdbool.h>
#include "infra/device/shared_memory.h"

struct ash_shared_memory_ops {
    const char *name;
    /* Of size_bytes; fills fd and data. What a failed call leaves, close releases. Returns 0 or a negative errno. */
    int (*create)(struct ash_shared_memory *memory, struct ash_err *err);
    /* From fd, which is its own; fills data. */
    int (*open)(struct ash_shared_memory *memory, struct ash_err *err);
    void (*close)(struct ash_shared_memory *memory); /* all but fd */
};

struct ash_shared_memory {
    const struct ash_shared_memory_ops *ops;
    struct ash_cuda *cuda; /* NULL: the host's */
    void *data;            /* NULL: not yet mapped */
    size_t size_bytes, mapped_bytes;
    int fd;
    bool is_unset, skips_wait; /* its bytes are any; close waits for nothing */
};

extern const struct ash_shared_memory_ops ash_shared_memory_host, ash_shared_memory_cuda;

#endif
