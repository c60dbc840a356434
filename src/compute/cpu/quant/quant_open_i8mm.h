/* quant_open_i8mm - what the kernels of the types of quant_open.h share, for arm64 with SMMLA: where things lie in a
 * group of a panel (quant_pack.h, i8mm layout), and how quants of 4 and 6 bits become bytes. All is inlined for a type
 * that is known when it is compiled. */
#ifndef ASH_COMPUTE_QUANT_OPEN_I8MM_H
#define ASH_COMPUTE_QUANT_OPEN_I8MM_H

#include "compute/cpu/quant/quant_layout_i8mm.h"

#define OPEN_SUM_UNIT 64 /* sums of x are this times a byte, plus a byte */
#define OPEN_PANEL_VEC (PAIRS * VEC)

/* Does a group have sub-scales: is it ASH_QUANT_GROUP long? */
INLINE bool open_is_wide(enum ash_dtype dtype)
{
    return ash_quant_group_blocks(dtype) > 1;
}

/* Group scales of four rows. */
INLINE float32x4_t open_scales(const uint8_t *group, size_t half)
{
    return vcvt_f32_f16(vld1_f16((const float16_t *)(const void *)group + 4 * half));
}

/* Group minimums of four rows. */
INLINE float32x4_t open_mins(const uint8_t *group, size_t half)
{
    return open_scales(group + ROWS * sizeof(uint16_t), half);
}

INLINE const uint8_t *open_subscales(enum ash_dtype dtype, const uint8_t *group)
{
    return group + ROWS * sizeof(uint16_t) * (ash_quant_has_min(dtype) ? 2 : 1);
}

INLINE const int8_t *open_submins(enum ash_dtype dtype, const uint8_t *group)
{
    return (const int8_t *)open_subscales(dtype, group) + ROWS * ash_quant_packed_subs(dtype);
}

INLINE const uint8_t *open_quants(enum ash_dtype dtype, const uint8_t *group)
{
    return group + ash_quant_panel_head(ASH_QUANT_LAYOUT_I8MM, dtype);
}

/* Sub-scales of a block: two of each row, which are the same where the block is one sub-block. */
INLINE int8x16_t open_block_subscales(enum ash_dtype dtype, const uint8_t *subscales, size_t block)
{
    int8x8_t one;

    if (ash_quant_sub(dtype) == ASH_QUANT_SUB) return vld1q_s8((const int8_t *)subscales + block * 2 * ROWS);
    one = vld1_s8((const int8_t *)subscales + block * ROWS);
    return vcombine_s8(vzip1_s8(one, one), vzip2_s8(one, one));
}

/* The four chunks of a block of a pair of rows, of 6 bits each in three vectors. */
INLINE void open_sixes(const uint8_t *block, size_t pair, int8x16_t chunks[CHUNKS])
{
    uint8x16_t a = vld1q_u8(block + pair * VEC), b = vld1q_u8(block + OPEN_PANEL_VEC + pair * VEC);
    uint8x16_t c = vld1q_u8(block + 2 * OPEN_PANEL_VEC + pair * VEC), low = vdupq_n_u8(63);

    chunks[0] = vreinterpretq_s8_u8(vandq_u8(a, low));
    chunks[1] = vreinterpretq_s8_u8(vandq_u8(b, low));
    chunks[2] = vreinterpretq_s8_u8(vandq_u8(c, low));
    chunks[3] = vreinterpretq_s8_u8(vsriq_n_u8(vsriq_n_u8(vshrq_n_u8(c, 2), b, 4), a, 6));
}

/* The same of 4 bits each in two. */
INLINE void open_fours(const uint8_t *block, size_t pair, int8x16_t chunks[CHUNKS])
{
    UNROLL
    for (size_t half = 0; half < 2; half++) {
        uint8x16_t bytes = vld1q_u8(block + half * OPEN_PANEL_VEC + pair * VEC);

        chunks[half] = vreinterpretq_s8_u8(vandq_u8(bytes, vdupq_n_u8(15)));
        chunks[half + 2] = vreinterpretq_s8_u8(vshrq_n_u8(bytes, 4));
    }
}

/* ash_quant_panels.quantise_gemv of these types (quant_open_gemv_i8mm.c). */
void ash_quant_open_i8mm_quantise_gemv(enum ash_dtype dtype, const float *row, size_t k, uint8_t *x);
/* ash_quant_panels.gemv of these types (quant_open_gemv_i8mm.c). */
void ash_quant_open_i8mm_gemv(enum ash_dtype dtype, const uint8_t *const *panels, size_t count, const uint8_t *x,
                              size_t k, float *y);

/* Bytes of a group of a single row: scale, sums, and for each block where sums start and four chunks. */
#define OPEN_GEMV_BLOCK ((1 + CHUNKS) * VEC)
#define OPEN_GEMV_WIDE_BYTES ((1 + 2) * VEC + BLOCKS * OPEN_GEMV_BLOCK)
#define OPEN_GEMV_BYTES ((1 + 2) * VEC + OPEN_GEMV_BLOCK)

#endif
