/* tdpbf16 - the arithmetic of x86-64's TDPBF16PS (AMX) in plain C, to the bit, so that every machine can say what it
 * computes. One output of one step adds 32 products to its sum: the even k are one chain of fused multiply-adds from 0,
 * the odd k another; then sum = sum + (even + odd). Every result is a float32 rounded to nearest even; what is smaller
 * than a normal float32 counts as a zero of its sign, read or (after rounding) written. */
#ifndef ASH_COMPUTE_TDPBF16_H
#define ASH_COMPUTE_TDPBF16_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include "compute/ref/odd.h"

#define ASH_TDPBF16_GROUP 32 /* k of one step */

/* A float64 that is exact, or rounded to odd, as a float32. */
static inline float tdpbf16_narrow(double x)
{
    const uint64_t dropped = (1ull << ASH_ODD_DROPPED_BITS) - 1;
    uint64_t bits;

    if (!isfinite(x)) return (float)x;
    memcpy(&bits, &x, sizeof(bits));
    bits += (dropped >> 1) + (bits >> ASH_ODD_DROPPED_BITS & 1);
    bits &= ~dropped;
    memcpy(&x, &bits, sizeof(x));
    if (fabs(x) < 0x1p-126) return copysignf(0.0f, (float)x);
    return (float)x; /* exact, or infinity */
}

static inline float tdpbf16_add(float a, float b)
{
    return tdpbf16_narrow(odd_add(odd_flush(a), odd_flush(b)));
}

/* a and b are bf16 values, so their product is exact. */
static inline float tdpbf16_fma(float a, float b, float c)
{
    return tdpbf16_narrow(odd_add((double)odd_flush(a) * (double)odd_flush(b), odd_flush(c)));
}

/* sum + a[0] b[0] + ... + a[31] b[31], as one step adds them; a and b hold bf16 values. */
static inline float tdpbf16_step(float sum, const float a[ASH_TDPBF16_GROUP], const float b[ASH_TDPBF16_GROUP])
{
    float even = 0.0f, odd = 0.0f;

    for (size_t k = 0; k < ASH_TDPBF16_GROUP; k += 2) {
        even = tdpbf16_fma(a[k], b[k], even);
        odd = tdpbf16_fma(a[k + 1], b[k + 1], odd);
    }
    return tdpbf16_add(sum, tdpbf16_add(even, odd));
}

#endif
