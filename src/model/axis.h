/* axis - the ranks that share a pass along one dimension of a mesh (tensor, context or expert parallelism), as the
 * pass sees them: numbered, and able to pass floats to each other. The caller that opens the pass provides this
 * (train/layout/mesh.h does, over collectives); a pass alone has axes of size 1. */
#ifndef ASH_MODEL_AXIS_H
#define ASH_MODEL_AXIS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"

/* Floats in memory that all ranks of an axis share, zeros at first. */
struct ash_shared_floats {
    float *data; /* NULL: none */
    void *handle;
};
#define ASH_AXIS_COUNTERS 8

/* Every rank of the axis makes these calls (but send, recv, signal and wait) in the same order; they fail only where a
 * rank is lost. All return 0 or a negative errno. */
struct ash_axis_ops {
    /* data is the parts of all ranks, one after the other, counts[r] floats of rank r; each brings its own. */
    int (*all_gather)(void *ctx, float *data, const size_t *counts, struct ash_err *err);
    /* send[r] floats to each rank r, parts one after the other in in; recv[r] from each, likewise, into out. */
    int (*all_to_all)(void *ctx, const float *in, const size_t *send, float *out, const size_t *recv,
                      struct ash_err *err);
    /* The same in flight, several at a time: complete when *started_out has been waited for, in the order of the
     * starts, also after a failure of another. Until then all buffers and counts belong to the call. */
    int (*all_to_all_start)(void *ctx, const float *in, const size_t *send, float *out, const size_t *recv,
                            void **started_out, struct ash_err *err);
    int (*all_to_all_wait)(void *ctx, void *started, struct ash_err *err);
    /* data [count] of rank root to all. */
    int (*broadcast)(void *ctx, size_t root, float *data, size_t count, struct ash_err *err);
    /* One rank to another, up to ASH_AXIS_MESSAGE floats; in order between any two. Sending waits only for room: up to
     * ASH_AXIS_PENDING messages to one rank may be in flight. */
    int (*send)(void *ctx, size_t to, const float *data, size_t count, struct ash_err *err);
    int (*recv)(void *ctx, size_t from, float *data, size_t count, struct ash_err *err);
    /* Where ranks are on one node: count floats that all see, until each has closed them. */
    int (*shared_open)(void *ctx, size_t count, struct ash_shared_floats *shared_out, struct ash_err *err);
    void (*shared_close)(void *ctx, struct ash_shared_floats *shared);
    /* Counters of each rank, ASH_AXIS_COUNTERS of them, that only grow from 0. Release and acquire: a rank that waited
     * for a value sees all writes before its signal. */
    void (*signal)(void *ctx, const struct ash_shared_floats *shared, size_t counter, uint64_t value);
    int (*wait)(void *ctx, const struct ash_shared_floats *shared, size_t rank, size_t counter, uint64_t value,
                struct ash_err *err);
};

#define ASH_AXIS_PENDING 8
#define ASH_AXIS_MESSAGE ((size_t)1 << 18)

struct ash_axis {
    size_t rank, size;
    const struct ash_axis_ops *ops; /* NULL where size is 1 */
    void *ctx;
    bool same_node; /* the ranks can share memory */
    /* Along tp, on one node: [size], the weights that passes of each rank read, as this process maps them. Each is set
     * before that rank opens its pass. */
    const void *const *weights;
    /* Where the ranks are on several nodes (ep alone asks): the node of each, and those of this node as an axis, in the
     * same order. NULL where all are on one. */
    const uint32_t *node_of;
    const struct ash_axis *node_ranks;
};

#endif
