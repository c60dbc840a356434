/* Counter-based random numbers. Every draw is a few multiplicative mixes of (seed, stream, counter); logarithm and
 * cosine of the normal draw are worked out here with plain additions and multiplications, because a libm may round them
 * differently from machine to machine. */
#include "base/rng.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/assert.h"
#include "base/rng_draw.h"

#define FEISTEL_ROUNDS 8

static double to_uniform(uint64_t word)
{
    return (double)(word >> 11) * 0x1p-53;
}

uint64_t ash_rng_u64(uint64_t seed, uint64_t stream, uint64_t counter)
{
    return ash_rng_draw(ash_rng_draw_key(seed, stream, 0), counter);
}

double ash_rng_uniform(uint64_t seed, uint64_t stream, uint64_t counter)
{
    return to_uniform(ash_rng_draw(ash_rng_draw_key(seed, stream, 0), counter));
}

uint64_t ash_rng_below(uint64_t seed, uint64_t stream, uint64_t counter, uint64_t bound)
{
    uint64_t reject_below;

    ash_assert(bound > 0);
    reject_below = (0 - bound) % bound; /* 2^64 mod bound: the products whose low half is smaller are one too many */
    for (uint64_t lane = 0;; lane++) {
        __uint128_t product = (__uint128_t)ash_rng_draw(ash_rng_draw_key(seed, stream, lane), counter) * bound;
        if ((uint64_t)product >= reject_below) return (uint64_t)(product >> 64);
    }
}

/* ---- normal draws ------------------------------------------------------------------------------------------------ */

/* Drawn together: each step below is a loop over as many, without branches and with elements of one width, so that
 * compilers make vectors of it. One by one a draw takes twice as long, waiting for its own polynomials. */
#define BATCH 16

/* sums[i] = c[0] + c[1] z[i] + ... + c[count - 1] z[i]^(count - 1). */
static void polynomials(const double *c, int count, const double z[BATCH], double sums[BATCH])
{
    for (int i = 0; i < BATCH; i++)
        sums[i] = c[count - 1];
    for (int k = count - 2; k >= 0; k--)
        for (int i = 0; i < BATCH; i++)
            sums[i] = sums[i] * z[i] + c[k];
}

/* x = m * 2^exponent with m in [sqrt(1/2), sqrt(2)), for a normal x > 0. */
static void split(const double x[BATCH], double m[BATCH], double exponent[BATCH])
{
    uint64_t bits[BATCH], power[BATCH];

    memcpy(bits, x, sizeof(bits));
    for (int i = 0; i < BATCH; i++) {
        power[i] = (bits[i] >> 52) | 0x4330000000000000u; /* 2^52 and the whole number in its last bits */
        bits[i] = (bits[i] & 0x000fffffffffffffu) | 0x3ff0000000000000u;
    }
    memcpy(m, bits, sizeof(bits));
    memcpy(exponent, power, sizeof(power));
    for (int i = 0; i < BATCH; i++) {
        bool large = m[i] > 1.4142135623730951;

        exponent[i] = exponent[i] - 0x1p52 - (large ? 1022.0 : 1023.0);
        m[i] = large ? m[i] * 0.5 : m[i];
    }
}

/* log(x) for normal x > 0, to about 1e-16: log m = 2 atanh((m - 1) / (m + 1)). */
static void logarithms(const double x[BATCH], double logs[BATCH])
{
    static const double c[] = {2.0,        2.0 / 3.0,  2.0 / 5.0,  2.0 / 7.0,  2.0 / 9.0, 2.0 / 11.0,
                               2.0 / 13.0, 2.0 / 15.0, 2.0 / 17.0, 2.0 / 19.0, 2.0 / 21.0};
    double m[BATCH], exponent[BATCH], s[BATCH], z[BATCH], sums[BATCH];

    split(x, m, exponent);
    for (int i = 0; i < BATCH; i++) {
        s[i] = (m[i] - 1.0) / (m[i] + 1.0);
        z[i] = s[i] * s[i];
    }
    polynomials(c, ASH_COUNT(c), z, sums);
    for (int i = 0; i < BATCH; i++)
        logs[i] = s[i] * sums[i] + exponent[i] * 0.69314718055994530942;
}

