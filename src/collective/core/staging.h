/* staging - calls and channels over values in memory that the host cannot touch: they go through host memory. What a
 * call reads is copied there, the call runs on the copies, and its result is copied back. So a sum over devices has the
 * order of one over hosts. Copies wait for work that was enqueued before. Any thread. */
#ifndef ASH_COLLECTIVE_CORE_STAGING_H
#define ASH_COLLECTIVE_CORE_STAGING_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include "ashlar/err.h"
#include "infra/device_memory.h"

/* Blocks that wait for the next call. More than calls in flight are given back. */
#define ASH_STAGING_BLOCKS 8

/* Caller's storage. */
struct ash_staging {
    const struct ash_device_memory *memory; /* NULL: there is none */
    pthread_mutex_t lock;                   /* of blocks */
    struct ash_buffer blocks[ASH_STAGING_BLOCKS];
};

/* What a call reads and writes. Each may be in either memory. */
struct ash_staging_io {
    const void *const *parts; /* [part_count], of part_bytes each */
    size_t part_count, part_bytes;
    void *out; /* [out_bytes] */
    size_t out_bytes;
};

/* A call that is under way. */
struct ash_staged {
    const void *const *parts; /* the call reads these, */
    void *out;                /* and writes to this */
    const void **copies;      /* of parts; NULL: they are the caller's */
    void *target;             /* of out, in the other memory; NULL: out is the caller's */
    size_t out_bytes;
    struct ash_buffer block;
};

/* No memory yet. */
void ash_staging_init(struct ash_staging *staging);
/* Free the blocks, before the memory's device is closed. The memory is forgotten. */
void ash_staging_fini(struct ash_staging *staging);
/* Can the host not touch it? */
bool ash_staging_holds(const struct ash_staging *staging, const void *data);

/* Before a call, which then uses parts and out of *staged_out. Returns 0, -ENOMEM or -EIO; ash_staging_end follows. */
int ash_staging_begin(struct ash_staging *staging, const struct ash_staging_io *io, struct ash_staged *staged_out,
                      struct ash_err *err);
/* After a call that returned rc: on 0 its result is copied to the caller's out. Returns rc, or -EIO. */
int ash_staging_end(struct ash_staging *staging, struct ash_staged *staged, int rc, struct ash_err *err);
/* Copy between any of the two memories. Returns 0 or -EIO. */
int ash_staging_copy(const struct ash_staging *staging, void *dst, const void *src, size_t size_bytes,
                     struct ash_err *err);

#endif
