/* quant_layout_i8mm - what the kernels for weights packed in the i8mm layout (quant_pack.h) share: quantising x, and
 * reading a panel. */
#ifndef ASH_COMPUTE_QUANT_LAYOUT_I8MM_H
#define ASH_COMPUTE_QUANT_LAYOUT_I8MM_H

#include "base/math.h"
#include "compute/cpu/quant/quant_neon.h"
#include "compute/cpu/quant/quant_panels.h"

#define ROWS 8                             /* of a panel */
#define PAIRS 4                            /* of rows of a panel: an operand of SMMLA is two rows */
#define MICRO_ROWS 2                       /* of a micro-panel of x: likewise */
#define CHUNKS 4                           /* of a block: 8 k each */
#define VEC 16                             /* bytes */
#define LINE 64                            /* bytes of the caches */
#define BLOCK_BYTES (CHUNKS * PAIRS * VEC) /* quants of a block of a panel, as bytes */
#define BLOCKS ASH_QUANT_GROUP_BLOCKS
#define GROUP_CHUNKS (BLOCKS * CHUNKS)
/* A micro-panel of x, two rows by 256 k: the scales of the two rows, each twice; then the chunks. */
#define GROUP_MICRO_BYTES (VEC + GROUP_CHUNKS * VEC)
/* Bytes of a group of a single row: see quant_gemv_i8mm.c. */
#define GEMV_X_BYTES(dtype)                                                                                            \
    (VEC + ((dtype) == ASH_Q8_0 ? CHUNKS * VEC : BLOCKS * (((dtype) == ASH_Q4_0 ? VEC : 0) + CHUNKS * VEC)))

/* ---- x ----------------------------------------------------------------------------------------------------------- */

/* ash_quant_quantise on vectors, in two halves. First: the scale of count floats (a multiple of 32), and the factor
 * that makes quants of them (0: they become zeros). Second: 32 of the quants. */
INLINE float quants_scale(const float *x, size_t count, float *factor_out)
{
    uint32x4_t tops[4] = {vdupq_n_u32(0), vdupq_n_u32(0), vdupq_n_u32(0), vdupq_n_u32(0)};
    uint32_t bits;
    float amax, d;

    for (size_t at = 0; at < count; at += ASH_QUANT_BLOCK) {
        UNROLL
        for (size_t i = 0; i < 8; i++) /* without the sign: ordered like |x|, NaN above infinity */
            tops[i % 4] = vmaxq_u32(tops[i % 4], vshlq_n_u32(vreinterpretq_u32_f32(vld1q_f32(x + at + 4 * i)), 1));
    }
    bits = vmaxvq_u32(vmaxq_u32(vmaxq_u32(tops[0], tops[1]), vmaxq_u32(tops[2], tops[3]))) >> 1;
    memcpy(&amax, &bits, sizeof(amax));
    d = amax / 127.0f;
    *factor_out = 1.0f / d;
    if (bits < ASH_F32_INFINITY_BITS && !isinf(*factor_out)) return d;
    *factor_out = 0.0f;
    return bits >= ASH_F32_INFINITY_BITS ? NAN : 0.0f;
}

INLINE void quants_block(const float *x, float factor, int8x16_t q[2])
{
    float32x4_t v[8];

    if (factor == 0.0f) { /* x may be no number */
        q[0] = q[1] = vdupq_n_s8(0);
        return;
    }
    UNROLL
    for (int i = 0; i < 8; i++) /* the integer is in the low byte of what has been rounded */
        v[i] = vaddq_f32(vmulq_n_f32(vld1q_f32(x + 4 * i), factor), vdupq_n_f32(ASH_F32_ROUND_MAGIC));
    UNROLL
    for (int i = 0; i < 2; i++) {
        int16x8_t low = vuzp1q_s16(vreinterpretq_s16_f32(v[4 * i]), vreinterpretq_s16_f32(v[4 * i + 1]));
        int16x8_t high = vuzp1q_s16(vreinterpretq_s16_f32(v[4 * i + 2]), vreinterpretq_s16_f32(v[4 * i + 3]));

        q[i] = vuzp1q_s8(vreinterpretq_s8_s16(low), vreinterpretq_s8_s16(high));
    }
}

