/* A second queue of the GPU: a stream that waits for no other one by itself, so that a wait for another rank delays no
 * other work. An event orders it after the own queue's work, another is the mark at a call's end. Counters are host
 * memory that the GPU reads and writes: the host sees them, too, and can let a wait pass. */
#include "infra/device/cuda_queue.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "infra/device/cuda_priv.h"

#define WAIT_AT_LEAST 0 /* CU_STREAM_WAIT_VALUE_GEQ */
#define WRITE_PLAINLY 0 /* CU_STREAM_WRITE_VALUE_DEFAULT: work before it is seen first */
#define AREAS_MAX 260   /* one from each rank of a node, and some */

/* Host memory with counters: its address on the host and on the GPU. */
struct area {
    char *host;
    size_t size_bytes;
    ash_cuda_ptr address;
};

struct ash_cuda_queue {
    struct ash_cuda *cuda;
    void *stream, *before, *mark;
    struct area areas[AREAS_MAX];
    size_t area_count;
    struct ash_err failed; /* the first failure */
    bool has_failed;
};

static ash_cuda_ptr address(const void *ptr)
{
    return (ash_cuda_ptr)(uintptr_t)ptr;
}

/* Keep the first failure: later ones are its consequences. */
static void check(struct ash_cuda_queue *queue, ash_cuda_result result, const char *what)
{
    const struct ash_cuda *cuda = queue->cuda;
    char text[128];

    if (result == 0 || queue->has_failed) return;
    queue->has_failed = true;
    ash_err_set(&queue->failed, -EIO, "GPU %d (%s): %s failed: %s", cuda->facts.index, cuda->facts.name, what,
                ash_cuda_describe(cuda->driver, result, text, sizeof(text)));
}

/* The driver, where nothing has failed: this thread takes the GPU. */
static const struct ash_cuda_driver *driver_of(struct ash_cuda_queue *queue)
{
    check(queue, ash_cuda_take(queue->cuda), "taking the GPU for this thread");
    return queue->has_failed ? NULL : queue->cuda->driver;
}

/* Can a queue wait for a value in memory? */
static bool has_values(const struct ash_cuda *cuda)
{
    int has = 0;

    return cuda->driver->device_attribute(&has, ASH_CUDA_ATTR_STREAM_VALUES, cuda->device) == 0 && has != 0;
}

int ash_cuda_queue_open(struct ash_cuda *cuda, struct ash_cuda_queue **queue_out, struct ash_err *err)
{
    struct ash_cuda_queue *queue;
    const struct ash_cuda_driver *driver;

    if (!has_values(cuda))
        return ash_err_set(err, -ENOTSUP, "GPU %d (%s): its queues cannot wait for values in memory", cuda->facts.index,
                           cuda->facts.name);
    queue = calloc(1, sizeof(*queue));
    if (queue == NULL) return ash_err_set(err, -ENOMEM, "out of memory for a queue between ranks");
    queue->cuda = cuda;
    driver = driver_of(queue);
    if (driver != NULL) check(queue, driver->stream_create(&queue->stream, ASH_CUDA_STREAM_ALONE), "making a queue");
    if (!queue->has_failed)
        check(queue, driver->event_create(&queue->before, ASH_CUDA_EVENT_WITHOUT_TIME), "making an event");
    if (!queue->has_failed)
        check(queue, driver->event_create(&queue->mark, ASH_CUDA_EVENT_WITHOUT_TIME), "making an event");
    if (queue->has_failed) {
        if (err != NULL) *err = queue->failed;
        ash_cuda_queue_close(queue);
        return -EIO;
    }
    *queue_out = queue;
    return 0;
}

void ash_cuda_queue_close(struct ash_cuda_queue *queue)
{
    const struct ash_cuda_driver *driver;

    if (queue == NULL) return;
    driver = queue->cuda->driver;
    ash_cuda_take(queue->cuda);
    if (queue->stream != NULL) driver->stream_wait(queue->stream);
    for (size_t i = 0; i < queue->area_count; i++)
        driver->host_forget(queue->areas[i].host);
    if (queue->mark != NULL) driver->event_destroy(queue->mark);
    if (queue->before != NULL) driver->event_destroy(queue->before);
    if (queue->stream != NULL) driver->stream_destroy(queue->stream);
    free(queue);
}

struct ash_cuda *ash_cuda_queue_device(struct ash_cuda_queue *queue)
{
    return queue->cuda;
}

/* ---- counters ---------------------------------------------------------------------------------------------------- */

