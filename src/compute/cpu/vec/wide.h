/* wide - ASH_LANES floats at a time, as one to four vectors side by side, and the functions of mathf.h on them: step by
 * step the same operations, therefore the same bits. Working on all of them at once keeps several chains of operations
 * in flight, and a wide is at the same time the ASH_LANES partial sums of a row. */
#ifndef ASH_COMPUTE_WIDE_H
#define ASH_COMPUTE_WIDE_H

#ifndef VF_WIDTH
#error "include a vec_<isa>.h first"
#endif

#include <string.h>
#include "compute/lanes.h"
#include "compute/mathf.h"
#include "compute/ops.h"

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

#define WIDE_VECS (ASH_LANES / VF_WIDTH)
#define WIDE_TANH_MAX 40.0f

struct wide {
    vf v[WIDE_VECS];
};

/* ---- loads and stores -------------------------------------------------------------------------------------------- */

INLINE struct wide wide_set(float x)
{
    struct wide w;

    UNROLL
    for (int n = 0; n < WIDE_VECS; n++)
        w.v[n] = vf_set(x);
    return w;
}

INLINE struct wide wide_load(const float *p)
{
    struct wide w;

    UNROLL
    for (int n = 0; n < WIDE_VECS; n++)
        w.v[n] = vf_load(p + n * VF_WIDTH);
    return w;
}

INLINE void wide_store(float *p, struct wide w)
{
    UNROLL
    for (int n = 0; n < WIDE_VECS; n++)
        vf_store(p + n * VF_WIDTH, w.v[n]);
}

/* The first count < VF_WIDTH lanes of one vector; the others are 0. */
static inline vf vf_load_part(const float *p, size_t count)
{
    float full[VF_WIDTH] = {0};

    memcpy(full, p, count * sizeof(*p));
    return vf_load(full);
}

static inline void vf_store_part(float *p, vf x, size_t count)
{
    float full[VF_WIDTH];

    vf_store(full, x);
    memcpy(p, full, count * sizeof(*p));
}

/* A vector in all places, in registers that are about to be overwritten: see vf_fresh. */
INLINE struct wide wide_fresh(const vf *x)
{
    struct wide w;

    UNROLL
    for (int n = 0; n < WIDE_VECS; n++)
        w.v[n] = vf_fresh(x);
    return w;
}

/* Up to ASH_LANES floats, count of them; the other lanes are 0. A loop over elements is written as an INLINE step for
 * count of them, called with the constant ASH_LANES in the loop and once with what is left: so the loop has no
 * branches. */
INLINE struct wide wide_load_n(const float *p, size_t count)
{
    struct wide w = wide_set(0.0f);

    UNROLL
    for (size_t n = 0; n < WIDE_VECS; n++) {
        if (count >= (n + 1) * VF_WIDTH)
            w.v[n] = vf_load(p + n * VF_WIDTH);
        else if (count > n * VF_WIDTH)
            w.v[n] = vf_load_part(p + n * VF_WIDTH, count - n * VF_WIDTH);
    }
    return w;
}

INLINE void wide_store_n(float *p, struct wide w, size_t count)
{
    UNROLL
    for (size_t n = 0; n < WIDE_VECS; n++) {
        if (count >= (n + 1) * VF_WIDTH)
            vf_store(p + n * VF_WIDTH, w.v[n]);
        else if (count > n * VF_WIDTH)
            vf_store_part(p + n * VF_WIDTH, w.v[n], count - n * VF_WIDTH);
    }
}

/* ---- arithmetic -------------------------------------------------------------------------------------------------- */

#define WIDE_BINARY(NAME)                                                                                              \
    INLINE struct wide wide_##NAME(struct wide a, struct wide b) {                                                     \
        UNROLL for (int n = 0; n < WIDE_VECS; n++) a.v[n] = vf_##NAME(a.v[n], b.v[n]);                                 \
        return a;                                                                                                      \
    }

WIDE_BINARY(add)
WIDE_BINARY(sub)
WIDE_BINARY(mul)
WIDE_BINARY(div)

/* a * b + c, rounded once. */
INLINE struct wide wide_fma(struct wide a, struct wide b, struct wide c)
{
    UNROLL
    for (int n = 0; n < WIDE_VECS; n++)
        c.v[n] = vf_fma(a.v[n], b.v[n], c.v[n]);
    return c;
}

