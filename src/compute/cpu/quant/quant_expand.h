/* quant_expand - packed Q4_0 weights of the i8mm layout as tiles of SMMLA take them. Where all sub-scales are small, a
 * quant times its sub-scale is a byte, and a panel becomes one of Q8_W. Else it becomes quants and sub-scales
 * (tile_smmla.h). */
#ifndef ASH_COMPUTE_QUANT_EXPAND_H
#define ASH_COMPUTE_QUANT_EXPAND_H

#include "base/math.h"
#include "compute/cpu/quant/quant_layout_i8mm.h"

#define EXPAND_AHEAD 2048 /* bytes of a panel that are on their way to L1 */
#define HEAD_BYTES                                                                                                     \
    (PAIRS * VEC + BLOCKS * PAIRS * VEC) /* of an expanded group: group scales, differences of sub-scales */
#define SUBSCALES_BYTES (HEAD_BYTES + BLOCKS * BLOCK_BYTES) /* of an expanded group with sub-scales */

/* Some groups of a panel of Q4_0 as tiles read them: those of a panel of Q8_W, or SUBSCALES_BYTES each. */
struct expanded {
    uint32_t wide;
    uint32_t unused[3];
    uint8_t groups[];
};

/* Of a group; kernels take as many of these as there are groups. */
#define EXPANDED_BYTES (sizeof(struct expanded) + SUBSCALES_BYTES)

/* Sub-scales of eight rows, for the pairs they make: s0 s1 s0 s1, s2 s3 s2 s3, ... */
INLINE void pair_subscales(int16x8_t subscales, int32x4_t out[PAIRS])
{
    int64x2_t low = vreinterpretq_s64_s32(vmovl_s16(vget_low_s16(subscales)));
    int64x2_t high = vreinterpretq_s64_s32(vmovl_high_s16(subscales));

    out[0] = vreinterpretq_s32_s64(vzip1q_s64(low, low));
    out[1] = vreinterpretq_s32_s64(vzip2q_s64(low, low));
    out[2] = vreinterpretq_s32_s64(vzip1q_s64(high, high));
    out[3] = vreinterpretq_s32_s64(vzip2q_s64(high, high));
}

/* What tiles of Q4_0 read before the quants: group scales, and for each block the differences between its sub-scales
 * and the next block's, in the same order. */
INLINE void expand_head(const uint8_t *group, uint8_t *to)
{
    int16x8_t subscales = eight_subscales(group, 0);
    float32x4_t group_scales[PAIRS];

    panel_group_scales(ASH_Q4_0, group, group_scales);
    UNROLL
    for (size_t p = 0; p < PAIRS; p++)
        vst1q_f32((float *)(void *)(to + p * VEC), group_scales[p]);
    for (size_t b = 0; b < BLOCKS; b++) {
        int16x8_t next = b + 1 < BLOCKS ? eight_subscales(group, b + 1) : vdupq_n_s16(0);
        int32x4_t differences[PAIRS];

        pair_subscales(vsubq_s16(subscales, next), differences);
        UNROLL
        for (size_t p = 0; p < PAIRS; p++)
            vst1q_s32((int32_t *)(void *)(to + (PAIRS + b * PAIRS + p) * VEC), differences[p]);
        subscales = next;
    }
}

/* 32 nibbles of a pair of rows, as they lie in two places: the low ones and the high ones. */
INLINE void open_nibbles(const uint8_t *quants, int8x16_t *low, int8x16_t *high)
{
    uint8x16_t bytes = vld1q_u8(quants);

    *low = vsubq_s8(vreinterpretq_s8_u8(vandq_u8(bytes, vdupq_n_u8(15))), vdupq_n_s8(8));
    *high = vshrq_n_s8(vreinterpretq_s8_u8(bytes), 4);
}

/* The nibbles of a group as bytes. */
INLINE void expand_nibbles(const uint8_t *quants, size_t k, int8_t *to)
{
    for (size_t block = 0; block < k / ASH_QUANT_BLOCK; block++, to += BLOCK_BYTES) {
        UNROLL
        for (size_t i = 0; i < CHUNKS * PAIRS / 2; i++, quants += VEC) {
            int8x16_t low, high;

            open_nibbles(quants, &low, &high);
            vst1q_s8(to + i * VEC, low);
            vst1q_s8(to + (CHUNKS * PAIRS / 2 + i) * VEC, high);
        }
    }
}