/* Cosines of angles that are a number of quarter turns and t, |t| <= pi/4: sin(t) or cos(t), whose Taylor series end
 * where the next term is below 1e-17, with a sign. */
static void cosines(const double t[BATCH], const uint64_t quarter[BATCH], double cosine[BATCH])
{
    static const double sin_c[] = {1.0,
                                   -1.0 / 6.0,
                                   1.0 / 120.0,
                                   -1.0 / 5040.0,
                                   1.0 / 362880.0,
                                   -1.0 / 39916800.0,
                                   1.0 / 6227020800.0,
                                   -1.0 / 1307674368000.0,
                                   1.0 / 355687428096000.0};
    static const double cos_c[] = {1.0,
                                   -1.0 / 2.0,
                                   1.0 / 24.0,
                                   -1.0 / 720.0,
                                   1.0 / 40320.0,
                                   -1.0 / 3628800.0,
                                   1.0 / 479001600.0,
                                   -1.0 / 87178291200.0,
                                   1.0 / 20922789888000.0};
    double z[BATCH], sines[BATCH];

    for (int i = 0; i < BATCH; i++)
        z[i] = t[i] * t[i];
    polynomials(sin_c, ASH_COUNT(sin_c), z, sines);
    polynomials(cos_c, ASH_COUNT(cos_c), z, cosine);
    for (int i = 0; i < BATCH; i++) {
        double value = (quarter[i] & 1) != 0 ? t[i] * sines[i] : cosine[i];

        cosine[i] = ((quarter[i] + 1) & 2) != 0 ? -value : value;
    }
}

/* Box and Muller: of two uniform draws, the logarithm of one and the cosine of the other, as turns. */
static void draw_normals(uint64_t seed, uint64_t stream, uint64_t first, double normals[BATCH])
{
    const uint64_t u_key = ash_rng_draw_key(seed, stream, 0), v_key = ash_rng_draw_key(seed, stream, 1);
    double u[BATCH], t[BATCH], logs[BATCH], cosine[BATCH];
    uint64_t quarter[BATCH];

    for (uint64_t i = 0; i < BATCH; i++) {
        uint64_t turn = ash_rng_draw(v_key, first + i) >> 11; /* of 2^53 */

        u[i] = 1.0 - to_uniform(ash_rng_draw(u_key, first + i)); /* (0, 1]: its logarithm is finite */
        quarter[i] = (turn + ((uint64_t)1 << 50)) >> 51;         /* the nearest one, and the rest of the angle */
        t[i] = (double)((int64_t)turn - (int64_t)(quarter[i] << 51)) * 0x1p-53 * 6.28318530717958647692;
    }
    logarithms(u, logs);
    cosines(t, quarter, cosine);
    for (int i = 0; i < BATCH; i++)
        normals[i] = sqrt(-2.0 * logs[i]) * cosine[i];
}

void ash_rng_normals(uint64_t seed, uint64_t stream, uint64_t first, double *normals, size_t count)
{
    double rest[BATCH];

    for (; count >= BATCH; count -= BATCH, first += BATCH, normals += BATCH)
        draw_normals(seed, stream, first, normals);
    if (count == 0) return;
    draw_normals(seed, stream, first, rest);
    memcpy(normals, rest, count * sizeof(*rest));
}

double ash_rng_normal(uint64_t seed, uint64_t stream, uint64_t counter)
{
    double normal;

    ash_rng_normals(seed, stream, counter, &normal, 1);
    return normal;
}

/* ---- permutations ------------------------------------------------------------------------------------------------ */

/* One pass of a balanced Feistel network over 2 * half_bits bits: a bijection whatever the round function is. */
static uint64_t feistel(uint64_t x, unsigned half_bits, uint64_t key)
{
    const uint64_t mask = ((uint64_t)1 << half_bits) - 1;
    uint64_t left = x >> half_bits, right = x & mask;

    for (uint64_t round = 0; round < FEISTEL_ROUNDS; round++) {
        uint64_t next = left ^ (ash_hash_mix(key + round * ASH_RNG_GOLDEN + (right << 3 | round)) & mask);
        left = right;
        right = next;
    }
    return left << half_bits | right;
}

uint64_t ash_rng_permute(uint64_t seed, uint64_t stream, uint64_t index, uint64_t count)
{
    uint64_t key = ash_rng_draw(ash_rng_draw_key(seed, stream, 2), count);
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
