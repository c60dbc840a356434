/* Hashes: XXH3 for bytes; for tensors a sum of one mix per element, made of 32-bit multiplies because
 * every vector unit has them: it runs over all weights. */
#include "base/hash.h"

#include <string.h>
#include <xxhash.h>

#define BLOCK_WORDS 1024
#define PLACE_STEP 0x9e3779b1u /* places of neighbours differ in many bits */

uint64_t ash_hash_bytes(const void *data, size_t size_bytes, uint64_t seed)
{
    return XXH3_64bits_withSeed(data, size_bytes, seed);
}

uint64_t ash_hash_str(const char *text)
{
    return XXH3_64bits_withSeed(text, strlen(text), 0);
}

/* An element's share of the sum: a bijective mix of its word (keyed by its place) times an odd number made of its
 * place. 32 x 32 bits do not wrap, so a changed word changes the sum for certain, and several changes go unseen with a
 * chance of about 2^-63. */
static inline uint64_t share(uint32_t word, uint32_t place, uint32_t key_low, uint32_t key_high)
{
    uint32_t a = word ^ (place + key_low), b = (place ^ key_high) | 1u;

    a ^= a >> 16;
    a *= 0x85ebca6bu;
    a ^= a >> 15;
    return (uint64_t)a * b;
}

/* words[0..count) whose indexes share their upper 32 bits; first is the lower half of the index of words[0]. */
static uint64_t hash_run(const uint32_t *words, size_t count, uint32_t first, uint64_t key)
{
    const uint32_t low = (uint32_t)key, high = (uint32_t)(key >> 32);
    uint32_t place = first * PLACE_STEP;
    uint64_t sum = 0;
    size_t i = 0;

    for (; count - i >= BLOCK_WORDS; i += BLOCK_WORDS)
        for (size_t j = 0; j < BLOCK_WORDS;
             j++, place += PLACE_STEP) /* a fixed count, which compilers vectorise gladly */
            sum += share(words[i + j], place, low, high);
    for (; i < count; i++, place += PLACE_STEP)
        sum += share(words[i], place, low, high);
    return sum;
}

uint64_t ash_hash_words(const uint32_t *words, size_t count, uint64_t first, uint64_t seed)
{
    uint64_t sum = 0;

    while (count > 0) {
        uint64_t left = 0x100000000u - (first & 0xffffffffu); /* until the upper half of the index changes */
        size_t run = left < count ? (size_t)left : count;
        uint64_t key = ash_hash_mix(ash_hash_mix(seed + 0x9e3779b97f4a7c15u) + (first >> 32));
        sum += hash_run(words, run, (uint32_t)first, key);
        words += run;
        first += run;
        count -= run;
    }
    return sum;
}
