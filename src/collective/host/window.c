/* Sums in place. A rank reads and writes only its own share of the elements, in the memory of all ranks, so nothing is
 * overwritten that another still needs; a barrier before (all have come) and one after (all are done) frame it. */
#include "collective/host/window.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "collective/host/control.h"
#include "collective/host/handover.h"
#include "infra/device/shared_memory.h"

#define SHARE_ALIGN ((size_t)4096) /* shares begin on pages: two ranks never write to one line */

/* After the data, on its own cache line. */
struct counter {
    _Alignas(64) _Atomic uint64_t value;
};

struct ash_window {
    struct ash_local *local; /* may be closed before the window: then only its memory is used */
    size_t rank, ranks;      /* there */
    size_t size_bytes;       /* of the data */
    struct ash_segment own, peers[ASH_LOCAL_RANKS_MAX];
    struct ash_segment_key *keys;    /* of each rank's memory */
    char *data[ASH_LOCAL_RANKS_MAX]; /* of each rank */
    /* In the memory of a device: what each rank shares, and in the segments only words, which the queue waits for. */
    const struct ash_device_queue_ops *ops; /* NULL: in the host's memory */
    struct ash_device_queue *queue;
    struct ash_shared_memory *shared[ASH_LOCAL_RANKS_MAX];
    size_t words_count; /* segments that were added to the queue, by rank */
};

/* Where the counters are. */
static size_t counters_at(size_t size_bytes)
{
    return ash_round_up(size_bytes, SHARE_ALIGN);
}

/* Map what each rank has the key of, but for this one's own. */
static int map_peers(struct ash_window *window, const struct ash_segment_key *key, struct ash_err *err)
{
    struct ash_local *local = window->local;
    int rc = ash_local_all_gather(local, key, window->keys, sizeof(*key), err);

    for (size_t r = 0; rc == 0 && r < local->size; r++) {
        if (r != local->rank) rc = ash_segment_map(&window->peers[r], &window->keys[r], err);
        if (rc == 0 && r != local->rank && window->ops == NULL) window->data[r] = window->peers[r].data;
    }
    return rc == 0 ? ash_local_barrier(local, err) : rc; /* a rank that leaves at once must have been mapped before */
}

static struct ash_window *new_window(struct ash_local *local, size_t size_bytes)
{
    struct ash_window *window = calloc(1, sizeof(*window));

    if (window == NULL) return NULL;
    window->local = local;
    window->rank = local->rank;
    window->ranks = local->size;
    window->size_bytes = size_bytes;
    window->keys = calloc(local->size, sizeof(*window->keys));
    if (window->keys != NULL) return window;
    free(window);
    return NULL;
}

int ash_window_open(struct ash_local *local, size_t size_bytes, struct ash_window **window_out, struct ash_err *err)
{
    struct ash_window *window = new_window(local, size_bytes);
    struct ash_segment_key key = {0};
    int rc;

    if (window == NULL) return ash_err_set(err, -ENOMEM, "out of memory for a window");
    rc = ash_segment_create(&window->own, counters_at(size_bytes) + ASH_WINDOW_COUNTERS * sizeof(struct counter),
                            "ashlar-window", err);
    if (rc == 0) rc = ash_segment_get_key(&window->own, &key);
    if (rc == 0) rc = map_peers(window, &key, err);
    if (rc < 0) {
        ash_window_close(window);
        return rc;
    }
    window->data[local->rank] = window->own.data;
    *window_out = window;
    return 0;
}

/* ---- in the memory of a device ----------------------------------------------------------------------------------- */

static const struct ash_segment *segment_of(const struct ash_window *window, size_t rank)
{
    return rank == window->rank ? &window->own : &window->peers[rank];
}

struct ash_window_words *ash_window_words_of(const struct ash_window *window, size_t from, size_t to)
{
    ash_assert(window->ops != NULL && from < window->ranks && to < window->ranks);
    return (struct ash_window_words *)segment_of(window, to)->data + from;
}

static int send_own(void *ctx, int socket, struct ash_err *err)
{
    const struct ash_window *window = ctx;

    return ash_shared_memory_send(window->shared[window->rank], socket, err);
}

static int receive_peer(void *ctx, size_t rank, int socket, struct ash_err *err)
{
    struct ash_window *window = ctx;

    return window->ops->receive(window->queue, socket, &window->shared[rank], err);
}

static const struct ash_handover_ops handover_ops = {send_own, receive_peer};

/* The words of all ranks, here and mapped, for the queue. */
static int add_words(struct ash_window *window, struct ash_err *err)
{
    int rc = 0;

    for (size_t r = 0; r < window->ranks && rc == 0; r++) {
        const struct ash_segment *segment = segment_of(window, r);

        rc = window->ops->add_counters(window->queue, segment->data, segment->size_bytes, err);
        if (rc == 0) window->words_count++;
    }
    return rc;
}

