/* mathf - exp, log, sigmoid, tanh and erf, the only ones that any backend uses.
 * A C library's differ in their last bits between machines and versions; these are made of IEEE additions, products,
 * fused multiply-adds, divisions and bit operations alone, so every machine and every vector width gives the same bits.
 * Within 2.5 ulp; right for infinities, NaN and arguments of any size. */
#ifndef ASH_COMPUTE_MATHF_H
#define ASH_COMPUTE_MATHF_H

#include <math.h>
#include <stdint.h>
#include "base/device_code.h"
#include "base/bits.h"

/* Constants, shared with the vector versions. Polynomials: highest power first. */
#define ASH_EXP_MAX 89.0f     /* beyond: infinity */
#define ASH_EXP_MIN (-105.0f) /* below: 0 */
#define ASH_LOG2E 1.442695022e+00f
#define ASH_LN2 6.931471825e-01f
#define ASH_LN2_HI 0.693145751953125f
#define ASH_LN2_LO 1.428606765e-06f
#define ASH_EXP_POLY                                                                                                   \
    {                                                                                                                  \
        1.392639242e-03f, 8.363345638e-03f, 4.166655242e-02f, 1.666657627e-01f, 5.000000000e-01f                       \
    }
#define ASH_EXP2_MIN (-126.0f) /* below: as there */
#define ASH_EXP2_POLY                                                                                                  \
    {                                                                                                                  \
        1.338130212e-03f, 9.666368365e-03f, 5.550381169e-02f, 2.402234972e-01f, 6.931471825e-01f                       \
    }
#define ASH_LOG_POLY                                                                                                   \
    {                                                                                                                  \
        6.971611828e-02f, -1.147973388e-01f, 1.168541983e-01f, -1.242568716e-01f, 1.424905807e-01f, -1.666780263e-01f, \
            2.000071555e-01f, -2.499999702e-01f, 3.333333135e-01f                                                      \
    }
#define ASH_TANH_SMALL 0.625f
#define ASH_TANH_POLY                                                                                                  \
    {                                                                                                                  \
        -6.096714176e-03f, 2.099717967e-02f, -5.385090783e-02f, 1.333276927e-01f, -3.333332837e-01f                    \
    }
#define ASH_ERF_SMALL 1.0f
#define ASH_ERF_LARGE 4.0f /* beyond: 1 */
#define ASH_ERF_POLY                                                                                                   \
    {                                                                                                                  \
        7.875874871e-05f, -8.016864303e-04f, 5.189087242e-03f, -2.685421146e-02f, 1.128359437e-01f, -3.761262596e-01f, \
            1.283791661e-01f                                                                                           \
    }
#define ASH_ERFC_LOG_POLY                                                                                              \
    {                                                                                                                  \
        1.637151399e-06f, -4.605804133e-05f, 5.968056503e-04f, -4.759596195e-03f, 2.642113529e-02f, -1.100800857e-01f, \
            -6.318260431e-01f, -1.130233407e+00f, 3.201380605e-04f                                                     \
    }

/* Horner's rule with fused steps. */
ASH_INLINE float ash_polyf(const float *coef, int count, float x)
{
    float y = coef[0];

    for (int i = 1; i < count; i++)
        y = fmaf(y, x, coef[i]);
    return y;
}

/* exp(x) = 2^n exp(r), |r| <= ln2 / 2. The power of two is applied in two halves, so that results down to the smallest
 * denormal and up to infinity round once. */
ASH_INLINE float ash_expf(float x)
{
    static const float poly[] = ASH_EXP_POLY;
    float shifted, n, r, y;
    int32_t power, half;

    x = x > ASH_EXP_MAX ? ASH_EXP_MAX : x;
    x = x < ASH_EXP_MIN ? ASH_EXP_MIN : x;
    shifted = fmaf(x, ASH_LOG2E, ASH_F32_ROUND_MAGIC);
    n = shifted - ASH_F32_ROUND_MAGIC;
    power = (int32_t)(ash_f32_bits(shifted) - ASH_F32_ROUND_MAGIC_BITS);
    r = fmaf(n, -ASH_LN2_HI, x);
    r = fmaf(n, -ASH_LN2_LO, r);
    y = fmaf(ash_polyf(poly, 5, r), r * r, r) + 1.0f;
    half = power >> 1;
    y *= ash_f32_from_bits((uint32_t)(half + 127) << 23);
    return y * ash_f32_from_bits((uint32_t)(power - half + 127) << 23);
}

/* 2^x for weights of a softmax, where x is at most a little above 0: half the work of ash_expf. Within 5 ulp. */
ASH_INLINE float ash_exp2_weight(float x)
{
    static const float poly[] = ASH_EXP2_POLY;
    float shifted, r;

    x = x < ASH_EXP2_MIN ? ASH_EXP2_MIN : x;
    shifted = x + ASH_F32_ROUND_MAGIC;
    r = x - (shifted - ASH_F32_ROUND_MAGIC);
    /* The magic number's low bits are 0: what is left of the shifted bits is the power. */
    return fmaf(ash_polyf(poly, 5, r), r, 1.0f) * ash_f32_from_bits((ash_f32_bits(shifted) << 23) + (127u << 23));
}

/* log(x) = e ln2 + log(1 + f), 1 + f in [sqrt(1/2), sqrt(2)). */
ASH_INLINE float ash_logf(float x)
{
    static const float poly[] = ASH_LOG_POLY;
    uint32_t bits, above;
    float e, f, square, y;

    if (!(x > 0.0f)) return x == 0.0f ? -INFINITY : NAN;
    if (x == INFINITY) return x;
    e = 0.0f;
    if (x < 0x1p-126f) {
        x *= 0x1p23f;
        e = -23.0f;
    }
    bits = ash_f32_bits(x);
    above = bits - 0x3f3504f3u; /* sqrt(1/2) */
    e += (float)((int32_t)above >> 23);
    f = ash_f32_from_bits(bits - (above & 0xff800000u)) - 1.0f;
    square = f * f;
    y = fmaf(e, ASH_LN2_LO, f * square * ash_polyf(poly, 9, f));
    y = fmaf(-0.5f, square, y);
    return fmaf(e, ASH_LN2_HI, f + y);
}

/* 1 / (1 + exp(-x)), by the side whose exponential is below 1. */
ASH_INLINE float ash_sigmoidf(float x)
{
    float e = ash_expf(-fabsf(x));

    return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}

ASH_INLINE float ash_tanhf(float x)
{
    static const float poly[] = ASH_TANH_POLY;
    float a = fabsf(x), square = x * x;

    if (a < ASH_TANH_SMALL) return fmaf(ash_polyf(poly, 5, square), square * x, x);
    return copysignf(1.0f - 2.0f / (ash_expf(a + a) + 1.0f), x);
}

ASH_INLINE float ash_erff(float x)
{
    static const float poly[] = ASH_ERF_POLY, tail[] = ASH_ERFC_LOG_POLY;
    float a = fabsf(x);

    if (a < ASH_ERF_SMALL) return fmaf(ash_polyf(poly, 7, x * x), x, x);
    a = a > ASH_ERF_LARGE ? ASH_ERF_LARGE : a;
    return copysignf(1.0f - ash_expf(ash_polyf(tail, 9, a)), x);
}

#endif
