/* cuda_pairs - copies from each GPU of this machine to each other one, timed and compared to the bit. For checks: a
 * thread that does this uses no GPU otherwise at the same time. */
#ifndef ASH_INFRA_DEVICE_CUDA_PAIRS_H
#define ASH_INFRA_DEVICE_CUDA_PAIRS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"

struct ash_cuda_pairs;

/* Result of the copies from one GPU to another. */
struct ash_cuda_pair {
    bool is_direct; /* one reads the other's memory; else the driver copies through the host's */
    double rate;    /* bytes per second, of the fastest copy */
    size_t wrong_words;
    uint64_t wrong_bits; /* that differ in any word */
};

/* Take all GPUs, at most `most`, with size_bytes of memory on each (a multiple of 8), or a 64th of the first one's.
 * Returns 0, -ENODEV (no driver, no GPU) or -ENOMEM; on 0 the caller owns *pairs_out. */
int ash_cuda_pairs_open(size_t size_bytes, size_t most, struct ash_cuda_pairs **pairs_out, struct ash_err *err);
/* Release them. NULL is a no-op. */
void ash_cuda_pairs_close(struct ash_cuda_pairs *pairs);
/* How many GPUs it has. */
size_t ash_cuda_pairs_count(const struct ash_cuda_pairs *pairs);
/* The name of one; lives as long as pairs. */
const char *ash_cuda_pairs_name(const struct ash_cuda_pairs *pairs, size_t index);
/* Copy a pattern from one GPU to another some times. Returns 0, or -EIO saying what failed. */
int ash_cuda_pairs_copy(struct ash_cuda_pairs *pairs, size_t from, size_t to, struct ash_cuda_pair *pair_out,
                        struct ash_err *err);

#endif