int ash_cuda_queue_add_counters(struct ash_cuda_queue *queue, void *data, size_t size_bytes, struct ash_err *err)
{
    const struct ash_cuda_driver *driver = driver_of(queue);
    struct area *area = &queue->areas[queue->area_count];
    ash_cuda_result result;
    char text[128];

    if (driver == NULL) return ash_cuda_queue_poll(queue, err);
    if (queue->area_count == AREAS_MAX) return ash_err_set(err, -ENOMEM, "too many counters between ranks");
    result = driver->host_register(data, size_bytes, ASH_CUDA_HOST_PORTABLE | ASH_CUDA_HOST_MAPPED);
    if (result == 0) {
        *area = (struct area){data, size_bytes, 0};
        queue->area_count++;
        result = driver->host_address(&area->address, data, 0);
    }
    if (result == 0) return 0;
    return ash_err_set(err, -ENOTSUP, "GPU %d (%s): counters that ranks share cannot be had: %s",
                       queue->cuda->facts.index, queue->cuda->facts.name,
                       ash_cuda_describe(driver, result, text, sizeof(text)));
}

void ash_cuda_queue_remove_counters(struct ash_cuda_queue *queue, void *data)
{
    ash_cuda_take(queue->cuda);
    for (size_t i = 0; i < queue->area_count; i++) {
        if (queue->areas[i].host != data) continue;
        queue->cuda->driver->host_forget(data);
        queue->areas[i] = queue->areas[--queue->area_count];
        return;
    }
}

static ash_cuda_ptr counter_address(const struct ash_cuda_queue *queue, const void *counter)
{
    for (size_t i = 0; i < queue->area_count; i++) {
        const struct area *area = &queue->areas[i];
        size_t at = (size_t)((const char *)counter - area->host);

        if (at < area->size_bytes) return area->address + at;
    }
    ash_assert(!"a counter in memory that was added");
    return 0;
}

void ash_cuda_queue_write(struct ash_cuda_queue *queue, void *counter, uint64_t value)
{
    const struct ash_cuda_driver *driver = driver_of(queue);

    if (driver == NULL) return;
    check(queue, driver->stream_write64(queue->stream, counter_address(queue, counter), value, WRITE_PLAINLY),
          "telling another rank");
}

void ash_cuda_queue_wait(struct ash_cuda_queue *queue, void *counter, uint64_t value)
{
    const struct ash_cuda_driver *driver = driver_of(queue);

    if (driver == NULL) return;
    check(queue, driver->stream_wait64(queue->stream, counter_address(queue, counter), value, WAIT_AT_LEAST),
          "waiting for another rank");
}

/* ---- work -------------------------------------------------------------------------------------------------------- */

void ash_cuda_queue_begin(struct ash_cuda_queue *queue)
{
    const struct ash_cuda_driver *driver = driver_of(queue);

    if (driver == NULL) return;
    if (ash_cuda_failure(queue->cuda, &queue->failed) < 0) queue->has_failed = true;
    if (queue->has_failed) return;
    ash_cuda_memory_lock(); /* an event in a recording would be a part of it */
    check(queue, driver->event_record(queue->before, queue->cuda->stream), "an event");
    ash_cuda_memory_unlock();
    if (!queue->has_failed) check(queue, driver->stream_after(queue->stream, queue->before, 0), "waiting for an event");
}

void ash_cuda_queue_copy(struct ash_cuda_queue *queue, void *dst, const void *src, size_t size_bytes)
{
    const struct ash_cuda_driver *driver = size_bytes > 0 ? driver_of(queue) : NULL;

    if (driver == NULL) return;
    check(queue, driver->copy(address(dst), address(src), size_bytes, queue->stream), "a copy between ranks");
}

void ash_cuda_queue_launch(struct ash_cuda_queue *queue, void *kernel, const char *name, struct ash_cuda_grid grid,
                           const void *args)
{
    const struct ash_cuda_driver *driver = grid.x > 0 ? driver_of(queue) : NULL;
    void *params[] = {(void *)(uintptr_t)args};
    struct ash_cuda_launch_config config = {.grid_x = (unsigned)grid.x,
                                            .grid_y = 1,
                                            .grid_z = 1,
                                            .block_x = (unsigned)grid.threads,
                                            .block_y = 1,
                                            .block_z = 1,
                                            .stream = queue->stream};

    ash_assert(grid.y <= 1 && grid.z <= 1 && grid.threads > 0 && grid.threads <= 1024);
    if (driver != NULL) check(queue, driver->launch(&config, kernel, params, NULL), name);
}

void ash_cuda_queue_end(struct ash_cuda_queue *queue)
{
    const struct ash_cuda_driver *driver = driver_of(queue);

    if (driver != NULL) check(queue, driver->event_record(queue->mark, queue->stream), "an event");
}

int ash_cuda_queue_poll(struct ash_cuda_queue *queue, struct ash_err *err)
{
    const struct ash_cuda_driver *driver = driver_of(queue);
    ash_cuda_result result = driver != NULL ? driver->event_query(queue->mark) : 0;

    if (result == ASH_CUDA_NOT_READY) return 0;
    check(queue, result, "work between ranks");
    if (queue->has_failed && err != NULL) *err = queue->failed;
    return queue->has_failed ? -EIO : 1;
}
