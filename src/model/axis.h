/* axis - the processes that share a pass along one line of a mesh (tensor, context or expert parallelism), as the pass
 * sees them: numbered, and able to pass floats to each other. Whoever opens the pass says how (train/layout/mesh.h
 * does, over collectives); a pass alone has axes of size 1. */
#ifndef ASH_MODEL_AXIS_H
#define ASH_MODEL_AXIS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"

/* Floats that all ranks of an axis see where they lie, zeros at first. */
struct ash_common {
    float *data; /* NULL: none */
    void *handle;
};
#define ASH_COMMON_COUNTERS 8

/* All calls but send, say and wait are made by every rank of the axis, in the same order, and fail only where a rank is
 * lost. */
struct ash_axis_ops {
    /* data is the parts of all ranks, one behind the other, counts[r] floats from rank r; each brings its own. */
    int (*gather)(void *ctx, float *data, const size_t *counts, struct ash_err *err);
    /* send[r] floats to each rank r, parts one behind the other in in; recv[r] from each, likewise, into out. */
    int (*exchange)(void *ctx, const float *in, const size_t *send, float *out, const size_t *recv,
                    struct ash_err *err);
    /* The same while the rank does something else, several at a time: done when what start gave has been waited for, in
     * the order of the starts, also after a failure of another. Until then all of it belongs to the call. */
    int (*exchange_start)(void *ctx, const float *in, const size_t *send, float *out, const size_t *recv,
                          void **started_out, struct ash_err *err);
    int (*exchange_wait)(void *ctx, void *started, struct ash_err *err);
    int (*broadcast)(void *ctx, size_t root, float *data, size_t count, struct ash_err *err);
    /* One rank to another, up to ASH_AXIS_MESSAGE floats; in order between any two. Sending waits only for room: up to
     * ASH_AXIS_PENDING messages to one rank may be under way. */
    int (*send)(void *ctx, size_t to, const float *data, size_t count, struct ash_err *err);
    int (*recv)(void *ctx, size_t from, float *data, size_t count, struct ash_err *err);
    /* Where ranks are near: memory that all see, until each has closed it; and how far each rank is with it, in
     * counters that only grow from 0. What a rank wrote before it said a value is seen by who has waited for that. */
    int (*common_open)(void *ctx, size_t count, struct ash_common *common_out, struct ash_err *err);
    void (*common_close)(void *ctx, struct ash_common *common);
    void (*say)(void *ctx, const struct ash_common *common, size_t counter, uint64_t value);
    int (*wait)(void *ctx, const struct ash_common *common, size_t rank, size_t counter, uint64_t value,
                struct ash_err *err);
};

#define ASH_AXIS_PENDING 8
#define ASH_AXIS_MESSAGE ((size_t)1 << 18)

struct ash_axis {
    size_t rank, size;
    const struct ash_axis_ops *ops; /* NULL where size is 1 */
    void *ctx;
    bool near; /* the ranks can share memory */
    /* Along tp, where they are near: [size], the memory that the weights which passes of each rank read are in, as it
     * is seen from here; each is set before that rank opens its pass. */
    const void *const *weights;
    /* Where the ranks are on several nodes (ep alone asks): the node of each, and this one's neighbours there as an
     * axis, in the same order. NULL where all are on one. */
    const uint32_t *node_of;
    const struct ash_axis *here;
};

#endif
