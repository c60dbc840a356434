/* Counter-based random numbers. Every draw is a few multiplicative mixes of (seed, stream, counter); logarithm and cosine of the normal
 * draw are worked out here with plain additions and multiplications, because a libm may round them differently from machine to machine. */
#include "base/rng.h"

#include <math.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"

#define GOLDEN 0x9e3779b97f4a7c15u
#define FEISTEL_ROUNDS 8

/* The lane-th word of a counter: some draws need more than one. */
static uint64_t draw(uint64_t seed, uint64_t stream, uint64_t counter, uint64_t lane)
{
    uint64_t key = ash_hash_mix(ash_hash_mix(seed + GOLDEN) ^ (stream * 0xbf58476d1ce4e5b9u + lane));

    return ash_hash_mix(key ^ ash_hash_mix(counter + GOLDEN * (key | 1)));
}

static double to_uniform(uint64_t word)
{
    return (double)(word >> 11) * 0x1p-53;
}

uint64_t ash_rng_u64(uint64_t seed, uint64_t stream, uint64_t counter)
{
    return draw(seed, stream, counter, 0);
}

double ash_rng_uniform(uint64_t seed, uint64_t stream, uint64_t counter)
{
    return to_uniform(draw(seed, stream, counter, 0));
}

uint64_t ash_rng_below(uint64_t seed, uint64_t stream, uint64_t counter, uint64_t bound)
{
    uint64_t reject_below;

    ash_assert(bound > 0);
    reject_below = (0 - bound) % bound; /* 2^64 mod bound: the products whose low half is smaller are one too many */
    for (uint64_t lane = 0;; lane++) {
        __uint128_t product = (__uint128_t)draw(seed, stream, counter, lane) * bound;
        if ((uint64_t)product >= reject_below) return (uint64_t)(product >> 64);
    }
}

/* log(x) for a normal x > 0, to about 1e-16 relative: x = m * 2^e with m in [sqrt(1/2), sqrt(2)), log m = 2 atanh((m-1)/(m+1)). */
static double plain_log(double x)
{
    uint64_t bits;
    int exponent;
    double m, s, z, sum = 0;

    memcpy(&bits, &x, sizeof(bits));
    exponent = (int)(bits >> 52) - 1023;
    bits = (bits & 0x000fffffffffffffu) | 0x3ff0000000000000u;
    memcpy(&m, &bits, sizeof(m));
    if (m > 1.4142135623730951) {
        m *= 0.5;
        exponent++;
    }
    s = (m - 1.0) / (m + 1.0);
    z = s * s;
    for (int n = 23; n >= 1; n -= 2)
        sum = sum * z + 1.0 / n;
    return 2.0 * s * sum + exponent * 0.69314718055994530942;
}

/* sin(t) and cos(t) for |t| <= pi/4. */
static double plain_sin(double t)
{
    double z = t * t, sum = 1.0;

    for (int n = 16; n >= 2; n -= 2)
        sum = 1.0 - sum * z / (n * (n + 1));
    return t * sum;
}

static double plain_cos(double t)
{
    double z = t * t, sum = 1.0;

    for (int n = 17; n >= 1; n -= 2)
        sum = 1.0 - sum * z / (n * (n + 1));
    return sum;
}

/* cos(2 pi u) for u in [0, 1): the nearest quarter turn, and what is left of the angle. */
static double plain_cos_turn(double u)
{
    int quarter = (int)(u * 4.0 + 0.5);
    double t = (u - quarter * 0.25) * 6.28318530717958647692;

    switch (quarter & 3) {
    case 0: return plain_cos(t);
    case 1: return -plain_sin(t);
    case 2: return -plain_cos(t);
    default: return plain_sin(t);
    }
}

double ash_rng_normal(uint64_t seed, uint64_t stream, uint64_t counter)
{
    double u = 1.0 - to_uniform(draw(seed, stream, counter, 0)); /* (0, 1]: its logarithm is finite */
    double v = to_uniform(draw(seed, stream, counter, 1));

    return sqrt(-2.0 * plain_log(u)) * plain_cos_turn(v);
}

/* One pass of a balanced Feistel network over 2 * half_bits bits: a bijection whatever the round function is. */
static uint64_t feistel(uint64_t x, unsigned half_bits, uint64_t key)
{
    const uint64_t mask = ((uint64_t)1 << half_bits) - 1;
    uint64_t left = x >> half_bits, right = x & mask;

    for (uint64_t round = 0; round < FEISTEL_ROUNDS; round++) {
        uint64_t next = left ^ (ash_hash_mix(key + round * GOLDEN + (right << 3 | round)) & mask);
        left = right;
        right = next;
    }
    return left << half_bits | right;
}

uint64_t ash_rng_permute(uint64_t seed, uint64_t stream, uint64_t index, uint64_t count)
{
    uint64_t key = draw(seed, stream, count, 2);
    unsigned half_bits = 1;

    ash_assert(count > 0 && index < count);
    while (half_bits < 32 && (uint64_t)1 << (2 * half_bits) < count)
        half_bits++;
    /* Cycle walking: the network permutes a power of 4 below 4 * count; following it until it is back inside permutes [0, count). */
    do
        index = feistel(index, half_bits, key);
    while (index >= count);
    return index;
}
