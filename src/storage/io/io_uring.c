/* io_uring: an I/O queue in the kernel. One thread submits and waits; no system call per request is waited for. */
#include <errno.h>
#include <liburing.h>
#include <stdlib.h>

#include "base/assert.h"
#include "storage/io/io_queue_priv.h"

struct ring {
    struct io_uring io;
};

static int ring_open(size_t depth, void **state_out)
{
    struct ring *ring = calloc(1, sizeof(*ring));
    int rc;

    if (ring == NULL) return -ENOMEM;
    rc = io_uring_queue_init((unsigned)depth, &ring->io, 0);
    if (rc < 0) {
        free(ring);
        return rc;
    }
    *state_out = ring;
    return 0;
}

static void ring_close(void *state)
{
    struct ring *ring = state;

    io_uring_queue_exit(&ring->io);
    free(ring);
}

#define MOVE_MAX ((size_t)1 << 30) /* fits a 32-bit length */

static void ring_start(void *state, struct ash_io_request *request)
{
    struct ring *ring = state;
    struct io_uring_sqe *sqe = io_uring_get_sqe(&ring->io);
    char *data = (char *)request->data + request->done_bytes;
    size_t left = request->size_bytes - request->done_bytes;
    unsigned bytes = (unsigned)(left < MOVE_MAX ? left : MOVE_MAX);
    uint64_t offset = request->offset + request->done_bytes;
    int fd = ash_io_request_fd(request), rc;

    ash_assert(sqe != NULL); /* depth entries, and all are submitted at once */
    if (request->kind == ASH_IO_READ)
        io_uring_prep_read(sqe, fd, data, bytes, offset);
    else
        io_uring_prep_write(sqe, fd, data, bytes, offset);
    io_uring_sqe_set_data(sqe, request);
    do
        rc = io_uring_submit(&ring->io);
    while (rc == -EINTR || rc == -EAGAIN || rc == -EBUSY);
    ash_assert(rc == 1);
}

static struct ash_io_request *ring_reap(void *state, ssize_t *result_out)
{
    struct ring *ring = state;
    struct io_uring_cqe *cqe = NULL;
    struct ash_io_request *request;
    int rc;

    do
        rc = io_uring_wait_cqe(&ring->io, &cqe);
    while (rc == -EINTR || rc == -EAGAIN);
    ash_assert(rc == 0);
    request = io_uring_cqe_get_data(cqe);
    *result_out = cqe->res;
    io_uring_cqe_seen(&ring->io, cqe);
    return request;
}

const struct ash_io_ops ash_io_uring = {.open = ring_open, .start = ring_start, .reap = ring_reap, .close = ring_close};
