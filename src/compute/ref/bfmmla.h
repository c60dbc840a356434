/* bfmmla - the arithmetic of arm64's BFMMLA in plain C, to the bit, so that every machine can say what it computes.
 * One output of one step adds four products to its sum as two pairs: sum = (sum + (a0 b0 + a1 b1)) + (a2 b2 + a3 b3).
 * Every product, pair and sum is a float32 rounded to odd (cut off, and the last bit set where anything was cut); what
 * is smaller than a normal float32 counts as a zero of its sign, read or written; too large is infinity; NaN is always
 * the same one. This is the instruction without FEAT_EBF16, or with FPCR.EBF = 0, which is how Linux starts every
 * program. */
#ifndef ASH_COMPUTE_BFMMLA_H
#define ASH_COMPUTE_BFMMLA_H

#include <math.h>
#include <stdint.h>
#include <string.h>
#include "compute/ref/odd.h"

#define ASH_BFMMLA_GROUP 4 /* k of one step */

/* A float64 that is exact, or rounded to odd, as a float32. */
static inline float bfmmla_narrow(double x)
{
    const uint64_t dropped = (1ull << ASH_ODD_DROPPED_BITS) - 1;
    uint64_t bits;

    if (isnan(x)) return NAN;
    if (fabs(x) < 0x1p-126) return copysignf(0.0f, (float)x);
    if (fabs(x) >= 0x1p128) return copysignf(INFINITY, (float)x);
    memcpy(&bits, &x, sizeof(bits));
    if ((bits & dropped) != 0) bits = (bits & ~dropped) | (1ull << ASH_ODD_DROPPED_BITS);
    memcpy(&x, &bits, sizeof(x));
    return (float)x; /* exact */
}

static inline float bfmmla_add(float a, float b)
{
    return bfmmla_narrow(odd_add(odd_flush(a), odd_flush(b)));
}

/* a and b are bf16 values, so their product is exact but for its range. */
static inline float bfmmla_multiply(float a, float b)
{
    return bfmmla_narrow((double)odd_flush(a) * (double)odd_flush(b));
}

/* sum + a[0] b[0] + ... + a[3] b[3], as one step adds them; a and b hold bf16 values. */
static inline float bfmmla_step(float sum, const float a[ASH_BFMMLA_GROUP], const float b[ASH_BFMMLA_GROUP])
{
    sum = bfmmla_add(sum, bfmmla_add(bfmmla_multiply(a[0], b[0]), bfmmla_multiply(a[1], b[1])));
    return bfmmla_add(sum, bfmmla_add(bfmmla_multiply(a[2], b[2]), bfmmla_multiply(a[3], b[3])));
}

#endif