INLINE struct wide wide_sqrt(struct wide a)
{
    UNROLL
    for (int n = 0; n < WIDE_VECS; n++)
        a.v[n] = vf_sqrt(a.v[n]);
    return a;
}

/* a > b ? x : y; NaN compares false. */
INLINE struct wide wide_pick_gt(struct wide a, struct wide b, struct wide x, struct wide y)
{
    UNROLL
    for (int n = 0; n < WIDE_VECS; n++)
        y.v[n] = vf_pick_gt(a.v[n], b.v[n], x.v[n], y.v[n]);
    return y;
}

INLINE struct wide wide_max(struct wide x, struct wide max)
{
    return wide_pick_gt(x, max, x, max);
}

/* The smaller of both, not a number where one is none. */
INLINE struct wide wide_low(struct wide x, struct wide low)
{
    UNROLL
    for (int n = 0; n < WIDE_VECS; n++)
        low.v[n] = vf_low(x.v[n], low.v[n]);
    return low;
}

INLINE struct wide wide_abs(struct wide a)
{
    UNROLL
    for (int n = 0; n < WIDE_VECS; n++)
        a.v[n] = vf_from_bits(vu_and(vf_bits(a.v[n]), vu_set(0x7fffffffu)));
    return a;
}

INLINE struct wide wide_neg(struct wide a)
{
    UNROLL
    for (int n = 0; n < WIDE_VECS; n++)
        a.v[n] = vf_from_bits(vu_add(vf_bits(a.v[n]), vu_set(0x80000000u))); /* flips the sign bit, of NaN too */
    return a;
}

/* The size of x >= 0 with the sign of sign. */
INLINE struct wide wide_copysign(struct wide x, struct wide sign)
{
    UNROLL
    for (int n = 0; n < WIDE_VECS; n++)
        x.v[n] = vf_from_bits(vu_or(vf_bits(x.v[n]), vu_and(vf_bits(sign.v[n]), vu_set(0x80000000u))));
    return x;
}

/* Each float becomes the nearest bf16, ties to even. */
INLINE struct wide wide_round_bf16(struct wide a)
{
    UNROLL
    for (int n = 0; n < WIDE_VECS; n++) {
        vu bits = vf_bits(a.v[n]), odd = vu_and(vu_shr16(bits), vu_set(1));
        vf rounded = vf_from_bits(vu_add(bits, vu_add(vu_set(0x7fff), odd)));
        vf quiet = vf_from_bits(vu_or(bits, vu_set(0x400000u))); /* NaN */

        a.v[n] = vf_from_bits(vu_and(vf_bits(vf_pick_eq(a.v[n], a.v[n], rounded, quiet)), vu_set(0xffff0000u)));
    }
    return a;
}

/* Floats that are bf16 already, as bf16. */
INLINE void wide_store_bf16(uint16_t *p, struct wide a, size_t count)
{
    uint16_t full[ASH_LANES], *to = count >= ASH_LANES ? p : full;

    UNROLL
    for (int n = 0; n < WIDE_VECS; n++)
        vu_store_low16(to + n * VF_WIDTH, vu_shr16(vf_bits(a.v[n])));
    if (count < ASH_LANES) memcpy(p, full, count * sizeof(*p));
}

/* ---- functions --------------------------------------------------------------------------------------------------- */

INLINE struct wide wide_poly(const float *coef, int count, struct wide x)
{
    struct wide y = wide_set(coef[0]);

    UNROLL
    for (int i = 1; i < count; i++)
        y = wide_fma(y, x, wide_set(coef[i]));
    return y;
}

/* y * 2^power in two halves, power being the integer in the low bits of shifted. */
INLINE struct wide wide_exp_scale(struct wide y, struct wide shifted)
{
    vu bias = vu_set(127);

    UNROLL
    for (int n = 0; n < WIDE_VECS; n++) {
        vu power = vu_sub(vf_bits(shifted.v[n]), vu_set(ASH_F32_ROUND_MAGIC_BITS)), half = vu_sar1(power);

        y.v[n] = vf_mul(y.v[n], vf_from_bits(vu_shl23(vu_add(half, bias))));
        y.v[n] = vf_mul(y.v[n], vf_from_bits(vu_shl23(vu_add(vu_sub(power, half), bias))));
    }
    return y;
}

