/* Kernels of packed weights of the types of quant_open.h for arm64 with SMMLA (2 x 8 times 8 x 2), for two and more
 * rows of x. quant_pack.h has the layout (i8mm), quant_open_gemv_i8mm.c GEMV.
 *
 * A group of a panel is expanded: quants as signed bytes, sub-scales and minimums as the tiles read them. A tile is 6
 * micro-panels (pairs of rows) of x; three of them times the four pairs of rows of a panel share the registers. Every
 * sub-block has dots of its own, multiplied by sub-scales. Prepared x has the scales of the micro-panels, chunks, and
 * the sums of sub-blocks of 16: high bytes of eight, their low bytes, then those of the next eight
 * (quant_open_gemv_i8mm.c); a group of one block has its sums themselves, each row's twice. */
#if defined(__aarch64__)

#include "base/math.h"
#include "compute/cpu/quant/quant_open_i8mm.h"

#define TILE_MICROS 6
#define PART_MICROS 3 /* of a tile, at once: dots and totals fill the registers */
#define SUM_VECS 4    /* of sums of a micro-panel of a wide group */
#define WIDE_MICRO_BYTES ((1 + GROUP_CHUNKS + SUM_VECS) * VEC)
#define BLOCK_MICRO_BYTES ((1 + CHUNKS + 1) * VEC)
#define SMALL_M_MAX 8
#define EXPAND_AHEAD 1024 /* bytes of a panel that are on their way to L1 */

/* An expanded group: vectors for the pairs of rows of a panel. A group of one block uses the first of quants alone. */
struct open_group {
    float scales[PAIRS][4], mins[PAIRS][4];      /* g0 g1 g0 g1, g2 g3 g2 g3, ... */
    int8_t submins[2][PAIRS][VEC];               /* of sub-blocks 0 to 7, 8 to 15: eight of a row, eight of the next */
    int8_t quants[BLOCKS][CHUNKS][PAIRS][VEC];   /* as panels of Q8_W */
    int32_t subscales[ASH_QUANT_SUBS][PAIRS][4]; /* like scales; as many as the type has */
};

/* ---- x ----------------------------------------------------------------------------------------------------------- */

/* The sums of the two rows of some chunks, `step` bytes apart. */
INLINE int64x2_t sum_chunks(const int8_t *chunks, size_t step, size_t count)
{
    int16x8_t sum = vdupq_n_s16(0);

    for (size_t i = 0; i < count; i++)
        sum = vpadalq_s8(sum, vld1q_s8(chunks + i * step));
    return vpaddlq_s32(vpaddlq_s16(sum));
}

static void store_sums(size_t micro, size_t micros, uint8_t *tile)
{
    const int8_t *chunks = (const int8_t *)tile + (micros + micro) * VEC;
    int8_t *to = (int8_t *)tile + ((1 + GROUP_CHUNKS) * micros + micro) * VEC;

    for (size_t sub = 0; sub < ASH_QUANT_SUBS; sub++) {
        int64x2_t both = sum_chunks(chunks + 2 * sub * micros * VEC, micros * VEC, 2);
        int8_t *high = to + sub / 8 * 2 * micros * VEC + sub % 8, *low = high + micros * VEC;

        for (size_t row = 0; row < 2; row++) {
            int32_t sum = (int32_t)both[row];

            high[row * 8] = (int8_t)((sum + OPEN_SUM_UNIT / 2) >> 6);
            low[row * 8] = (int8_t)(sum - high[row * 8] * OPEN_SUM_UNIT);
        }
    }
}

static void quantise_wide(const float *const *rows, size_t k, size_t micro, size_t micros, uint8_t *tile)
{
    for (size_t done = 0; done < k; done += ASH_QUANT_GROUP, tile += micros * WIDE_MICRO_BYTES) {
        quantise_micro(rows, done, ASH_QUANT_GROUP, micro, micros, tile);
        store_sums(micro, micros, tile);
    }
}

static void quantise_blocks(const float *const *rows, size_t k, size_t micro, size_t micros, uint8_t *tile)
{
    for (size_t done = 0; done < k; done += ASH_QUANT_BLOCK, tile += micros * BLOCK_MICRO_BYTES) {
        int32x4_t sums;

        quantise_micro(rows, done, ASH_QUANT_BLOCK, micro, micros, tile);
        sums = vreinterpretq_s32_s64(sum_chunks((const int8_t *)tile + (micros + micro) * VEC, micros * VEC, CHUNKS));
        vst1q_s32((int32_t *)(void *)(tile + ((1 + CHUNKS) * micros + micro) * VEC), vtrn1q_s32(sums, sums));
    }
}

