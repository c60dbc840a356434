/* io_queue: requests that continue until all their bytes are moved, whatever a system call gives at a time. */
#include "storage/io/io_queue_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

struct ash_io_queue {
    const struct ash_io_ops *ops;
    void *state;
    size_t depth, count;
};

int ash_io_queue_open(size_t depth, bool wants_uring, struct ash_io_queue **queue_out, struct ash_err *err)
{
    struct ash_io_queue *queue = calloc(1, sizeof(*queue));
    int rc = -ENOSYS;

    ash_assert(depth > 0 && depth <= ASH_IO_DEPTH_MAX);
    if (queue == NULL) return ash_err_set(err, -ENOMEM, "out of memory for a queue of files");
    queue->depth = depth;
    queue->ops = &ash_io_uring;
    if (wants_uring) rc = queue->ops->open(depth, &queue->state);
    if (rc < 0) {
        queue->ops = &ash_io_threads;
        rc = queue->ops->open(depth, &queue->state);
    }
    if (rc < 0) {
        free(queue);
        return ash_err_set(err, rc, "cannot start to read and write files: %s", strerror(-rc));
    }
    *queue_out = queue;
    return 0;
}

void ash_io_queue_close(struct ash_io_queue *queue)
{
    if (queue == NULL) return;
    while (ash_io_queue_wait(queue) != NULL)
        ;
    queue->ops->close(queue->state);
    free(queue);
}

size_t ash_io_queue_count(const struct ash_io_queue *queue)
{
    return queue->count;
}

int ash_io_request_fd(const struct ash_io_request *request)
{
    size_t left = request->size_bytes - request->done_bytes;
    uintptr_t at = (uintptr_t)request->data + request->done_bytes;

    if (request->plain_fd < 0) return request->fd;
    if ((request->offset + request->done_bytes) % ASH_IO_BLOCK_BYTES != 0 || at % ASH_IO_BLOCK_BYTES != 0 ||
        left % ASH_IO_BLOCK_BYTES != 0)
        return request->plain_fd;
    return request->fd;
}

void ash_io_queue_submit(struct ash_io_queue *queue, struct ash_io_request *request)
{
    ash_assert(queue->count < queue->depth && request->size_bytes > 0);
    request->done_bytes = 0;
    request->rc = 0;
    request->next = NULL;
    queue->count++;
    queue->ops->start(queue->state, request);
}

/* Take a result in. Returns true where the request is over. */
static bool settle(struct ash_io_request *request, ssize_t result)
{
    if (result == -EINTR || result == -EAGAIN) return false;
    if (result == -EINVAL && request->plain_fd >= 0 && request->fd != request->plain_fd) { /* of O_DIRECT */
        request->fd = request->plain_fd;
        return false;
    }
    if (result < 0) {
        request->rc = (int)result;
        return true;
    }
    if (result == 0) { /* the end of a file; a write that moves nothing would never end */
        if (request->kind == ASH_IO_WRITE) request->rc = -EIO;
        return true;
    }
    request->done_bytes += (size_t)result;
    return request->done_bytes >= request->size_bytes;
}

struct ash_io_request *ash_io_queue_wait(struct ash_io_queue *queue)
{
    if (queue->count == 0) return NULL;
    for (;;) {
        ssize_t result = 0;
        struct ash_io_request *request = queue->ops->reap(queue->state, &result);

        ash_assert(request != NULL); /* one is under way: count says so */
        if (settle(request, result)) {
            queue->count--;
            return request; /* cppcheck-suppress returnDanglingLifetime ; the caller's own, that it has given us */
        }
        queue->ops->start(queue->state, request);
    }
}