/* y * 2^power, for a y and a product that are normal numbers: the exponent grows. */
INLINE struct wide wide_add_power(struct wide y, struct wide shifted)
{
    UNROLL
    for (int n = 0; n < WIDE_VECS; n++)
        y.v[n] = vf_from_bits(vu_add(vf_bits(y.v[n]), vu_shl23(vf_bits(shifted.v[n]))));
    return y;
}

/* exp(x) = the result times 2 to the integer in the low bits of *shifted_out. */
INLINE struct wide wide_exp_parts(struct wide x, struct wide *shifted_out)
{
    static const float poly[] = ASH_EXP_POLY;
    struct wide shifted = wide_fma(x, wide_set(ASH_LOG2E), wide_set(ASH_F32_ROUND_MAGIC));
    struct wide n = wide_sub(shifted, wide_set(ASH_F32_ROUND_MAGIC)), r;

    r = wide_fma(n, wide_set(-ASH_LN2_HI), x);
    r = wide_fma(n, wide_set(-ASH_LN2_LO), r);
    *shifted_out = shifted;
    return wide_add(wide_fma(wide_poly(poly, 5, r), wide_mul(r, r), r), wide_set(1.0f));
}

INLINE struct wide wide_exp(struct wide x)
{
    struct wide max = wide_set(ASH_EXP_MAX), min = wide_set(ASH_EXP_MIN), shifted, y;

    x = wide_pick_gt(x, max, max, x);
    x = wide_pick_gt(min, x, min, x);
    y = wide_exp_parts(x, &shifted);
    return wide_exp_scale(y, shifted);
}

/* exp of x >= 0 (or NaN), for x up to WIDE_TANH_MAX, from where on exp is so large that 1 - 2 / (exp + 1) is 1
 * already. */
INLINE struct wide wide_exp_tanh(struct wide x)
{
    struct wide max = wide_set(WIDE_TANH_MAX), shifted, y;

    y = wide_exp_parts(wide_pick_gt(x, max, max, x), &shifted);
    UNROLL
    for (int n = 0; n < WIDE_VECS; n++) /* the power is small: one factor does */
        y.v[n] = vf_mul(y.v[n],
                        vf_from_bits(vu_shl23(vu_add(vf_bits(shifted.v[n]), vu_set(127 - ASH_F32_ROUND_MAGIC_BITS)))));
    return y;
}

INLINE struct wide wide_sigmoid(struct wide x)
{
    struct wide one = wide_set(1.0f), e = wide_exp(wide_neg(wide_abs(x)));

    return wide_div(wide_pick_gt(wide_set(0.0f), x, e, one), wide_add(one, e));
}

INLINE struct wide wide_tanh(struct wide x)
{
    static const float poly[] = ASH_TANH_POLY;
    struct wide a = wide_abs(x), square = wide_mul(x, x), one = wide_set(1.0f);
    struct wide small = wide_fma(wide_poly(poly, 5, square), wide_mul(square, x), x);
    struct wide large = wide_sub(one, wide_div(wide_set(2.0f), wide_add(wide_exp_tanh(wide_add(a, a)), one)));

    return wide_pick_gt(wide_set(ASH_TANH_SMALL), a, small, wide_copysign(large, x));
}

