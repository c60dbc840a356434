/* io_queue_priv - between io_queue.c and what moves the bytes: io_threads.c and io_uring.c. */
#ifndef ASH_STORAGE_IO_IO_QUEUE_PRIV_H
#define ASH_STORAGE_IO_IO_QUEUE_PRIV_H

#include <sys/types.h>
#include "storage/io/io_queue.h"

/* Moves bytes. Each transfer is one system call's worth: io_queue.c continues where it stopped. */
struct ash_io_ops {
    int (*open)(size_t depth, void **state_out);
    /* Begin the rest of the request. */
    void (*start)(void *state, struct ash_io_request *request);
    /* Wait for one. *result_out: bytes, or a negative errno. */
    struct ash_io_request *(*reap)(void *state, ssize_t *result_out);
    void (*close)(void *state);
};

extern const struct ash_io_ops ash_io_threads, ash_io_uring;

/* Which descriptor the rest of a request goes through: O_DIRECT while the rest is aligned for it. */
int ash_io_request_fd(const struct ash_io_request *request);

#endif