/* ---- expanding --------------------------------------------------------------------------------------------------- */

/* Four floats of rows for the pairs they make. */
INLINE void store_pairs(float32x4_t four, float out[2][4])
{
    float64x2_t wide = vreinterpretq_f64_f32(four);

    vst1q_f32(out[0], vreinterpretq_f32_f64(vzip1q_f64(wide, wide)));
    vst1q_f32(out[1], vreinterpretq_f32_f64(vzip2q_f64(wide, wide)));
}

INLINE void expand_head(enum ash_dtype dtype, const uint8_t *group, struct open_group *to)
{
    UNROLL
    for (size_t half = 0; half < 2; half++) {
        store_pairs(open_scales(group, half), &to->scales[2 * half]);
        if (ash_quant_has_min(dtype)) store_pairs(open_mins(group, half), &to->mins[2 * half]);
    }
}

/* Those of blocks are repeated for their two sub-blocks. */
INLINE void expand_submins(enum ash_dtype dtype, const int8_t *submins, struct open_group *to)
{
    UNROLL
    for (size_t p = 0; p < PAIRS; p++) {
        int8x16_t first = vld1q_s8(submins + p * VEC);

        if (ash_quant_sub(dtype) == ASH_QUANT_SUB) {
            vst1q_s8(to->submins[0][p], first);
            vst1q_s8(to->submins[1][p], vld1q_s8(submins + OPEN_PANEL_VEC + p * VEC));
        } else {
            int64x2_t row0 = vreinterpretq_s64_s8(vzip1q_s8(first, first));
            int64x2_t row1 = vreinterpretq_s64_s8(vzip2q_s8(first, first));

            vst1q_s8(to->submins[0][p], vreinterpretq_s8_s64(vzip1q_s64(row0, row1)));
            vst1q_s8(to->submins[1][p], vreinterpretq_s8_s64(vzip2q_s64(row0, row1)));
        }
    }
}

INLINE void expand_subscales(enum ash_dtype dtype, const uint8_t *subscales, size_t block, struct open_group *to)
{
    const size_t of_block = ASH_QUANT_BLOCK / ash_quant_sub(dtype);
    int8x16_t both = open_block_subscales(dtype, subscales, block);
    int16x8_t words[2] = {vmovl_s8(vget_low_s8(both)), vmovl_high_s8(both)};

    UNROLL
    for (size_t p = 0; p < PAIRS; p++) {
        int32x4_t four = p % 2 == 0 ? vmovl_s16(vget_low_s16(words[p / 2])) : vmovl_high_s16(words[p / 2]);

        vst1q_s32(to->subscales[block * of_block][p], vuzp1q_s32(four, four));
        if (of_block == 2) vst1q_s32(to->subscales[block * of_block + 1][p], vuzp2q_s32(four, four));
    }
}

INLINE void expand_block(enum ash_dtype dtype, const uint8_t *quants, int8_t to[CHUNKS][PAIRS][VEC])
{
    const int8x16_t offset = vdupq_n_s8((int8_t)ash_quant_offset(dtype));

    UNROLL
    for (size_t p = 0; p < PAIRS; p++) {
        int8x16_t chunks[CHUNKS];

        if (ash_quant_packed_bits(dtype) == 6)
            open_sixes(quants, p, chunks);
        else
            open_fours(quants, p, chunks);
        UNROLL
        for (size_t c = 0; c < CHUNKS; c++)
            vst1q_s8(to[c][p], ash_quant_offset(dtype) != 0 ? vsubq_s8(chunks[c], offset) : chunks[c]);
    }
}

INLINE void expand_group(enum ash_dtype dtype, const uint8_t *group, struct open_group *to)
{
    const size_t block_bytes = ROWS * ash_quant_quants_bytes(dtype);
    const uint8_t *quants = open_quants(dtype, group);

    expand_head(dtype, group, to);
    if (open_is_wide(dtype) && ash_quant_has_min(dtype)) expand_submins(dtype, open_submins(dtype, group), to);
    for (size_t b = 0; b < ash_quant_group_blocks(dtype); b++, quants += block_bytes) {
        UNROLL
        for (size_t i = 0; i < block_bytes; i += LINE)
            __builtin_prefetch(quants + EXPAND_AHEAD + i);
        if (open_is_wide(dtype)) expand_subscales(dtype, open_subscales(dtype, group), b, to);
        expand_block(dtype, quants, to->quants[b]);
    }
}

