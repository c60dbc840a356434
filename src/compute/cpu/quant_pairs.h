/* quant_pairs - what the kernels for weights packed in pairs (quant_pack.h) share: quantising x, and reading a panel.
 */
#ifndef ASH_COMPUTE_QUANT_PAIRS_H
#define ASH_COMPUTE_QUANT_PAIRS_H

#include "compute/cpu/quant_neon.h"
#include "compute/cpu/quant_pack.h"

#define ROWS 8 /* of a panel */
#define PAIRS 4
#define CHUNKS 4                           /* of a block: 8 k each */
#define VEC 16                             /* bytes */
#define BLOCK_BYTES (CHUNKS * PAIRS * VEC) /* numbers of a block of a panel, as bytes */
#define BLOCKS ASH_QUANT_GROUP_BLOCKS
#define GROUP_CHUNKS (BLOCKS * CHUNKS)
#define ONE_BYTES (VEC + BLOCKS * (VEC + CHUNKS * VEC)) /* of a group of a single row: see quant_one_i8mm.c */

/* ---- x ----------------------------------------------------------------------------------------------------------- */

/* ash_quant_numbers on vectors, in two halves: the scale of count numbers (a multiple of 32) and what they are times
 * (0: they become zeros); and 32 of the numbers. */
INLINE float numbers_scale(const float *x, size_t count, float *factor_out)
{
    uint32x4_t top = vdupq_n_u32(0);
    uint32_t bits;
    float amax, d;

    for (size_t at = 0; at < count; at += ASH_QUANT_BLOCK) {
        UNROLL
        for (size_t i = 0; i < 8; i++) /* without the sign: ordered like |x|, NaN above infinity */
            top = vmaxq_u32(top, vshlq_n_u32(vreinterpretq_u32_f32(vld1q_f32(x + at + 4 * i)), 1));
    }
    bits = vmaxvq_u32(top) >> 1;
    memcpy(&amax, &bits, sizeof(amax));
    d = amax / 127.0f;
    *factor_out = 1.0f / d;
    if (bits < ASH_QUANT_INFINITY_BITS && !isinf(*factor_out)) return d;
    *factor_out = 0.0f;
    return bits >= ASH_QUANT_INFINITY_BITS ? NAN : 0.0f;
}

INLINE void numbers_block(const float *x, float factor, int8x16_t q[2])
{
    float32x4_t v[8];

    if (factor == 0.0f) { /* x may be no number */
        q[0] = q[1] = vdupq_n_s8(0);
        return;
    }
    UNROLL
    for (int i = 0; i < 8; i++) /* the whole number is in the low byte of what has been rounded */
        v[i] = vaddq_f32(vmulq_n_f32(vld1q_f32(x + 4 * i), factor), vdupq_n_f32(ASH_QUANT_ROUNDER));
    UNROLL
    for (int i = 0; i < 2; i++) {
        int16x8_t low = vuzp1q_s16(vreinterpretq_s16_f32(v[4 * i]), vreinterpretq_s16_f32(v[4 * i + 1]));
        int16x8_t high = vuzp1q_s16(vreinterpretq_s16_f32(v[4 * i + 2]), vreinterpretq_s16_f32(v[4 * i + 3]));

        q[i] = vuzp1q_s8(vreinterpretq_s8_s16(low), vreinterpretq_s8_s16(high));
    }
}

/* k of the next group, of k that are left. */
INLINE size_t group_k(size_t k)
{
    return k < ASH_QUANT_GROUP ? k : ASH_QUANT_GROUP;
}

/* ---- panels ------------------------------------------------------------------------------------------------------ */

/* Of a group: the units of four of its rows; the steps of a block; and where its numbers begin. */
INLINE float32x4_t four_units(const uint8_t *group, size_t half)
{
    return vld1q_f32((const float *)(const void *)group + 4 * half);
}

INLINE int16x8_t eight_steps(enum ash_dtype dtype, const uint8_t *group, size_t block)
{
    const uint8_t *steps = group + ROWS * sizeof(float) + block * ROWS * (dtype == ASH_Q8_0 ? 2 : 1);

    if (dtype == ASH_Q8_0) return vld1q_s16((const int16_t *)(const void *)steps);
    return vmovl_s8(vld1_s8((const int8_t *)steps));
}

INLINE const uint8_t *group_numbers(enum ash_dtype dtype, const uint8_t *group)
{
    return group + ash_quant_panel_head(ASH_QUANT_PAIRS, dtype);
}

/* As struct ash_quant_panels says (quant_one_i8mm.c). */
void ash_quant_pairs_quantise_one(enum ash_dtype dtype, const float *row, size_t k, uint8_t *x);
void ash_quant_pairs_one(enum ash_dtype dtype, const uint8_t *const *panels, size_t count, const uint8_t *x, size_t k,
                         float *y);

#endif
