/* quant_split - packed Q4_0 weights of the vnni layout as AMX takes them. Where all sub-scales are small, a quant times
 * its sub-scale is a byte, and a panel becomes one of Q8_W. Else it has 11 bits and becomes two bytes, (high <<
 * SPLIT_SHIFT) + low, where high is signed and low is not. A group of a panel then has the group scales of its rows,
 * all high bytes and all low bytes, in the order of the packed quants of Q8_W. A line before the groups says which they
 * are. */
#ifndef ASH_COMPUTE_QUANT_SPLIT_H
#define ASH_COMPUTE_QUANT_SPLIT_H

#include "base/math.h"
#include "compute/cpu/quant/quant_layout_vnni.h"

#define SPLIT_SHIFT 4
#define SPLIT_QUANTS (ASH_QUANT_GROUP * VNNI_ROWS) /* high ones of a group, and low ones */
#define SPLIT_BYTES (VNNI_LINE + 2 * SPLIT_QUANTS)
#define WHOLE_BYTES (VNNI_LINE + SPLIT_QUANTS) /* of a group of Q8_W */

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

/* |sub-scale| = 16 high + low, and n = nibble - 8 times each of these fits a byte: n * high is nibble * high - 8 *
 * high. A negative sub-scale mirrors the nibble instead: 16 - nibble. Both bytes of a word are multiplied at once,
 * because no product exceeds 16 * 15. 128 moves from the high part to the low one, which is therefore never
 * negative. */
struct split_subscales {
    __mmask64 negative;
    __m512i high, low;           /* words */
    __m512i high_less, low_less; /* bytes */
};

INLINE struct split_subscales split_subscales_of(const uint8_t *row_subscales)
{
    const __m128i four_times = _mm_setr_epi8(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12);
    const __m512i nibble = _mm512_set1_epi8(15), even_bytes = _mm512_set1_epi16(0xff);
    __m512i lanes = _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)row_subscales));
    __m512i subscales = _mm512_shuffle_epi8(lanes, _mm512_broadcast_i32x4(four_times)),
            size = _mm512_abs_epi8(subscales);
    __m512i high = _mm512_and_si512(_mm512_srli_epi16(size, 4), nibble), low = _mm512_and_si512(size, nibble);

    return (struct split_subscales){
        .negative = _mm512_movepi8_mask(subscales),
        .high = _mm512_and_si512(high, even_bytes),
        .low = _mm512_and_si512(low, even_bytes),
        .high_less = _mm512_add_epi8(_mm512_slli_epi16(high, 3), _mm512_set1_epi8(128 >> SPLIT_SHIFT)),
        .low_less = _mm512_sub_epi8(_mm512_slli_epi16(low, 3), _mm512_set1_epi8((char)128)),
    };
}

INLINE void split_quants(__m512i nibbles, const struct split_subscales *subscales, uint8_t *high, uint8_t *low)
{
    __m512i turned = _mm512_mask_sub_epi8(nibbles, subscales->negative, _mm512_set1_epi8(16), nibbles);

    _mm512_store_si512(high, _mm512_sub_epi8(_mm512_mullo_epi16(turned, subscales->high), subscales->high_less));
    _mm512_store_si512(low, _mm512_sub_epi8(_mm512_mullo_epi16(turned, subscales->low), subscales->low_less));
}

/* The quants of a block, 64 nibbles at a time: low ones (these k) and then high ones (those 16 further). */
INLINE __m512i split_nibbles(const uint8_t *quants, size_t line)
{
    __m512i bytes = _mm512_loadu_si512(quants + line % (VNNI_K4 / 2) * VNNI_LINE);

    return _mm512_and_si512(line < VNNI_K4 / 2 ? bytes : _mm512_srli_epi16(bytes, 4), _mm512_set1_epi8(15));
}

INLINE void split_block(const uint8_t *quants, const uint8_t *row_subscales, uint8_t *high, uint8_t *low)
{
    const struct split_subscales subscales = split_subscales_of(row_subscales);

    UNROLL
    for (size_t line = 0; line < VNNI_K4; line++)
        split_quants(split_nibbles(quants, line), &subscales, high + line * VNNI_LINE, low + line * VNNI_LINE);
}