static void expand_subscales(const uint8_t *panel, size_t k, uint8_t *to)
{
    for (size_t done = 0; done < k; done += ASH_QUANT_GROUP, to += SUBSCALES_BYTES) {
        expand_head(panel, to);
        expand_nibbles(group_quants(ASH_Q4_0, panel), group_k(k - done), (int8_t *)to + HEAD_BYTES);
        panel += ash_quant_panel_group(ASH_QUANT_LAYOUT_I8MM, ASH_Q4_0);
    }
}

/* Small sub-scales of a block of a group, for the bytes of its pairs: s0 eight times, s1 eight times; s2 ... */
INLINE void pair_times(const uint8_t *group, size_t block, int8x16_t out[PAIRS])
{
    static const uint8_t rows[PAIRS][VEC] = {{0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1},
                                             {2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3},
                                             {4, 4, 4, 4, 4, 4, 4, 4, 5, 5, 5, 5, 5, 5, 5, 5},
                                             {6, 6, 6, 6, 6, 6, 6, 6, 7, 7, 7, 7, 7, 7, 7, 7}};
    int8x8_t subscales = vld1_s8((const int8_t *)group + ROWS * (sizeof(float) + block));

    UNROLL
    for (size_t p = 0; p < PAIRS; p++)
        out[p] = vqtbl1q_s8(vcombine_s8(subscales, vdup_n_s8(0)), vld1q_u8(rows[p]));
}

/* The same as a group of a panel of Q8_W: group scales, and quants times sub-scales. Padding to whole
 * ASH_QUANT_PANEL_STEPs has sub-scales of 0. */
INLINE void expand_wide_group(const uint8_t *group, size_t k, uint8_t *to)
{
    const uint8_t *quants = group_quants(ASH_Q4_0, group);
    size_t filled = ash_round_up(k, ASH_QUANT_PANEL_STEP);

    memcpy(to, group, ROWS * sizeof(float));
    to += ash_quant_panel_head(ASH_QUANT_LAYOUT_I8MM, ASH_Q8_W);
    for (size_t block = 0; block < filled / ASH_QUANT_BLOCK; block++, to += BLOCK_BYTES) {
        int8x16_t times[PAIRS];

        pair_times(group, block, times);
        for (size_t i = 0; i < BLOCK_BYTES / 2; i += LINE)
            __builtin_prefetch(quants + EXPAND_AHEAD + i);
        UNROLL
        for (size_t i = 0; i < CHUNKS * PAIRS / 2; i++, quants += VEC) {
            int8x16_t low, high;

            open_nibbles(quants, &low, &high);
            vst1q_s8((int8_t *)to + i * VEC, vmulq_s8(low, times[i % PAIRS]));
            vst1q_s8((int8_t *)to + (CHUNKS * PAIRS / 2 + i) * VEC, vmulq_s8(high, times[i % PAIRS]));
        }
    }
}

static void expand_wide(const uint8_t *panel, size_t k, uint8_t *to)
{
    for (size_t done = 0; done < k; done += ASH_QUANT_GROUP) {
        expand_wide_group(panel, group_k(k - done), to);
        panel += ash_quant_panel_group(ASH_QUANT_LAYOUT_I8MM, ASH_Q4_0);
        to += ash_quant_panel_group(ASH_QUANT_LAYOUT_I8MM, ASH_Q8_W);
    }
}

/* Are the sub-scales of all blocks of these groups small? */
static bool has_small_subscales(const uint8_t *panel, size_t k)
{
    int8x16_t most = vdupq_n_s8(0);

    for (size_t done = 0; done < k; done += ASH_QUANT_GROUP) {
        UNROLL
        for (size_t i = 0; i < ROWS * BLOCKS; i += VEC)
            most = vmaxq_s8(most, vabsq_s8(vld1q_s8((const int8_t *)panel + ROWS * sizeof(float) + i)));
        panel += ash_quant_panel_group(ASH_QUANT_LAYOUT_I8MM, ASH_Q4_0);
    }
    return vmaxvq_s8(most) <= ASH_QUANT_SUBSCALE_SMALL_MAX;
}

static void expand(enum ash_dtype dtype, const uint8_t *panel, size_t k, uint8_t *to)
{
    struct expanded *expanded = (struct expanded *)(void *)to;

    (void)dtype;
    expanded->wide = has_small_subscales(panel, k);
    if (expanded->wide)
        expand_wide(panel, k, expanded->groups);
    else
        expand_subscales(panel, k, expanded->groups);
}

#endif
