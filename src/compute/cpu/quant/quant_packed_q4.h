/* quant_packed_q4 - small-M products with Q4_0 as it is packed in the i8mm layout (quant_pack.h). What is used only
 * once or twice is not expanded (quant_expand.h), but unpacked as it is used. Where sub-scales are small, quants are
 * multiplied by them, and integer sums run over a group. Else every block has dots of its own, which are multiplied.
 * Integers, so the result is the same. */
#ifndef ASH_COMPUTE_QUANT_PACKED_Q4_H
#define ASH_COMPUTE_QUANT_PACKED_Q4_H

#include "compute/cpu/quant/quant_expand.h"

#define PACKED_MICROS 4       /* at once */
#define PACKED_SMALL_MICROS 3 /* from here on it pays to multiply quants by sub-scales, where those are small */
#define PACKED_AHEAD 1024     /* bytes of a panel that are prefetched to L1 */
#define HALVES (CHUNKS / 2)   /* of a block: low nibbles are one chunk, high ones another, two chunks further */
#define HALF_VEC (PAIRS * VEC)

/* ---- instructions in the order in which they are written --------------------------------------------------------- */

/* Compilers load too much too early, and then keep sums in memory. */
INLINE int8x16_t load_now(const void *at)
{
    int8x16_t v;

    __asm__ volatile("ldr %q0, %1" : "=w"(v) : "m"(*(const int8x16_t *)at));
    return v;
}

INLINE int32x4_t mmla_now(int32x4_t sum, int8x16_t x, int8x16_t w)
{
    __asm__ volatile("smmla %0.4s, %1.16b, %2.16b" : "+w"(sum) : "w"(x), "w"(w));
    return sum;
}

/* open_nibbles, one kind at a time. */
INLINE int8x16_t low_now(int8x16_t bytes, int8x16_t fifteen, int8x16_t eight)
{
    __asm__ volatile("and %0.16b, %0.16b, %1.16b\n"
                     "sub %0.16b, %0.16b, %2.16b"
                     : "+w"(bytes)
                     : "w"(fifteen), "w"(eight));
    return bytes;
}

INLINE int8x16_t high_now(int8x16_t bytes)
{
    __asm__ volatile("sshr %0.16b, %0.16b, #4" : "+w"(bytes));
    return bytes;
}

INLINE int8x16_t times_now(int8x16_t bytes, int8x16_t times)
{
    __asm__ volatile("mul %0.16b, %0.16b, %1.16b" : "+w"(bytes) : "w"(times));
    return bytes;
}

INLINE void fetch_block(const uint8_t *quants)
{
    UNROLL
    for (size_t i = 0; i < HALVES * HALF_VEC; i += LINE)
        __builtin_prefetch(quants + PACKED_AHEAD + i);
}

/* ---- a group ----------------------------------------------------------------------------------------------------- */

/* The integer dots of a group and a part, whatever its sub-scales. */
INLINE void packed_sums(const uint8_t *group, const uint8_t *x, size_t micros, const struct part *part, size_t k,
                        int32x4_t total[][PAIRS])
{
    const size_t pairs = part->pairs, sums = part->count * pairs;
    const uint8_t *quants = group_quants(ASH_Q4_0, group) + part->pair * VEC;
    const int8_t *left = (const int8_t *)x + (micros + part->first) * VEC;

    UNROLL
    for (size_t i = 0; i < sums; i++)
        total[i / pairs][i % pairs] = zeros();
    for (size_t block = 0; block < k / ASH_QUANT_BLOCK; block++) {
        int32x4_t dots[PACKED_MICROS][PAIRS], subscales[PAIRS];

        fetch_block(quants);
        UNROLL
        for (size_t i = 0; i < sums; i++)
            dots[i / pairs][i % pairs] = zeros();
        UNROLL
        for (size_t half = 0; half < HALVES; half++) {
            int8x16_t low_rows[PACKED_MICROS], high_rows[PACKED_MICROS], low, high;

            UNROLL
            for (size_t s = 0; s < part->count; s++) {
                low_rows[s] = load_now(left + (half * micros + s) * VEC);
                high_rows[s] = load_now(left + ((HALVES + half) * micros + s) * VEC);
            }
            UNROLL
            for (size_t p = 0; p < pairs; p++) {
                open_nibbles(quants + half * HALF_VEC + p * VEC, &low, &high);
                UNROLL
                for (size_t s = 0; s < part->count; s++)
                    dots[s][p] = mmla_now(dots[s][p], low_rows[s], low);
                UNROLL
                for (size_t s = 0; s < part->count; s++)
                    dots[s][p] = mmla_now(dots[s][p], high_rows[s], high);
            }
        }
        pair_subscales(eight_subscales(group, block), subscales);
        UNROLL
        for (size_t i = 0; i < sums; i++)
            total[i / pairs][i % pairs] =
                vmlaq_s32(total[i / pairs][i % pairs], dots[i / pairs][i % pairs], subscales[part->pair + i % pairs]);
        quants += HALVES * HALF_VEC;
        left += CHUNKS * micros * VEC;
    }
}

/* Small sub-scales of all blocks of a group, as pair_times gives them. One block more may be read, and is not used. */
INLINE void load_times(const uint8_t *group, int8_t all_times[BLOCKS + 1][PAIRS * VEC])
{
    for (size_t block = 0; block < BLOCKS; block++) {
        int8x16_t four[PAIRS];

        pair_times(group, block, four);
        UNROLL
        for (size_t p = 0; p < PAIRS; p++)
            vst1q_s8(all_times[block] + p * VEC, four[p]);
    }
}