int ash_window_open_device(struct ash_local *local, const struct ash_device_queue_ops *ops,
                           struct ash_device_queue *queue, size_t size_bytes, struct ash_window **window_out,
                           struct ash_err *err)
{
    struct ash_window *window = new_window(local, size_bytes);
    struct ash_segment_key key = {0};
    int rc;

    if (window == NULL) return ash_err_set(err, -ENOMEM, "out of memory for a window");
    window->ops = ops;
    window->queue = queue;
    rc = ash_segment_create(&window->own, local->size * sizeof(struct ash_window_words), "ashlar-window", err);
    if (rc == 0) rc = ash_segment_get_key(&window->own, &key);
    if (rc == 0) rc = map_peers(window, &key, err);
    if (rc == 0) {
        bool is_ready =
            add_words(window, err) == 0 && ops->share(queue, size_bytes, &window->shared[local->rank], err) == 0;

        rc = ash_handover(local, &handover_ops, window, is_ready, err);
    }
    if (rc < 0) {
        ash_window_close(window);
        return rc;
    }
    for (size_t r = 0; r < local->size; r++)
        window->data[r] = ash_shared_memory_data(window->shared[r]);
    *window_out = window;
    return 0;
}

/* ---- of other windows -------------------------------------------------------------------------------------------- */

int ash_window_show(struct ash_local *local, const struct ash_window *shown, size_t rank,
                    struct ash_window **window_out, struct ash_err *err)
{
    struct ash_window *window = new_window(local, 0);
    int rc;

    if (window == NULL) return ash_err_set(err, -ENOMEM, "out of memory for a window");
    if (rank == ASH_WINDOW_OWN) rank = shown->rank;
    ash_assert(rank < shown->ranks && shown->ops == NULL);
    rc = map_peers(window, &shown->keys[rank], err);
    if (rc < 0) {
        ash_window_close(window);
        return rc;
    }
    window->data[local->rank] = shown->data[rank]; /* this rank has it already */
    *window_out = window;
    return 0;
}

void ash_window_fill(struct ash_window *window)
{
    ash_segment_fill(&window->own);
}

void ash_window_close(struct ash_window *window)
{
    if (window == NULL) return;
    for (size_t r = 0; r < window->ranks; r++)
        ash_shared_memory_close(window->shared[r]);
    for (size_t r = 0; r < window->words_count; r++)
        window->ops->remove_counters(window->queue, segment_of(window, r)->data);
    for (size_t r = 0; r < window->ranks; r++)
        ash_segment_fini(&window->peers[r]);
    ash_segment_fini(&window->own);
    free(window->keys);
    free(window);
}

void *ash_window_data(const struct ash_window *window)
{
    return window->data[window->rank];
}

void *ash_window_data_of(const struct ash_window *window, size_t rank)
{
    ash_assert(rank < window->ranks);
    return window->data[rank];
}

void ash_window_unmap_pages(const struct ash_window *window, size_t rank, size_t first_byte, size_t size_bytes)
{
    ash_assert(rank < window->ranks);
    ash_segment_unmap_pages(segment_of(window, rank), first_byte, size_bytes);
}

/* ---- counters ---------------------------------------------------------------------------------------------------- */

static _Atomic uint64_t *counter_of(const struct ash_window *window, size_t rank, size_t counter)
{
    struct counter *counters = (void *)(window->data[rank] + counters_at(window->size_bytes));

    ash_assert(counter < ASH_WINDOW_COUNTERS);
    return &counters[counter].value;
}

void ash_window_signal(struct ash_window *window, size_t counter, uint64_t value)
{
    ash_control_signal(window->local, counter_of(window, window->local->rank, counter), value);
}

struct wait {
    struct ash_local *local;
    size_t rank;
    const _Atomic uint64_t *counter;
    uint64_t value;
};

static int on_progress(void *ctx, uint64_t waited_ns, struct ash_err *err)
{
    const struct wait *wait = ctx;
    struct ash_local *local = wait->local;
    bool left = atomic_load(&local->controls[wait->rank]->left) != 0 && atomic_load(wait->counter) < wait->value;
    char why[ASH_ERR_TEXT_BYTES];
    int rc = ash_local_check_node(local, err);

    if (rc < 0) return rc;
    rc = left ? -EPROTO : ash_wait_limits_check(&local->limits, waited_ns);
    if (rc == 0) return 0;
    snprintf(why, sizeof(why), "rank %u %s %.1f s in shared memory for rank %u%s", local->labels[local->rank],
             ash_wait_limits_text(rc), (double)waited_ns * 1e-9, local->labels[wait->rank],
             left ? ", which has left the group" : "");
    return ash_local_fail(local, rc, local->labels[wait->rank], why, err);
}

