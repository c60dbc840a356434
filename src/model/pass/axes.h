/* axes - the communicators of a pass: whom it shares heads and columns with (tp), tokens (cp) and experts (ep), the
 * memory that some of these ranks share, and the first exchange that failed.
 *
 * A lost rank ends the pass: after the first failure every call below is a no-op, and ash_axes_result returns the error
 * when the pass gets to its end. Along an axis of size 1 they are no-ops too. Only the thread that owns the pass calls
 * them, and all ranks of an axis make the same calls in the same order. */
#ifndef ASH_MODEL_PASS_AXES_H
#define ASH_MODEL_PASS_AXES_H

#include "model/axis.h"
#include "model/pass/pass.h"

/* What a rank has signalled to those it shares memory with. Each counter only grows, from 0. */
enum ash_axes_counter {
    ASH_AXES_BATCHES,     /* tp: batches begun */
    ASH_AXES_BARRIERS_TP, /* tp: barriers entered; after one all may read what each has written before it */
    ASH_AXES_OPERANDS,    /* tp: reductions whose operands are published */
    ASH_AXES_BARRIERS_CP, /* cp: barriers entered */
    ASH_AXES_RELEASES,    /* cp: gradients released in the order of the ranks */
    ASH_AXES_PUBLISHED,   /* cp: products whose rows all ranks may read for weight gradients */
    ASH_AXES_COMPUTED,    /* cp: of those, products whose gradient this rank has added its part of */
    ASH_AXES_GATHERS      /* outs: barriers entered */
};

/* Open with ash_axes_init; close with ash_axes_fini. */
struct ash_axes {
    struct ash_axis tp, cp, ep;      /* as in the options, but never of size 0; cp.same_node: node has all its ranks */
    struct ash_axis outs;            /* inference: ranks that have some outputs of every matrix (gather.h) */
    struct ash_axis node;            /* the ranks that share memory: those of tp, of cp, of both, or of outs; size 1:
                                        none do */
    bool shared_grads;               /* ranks of cp add to the same gradient buffer, in memory that they share */
    bool row_blocks;                 /* ranks of tp cut the stream between blocks of rows: ash_split_rows_tp */
    struct ash_shared_floats shared; /* memory of node's ranks, opened by acts_layout.c or gather.c */
    float *gathered[2];              /* [gathered_floats]: of outs, in turn */
    struct ash_buffer apart;         /* the memory of both if the ranks of outs share none */
    size_t gathered_floats;
    uint64_t gathers;                           /* barriers of outs entered so far */
    uint64_t batches, barriers_tp, barriers_cp; /* entered so far */
    uint64_t reductions;                        /* published so far: see reduce_shm.c */
    size_t *counts, *more_counts; /* [largest of tp, cp, outs] floats per rank: for the current exchange */
    int failed;                   /* 0, or the error of the first exchange that failed */
    struct ash_err failure;
};

/* Take over the axes of opts (their contexts stay borrowed). Returns 0 or -ENOMEM. */
int ash_axes_init(struct ash_axes *axes, const struct ash_pass_opts *opts, struct ash_err *err);
/* Close the shared memory and free the rest. Accepts a zeroed or half-open struct. */
void ash_axes_fini(struct ash_axes *axes);

/* data holds the parts of all ranks one after the other, counts[r] floats of rank r; each rank brings its own. */
void ash_axes_all_gather(struct ash_axes *axes, const struct ash_axis *axis, float *data, const size_t *counts);
/* send[r] floats from in to each rank r, recv[r] from each into out; parts one after the other. */
void ash_axes_all_to_all(struct ash_axes *axes, const struct ash_axis *axis, const float *in, const size_t *send,
                         float *out, const size_t *recv);
/* The same in flight until it is waited for; *started_out is NULL where nothing was started. in, out, send and recv
 * stay untouched until ash_axes_all_to_all_wait, which also completes it after a failure. */
void ash_axes_all_to_all_start(struct ash_axes *axes, const struct ash_axis *axis, const float *in, const size_t *send,
                               float *out, const size_t *recv, void **started_out);
/* Complete an exchange; started may be NULL. */
void ash_axes_all_to_all_wait(struct ash_axes *axes, const struct ash_axis *axis, void *started);
/* data [count] of rank root to all ranks of the axis. */
void ash_axes_broadcast(struct ash_axes *axes, const struct ash_axis *axis, size_t root, float *data, size_t count);
/* count floats to, or from, one rank of the axis, in messages of at most ASH_AXIS_MESSAGE floats. */
void ash_axes_send(struct ash_axes *axes, const struct ash_axis *axis, size_t to, const float *data, size_t count);
/* count floats from one rank of the axis, in the messages that it sends. */
void ash_axes_recv(struct ash_axes *axes, const struct ash_axis *axis, size_t from, float *data, size_t count);

/* Release store of this rank's counter, for all that share memory: they see its writes before. */
void ash_axes_signal(struct ash_axes *axes, enum ash_axes_counter counter, uint64_t value);
/* Wait until rank `rank` of tp (of cp) has signalled value. Of this rank itself: a no-op. */
void ash_axes_wait_tp(struct ash_axes *axes, size_t rank, enum ash_axes_counter counter, uint64_t value);
/* Wait until rank `rank` of cp has signalled value. */
void ash_axes_wait_cp(struct ash_axes *axes, size_t rank, enum ash_axes_counter counter, uint64_t value);
/* The same for all ranks of the axis. */
void ash_axes_wait_all_tp(struct ash_axes *axes, enum ash_axes_counter counter, uint64_t value);
/* Wait until all ranks of cp have signalled value. */
void ash_axes_wait_all_cp(struct ash_axes *axes, enum ash_axes_counter counter, uint64_t value);
/* All ranks of tp enter a batch: they are through with the one before it. For tp ranks that share memory. */
void ash_axes_enter_batch(struct ash_axes *axes);
/* All ranks of tp (of cp) that share memory meet. */
void ash_axes_barrier_tp(struct ash_axes *axes);
/* All ranks of cp that share memory meet. */
void ash_axes_barrier_cp(struct ash_axes *axes);
/* All ranks of outs meet. */
void ash_axes_barrier_outs(struct ash_axes *axes);

/* Keep rc as the pass's failure unless there is one already; 0 is ignored. err says why. */
void ash_axes_fail(struct ash_axes *axes, int rc, const struct ash_err *err);
/* 0, or the first failure with its reason in err (may be NULL). */
int ash_axes_result(const struct ash_axes *axes, struct ash_err *err);

#endif
