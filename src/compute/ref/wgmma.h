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

/* A term: (-1)^negative * significand * 2^(exponent - fraction). */
struct ash_wgmma_term {
    bool negative;
    int exponent, fraction;
    int64_t significand;
};

/* A finite float as a term whose significand has the 24 bits of a float32. */
static inline struct ash_wgmma_term ash_wgmma_split(float x)
{
    uint32_t bits = ash_f32_bits(x), field = bits >> 23 & 255;
    int64_t fraction = bits & 0x7fffffu;

    return (struct ash_wgmma_term){.negative = bits >> 31 != 0,
                                   .exponent = (field > 0 ? (int)field : 1) - 127,
                                   .fraction = 23,
                                   .significand = field > 0 ? fraction | 0x800000 : fraction};
}

/* a * b, both bf16 values: 8 bits each, so the product is exact. */
static inline struct ash_wgmma_term ash_wgmma_product(float a, float b)
{
    struct ash_wgmma_term x = ash_wgmma_split(a), y = ash_wgmma_split(b);

    return (struct ash_wgmma_term){.negative = x.negative != y.negative,
                                   .exponent = x.exponent + y.exponent,
                                   .fraction = 14,
                                   .significand = (x.significand >> 16) * (y.significand >> 16)};
}

/* A term in units of 2^(top - ASH_WGMMA_FRACTION), cut off. */
static inline int64_t ash_wgmma_align(const struct ash_wgmma_term *term, int top)
{
    int64_t units = term->significand << (ASH_WGMMA_FRACTION - term->fraction);
    int down = top - term->exponent; /* at least 0, but for a zero, whose exponent says nothing */

    units = units != 0 && down < 63 ? units >> down : 0;
    return term->negative ? -units : units;
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
    struct ash_wgmma_term terms[ASH_WGMMA_GROUP + 1];
    bool is_finite = isfinite(sum);
    int top = ASH_WGMMA_NO_EXPONENT;
    int64_t units = 0;

    for (size_t k = 0; k < ASH_WGMMA_GROUP; k++)
        is_finite = is_finite && isfinite(a[k]) && isfinite(b[k]);
    if (!is_finite) return ash_wgmma_special(sum, a, b);
    for (size_t k = 0; k < ASH_WGMMA_GROUP; k++)
        terms[k] = ash_wgmma_product(a[k], b[k]);
    terms[ASH_WGMMA_GROUP] = ash_wgmma_split(sum);
    for (size_t i = 0; i <= ASH_WGMMA_GROUP; i++)
        if (terms[i].significand != 0 && terms[i].exponent > top) top = terms[i].exponent;
    for (size_t i = 0; i <= ASH_WGMMA_GROUP; i++)
        units += ash_wgmma_align(&terms[i], top);
    return ash_wgmma_narrow(units, top);
}

#endif
