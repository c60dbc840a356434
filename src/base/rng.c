/* Counter-based random numbers. Every draw is a few multiplicative mixes of (seed, stream, counter); logarithm and
 * cosine of the normal draw are worked out here with plain additions and multiplications, because a libm may round them
 * differently from machine to machine. */
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
    uint64_t key = ash_hash_mix(ash_hash_mix(seed + GOLDEN) ^ (stream * 0xd1342543de82ef95u + lane));

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

/* c[0] + c[1] z + ... + c[count - 1] z^(count - 1). */
static double polynomial(const double *c, int count, double z)
{
    double sum = c[count - 1];

    for (int i = count - 2; i >= 0; i--)
        sum = sum * z + c[i];
    return sum;
}

/* log(x) for a normal x > 0, to about 1e-16: x = m * 2^e with m in [sqrt(1/2), sqrt(2)), log m = 2 atanh((m - 1) / (m +
 * 1)). */
static double plain_log(double x)
{
    static const double c[] = {2.0,        2.0 / 3.0,  2.0 / 5.0,  2.0 / 7.0,  2.0 / 9.0, 2.0 / 11.0,
                               2.0 / 13.0, 2.0 / 15.0, 2.0 / 17.0, 2.0 / 19.0, 2.0 / 21.0};
    uint64_t bits;
    int exponent;
    double m, s;

    memcpy(&bits, &x, sizeof(bits));
    exponent = (int)(bits >> 52) - 1023;
    bits = (bits & 0x000fffffffffffffu) | 0x3ff0000000000000u;
    memcpy(&m, &bits, sizeof(m));
    if (m > 1.4142135623730951) {
        m *= 0.5;
        exponent++;
    }
    s = (m - 1.0) / (m + 1.0);
    return s * polynomial(c, ASH_COUNT(c), s * s) + exponent * 0.69314718055994530942;
}

/* sin(t) and cos(t) for |t| <= pi/4: their Taylor series, whose next term is below 1e-17. */
static double plain_sin(double t)
{
    static const double c[] = {1.0,
                               -1.0 / 6.0,
                               1.0 / 120.0,
                               -1.0 / 5040.0,
                               1.0 / 362880.0,
                               -1.0 / 39916800.0,
                               1.0 / 6227020800.0,
                               -1.0 / 1307674368000.0,
                               1.0 / 355687428096000.0};

    return t * polynomial(c, ASH_COUNT(c), t * t);
}

static double plain_cos(double t)
{
    static const double c[] = {1.0,
                               -1.0 / 2.0,
                               1.0 / 24.0,
                               -1.0 / 720.0,
                               1.0 / 40320.0,
                               -1.0 / 3628800.0,
                               1.0 / 479001600.0,
                               -1.0 / 87178291200.0,
                               1.0 / 20922789888000.0};

    return polynomial(c, ASH_COUNT(c), t * t);
}

/* cos(2 pi u) for u in [0, 1): the nearest quarter turn, and what is left of the angle. */
static double plain_cos_turn(double u)
{
    int quarter = (int)(u * 4.0 + 0.5);
    double t = (u - quarter * 0.25) * 6.28318530717958647692;

    switch (quarter & 3) {
    case 0:
        return plain_cos(t);
    case 1:
        return -plain_sin(t);
    case 2:
        return -plain_cos(t);
    default:
        return plain_sin(t);
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
    /* Cycle walking: the network permutes a power of 4 below 4 * count; following it until it is back inside permutes
     * [0, count). */
    do
        index = feistel(index, half_bits, key);
    while (index >= count);
    return index;
}
