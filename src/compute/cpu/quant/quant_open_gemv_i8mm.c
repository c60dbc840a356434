/* GEMV with packed weights of the types of quant_open.h, for arm64 with SMMLA: the second row of an SMMLA makes the
 * dots of a block's two halves lanes of one vector. Bytes of 6 bits: chunks 0 and 1 times (x, 0), 2 and 3 times (0, x).
 * Bytes b = 16 high + low of 4 bits, as they are, times (0, x of high), and low = b & 15 times (x of low, -x of high)
 * give low . x in one lane and 16 high . x in the other. Lanes start from minus the offset of quants times the sum of
 * x. Times their sub-scales they are added to totals; the lanes of a row join at the end of a group.
 *
 * Prepared x has for each group its scale, four times; two vectors of sums; for each block where its lanes start, and
 * four chunks. Sums of sub-blocks are OPEN_SUM_UNIT high + low, bytes that SMMLA multiplies by sub-minimums: high ones,
 * low ones of eight, then of the next eight. A group of one block has its sum itself, four times. */
#if defined(__aarch64__)

#include "base/math.h"
#include "compute/cpu/quant/quant_open_i8mm.h"

#define GEMV_AHEAD 2048 /* bytes of a panel that are on their way to L2 */

/* ---- x ----------------------------------------------------------------------------------------------------------- */

/* Two bytes that make a sum. */
INLINE void split_sum(int32_t sum, int8_t *high, int8_t *low)
{
    *high = (int8_t)((sum + OPEN_SUM_UNIT / 2) >> 6);
    *low = (int8_t)(sum - *high * OPEN_SUM_UNIT);
}

/* 32 quants, whose halves have sums `first` and `second`; returns what follows them. */
INLINE int8_t *store_block(enum ash_dtype dtype, const int8x16_t *q, int32_t first, int32_t second, int8_t *to)
{
    const bool fours = ash_quant_packed_bits(dtype) == 4;
    const int8x8_t zero = vdup_n_s8(0);
    int32x2_t start = {-ash_quant_offset(dtype) * first, -ash_quant_offset(dtype) * second * (fours ? 16 : 1)};

    vst1q_s32((int32_t *)(void *)to, vcombine_s32(start, start));
    to += VEC;
    UNROLL
    for (int half = 0; half < 2; half++) {
        int8x8_t low = half == 0 ? vget_low_s8(q[0]) : vget_high_s8(q[0]);
        int8x8_t high = half == 0 ? vget_low_s8(q[1]) : vget_high_s8(q[1]);

        vst1q_s8(to + half * VEC, vcombine_s8(low, fours ? vneg_s8(high) : zero));
        vst1q_s8(to + (2 + half) * VEC, vcombine_s8(zero, high));
    }
    return to + CHUNKS * VEC;
}

