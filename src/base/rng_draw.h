/* rng_draw - the draws of rng.h, for the host and for kernels. */
#ifndef ASH_BASE_RNG_DRAW_H
#define ASH_BASE_RNG_DRAW_H

#include <stdint.h>
#include "base/device_code.h"
#include "base/hash.h"

#define ASH_RNG_GOLDEN 0x9e3779b97f4a7c15u

/* Of the lane-th words of a stream: some draws need more than one. */
ASH_INLINE uint64_t ash_rng_draw_key(uint64_t seed, uint64_t stream, uint64_t lane)
{
    return ash_hash_mix(ash_hash_mix(seed + ASH_RNG_GOLDEN) ^ (stream * 0xd1342543de82ef95u + lane));
}

/* The word of a key at counter: 64 random bits. */
ASH_INLINE uint64_t ash_rng_draw(uint64_t key, uint64_t counter)
{
    return ash_hash_mix(key ^ ash_hash_mix(counter + ASH_RNG_GOLDEN * (key | 1)));
}

#endif
