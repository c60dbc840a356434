/* io_queue - reads and writes of files, several under way at a time: io_uring, or threads where the system forbids that
 * (containers often do). The one I/O engine: direct readers and writers of checkpoints are built on it. A request is
 * the caller's storage from submit until wait gives it back. One owner thread. */
#ifndef ASH_STORAGE_IO_IO_QUEUE_H
#define ASH_STORAGE_IO_IO_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "ashlar/err.h"

#define ASH_IO_BLOCK_BYTES ((size_t)4096) /* what O_DIRECT wants addresses, offsets and sizes to be multiples of */
#define ASH_IO_DEPTH_MAX ((size_t)256)

enum ash_io_kind { ASH_IO_READ, ASH_IO_WRITE };

struct ash_io_request {
    enum ash_io_kind kind;
    int fd;
    int plain_fd; /* the same file without O_DIRECT, where fd has it: used when that is refused; -1: none */
    void *data;
    size_t size_bytes;
    uint64_t offset;
    void *ctx; /* the caller's */
    /* when wait gives it back: */
    size_t done_bytes; /* fewer than requested only at the end of a file that is read, and after an error */
    int rc;            /* 0 or a negative errno */
    /* private: */
    struct ash_io_request *next;
    ssize_t result;
};

struct ash_io_queue;

/* A queue for up to depth requests. wants_uring false: threads. The caller owns *queue_out. Returns 0, -ENOMEM or
 * -EAGAIN. */
int ash_io_queue_open(size_t depth, bool wants_uring, struct ash_io_queue **queue_out, struct ash_err *err);
/* Wait for pending requests, drop their results, and free. NULL is a no-op. */
void ash_io_queue_close(struct ash_io_queue *queue);

/* Begin a request. Fewer than depth may be under way. Failures are in request->rc when wait gives it back. */
void ash_io_queue_submit(struct ash_io_queue *queue, struct ash_io_request *request);
/* The next request that is finished, whichever comes first; NULL where none is under way. */
struct ash_io_request *ash_io_queue_wait(struct ash_io_queue *queue);
/* Requests under way, those included that are finished and not given back yet. */
size_t ash_io_queue_count(const struct ash_io_queue *queue);

#endif
