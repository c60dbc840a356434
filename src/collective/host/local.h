/* local - collectives between the processes of one machine, through shared memory. Every rank owns a segment, its
 * control block: flags that tell how far it is, and bounce buffers where pieces of its data wait to be read by the
 * others. Pieces are small enough to stay in a cache, so data cross memory once in and once out. All ranks make the
 * same calls in the same order; each call is compared. Sums have the order of collective/core/sum.h. One owner
 * thread; a watcher may call ash_local_fail from any thread. After an error every call fails with the same one. */
#ifndef ASH_COLLECTIVE_HOST_LOCAL_H
#define ASH_COLLECTIVE_HOST_LOCAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "collective/core/wait_limits.h"
#include "collective/core/channel_ops.h"
#include "collective/core/coll_ops.h"
#include "collective/core/cost.h"
#include "collective/core/sum.h"
#include "fabric/segment.h"

#define ASH_LOCAL_RANKS_MAX ASH_SHARES_RANKS_MAX

enum ash_call_kind {
    ASH_CALL_NONE,
    ASH_CALL_BARRIER,
    ASH_CALL_ALL_REDUCE,
    ASH_CALL_REDUCE_SCATTER,
    ASH_CALL_ALL_GATHER,
    ASH_CALL_BROADCAST,
    ASH_CALL_ALL_TO_ALL,
    ASH_CALL_WINDOW_REDUCE,
    ASH_CALL_WINDOW_PARTS,
};

/* A call, as it is compared between ranks. */
struct ash_coll_call {
    uint64_t number; /* 1 is the first */
    uint8_t kind, dtype, op;
    uint16_t root;
    uint64_t size_bytes;
};
/* "all-reduce (sum of f32, 4096 bytes)". Returns buf. */
const char *ash_coll_call_text(const struct ash_coll_call *call, char *buf, size_t buf_bytes);

struct ash_local;

/* The calls, on a struct ash_local (local_ops.c), and channels through its memory (local_channel.c). */
extern const struct ash_coll_ops ash_local_ops;
extern const struct ash_channel_ops ash_local_channel_ops;

/* Create this process's control block; on 0 the caller owns *local_out. limits: how long a peer may be late for a
 * call. */
int ash_local_open(const struct ash_wait_limits *limits, struct ash_local **local_out, struct ash_err *err);
/* What the others need to map it. */
struct ash_segment_key ash_local_key(const struct ash_local *local);
/* Become rank `rank` of size and map the control blocks of all others (keys[rank] is not read). Call before
 * anything else. labels (may be NULL): the numbers by which messages call the ranks, where these processes are a
 * part of a larger group. oversubscribed: there are more processes than cores, so a wait yields its core soon. */
int ash_local_connect(struct ash_local *local, size_t rank, size_t size, bool oversubscribed,
                      const struct ash_segment_key *keys, const uint32_t *labels, struct ash_err *err);
/* Leave: peers that still wait for this rank get an error. NULL is a no-op. */
void ash_local_close(struct ash_local *local);

/* How to choose the algorithm of an all-reduce; every rank sets the same, between calls. */
void ash_local_set_cost(struct ash_local *local, const struct ash_cost *cost);

/* Every wait, now and later, ends with code: rank (its label) is the failed_rank and why the sentence (copied). The
 * first call counts; returns its code, with its sentence in err. Any thread. */
int ash_local_fail(struct ash_local *local, int code, size_t rank, const char *why, struct ash_err *err);
/* 0, or the error that all calls return from now on. Any thread. */
int ash_local_check(struct ash_local *local, struct ash_err *err);
/* The same, or the error that has ended the calls of another rank of this node, which are then over here, too. Any
 * thread. */
int ash_local_check_node(struct ash_local *local, struct ash_err *err);
/* The label of the rank that failed, after a call returned an error. */
size_t ash_local_failed_rank(const struct ash_local *local);

/* For collective/net: wait until all of these processes make this call, and compare their calls. */
int ash_local_compare(struct ash_local *local, struct ash_coll_call call, struct ash_err *err);
/* The same, and each has some bits set: *common_out are those that all have set. */
int ash_local_agree(struct ash_local *local, struct ash_coll_call call, uint8_t bits, uint8_t *common_out,
                    struct ash_err *err);
/* How late a peer may be from now on. */
void ash_local_set_limits(struct ash_local *local, struct ash_wait_limits limits);

/* All return 0, -ETIMEDOUT (a silent peer), -EINTR (a stop request while a peer is silent), -ECONNRESET (a rank is
 * lost) or -EPROTO (ranks make different calls), with a sentence that names rank, call, number of the call and how
 * long. Counts are in elements. out may be in where sizes are equal. */
int ash_local_barrier(struct ash_local *local, struct ash_err *err);
/* out[count] = the reduction of every rank's in. */
int ash_local_all_reduce(struct ash_local *local, const void *in, void *out, size_t count, enum ash_coll_dtype dtype,
                         enum ash_coll_op op, struct ash_err *err);
/* out[count] = part `rank` of the reduction of every rank's in[size * count]. */
int ash_local_reduce_scatter(struct ash_local *local, const void *in, void *out, size_t count,
                             enum ash_coll_dtype dtype, enum ash_coll_op op, struct ash_err *err);
/* The same where a rank contributes several parts, or none: parts[i] is its i-th. Every rank passes equal shares. out
 * may be parts[0]. */
int ash_local_all_reduce_parts(struct ash_local *local, const void *const *parts, const struct ash_shares *shares,
                               void *out, size_t count, enum ash_coll_dtype dtype, enum ash_coll_op op,
                               struct ash_err *err);
/* Reduce-scatter of such parts, each of size * count elements. */
int ash_local_reduce_scatter_parts(struct ash_local *local, const void *const *parts, const struct ash_shares *shares,
                                   void *out, size_t count, enum ash_coll_dtype dtype, enum ash_coll_op op,
                                   struct ash_err *err);
/* out[size * size_bytes]: every rank's in[size_bytes], by rank. in may be this rank's part of out. */
int ash_local_all_gather(struct ash_local *local, const void *in, void *out, size_t size_bytes, struct ash_err *err);
/* data[size_bytes] of every rank becomes that of rank `root`. */
int ash_local_broadcast(struct ash_local *local, void *data, size_t size_bytes, size_t root, struct ash_err *err);
/* in holds send_bytes[r] for each rank r, one after the other; out gets recv_bytes[r] from each. -EPROTO where two
 * ranks disagree. */
int ash_local_all_to_all(struct ash_local *local, const void *in, const size_t *send_bytes, void *out,
                         const size_t *recv_bytes, struct ash_err *err);

#endif