/* Small sub-scales have no high part. The rest is 128 too large for a signed byte. */
INLINE void whole_block(const uint8_t *quants, const uint8_t *row_subscales, uint8_t *to)
{
    const struct split_subscales subscales = split_subscales_of(row_subscales);
    const __m512i less = _mm512_add_epi8(subscales.low_less, _mm512_set1_epi8((char)128));

    UNROLL
    for (size_t line = 0; line < VNNI_K4; line++) {
        __m512i nibbles = split_nibbles(quants, line);
        __m512i turned = _mm512_mask_sub_epi8(nibbles, subscales.negative, _mm512_set1_epi8(16), nibbles);

        _mm512_store_si512(to + line * VNNI_LINE, _mm512_sub_epi8(_mm512_mullo_epi16(turned, subscales.low), less));
    }
}

/* ---- panels ------------------------------------------------------------------------------------------------------ */

/* Prefetch a part of what follows in this panel: it is split after other panels. */
INLINE void split_fetch(const uint8_t *from, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += VNNI_LINE)
        _mm_prefetch((const char *)from + at, _MM_HINT_T1);
}

INLINE void split_group(bool whole, const uint8_t *group, size_t blocks, size_t ahead_bytes, uint8_t *to)
{
    const size_t part_bytes = ash_quant_panel_group(ASH_QUANT_LAYOUT_VNNI, ASH_Q4_0) / ASH_QUANT_GROUP_BLOCKS;
    uint8_t *high = to + VNNI_LINE, *low = high + SPLIT_QUANTS;

    _mm512_store_si512(to, _mm512_loadu_si512(group));
    for (size_t b = 0; b < blocks; b++, high += VNNI_K4 * VNNI_LINE, low += VNNI_K4 * VNNI_LINE) {
        split_fetch(group + ahead_bytes + b * part_bytes, part_bytes);
        if (whole)
            whole_block(vnni_block(ASH_Q4_0, group, b), vnni_subscales(group, b), high);
        else
            split_block(vnni_block(ASH_Q4_0, group, b), vnni_subscales(group, b), high, low);
    }
}

INLINE void split_groups(bool whole, const uint8_t *panel, size_t k, uint8_t *to)
{
    const size_t group_bytes = ash_quant_panel_group(ASH_QUANT_LAYOUT_VNNI, ASH_Q4_0);
    size_t ahead_bytes = ash_div_up(k, ASH_QUANT_GROUP) * group_bytes;

    for (size_t done = 0; done < k; done += ASH_QUANT_GROUP, panel += group_bytes) {
        size_t tiles = (vnni_group_k(ASH_QUANT_GROUP, k - done) + ASH_QUANT_PANEL_STEP - 1) / ASH_QUANT_PANEL_STEP;

        split_group(whole, panel, tiles * (ASH_QUANT_PANEL_STEP / ASH_QUANT_BLOCK), ahead_bytes, to);
        to += whole ? WHOLE_BYTES : SPLIT_BYTES;
    }
}

/* Are the sub-scales of all blocks of these groups small? */
static bool split_has_small_subscales(const uint8_t *panel, size_t k)
{
    __m512i most = _mm512_setzero_si512();

    for (size_t done = 0; done < k; done += ASH_QUANT_GROUP) {
        for (size_t at = 0; at < ASH_QUANT_GROUP_BLOCKS * VNNI_ROWS; at += VNNI_LINE)
            most = _mm512_max_epu8(most, _mm512_abs_epi8(_mm512_loadu_si512(vnni_subscales(panel, 0) + at)));
        panel += ash_quant_panel_group(ASH_QUANT_LAYOUT_VNNI, ASH_Q4_0);
    }
    return _mm512_cmpgt_epu8_mask(most, _mm512_set1_epi8(ASH_QUANT_SUBSCALE_SMALL_MAX)) == 0;
}

/* ash_quant_panels.expand: k of a panel, and its padding to whole tiles of k. */
static void split(enum ash_dtype dtype, const uint8_t *panel, size_t k, uint8_t *to)
{
    (void)dtype;
    to[0] = split_has_small_subscales(panel, k);
    if (to[0])
        split_groups(true, panel, k, to + VNNI_LINE);
    else
        split_groups(false, panel, k, to + VNNI_LINE);
}

/* Are the groups that split() made those of Q8_W? */
static inline bool split_is_whole(const uint8_t *made)
{
    return made[0] != 0;
}

#endif
