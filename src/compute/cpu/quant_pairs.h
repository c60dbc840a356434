/* quant_pairs - what the kernels for weights packed in pairs (quant_pack.h) share: quantising x, and reading a panel.
 */
#ifndef ASH_COMPUTE_QUANT_PAIRS_H
#define ASH_COMPUTE_QUANT_PAIRS_H

#include <arm_neon.h>
#include <string.h>
#include "compute/cpu/quant_pack.h"
#include "compute/quant.h"

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

#define ROWS 8 /* of a panel */
#define PAIRS 4
#define CHUNKS 4                                                               /* 8 k each */
#define VEC 16                                                                 /* bytes */
#define SPAN_CHUNKS(dtype) ((dtype) == ASH_Q8_W ? ASH_QUANT_WIDE / 8 : CHUNKS) /* that share a scale */
#define WIDE_BYTES (2 * VEC + PAIRS * SPAN_CHUNKS(ASH_Q8_W) * VEC)             /* of a span of a panel of Q8_W */
#define ONE_BYTES(dtype) (2 * VEC + SPAN_CHUNKS(dtype) * VEC) /* of a single row: see ash_quant_pairs_quantise_one */

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

/* k that share a scale, of k that are left. */
INLINE size_t span_k(enum ash_dtype dtype, size_t k)
{
    if (dtype != ASH_Q8_W) return ASH_QUANT_BLOCK;
    return k < ASH_QUANT_WIDE ? k : ASH_QUANT_WIDE;
}

/* ---- panels ------------------------------------------------------------------------------------------------------ */

/* One block of a panel in registers' order: chunk c of pair p, numbers of Q4_0 16 times too large. */
INLINE int8x16_t chunk_q8(const uint8_t *block, size_t c, size_t p)
{
    return vld1q_s8((const int8_t *)block + VEC + (c * PAIRS + p) * VEC);
}

INLINE int8x16_t chunk_q4(const uint8_t *block, size_t c, size_t p)
{
    uint8x16_t bytes = vld1q_u8(block + VEC + (c % 2 * PAIRS + p) * VEC);

    if (c >= 2) return vreinterpretq_s8_u8(vandq_u8(bytes, vdupq_n_u8(0xf0)));
    return vreinterpretq_s8_u8(veorq_u8(vshlq_n_u8(bytes, 4), vdupq_n_u8(0x80)));
}

/* Numbers of a panel's block or span, from its chunk 0 on; those of a block of 32 k, unless expanded, by type. */
INLINE int8x16_t panel_chunk(enum ash_dtype dtype, bool expanded, const uint8_t *block, size_t c, size_t p)
{
    if (dtype == ASH_Q8_W) return vld1q_s8((const int8_t *)block + (2 + c * PAIRS + p) * VEC);
    if (expanded) return vld1q_s8((const int8_t *)block + (PAIRS + c * PAIRS + p) * VEC);
    return dtype == ASH_Q8_0 ? chunk_q8(block, c, p) : chunk_q4(block, c, p);
}

/* The scales of four rows of a panel: floats (Q8_W), or halves. */
INLINE float32x4_t four_scales(enum ash_dtype dtype, const uint8_t *block, size_t half)
{
    const uint16_t *halves = (const uint16_t *)(const void *)block;

    if (dtype == ASH_Q8_W) return vld1q_f32((const float *)(const void *)block + 4 * half);
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(halves + 4 * half)));
}

/* Of a block, or of a span of Q8_W. */
INLINE size_t panel_bytes(enum ash_dtype dtype)
{
    return dtype == ASH_Q8_W ? WIDE_BYTES : dtype == ASH_Q8_0 ? ROWS * 34 : ROWS * 18;
}

/* As struct ash_quant_panels says (quant_one_i8mm.c). Prepared x: for each block or span the scale, four times; where
 * sums start; then the chunks. */
void ash_quant_pairs_quantise_one(enum ash_dtype dtype, const float *row, size_t k, uint8_t *x);
void ash_quant_pairs_one(enum ash_dtype dtype, const uint8_t *const *panels, size_t count, const uint8_t *x, size_t k,
                         float *y);

#endif