/* One chunk of `count` micro-panels, from vector `first` of x on. */
INLINE void load_chunk(const int8_t *x, size_t first, size_t count, int8x16_t *rows)
{
    UNROLL
    for (size_t s = 0; s < count; s++)
        rows[s] = load_now(x + (first + s) * VEC);
}

/* Pair p of w times a chunk of `count` micro-panels. */
INLINE void multiply_pair(int32x4_t sums[][PAIRS], size_t p, const int8x16_t *rows, size_t count, int8x16_t w)
{
    UNROLL
    for (size_t s = 0; s < count; s++)
        sums[s][p] = mmla_now(sums[s][p], rows[s], w);
}

/* The same for all pairs where sub-scales are small. High nibbles are opened while low ones are multiplied, and the
 * other way round. HALF_VEC bytes after the group are read, and not used. */
INLINE void packed_small_sums(const uint8_t *group, const uint8_t *x, size_t micros, const struct part *part, size_t k,
                              int32x4_t total[][PAIRS])
{
    const uint8_t *quants = group_quants(ASH_Q4_0, group);
    const int8_t *left = (const int8_t *)x + (micros + part->first) * VEC;
    int8x16_t fifteen = vdupq_n_s8(15), eight = vdupq_n_s8(8), low[PAIRS], high[PAIRS], rows[PACKED_MICROS];
    int8_t all_times[BLOCKS + 1][PAIRS * VEC], *times = all_times[0];
    int32x4_t sums[PACKED_MICROS][PAIRS];

    load_times(group, all_times);
    UNROLL
    for (size_t i = 0; i < part->count * PAIRS; i++)
        sums[i / PAIRS][i % PAIRS] = zeros();
    UNROLL
    for (size_t p = 0; p < PAIRS; p++)
        low[p] = times_now(low_now(load_now(quants + p * VEC), fifteen, eight), load_now(times + p * VEC));
    for (size_t block = 0; block < k / ASH_QUANT_BLOCK; block++, times += PAIRS * VEC) {
        fetch_block(quants);
        UNROLL
        for (size_t half = 0; half < HALVES; half++) {
            const int8_t *next_times = times + (half + 1 == HALVES ? PAIRS * VEC : 0);

            load_chunk(left, half * micros, part->count, rows);
            UNROLL
            for (size_t p = 0; p < PAIRS; p++) {
                high[p] = high_now(load_now(quants + half * HALF_VEC + p * VEC));
                multiply_pair(sums, p, rows, part->count, low[p]);
                high[p] = times_now(high[p], load_now(times + p * VEC));
            }
            load_chunk(left, (HALVES + half) * micros, part->count, rows);
            UNROLL
            for (size_t p = 0; p < PAIRS; p++) {
                low[p] = low_now(load_now(quants + (half + 1) * HALF_VEC + p * VEC), fifteen, eight);
                multiply_pair(sums, p, rows, part->count, high[p]);
                low[p] = times_now(low[p], load_now(next_times + p * VEC));
            }
        }
        quants += HALVES * HALF_VEC;
        left += CHUNKS * micros * VEC;
    }
    UNROLL
    for (size_t i = 0; i < part->count * PAIRS; i++)
        total[i / PAIRS][i % PAIRS] = sums[i / PAIRS][i % PAIRS];
}

/* ---- panels ------------------------------------------------------------------------------------------------------ */

/* k of a panel times `count` micro-panels from `first` on. Four with dots leave registers for two pairs of rows. */
INLINE void add_packed_micros(const uint8_t *panel, const uint8_t *x, size_t micros, size_t first, size_t count,
                              size_t k, float *sums)
{
    const size_t pairs = count == PACKED_MICROS ? PAIRS / 2 : PAIRS;

    for (size_t done = 0; done < k; done += ASH_QUANT_GROUP, x += micros * GROUP_MICRO_BYTES) {
        struct part part = {.first = first, .count = count, .pairs = PAIRS};
        int32x4_t total[PACKED_MICROS][PAIRS];
        float32x4_t group_scales[PAIRS];

        panel_group_scales(ASH_Q4_0, panel, group_scales);
        if (count >= PACKED_SMALL_MICROS && has_small_subscales(panel, group_k(k - done))) {
            packed_small_sums(panel, x, micros, &part, group_k(k - done), total);
            add_floats(group_scales, x, &part, total, sums);
        } else {
            part.pairs = pairs;
            UNROLL
            for (part.pair = 0; part.pair < PAIRS; part.pair += pairs) {
                packed_sums(panel, x, micros, &part, group_k(k - done), total);
                add_floats(group_scales, x, &part, total, sums);
            }
        }
        panel += ash_quant_panel_group(ASH_QUANT_LAYOUT_I8MM, ASH_Q4_0);
    }
}

/* k of a panel, for small M and for what no tile in assembly takes. */
static void add_packed(const uint8_t *panel, const uint8_t *x, size_t micros, size_t k, float *sums)
{
    size_t first = 0;

    for (; first + 4 <= micros; first += 4)
        add_packed_micros(panel, x, micros, first, 4, k, sums);
    if (micros - first == 3)
        add_packed_micros(panel, x, micros, first, 3, k, sums);
    else if (micros - first == 2)
        add_packed_micros(panel, x, micros, first, 2, k, sums);
    else if (micros - first == 1)
        add_packed_micros(panel, x, micros, first, 1, k, sums);
}

#endif
