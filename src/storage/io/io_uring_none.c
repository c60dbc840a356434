/* io_uring: a build without liburing uses threads. */
#include <errno.h>

#include "storage/io/io_queue_priv.h"

static int none_open(size_t depth, void **state_out)
{
    (void)depth;
    (void)state_out;
    return -ENOSYS;
}

const struct ash_io_ops ash_io_uring = {.open = none_open};