int ash_window_wait(struct ash_window *window, size_t rank, size_t counter, uint64_t value, struct ash_err *err)
{
    struct ash_local *local = window->local;
    struct wait wait = {local, rank, counter_of(window, rank, counter), value};

    ash_assert(rank < window->local->size);
    return ash_futex_wait(&local->controls[rank]->futex, wait.counter, value, local->oversubscribed, on_progress, &wait,
                          err);
}

/* ---- sums -------------------------------------------------------------------------------------------------------- */

/* A rank's share of a reduction: runs of its elements, to itself or to all ranks. */
struct part {
    const struct ash_range *runs;
    size_t run_count;
    bool to_all;
};

static void reduce_run(struct ash_window *const *windows, const struct ash_shares *shares, struct ash_range run,
                       bool to_all, enum ash_coll_dtype dtype, enum ash_coll_op op)
{
    const struct ash_local *local = windows[0]->local;
    size_t begin = run.first * ash_coll_dtype_bytes(dtype);
    const void *parts[ASH_TREE_PARTS_MAX];
    void *outs[ASH_LOCAL_RANKS_MAX];
    size_t out_count = 0;

    for (size_t r = 0; r < local->size; r++) {
        if (to_all || r == local->rank) outs[out_count++] = windows[0]->data[r] + begin;
        for (size_t p = shares->first[r], i = 0; p < shares->first[r + 1]; p++, i++)
            parts[p] = windows[i]->data[r] + begin;
    }
    ash_coll_reduce_to(dtype, op, &shares->tree, parts, run.count, outs, out_count);
}

/* Where rank r's share of `bytes` begins; r = size gives the end. */
static size_t share_begin(size_t bytes, size_t r, size_t size)
{
    size_t pages = ash_div_up(bytes, SHARE_ALIGN), begin = pages * r / size * SHARE_ALIGN;

    return ash_min(begin, bytes);
}

/* Two meetings around it: all have come, all are done. */
static int reduce_all(struct ash_window *const *windows, const struct ash_shares *shares, size_t bytes,
                      const struct part *part, enum ash_coll_dtype dtype, enum ash_coll_op op, struct ash_err *err)
{
    struct ash_local *local = windows[0]->local;
    struct ash_control *own = local->controls[local->rank];
    struct ash_coll_call call = {.kind = part->to_all ? ASH_CALL_WINDOW_REDUCE : ASH_CALL_WINDOW_PARTS,
                                 .dtype = dtype,
                                 .op = op,
                                 .size_bytes = bytes};
    int rc = ash_control_begin(local, call, err);

    ash_assert(bytes <= windows[0]->size_bytes && shares->first[local->size] == shares->tree.part_count);
    if (rc < 0) return rc;
    ash_control_signal(local, &own->flag, local->check);
    for (size_t r = 0; r < local->size && rc == 0; r++)
        if (r != local->rank) rc = ash_control_wait_flag(local, r, &local->controls[r]->flag, err);
    if (rc < 0) return rc;
    for (size_t i = 0; i < part->run_count; i++)
        reduce_run(windows, shares, part->runs[i], part->to_all, dtype, op);
    ash_control_signal(local, &own->finished, local->call.number);
    for (size_t r = 0; r < local->size && rc == 0; r++)
        if (r != local->rank) rc = ash_control_wait(local, r, &local->controls[r]->finished, local->call.number, err);
    return rc;
}

int ash_window_all_reduce(struct ash_window *const *windows, const struct ash_shares *shares, size_t count,
                          enum ash_coll_dtype dtype, enum ash_coll_op op, struct ash_err *err)
{
    const struct ash_local *local = windows[0]->local;
    size_t width = ash_coll_dtype_bytes(dtype), bytes = count * width,
           begin = share_begin(bytes, local->rank, local->size), end = share_begin(bytes, local->rank + 1, local->size);
    struct ash_range share = {begin / width, (end - begin) / width};
    struct part part = {&share, 1, true};

    return reduce_all(windows, shares, bytes, &part, dtype, op, err);
}

int ash_window_reduce(struct ash_window *const *windows, const struct ash_shares *shares, size_t count,
                      const struct ash_range *runs, size_t run_count, enum ash_coll_dtype dtype, enum ash_coll_op op,
                      struct ash_err *err)
{
    struct part part = {runs, run_count, false};

    for (size_t i = 0; i < run_count; i++)
        ash_assert(runs[i].first <= count && runs[i].count <= count - runs[i].first);
    return reduce_all(windows, shares, count * ash_coll_dtype_bytes(dtype), &part, dtype, op, err);
}