/* One group of a micro-panel into its place in a tile: the scales of the two rows, each twice, then the chunks. */
INLINE void quantise_micro(const float *const *rows, size_t first, size_t count, size_t micro, size_t micros,
                           uint8_t *tile)
{
    int8_t *chunks = (int8_t *)tile + micros * VEC + micro * VEC;
    float factors[2] = {0}, scales[4] = {0};

    scales[0] = scales[1] = quants_scale(rows[0] + first, count, &factors[0]);
    if (rows[1] != NULL) scales[2] = scales[3] = quants_scale(rows[1] + first, count, &factors[1]);
    vst1q_f32((float *)(void *)(tile + micro * VEC), vld1q_f32(scales));
    for (size_t at = first; at < first + count; at += ASH_QUANT_BLOCK, chunks += CHUNKS * micros * VEC) {
        int8x16_t left[2], right[2];

        quants_block(rows[0] + at, factors[0], left);
        quants_block(rows[1] != NULL ? rows[1] + at : NULL, factors[1], right);
        UNROLL
        for (size_t c = 0; c < CHUNKS; c++)
            vst1q_s8(chunks + c * micros * VEC,
                     vcombine_s8(c % 2 == 0 ? vget_low_s8(left[c / 2]) : vget_high_s8(left[c / 2]),
                                 c % 2 == 0 ? vget_low_s8(right[c / 2]) : vget_high_s8(right[c / 2])));
    }
}

/* k of the next group of ASH_QUANT_GROUP, of k that are left. */
INLINE size_t group_k(size_t k)
{
    return ash_min(k, ASH_QUANT_GROUP);
}

/* ---- panels ------------------------------------------------------------------------------------------------------ */

/* Of a group: the group scales of four of its rows; of Q4_0 the sub-scales of a block; and where its quants begin. */
INLINE float32x4_t four_group_scales(enum ash_dtype dtype, const uint8_t *group, size_t half)
{
    if (dtype == ASH_Q8_0) return vcvt_f32_f16(vld1_f16((const float16_t *)(const void *)group + 4 * half));
    return vld1q_f32((const float *)(const void *)group + 4 * half);
}

INLINE int16x8_t eight_subscales(const uint8_t *group, size_t block)
{
    return vmovl_s8(vld1_s8((const int8_t *)group + ROWS * (sizeof(float) + block)));
}

INLINE const uint8_t *group_quants(enum ash_dtype dtype, const uint8_t *group)
{
    return group + ash_quant_panel_head(ASH_QUANT_LAYOUT_I8MM, dtype);
}

/* The group scales of all rows: g0 g1 g0 g1, g2 g3 g2 g3, ... */
INLINE void panel_group_scales(enum ash_dtype dtype, const uint8_t *group, float32x4_t out[PAIRS])
{
    UNROLL
    for (size_t i = 0; i < 2; i++) {
        float64x2_t wide = vreinterpretq_f64_f32(four_group_scales(dtype, group, i));

        out[2 * i] = vreinterpretq_f32_f64(vzip1q_f64(wide, wide));
        out[2 * i + 1] = vreinterpretq_f32_f64(vzip2q_f64(wide, wide));
    }
}

/* Zeros, made where they are needed: the processor makes them at no cost. Compilers prefer to copy a register of zeros,
 * which takes the slot of an instruction. */
INLINE int32x4_t zeros(void)
{
    int32x4_t zero;

    __asm__ volatile("movi %0.4s, #0" : "=w"(zero));
    return zero;
}

/* ---- sums of groups of 256 k ------------------------------------------------------------------------------------- */

/* Micro-panels of x and pairs of rows of a panel that are multiplied together. */
struct part {
    size_t first, count; /* micro-panels */
    size_t pair, pairs;  /* of the panel */
};

/* Integer dots of a group become floats and are added to sums: for each micro-panel and pair of rows of the panel,
 * (row 0 of x) x (w0, w1), (row 1 of x) x (w0, w1). */
INLINE void add_floats(const float32x4_t *group_scales, const uint8_t *x, const struct part *part,
                       int32x4_t total[][PAIRS], float *sums)
{
    UNROLL
    for (size_t s = 0; s < part->count; s++) {
        float32x4_t dx = vld1q_f32((const float *)(const void *)x + 4 * (part->first + s));

        UNROLL
        for (size_t p = 0; p < part->pairs; p++) {
            float32x4_t scale = vmulq_f32(dx, group_scales[part->pair + p]);
            float *at = sums + 4 * ((part->first + s) * PAIRS + part->pair + p);

            vst1q_f32(at, vfmaq_f32(vld1q_f32(at), vcvtq_f32_s32(total[s][p]), scale));
        }
    }
}

/* ash_quant_panels.untile of this layout (quant_panel_i8mm.c). */
void ash_quant_i8mm_untile(const float *sums, size_t rows, float *y, size_t y_stride);
/* ash_quant_panels.quantise_gemv of this layout (quant_gemv_i8mm.c). */
void ash_quant_i8mm_quantise_gemv(enum ash_dtype dtype, const float *row, size_t k, uint8_t *x);
/* ash_quant_panels.gemv of this layout (quant_gemv_i8mm.c). */
void ash_quant_i8mm_gemv(enum ash_dtype dtype, const uint8_t *const *panels, size_t count, const uint8_t *x, size_t k,
                         float *y);

#endif
