/* Hashes: XXH3 for bytes; for tensors a sum of one mix per element, made of 32-bit multiplies so that compilers vectorise it. */
#include "base/hash.h"

#include <string.h>
#include <xxhash.h>

uint64_t ash_hash_bytes(const void *data, size_t size_bytes, uint64_t seed)
{
    return XXH3_64bits_withSeed(data, size_bytes, seed);
}

uint64_t ash_hash_str(const char *text)
{
    return XXH3_64bits_withSeed(text, strlen(text), 0);
}

uint64_t ash_hash_mix(uint64_t x)
{
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93u;
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93u;
    x ^= x >> 32;
    return x;
}

/* words[0..count) whose indexes share their upper 32 bits; first is the lower half of the index of words[0]. Each element gives two
 * 32-bit halves, both bijective in the word: a changed word changes the sum for certain, anything else with 1 - 2^-64. */
static uint64_t hash_run(const uint32_t *words, size_t count, uint32_t first, uint64_t key)
{
    const uint32_t key_low = (uint32_t)key, key_high = (uint32_t)(key >> 32);
    uint64_t low = 0;
    uint32_t high = 0;

    for (size_t i = 0; i < count; i++) {
        uint32_t place = (first + (uint32_t)i) * 0x9e3779b1u;
        uint32_t a = words[i] ^ (place + key_low);
        uint32_t b = words[i] + (place ^ key_high);
        a ^= a >> 16;
        a *= 0x85ebca6bu;
        a ^= a >> 13;
        a *= 0xc2b2ae35u;
        a ^= a >> 16;
        b ^= b >> 15;
        b *= 0x2c1b3c6du;
        b ^= b >> 12;
        b *= 0x297a2d39u;
        b ^= b >> 15;
        low += a;
        high += b;
    }
    return low + ((uint64_t)high << 32);
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
