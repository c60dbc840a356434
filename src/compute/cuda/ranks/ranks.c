/* A queue of the GPU (infra/device/cuda_queue.h), and sums over windows (reduce.cu). A sum needs no more threads than
 * keep memory busy. */
#include "compute/cuda/ranks/ranks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "compute/cuda/host/backend_priv.h"
#include "infra/device/cuda_queue.h"
#include "infra/device/shared_memory.h"

#define BLOCKS_MAX 528 /* four on each multiprocessor */
#define WIDE_BYTES ((size_t)16)

struct ash_device_queue {
    struct ash_cuda_backend *backend;
    struct ash_cuda_queue *queue;
};

static void close_queue(struct ash_device_queue *queue)
{
    if (queue == NULL) return;
    ash_cuda_queue_close(queue->queue);
    free(queue);
}

static int open_queue(void *device, struct ash_device_queue **queue_out, struct ash_err *err)
{
    struct ash_device_queue *queue = calloc(1, sizeof(*queue));
    int rc;

    if (queue == NULL) return ash_err_set(err, -ENOMEM, "out of memory for a queue between ranks");
    queue->backend = device;
    rc = ash_cuda_queue_open(queue->backend->cuda, &queue->queue, err);
    if (rc < 0) {
        close_queue(queue);
        return rc;
    }
    *queue_out = queue;
    return 0;
}

static int share(struct ash_device_queue *queue, size_t size_bytes, struct ash_shared_memory **memory_out,
                 struct ash_err *err)
{
    return ash_shared_memory_create_unset(queue->backend->cuda, size_bytes, memory_out, err);
}

static int receive(struct ash_device_queue *queue, int socket, struct ash_shared_memory **memory_out,
                   struct ash_err *err)
{
    int rc = ash_shared_memory_receive(queue->backend->cuda, socket, memory_out, err);

    if (rc == 0) ash_shared_memory_skip_wait(*memory_out); /* this queue alone uses it */
    return rc;
}

static int add_counters(struct ash_device_queue *queue, void *data, size_t size_bytes, struct ash_err *err)
{
    return ash_cuda_queue_add_counters(queue->queue, data, size_bytes, err);
}

static void remove_counters(struct ash_device_queue *queue, void *data)
{
    ash_cuda_queue_remove_counters(queue->queue, data);
}

static void begin(struct ash_device_queue *queue)
{
    ash_cuda_queue_begin(queue->queue);
}

static void copy(struct ash_device_queue *queue, void *dst, const void *src, size_t size_bytes)
{
    ash_cuda_queue_copy(queue->queue, dst, src, size_bytes);
}

/* ---- sums -------------------------------------------------------------------------------------------------------- */

/* Is this the tree of 2, 4 or 8 parts in pairs of pairs? After part p it joins as often as p ends in ones. */
static int pairs_of(const struct ash_device_sum *sum)
{
    size_t count = sum->part_count;

    if (count != 2 && count != 4 && count != 8) return 0;
    for (size_t p = 0; p < count; p++)
        if (sum->joins[p] != __builtin_ctzll(~(unsigned long long)p)) return 0;
    return (int)count;
}

static bool is_wide(const struct ash_device_sum *sum)
{
    uintptr_t bits = (uintptr_t)sum->out | (uintptr_t)sum->also;

    for (size_t p = 0; p < sum->part_count; p++)
        bits |= (uintptr_t)sum->parts[p];
    return bits % WIDE_BYTES == 0 && pairs_of(sum) > 0;
}

/* By enum ash_coll_dtype. */
static const struct {
    enum ash_cuda_kernel_id id;
    const char *name;
    size_t bytes;
} sums[] = {{ASH_KERNEL_reduce_f32, "reduce_f32", 4}, {ASH_KERNEL_reduce_bf16, "reduce_bf16", 2},
            {ASH_KERNEL_reduce_f64, "reduce_f64", 8}, {ASH_KERNEL_reduce_i32, "reduce_i32", 4},
            {ASH_KERNEL_reduce_i64, "reduce_i64", 8}, {ASH_KERNEL_reduce_u8, "reduce_u8", 1}};

_Static_assert(ASH_CUDA_REDUCE_PARTS == ASH_DEVICE_SUM_PARTS_MAX, "a kernel takes all parts of a sum");

static void add_up(struct ash_device_queue *queue, const struct ash_device_sum *sum)
{
    struct ash_cuda_reduce args = {.out = sum->out,
                                   .also = sum->also,
                                   .count = sum->count,
                                   .part_count = (unsigned)sum->part_count,
                                   .op = sum->op,
                                   .pairs = pairs_of(sum),
                                   .is_wide = is_wide(sum)};
    struct ash_cuda_grid grid = {.y = 1, .threads = ASH_CUDA_REDUCE_THREADS};
    size_t units;

    ash_assert(sum->part_count >= 1 && sum->part_count <= ASH_CUDA_REDUCE_PARTS);
    ash_assert((size_t)sum->dtype < ASH_COUNT(sums));
    memcpy(args.parts, sum->parts, sum->part_count * sizeof(args.parts[0]));
    memcpy(args.joins, sum->joins, sum->part_count);
    units = args.is_wide ? ash_div_up(sum->count * sums[sum->dtype].bytes, WIDE_BYTES) : sum->count;
    grid.x = ash_min(ash_div_up(units, (size_t)ASH_CUDA_REDUCE_THREADS), BLOCKS_MAX);
    ash_cuda_queue_launch(queue->queue, queue->backend->kernels[sums[sum->dtype].id], sums[sum->dtype].name, grid,
                          &args);
}

/* ---- counters ---------------------------------------------------------------------------------------------------- */

static void write_counter(struct ash_device_queue *queue, void *counter, uint64_t value)
{
    ash_cuda_queue_write(queue->queue, counter, value);
}

static void wait_counter(struct ash_device_queue *queue, void *counter, uint64_t value)
{
    ash_cuda_queue_wait(queue->queue, counter, value);
}

static void end(struct ash_device_queue *queue)
{
    ash_cuda_queue_end(queue->queue);
}

static int poll_mark(struct ash_device_queue *queue, struct ash_err *err)
{
    return ash_cuda_queue_poll(queue->queue, err);
}

const struct ash_device_queue_ops ash_cuda_rank_queues = {.size = sizeof(ash_cuda_rank_queues),
                                                          .open = open_queue,
                                                          .close = close_queue,
                                                          .share = share,
                                                          .receive = receive,
                                                          .add_counters = add_counters,
                                                          .remove_counters = remove_counters,
                                                          .begin = begin,
                                                          .copy = copy,
                                                          .sum = add_up,
                                                          .write = write_counter,
                                                          .wait = wait_counter,
                                                          .end = end,
                                                          .poll = poll_mark};
