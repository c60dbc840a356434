/* Zstandard in a build without libzstd: it is recognised and refused. */
#include "train/data/unpack.h"

#include <errno.h>

static int none_open(void **state_out)
{
    (void)state_out;
    return -ENOTSUP;
}

const struct ash_unpack_ops ash_unpack_zstd = {
    .name = "zstd",
    .magic = {0x28, 0xb5, 0x2f, 0xfd},
    .magic_bytes = 4,
    .open = none_open,
};
