/* vmath - the functions of mathf.h on vectors, step by step the same operations and therefore the same bits; and the
 * helpers that every kernel body needs: tails of fewer than VF_WIDTH elements, and the lanes of row sums. Include after
 * a vec_*.h. */
#ifndef ASH_COMPUTE_VMATH_H
#define ASH_COMPUTE_VMATH_H

#include <string.h>
#include "compute/lanes.h"
#include "compute/mathf.h"
#include "compute/ops.h"

#define UNROLL _Pragma("GCC unroll 16")

/* ---- loads and stores -------------------------------------------------------------------------------------------- */

/* The first count < VF_WIDTH lanes from p; the others are 0. */
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

/* count lanes, up to a whole vector. */
static inline vf vf_load_n(const float *p, size_t count)
{
    return count >= VF_WIDTH ? vf_load(p) : vf_load_part(p, count);
}

static inline void vf_store_n(float *p, vf x, size_t count)
{
    if (count >= VF_WIDTH)
        vf_store(p, x);
    else
        vf_store_part(p, x, count);
}

static inline vf vf_neg(vf x)
{
    return vf_from_bits(vu_add(vf_bits(x), vu_set(0x80000000u))); /* flips the sign bit, of NaN too */
}

static inline vf vf_abs(vf x)
{
    return vf_from_bits(vu_and(vf_bits(x), vu_set(0x7fffffffu)));
}

/* The size of x with the sign of sign. */
static inline vf vf_copysign(vf x, vf sign)
{
    return vf_from_bits(vu_or(vf_bits(vf_abs(x)), vu_and(vf_bits(sign), vu_set(0x80000000u))));
}

static inline vf vf_max(vf x, vf max)
{
    return vf_pick_gt(x, max, x, max);
}

/* Bits of the nearest bf16 in the upper half of each lane, 0 below. */
static inline vu vf_bf16_bits(vf x)
{
    vu bits = vf_bits(x), odd = vu_and(vu_shr16(bits), vu_set(1));
    vf rounded = vf_from_bits(vu_add(bits, vu_add(vu_set(0x7fff), odd)));
    vf quiet = vf_from_bits(vu_or(bits, vu_set(0x400000u)));

    return vu_and(vf_bits(vf_pick_eq(x, x, rounded, quiet)), vu_set(0xffff0000u));
}

/* ---- functions --------------------------------------------------------------------------------------------------- */

static inline vf vf_poly(const float *coef, int count, vf x)
{
    vf y = vf_set(coef[0]);

    UNROLL
    for (int i = 1; i < count; i++)
        y = vf_fma(y, x, vf_set(coef[i]));
    return y;
}

static inline vf vf_exp(vf x)
{
    static const float poly[] = ASH_EXP_POLY;
    vf shifted, n, r, y;
    vu power, half, bias = vu_set(127);

    x = vf_pick_gt(x, vf_set(ASH_EXP_MAX), vf_set(ASH_EXP_MAX), x);
    x = vf_pick_gt(vf_set(ASH_EXP_MIN), x, vf_set(ASH_EXP_MIN), x);
    shifted = vf_fma(x, vf_set(ASH_LOG2E), vf_set(ASH_ROUND_MAGIC));
    n = vf_sub(shifted, vf_set(ASH_ROUND_MAGIC));
    power = vu_sub(vf_bits(shifted), vu_set(ASH_ROUND_MAGIC_BITS));
    r = vf_fma(n, vf_set(-ASH_LN2_HI), x);
    r = vf_fma(n, vf_set(-ASH_LN2_LO), r);
    y = vf_add(vf_fma(vf_poly(poly, 5, r), vf_mul(r, r), r), vf_set(1.0f));
    half = vu_sar1(power);
    y = vf_mul(y, vf_from_bits(vu_shl23(vu_add(half, bias))));
    return vf_mul(y, vf_from_bits(vu_shl23(vu_add(vu_sub(power, half), bias))));
}

static inline vf vf_sigmoid(vf x)
{
    vf one = vf_set(1.0f), e = vf_exp(vf_neg(vf_abs(x)));

    return vf_div(vf_pick_gt(vf_set(0.0f), x, e, one), vf_add(one, e));
}

static inline vf vf_tanh(vf x)
{
    static const float poly[] = ASH_TANH_POLY;
    vf a = vf_abs(x), square = vf_mul(x, x), one = vf_set(1.0f);
    vf small = vf_fma(vf_poly(poly, 5, square), vf_mul(square, x), x);
    vf large = vf_sub(one, vf_div(vf_set(2.0f), vf_add(vf_exp(vf_add(a, a)), one)));

    return vf_pick_gt(vf_set(ASH_TANH_SMALL), a, small, vf_copysign(large, x));
}

static inline vf vf_erf(vf x)
{
    static const float poly[] = ASH_ERF_POLY, tail[] = ASH_ERFC_LOG_POLY;
    vf a = vf_abs(x), limit = vf_set(ASH_ERF_LARGE), small = vf_fma(vf_poly(poly, 7, vf_mul(x, x)), x, x), large;

    large = vf_sub(vf_set(1.0f), vf_exp(vf_poly(tail, 9, vf_pick_gt(a, limit, limit, a))));
    return vf_pick_gt(vf_set(ASH_ERF_SMALL), a, small, vf_copysign(large, x));
}

/* ---- row sums ---------------------------------------------------------------------------------------------------- */

#define LANE_VECS (ASH_LANES / VF_WIDTH)

/* The ASH_LANES partial sums of a row. */
struct lanes {
    vf part[LANE_VECS];
};

static inline void lanes_zero(struct lanes *lanes)
{
    UNROLL
    for (int v = 0; v < LANE_VECS; v++)
        lanes->part[v] = vf_set(0.0f);
}

/* The partial sums as floats: a tail is added to them one by one, then ash_lanes_fold. */
static inline void lanes_spill(const struct lanes *lanes, float out[ASH_LANES])
{
    UNROLL
    for (int v = 0; v < LANE_VECS; v++)
        vf_store(out + v * VF_WIDTH, lanes->part[v]);
}

static inline float lanes_max(const struct lanes *lanes)
{
    float part[ASH_LANES], max;

    lanes_spill(lanes, part);
    max = part[0];
    for (int l = 1; l < ASH_LANES; l++)
        max = part[l] > max ? part[l] : max;
    return max;
}

#endif
