/* hash - checksums of bytes (xxHash's XXH3) and an order-free sum over elements. */
#ifndef ASH_BASE_HASH_H
#define ASH_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>
#include "base/device_code.h"

/* 64-bit XXH3 of a byte range. */
uint64_t ash_hash_bytes(const void *data, size_t size_bytes, uint64_t seed);
/* The same of a text, without its NUL, with seed 0. */
uint64_t ash_hash_str(const char *text);
/* A bijective mix of 64 bits; good enough that sums of mixes of distinct inputs are as good as random. */
ASH_INLINE uint64_t ash_hash_mix(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebu;
    x ^= x >> 31;
    return x;
}

/* Sum over i of mix(seed, first + i, words[i]) modulo 2^64: because addition commutes, any slicing of a tensor over
 * ranks, files or threads gives the same total. first is the index of words[0] in the whole tensor. */
uint64_t ash_hash_words(const uint32_t *words, size_t count, uint64_t first, uint64_t seed);

#endif