INLINE void quantise_as(enum ash_dtype dtype, const float *row, size_t k, uint8_t *x)
{
    const size_t bytes = open_is_wide(dtype) ? OPEN_GEMV_WIDE_BYTES : OPEN_GEMV_BYTES, group = ash_quant_group(dtype);
    const size_t of_block = ASH_QUANT_BLOCK / ash_quant_sub(dtype);

    for (size_t done = 0; done < k; done += group, x += bytes) {
        int8_t *to = (int8_t *)x + 3 * VEC, *sums = (int8_t *)x + VEC;
        float factor, scale = quants_scale(row + done, group, &factor);

        vst1q_f32((float *)(void *)x, vdupq_n_f32(scale));
        for (size_t at = 0; at < group; at += ASH_QUANT_BLOCK) {
            size_t sub = at / ASH_QUANT_BLOCK * of_block, vec = sub / 8 * VEC;
            int32_t first, second;
            int8x16_t q[2];

            quants_block(row + done + at, factor, q);
            first = vaddlvq_s8(q[0]);
            second = vaddlvq_s8(q[1]);
            to = store_block(dtype, q, first, second, to);
            if (!open_is_wide(dtype)) {
                vst1q_s32((int32_t *)(void *)sums, vdupq_n_s32(first + second));
            } else if (of_block == 1) {
                split_sum(first + second, &sums[vec + sub % 8], &sums[vec + 8 + sub % 8]);
            } else {
                split_sum(first, &sums[vec + sub % 8], &sums[vec + 8 + sub % 8]);
                split_sum(second, &sums[vec + sub % 8 + 1], &sums[vec + 8 + sub % 8 + 1]);
            }
        }
    }
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

/* The lanes of a block of a panel: for each pair of rows, the dots of both halves. */
INLINE void block_lanes(enum ash_dtype dtype, const uint8_t *block, const int8_t *x, int32x4_t lanes[PAIRS])
{
    const int8x16_t x0 = vld1q_s8(x + VEC), x1 = vld1q_s8(x + 2 * VEC);
    const int8x16_t x2 = vld1q_s8(x + 3 * VEC), x3 = vld1q_s8(x + 4 * VEC);

    UNROLL
    for (size_t p = 0; p < PAIRS; p++)
        lanes[p] = vld1q_s32((const int32_t *)(const void *)x);
    if (ash_quant_packed_bits(dtype) == 6) {
        UNROLL
        for (size_t p = 0; p < PAIRS; p++) {
            int8x16_t chunks[CHUNKS];

            open_sixes(block, p, chunks);
            lanes[p] = vmmlaq_s32(lanes[p], chunks[0], x0);
            lanes[p] = vmmlaq_s32(lanes[p], chunks[1], x1);
            lanes[p] = vmmlaq_s32(lanes[p], chunks[2], x2);
            lanes[p] = vmmlaq_s32(lanes[p], chunks[3], x3);
        }
        return;
    }
    UNROLL
    for (size_t half = 0; half < 2; half++) {
        UNROLL
        for (size_t p = 0; p < PAIRS; p++) {
            uint8x16_t bytes = vld1q_u8(block + half * OPEN_PANEL_VEC + p * VEC);

            lanes[p] = vusmmlaq_s32(lanes[p], bytes, half == 0 ? x2 : x3);
            lanes[p] = vusmmlaq_s32(lanes[p], vandq_u8(bytes, vdupq_n_u8(15)), half == 0 ? x0 : x1);
        }
    }
}

/* Lanes of pairs become dots of rows: those of high nibbles are 16 times too large. */
INLINE void join_lanes(enum ash_dtype dtype, const int32x4_t lanes[PAIRS], int32x4_t dots[2])
{
    UNROLL
    for (size_t i = 0; i < 2; i++) {
        int32x4_t first = vuzp1q_s32(lanes[2 * i], lanes[2 * i + 1]);
        int32x4_t second = vuzp2q_s32(lanes[2 * i], lanes[2 * i + 1]);

        dots[i] = ash_quant_packed_bits(dtype) == 4 ? vsraq_n_s32(first, second, 4) : vaddq_s32(first, second);
    }
}

/* The dots of a whole group of a panel. */
INLINE void wide_dots(enum ash_dtype dtype, const uint8_t *group, const int8_t *x, int32x4_t dots[2])
{
    const size_t block_bytes = ROWS * ash_quant_quants_bytes(dtype);
    const uint8_t *quants = open_quants(dtype, group), *subscales = open_subscales(dtype, group);
    int32x4_t totals[PAIRS];

    UNROLL
    for (size_t p = 0; p < PAIRS; p++)
        totals[p] = vdupq_n_s32(0);
    for (size_t b = 0; b < BLOCKS; b++, quants += block_bytes, x += OPEN_GEMV_BLOCK) {
        int8x16_t both = open_block_subscales(dtype, subscales, b);
        int16x8_t words[2] = {vmovl_s8(vget_low_s8(both)), vmovl_high_s8(both)};
        int32x4_t lanes[PAIRS];

        UNROLL
        for (size_t i = 0; i < block_bytes; i += LINE)
            __builtin_prefetch(quants + GEMV_AHEAD + i, 0, 2);
        block_lanes(dtype, quants, x, lanes);
        UNROLL
        for (size_t p = 0; p < PAIRS; p++) {
            int32x4_t four = p % 2 == 0 ? vmovl_s16(vget_low_s16(words[p / 2])) : vmovl_high_s16(words[p / 2]);

            totals[p] = vmlaq_s32(totals[p], lanes[p], four);
        }
    }
    join_lanes(dtype, totals, dots);
}

/* The sums of x times sub-minimums. */
INLINE void wide_lows(enum ash_dtype dtype, const uint8_t *group, const int8_t *sums, int32x4_t lows[2])
{
    const int8_t *submins = open_submins(dtype, group);
    int32x4_t lanes[PAIRS];

    UNROLL
    for (size_t p = 0; p < PAIRS; p++) {
        lanes[p] = vmmlaq_s32(vdupq_n_s32(0), vld1q_s8(submins + p * VEC), vld1q_s8(sums));
        if (ash_quant_packed_subs(dtype) > 8)
            lanes[p] = vmmlaq_s32(lanes[p], vld1q_s8(submins + OPEN_PANEL_VEC + p * VEC), vld1q_s8(sums + VEC));
    }
    UNROLL
    for (size_t i = 0; i < 2; i++)
        lows[i] = vmlaq_n_s32(vuzp2q_s32(lanes[2 * i], lanes[2 * i + 1]), vuzp1q_s32(lanes[2 * i], lanes[2 * i + 1]),
                              OPEN_SUM_UNIT);
}

/* A group of a panel. */
INLINE void add_group(enum ash_dtype dtype, const uint8_t *group, const uint8_t *x, float32x4_t acc[2])
{
    const int8_t *sums = (const int8_t *)x + VEC, *chunks = sums + 2 * VEC;
    float32x4_t scale = vld1q_f32((const float *)(const void *)x);
    int32x4_t dots[2], lows[2], lanes[PAIRS];

    if (open_is_wide(dtype)) {
        wide_dots(dtype, group, chunks, dots);
        if (ash_quant_has_min(dtype)) wide_lows(dtype, group, sums, lows);
    } else {
        block_lanes(dtype, open_quants(dtype, group), chunks, lanes);
        join_lanes(dtype, lanes, dots);
        lows[0] = lows[1] = vld1q_s32((const int32_t *)(const void *)sums);
    }
    UNROLL
    for (size_t i = 0; i < 2; i++) {
        acc[i] = vfmaq_f32(acc[i], vcvtq_f32_s32(dots[i]), vmulq_f32(scale, open_scales(group, i)));
        if (ash_quant_has_min(dtype))
            acc[i] = vfmaq_f32(acc[i], vcvtq_f32_s32(lows[i]), vmulq_f32(scale, open_mins(group, i)));
    }
}

INLINE void gemv_as(enum ash_dtype dtype, const uint8_t *const *panels, size_t count, const uint8_t *x, size_t k,
                    float *y)
{
    const size_t group_bytes = ash_quant_panel_group(ASH_QUANT_LAYOUT_I8MM, dtype);
    const size_t x_bytes = open_is_wide(dtype) ? OPEN_GEMV_WIDE_BYTES : OPEN_GEMV_BYTES;
    const size_t groups = k / ash_quant_group(dtype);
    float32x4_t acc[ASH_QUANT_STREAMS][2];

    for (size_t i = 0; i < ASH_QUANT_STREAMS; i++)
        acc[i][0] = acc[i][1] = vdupq_n_f32(0.0f);
    for (size_t g = 0; g < groups; g++)
        for (size_t i = 0; i < count; i++)
            add_group(dtype, panels[i] + g * group_bytes, x + g * x_bytes, acc[i]);
    for (size_t i = 0; i < count; i++) {
        vst1q_f32(y + i * ROWS, acc[i][0]);
        vst1q_f32(y + i * ROWS + 4, acc[i][1]);
    }
}

void ash_quant_open_i8mm_quantise_gemv(enum ash_dtype dtype, const float *row, size_t k, uint8_t *x)
{
    ASH_QUANT_OPEN_CALL(dtype, quantise_as, row, k, x);
}

void ash_quant_open_i8mm_gemv(enum ash_dtype dtype, const uint8_t *const *panels, size_t count, const uint8_t *x,
                              size_t k, float *y)
{
    ASH_QUANT_OPEN_CALL(dtype, gemv_as, panels, count, x, k, y);
}

#endif
