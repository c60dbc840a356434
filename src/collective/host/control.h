/* control - the control block of one rank in shared memory, and how the others wait for its counters. Private to
 * collective/host. */
#ifndef ASH_COLLECTIVE_HOST_CONTROL_H
#define ASH_COLLECTIVE_HOST_CONTROL_H

#include <stdatomic.h>
#include "collective/core/channel_ops.h"
#include "collective/core/wait_limits.h"
#include "collective/core/futex.h"
#include "collective/host/local.h"

#define ASH_CONTROL_INLINE_BYTES 48            /* of a message in the cache line of its flag */
#define ASH_CONTROL_SMALL_BYTES 16384          /* of one-shot messages */
#define ASH_CONTROL_BOUNCE_BYTES (1024 * 1024) /* of a bounce buffer */
#define ASH_CONTROL_BOUNCES 4
#define ASH_CONTROL_PARTS_MAX 256 /* of one rank, at most: a bounce buffer has room for a few elements of each */

/* A channel that a rank offers to another one (host/local_channel.c). */
#define ASH_CONTROL_OFFERS 8 /* of one rank to another that may wait to be taken */
struct ash_control_offer {
    struct ash_segment_key key;
    uint64_t slot_bytes, slots;
};

#define ASH_CONTROL_CHECK_BITS 24 /* of a flag; the number is above them */

/* Counters only grow, over all calls; each has its own cache line. */
struct ash_control {
    struct {
        _Alignas(64) _Atomic uint64_t flag; /* number and check of the call that data belongs to */
        uint8_t data[ASH_CONTROL_INLINE_BYTES];
    } inlined[2];
    _Alignas(64) _Atomic uint64_t flag; /* the same for small and large calls */
    struct ash_coll_call call[2];       /* in words, by the number's parity */
    _Alignas(64) _Atomic uint64_t copied_in;
    _Alignas(64) _Atomic uint64_t reduced;
    _Alignas(64) _Atomic uint64_t taken;    /* pieces of others that this rank will not read again */
    _Alignas(64) _Atomic uint64_t finished; /* number of the last call on windows that this rank has finished */
    _Alignas(64) struct ash_futex futex;
    _Atomic uint32_t left;  /* this rank has closed the group: nothing more will come */
    _Atomic int32_t failed; /* the error that has ended this rank's calls, and then: */
    uint32_t failed_rank;
    char why[ASH_ERR_TEXT_BYTES];
    _Alignas(64) _Atomic uint64_t offered[ASH_CHANNEL_ORDERS][ASH_LOCAL_RANKS_MAX]; /* channels to each rank, */
    _Atomic uint64_t accepted[ASH_CHANNEL_ORDERS][ASH_LOCAL_RANKS_MAX]; /* and from each that are mapped here */
    struct ash_control_offer offers[ASH_CHANNEL_ORDERS][ASH_LOCAL_RANKS_MAX][ASH_CONTROL_OFFERS];
    _Alignas(4096) uint8_t small[2][ASH_CONTROL_SMALL_BYTES];
    _Alignas(4096) uint8_t bounce[ASH_CONTROL_BOUNCES][ASH_CONTROL_BOUNCE_BYTES];
};

struct ash_local {
    size_t rank, size;
    bool oversubscribed;
    struct ash_wait_limits limits;
    size_t piece_bytes; /* of a bounce buffer that are used: the same on all ranks, at most ASH_CONTROL_BOUNCE_BYTES */
    struct ash_segment own, peers[ASH_LOCAL_RANKS_MAX];
    struct ash_control *controls[ASH_LOCAL_RANKS_MAX];
    uint32_t labels[ASH_LOCAL_RANKS_MAX];
    struct ash_cost cost;      /* equal on all ranks */
    struct ash_shares even;    /* one part from each rank */
    struct ash_coll_call call; /* the one that runs, or ran last */
    uint64_t check;            /* its flag */
    uint64_t pieces;           /* copied in by every rank so far */
    _Atomic int state;         /* 0, or the error of all calls from now on */
    _Atomic size_t failed_rank;
    char why[ASH_ERR_TEXT_BYTES];
};

/* Store value into a counter of one's own control block and wake who sleeps on it. */
void ash_control_signal(struct ash_local *local, _Atomic uint64_t *counter, uint64_t value);
/* Wait until the counter of peer's control block is at least value. Returns 0 or the communicator's error. */
int ash_control_wait(struct ash_local *local, size_t peer, const _Atomic uint64_t *counter, uint64_t value,
                     struct ash_err *err);
/* Wait until peer makes the present call, and compare the two calls: -EPROTO where they differ. */
int ash_control_wait_flag(struct ash_local *local, size_t peer, const _Atomic uint64_t *flag, struct ash_err *err);
/* The group ends with code: this rank has waited waited_ns for peer, which has stopped in the middle of the present
 * call. Returns the error. */
int ash_control_stopped(struct ash_local *local, size_t peer, uint64_t waited_ns, int code, struct ash_err *err);
/* Before an all-to-all: what each rank sends must be what the others expect, else -EPROTO. *longest_out: the most bytes
 * that go from any rank to another one. */
int ash_local_pairs(struct ash_local *local, const size_t *send_bytes, const size_t *recv_bytes, size_t *longest_out,
                    struct ash_err *err);
/* Begin a call: give it a number and a flag and describe it in the control block. Fails where an earlier one has. */
int ash_control_begin(struct ash_local *local, struct ash_coll_call call, struct ash_err *err);

#endif
