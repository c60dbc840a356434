/* window - memory of every rank that every rank of the node has mapped. Sums over windows are made where the data lie:
 * each rank joins its share of the elements of all ranks and writes the result to all, so data cross memory once,
 * without bounce buffers. */
#ifndef ASH_COLLECTIVE_HOST_WINDOW_H
#define ASH_COLLECTIVE_HOST_WINDOW_H

#include <stdatomic.h>
#include "collective/host/local.h"
#include "infra/device_queue.h"

struct ash_window;

/* All ranks call it with the same size. The memory is zeroed. Returns 0, -ENOMEM or the communicator's error; on 0 the
 * caller owns *window_out. */
int ash_window_open(struct ash_local *local, size_t size_bytes, struct ash_window **window_out, struct ash_err *err);
/* The same in the memory of a device, whose queue (borrowed) waits for counters and is the only one that uses the
 * window; without zeros. Returns -ENOTSUP on all ranks where any of them cannot share memory, or open that of another.
 * It is for no sums of this file: device_calls.h makes them. */
int ash_window_open_device(struct ash_local *local, const struct ash_device_queue_ops *ops,
                           struct ash_device_queue *queue, size_t size_bytes, struct ash_window **window_out,
                           struct ash_err *err);
#define ASH_WINDOW_OWN SIZE_MAX
/* A window of what each rank shows the others: the memory of a rank (or ASH_WINDOW_OWN, its own) of one of its own
 * windows (with ranks of another group, on the same node), for as long as that window lives. All ranks call it. It has
 * no counters and is for no sums. */
int ash_window_show(struct ash_local *local, const struct ash_window *shown, size_t rank,
                    struct ash_window **window_out, struct ash_err *err);
/* This rank's memory will all be used: see ash_segment_fill. */
void ash_window_fill(struct ash_window *window);
/* No call on it may be under way on any rank. NULL is a no-op. May come after the end of its group, and of the ranks
 * that it had mapped: until then their memory is there to be read. */
void ash_window_close(struct ash_window *window);
/* This rank's memory. */
void *ash_window_data(const struct ash_window *window);
/* Another rank's, of the group on this node. */
void *ash_window_data_of(const struct ash_window *window, size_t rank);
/* Of a window in a device's memory: two words that rank `from` raises for rank `to`, for its queue and the host. Pairs
 * have words of their own, so that a rank can let its own waits pass. */
struct ash_window_words {
    _Alignas(64) _Atomic uint64_t ready, done;
};
/* Those of a pair. */
struct ash_window_words *ash_window_words_of(const struct ash_window *window, size_t from, size_t to);

/* Drop some bytes (those that there are) of a rank's memory from this process's page table: they stay as they are, but
 * their pages count as this process's again only when it touches them. */
void ash_window_unmap_pages(const struct ash_window *window, size_t rank, size_t first_byte, size_t size_bytes);

/* For protocols of one's own: counters of each rank, all 0 at first, that only grow. */
#define ASH_WINDOW_COUNTERS 8
/* Raise a counter of this rank. Release store: pairs with the acquire in wait. */
void ash_window_signal(struct ash_window *window, size_t counter, uint64_t value);
/* Wait until a counter of a rank is at least value. Returns as the calls of local.h do. */
int ash_window_wait(struct ash_window *window, size_t rank, size_t counter, uint64_t value, struct ash_err *err);

/* Rank r's i-th part (by shares) is at the start of its windows[i]; the join of all parts goes to the start of every
 * rank's windows[0]. All ranks pass the same windows, at least one and as many as any rank has parts. Returns as the
 * calls of local.h do. */
int ash_window_all_reduce(struct ash_window *const *windows, const struct ash_shares *shares, size_t count,
                          enum ash_coll_dtype dtype, enum ash_coll_op op, struct ash_err *err);
/* The same where each rank wants some runs of the join's elements only (run_count of them, which may differ), in its
 * own windows[0]: no two ranks want the same ones. What else is there afterwards is of no use. */
int ash_window_reduce(struct ash_window *const *windows, const struct ash_shares *shares, size_t count,
                      const struct ash_range *runs, size_t run_count, enum ash_coll_dtype dtype, enum ash_coll_op op,
                      struct ash_err *err);

#endif
