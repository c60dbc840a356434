/* wgmma - the arithmetic of Hopper's tensor cores (mma.sync and wgmma, bf16 into float32) in plain C, to the bit. One
 * step adds 16 products to a sum: the exact products and the sum are aligned to the largest exponent among them (a
 * product's is the sum of its factors', not normalised), each is cut off at 25 fraction bits, all are added exactly,
 * and the result is cut off to a float32. Denormals count; a zero result is always +0. Measured on an H200;
 * tests/conform/test_wgmma.c has answers. */
#ifndef ASH_COMPUTE_REF_WGMMA_H
#define ASH_COMPUTE_REF_WGMMA_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/bits.h"

#define ASH_WGMMA_GROUP 16 /* k of one step */
#define ASH_WGMMA_FRACTION 25
#define ASH_WGMMA_NAN_BITS 0x7fffffffu
#define ASH_WGMMA_NO_EXPONENT (-1000)

/* The exponent of a finite float; that of the smallest normal number for denormals. */
static inline int ash_wgmma_exponent(float x)
{
    uint32_t field = ash_f32_bits(x) >> 23 & 255;

    return (field > 0 ? (int)field : 1) - 127;
}

/* units * 2^(top - ASH_WGMMA_FRACTION), cut off to a float32. */
static inline float ash_wgmma_narrow(int64_t units, int top)
{
    uint64_t size = units < 0 ? (uint64_t)-units : (uint64_t)units;
    int high, exponent, drop;
    uint32_t sign = units < 0 ? ASH_F32_SIGN_BIT : 0, kept;

    if (size == 0) return 0.0f;
    high = 63 - __builtin_clzll(size);
    exponent = high - ASH_WGMMA_FRACTION + top;
    if (exponent > 127) return ash_f32_from_bits(sign | ASH_F32_INFINITY_BITS);
    drop = high - 23 + (exponent < -126 ? -126 - exponent : 0);
    kept = drop >= 0 ? (drop < 64 ? (uint32_t)(size >> drop) : 0) : (uint32_t)(size << -drop);
    if (kept == 0) return 0.0f;                                 /* nothing is left: a zero has no sign */
    if (exponent < -126) return ash_f32_from_bits(sign | kept); /* denormal: the field is 0 */
    return ash_f32_from_bits(sign | (uint32_t)(exponent + 127) << 23 | (kept & 0x7fffffu));
}

/* What a step with an infinity or NaN among its terms gives: exact arithmetic decides, with one NaN for all. */
static inline float ash_wgmma_special(float sum, const float *a, const float *b)
{
    float total = sum;

    for (size_t k = 0; k < ASH_WGMMA_GROUP; k++) {
        float product = a[k] * b[k];

        if (isinf(product) && isfinite(a[k]) && isfinite(b[k])) continue; /* large, not infinite */
        if (!isfinite(product)) total = isfinite(total) ? product : total + product;
    }
    return isnan(total) ? ash_f32_from_bits(ASH_WGMMA_NAN_BITS) : total;
}

/* sum + a[0] b[0] + ... + a[15] b[15], as one step adds them; a and b hold bf16 values. */
static inline float ash_wgmma_step(float sum, const float a[ASH_WGMMA_GROUP], const float b[ASH_WGMMA_GROUP])
{
    int top = sum != 0.0f ? ash_wgmma_exponent(sum) : ASH_WGMMA_NO_EXPONENT;
    bool is_finite = isfinite(sum);
    double per_unit;
    int64_t units;

    for (size_t k = 0; k < ASH_WGMMA_GROUP; k++) {
        int exponent = ash_wgmma_exponent(a[k]) + ash_wgmma_exponent(b[k]);

        is_finite = is_finite && isfinite(a[k]) && isfinite(b[k]);
        if (a[k] != 0.0f && b[k] != 0.0f && exponent > top) top = exponent;
    }
    if (!is_finite) return ash_wgmma_special(sum, a, b);
    if (top == ASH_WGMMA_NO_EXPONENT) return 0.0f;
    /* Products are exact as doubles, and are cut off when they become integers. */
    per_unit = ldexp(1.0, ASH_WGMMA_FRACTION - top);
    units = (int64_t)((double)sum * per_unit);
    for (size_t k = 0; k < ASH_WGMMA_GROUP; k++)
        units += (int64_t)((double)a[k] * (double)b[k] * per_unit);
    return ash_wgmma_narrow(units, top);
}

#endif