/* Bytes of an expanded group: what a type does not have is at its end. */
#define WIDE_EXPANDED_BYTES sizeof(struct open_group)
#define BLOCK_EXPANDED_BYTES (offsetof(struct open_group, quants) + BLOCK_BYTES)

INLINE size_t expanded_bytes(enum ash_dtype dtype)
{
    return open_is_wide(dtype) ? WIDE_EXPANDED_BYTES : BLOCK_EXPANDED_BYTES;
}

INLINE void expand_as(enum ash_dtype dtype, const uint8_t *panel, size_t k, uint8_t *expanded)
{
    for (size_t done = 0; done < k; done += ash_quant_group(dtype), expanded += expanded_bytes(dtype)) {
        expand_group(dtype, panel, (struct open_group *)(void *)expanded);
        panel += ash_quant_panel_group(ASH_QUANT_LAYOUT_I8MM, dtype);
    }
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

/* The exact integer dots of a group and a part. */
INLINE void group_dots(enum ash_dtype dtype, const struct open_group *group, const uint8_t *x, size_t micros,
                       const struct part *part, int32x4_t total[][PAIRS])
{
    const size_t chunks = open_is_wide(dtype) ? ash_quant_sub(dtype) / 8 : CHUNKS, count = part->count;
    const int8_t *left = (const int8_t *)x + (micros + part->first) * VEC, *w = group->quants[0][0][0];

    UNROLL
    for (size_t i = 0; i < count * PAIRS; i++)
        total[i / PAIRS][i % PAIRS] = vdupq_n_s32(0);
    for (size_t sub = 0; sub < ash_quant_group_blocks(dtype) * CHUNKS / chunks; sub++) {
        int32x4_t dots[PART_MICROS][PAIRS];

        UNROLL
        for (size_t i = 0; i < count * PAIRS; i++)
            dots[i / PAIRS][i % PAIRS] = zeros();
        UNROLL
        for (size_t c = 0; c < chunks; c++, left += micros * VEC, w += OPEN_PANEL_VEC) {
            UNROLL
            for (size_t p = 0; p < PAIRS; p++) {
                UNROLL
                for (size_t s = 0; s < count; s++)
                    dots[s][p] = vmmlaq_s32(dots[s][p], vld1q_s8(left + s * VEC), vld1q_s8(w + p * VEC));
            }
        }
        UNROLL
        for (size_t i = 0; i < count * PAIRS; i++) {
            size_t s = i / PAIRS, p = i % PAIRS;

            total[s][p] = open_is_wide(dtype) ? vmlaq_s32(total[s][p], dots[s][p], vld1q_s32(group->subscales[sub][p]))
                                              : dots[s][p];
        }
    }
}

/* Sums of x times sub-minimums. */
INLINE void group_lows(enum ash_dtype dtype, const struct open_group *group, const uint8_t *x, size_t micros,
                       const struct part *part, int32x4_t total[][PAIRS])
{
    const size_t chunks = ash_quant_group_blocks(dtype) * CHUNKS;
    const int8_t *sums = (const int8_t *)x + ((1 + chunks) * micros + part->first) * VEC;

    UNROLL
    for (size_t s = 0; s < part->count; s++) {
        const int8_t *at = sums + s * VEC;

        UNROLL
        for (size_t p = 0; p < PAIRS; p++) {
            const int8_t *first = group->submins[0][p], *second = group->submins[1][p];
            int32x4_t high = vdupq_n_s32(0), low = high;

            if (!open_is_wide(dtype)) {
                total[s][p] = vld1q_s32((const int32_t *)(const void *)at);
                continue;
            }
            high = vmmlaq_s32(high, vld1q_s8(at), vld1q_s8(first));
            low = vmmlaq_s32(low, vld1q_s8(at + micros * VEC), vld1q_s8(first));
            high = vmmlaq_s32(high, vld1q_s8(at + 2 * micros * VEC), vld1q_s8(second));
            low = vmmlaq_s32(low, vld1q_s8(at + 3 * micros * VEC), vld1q_s8(second));
            total[s][p] = vmlaq_n_s32(low, high, OPEN_SUM_UNIT);
        }
    }
}

INLINE void add_part(enum ash_dtype dtype, const struct open_group *group, const uint8_t *x, size_t micros,
                     const struct part part, float *sums)
{
    int32x4_t total[PART_MICROS][PAIRS];
    float32x4_t scales[PAIRS];

    group_dots(dtype, group, x, micros, &part, total);
    UNROLL
    for (size_t p = 0; p < PAIRS; p++)
        scales[p] = vld1q_f32(group->scales[p]);
    add_floats(scales, x, &part, total, sums);
    if (!ash_quant_has_min(dtype)) return;
    group_lows(dtype, group, x, micros, &part, total);
    UNROLL
    for (size_t p = 0; p < PAIRS; p++)
        scales[p] = vld1q_f32(group->mins[p]);
    add_floats(scales, x, &part, total, sums);
}

/* A group times all micro-panels of a tile. */
INLINE void add_group(enum ash_dtype dtype, const struct open_group *group, const uint8_t *x, size_t micros,
                      float *sums)
{
    size_t first = 0;

    for (; first + 3 <= micros; first += 3)
        add_part(dtype, group, x, micros, (struct part){first, 3, 0, PAIRS}, sums);
    if (micros - first == 2)
        add_part(dtype, group, x, micros, (struct part){first, 2, 0, PAIRS}, sums);
    else if (micros - first == 1)
        add_part(dtype, group, x, micros, (struct part){first, 1, 0, PAIRS}, sums);
}

/* Groups of a panel, as expand() made them or, with expanded NULL, as they are packed. */
struct open_panel {
    const uint8_t *packed, *expanded;
};

INLINE void tile_as(enum ash_dtype dtype, struct open_panel panel, const uint8_t *x, size_t micros, size_t k,
                    float *sums)
{
    const size_t micro_bytes = open_is_wide(dtype) ? WIDE_MICRO_BYTES : BLOCK_MICRO_BYTES;
    struct open_group own;

    for (size_t done = 0; done < k; done += ash_quant_group(dtype), x += micros * micro_bytes) {
        const struct open_group *group = (const struct open_group *)(const void *)panel.expanded;

        if (panel.expanded == NULL) {
            expand_group(dtype, panel.packed, &own);
            panel.packed += ash_quant_panel_group(ASH_QUANT_LAYOUT_I8MM, dtype);
            group = &own;
        } else {
            panel.expanded += expanded_bytes(dtype);
        }
        add_group(dtype, group, x, micros, sums);
    }
}

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

static void expand(enum ash_dtype dtype, const uint8_t *panel, size_t k, uint8_t *expanded)
{
    ASH_QUANT_OPEN_CALL(dtype, expand_as, panel, k, expanded);
}

static void tile(enum ash_dtype dtype, const uint8_t *panel, const uint8_t *expanded, const uint8_t *x, size_t micros,
                 size_t k, float *sums)
{
    ASH_QUANT_OPEN_CALL(dtype, tile_as, (struct open_panel){panel, expanded}, x, micros, k, sums);
}

ASH_QUANT_CHECK_PANELS(MICRO_ROWS, TILE_MICROS, SMALL_M_MAX);

/* Tables that differ in how x is quantised only. */
#define OPEN_PANELS(micro_bytes_, expanded_bytes_, k_groups_, gemv_bytes_, quantise_)                                  \
    {                                                                                                                  \
        .layout = ASH_QUANT_LAYOUT_I8MM, .micro_rows = MICRO_ROWS, .micro_bytes = micro_bytes_,                        \
        .tile_micros = TILE_MICROS, .expanded_bytes = expanded_bytes_, .small_m_max = SMALL_M_MAX,                     \
        .k_groups = k_groups_, .even_tiles = true, .whole_k = true, .expanded_panels = 1, .gemv_bytes = gemv_bytes_,   \
        .quantise = quantise_, .expand = expand, .tile = tile, .untile = ash_quant_i8mm_untile,                        \
        .quantise_gemv = ash_quant_open_i8mm_quantise_gemv, .gemv = ash_quant_open_i8mm_gemv                           \
    }

const struct ash_quant_panels ash_quant_open_wide_i8mm =
    OPEN_PANELS(WIDE_MICRO_BYTES, WIDE_EXPANDED_BYTES, 4, OPEN_GEMV_WIDE_BYTES, quantise_wide);
const struct ash_quant_panels ash_quant_open_block_i8mm =
    OPEN_PANELS(BLOCK_MICRO_BYTES, BLOCK_EXPANDED_BYTES, 32, OPEN_GEMV_BYTES, quantise_blocks);

#endif