INLINE struct wide wide_erf(struct wide x)
{
    static const float poly[] = ASH_ERF_POLY, tail[] = ASH_ERFC_LOG_POLY;
    struct wide a = wide_abs(x), limit = wide_set(ASH_ERF_LARGE), small, large;

    small = wide_fma(wide_poly(poly, 7, wide_mul(x, x)), x, x);
    large = wide_sub(wide_set(1.0f), wide_exp(wide_poly(tail, 9, wide_pick_gt(a, limit, limit, a))));
    return wide_pick_gt(wide_set(ASH_ERF_SMALL), a, small, wide_copysign(large, x));
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

/* The largest lane. */
INLINE float wide_fold_max(struct wide w)
{
    float lanes[VF_WIDTH], max;

    UNROLL
    for (int n = 1; n < WIDE_VECS; n++)
        w.v[0] = vf_pick_gt(w.v[n], w.v[0], w.v[n], w.v[0]);
    vf_store(lanes, w.v[0]);
    max = lanes[0];
    for (int l = 1; l < VF_WIDTH; l++)
        max = lanes[l] > max ? lanes[l] : max;
    return max;
}

/* The sum of the lanes, by the lanes rule: l with l + 8, then + 4, + 2, + 1. */
INLINE float wide_fold(struct wide w)
{
    float lanes[VF_WIDTH];

    UNROLL
    for (int half = WIDE_VECS / 2; half > 0; half /= 2) {
        UNROLL
        for (int n = 0; n < half; n++)
            w.v[n] = vf_add(w.v[n], w.v[n + half]);
    }
    vf_store(lanes, w.v[0]);
    UNROLL
    for (int half = VF_WIDTH / 2; half > 0; half /= 2) {
        UNROLL
        for (int l = 0; l < half; l++)
            lanes[l] = lanes[l] + lanes[l + half];
    }
    return lanes[0];
}

/* out = a + b; out may be either. */
static inline void add_row(const float *a, const float *b, size_t count, float *out)
{
    size_t i = 0;

    for (; i + ASH_LANES <= count; i += ASH_LANES)
        wide_store(out + i, wide_add(wide_load(a + i), wide_load(b + i)));
    for (; i < count; i++)
        out[i] = a[i] + b[i];
}

static inline void scale_row(float *x, size_t count, float factor)
{
    size_t i = 0;

    for (; i + ASH_LANES <= count; i += ASH_LANES)
        wide_store(x + i, wide_mul(wide_load(x + i), wide_set(factor)));
    for (; i < count; i++)
        x[i] = x[i] * factor;
}

/* Row sum of x * y. */
static inline float dot_row(const float *x, const float *y, size_t count)
{
    struct wide sum = wide_set(0.0f);
    float lanes[ASH_LANES];
    size_t i = 0;

    for (; i + ASH_LANES <= count; i += ASH_LANES)
        sum = wide_fma(wide_load(x + i), wide_load(y + i), sum);
    if (i == count) return wide_fold(sum);
    wide_store(lanes, sum);
    for (; i < count; i++)
        lanes[i % ASH_LANES] = fmaf(x[i], y[i], lanes[i % ASH_LANES]);
    return ash_lanes_fold(lanes);
}

/* The larger of max and the largest of x; NaN is passed over. */
static inline float max_row(const float *x, size_t count, float max)
{
    struct wide top = wide_set(max);
    size_t i = 0;

    for (; i + ASH_LANES <= count; i += ASH_LANES)
        top = wide_max(wide_load(x + i), top);
    max = wide_fold_max(top);
    for (; i < count; i++)
        max = x[i] > max ? x[i] : max;
    return max;
}

/* Row sum of exp(x - max), which replace x where out is x; out NULL only sums. */
INLINE float exp_row(const float *x, size_t count, float max, float *out)
{
    struct wide sum = wide_set(0.0f);
    float lanes[ASH_LANES];
    size_t i = 0;

    for (; i + ASH_LANES <= count; i += ASH_LANES) {
        struct wide e = wide_exp(wide_sub(wide_load(x + i), wide_set(max)));

        if (out != NULL) wide_store(out + i, e);
        sum = wide_add(sum, e);
    }
    if (i == count) return wide_fold(sum);
    wide_store(lanes, sum);
    for (; i < count; i++) {
        float e = ash_expf(x[i] - max);

        if (out != NULL) out[i] = e;
        lanes[i % ASH_LANES] = lanes[i % ASH_LANES] + e;
    }
    return ash_lanes_fold(lanes);
}

/* lanes += the lanes of a row sum of exp(x - max), which replace x where out is x; out NULL only sums. */
INLINE void exp_lanes(const float *x, size_t count, float max, float *lanes, float *out)
{
    struct wide sum = wide_load(lanes);
    size_t i = 0;

    for (; i + ASH_LANES <= count; i += ASH_LANES) {
        struct wide e = wide_exp(wide_sub(wide_load(x + i), wide_set(max)));

        if (out != NULL) wide_store(out + i, e);
        sum = wide_add(sum, e);
    }
    wide_store(lanes, sum);
    for (; i < count; i++) {
        float e = ash_expf(x[i] - max);

        if (out != NULL) out[i] = e;
        lanes[i % ASH_LANES] = lanes[i % ASH_LANES] + e;
    }
}

#endif
