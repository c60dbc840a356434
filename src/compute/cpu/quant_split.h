/* quant_split - packed weights in quads as AMX takes them where a number times its steps has more than 8 bits: as two
 * bytes, high << SHIFT plus low, of which high is signed and low is not. Of a group of a panel there are the units of
 * its rows, then all high bytes and then all low ones, in the order of the packed numbers of Q8_W. */
#ifndef ASH_COMPUTE_QUANT_SPLIT_H
#define ASH_COMPUTE_QUANT_SPLIT_H

#include "compute/cpu/quant_quads.h"

#define SPLIT_SHIFT_Q8 8
#define SPLIT_SHIFT_Q4 4
#define SPLIT_NUMBERS (ASH_QUANT_GROUP * QUADS_ROWS) /* high ones of a group, and low ones */
#define SPLIT_BYTES (QUADS_LINE + 2 * SPLIT_NUMBERS)

/* ---- Q8_0: the product has 16 bits ------------------------------------------------------------------------------- */

/* Words whose low byte moves up. A shuffle, because shifts and products have one port and this has another. */
INLINE __m512i split_up(__m512i words)
{
    const __m128i up = _mm_setr_epi8(-1, 0, -1, 2, -1, 4, -1, 6, -1, 8, -1, 10, -1, 12, -1, 14);

    return _mm512_shuffle_epi8(words, _mm512_broadcast_i32x4(up));
}

/* Even bytes and odd ones are multiplied apart, in words with steps in each. The low byte of an even product does not
 * depend on the odd byte beside it. */
INLINE void split_q8(__m512i bytes, __m512i steps, uint8_t *high, uint8_t *low)
{
    const __m512i odd_bytes = _mm512_set1_epi16((short)0xff00);
    __m512i odd = _mm512_mullo_epi16(_mm512_srai_epi16(bytes, 8), steps);
    __m512i even_high = _mm512_mulhi_epi16(split_up(bytes), steps), even_low = _mm512_mullo_epi16(bytes, steps);

    _mm512_store_si512(high, _mm512_ternarylogic_epi32(odd_bytes, odd, even_high, 0xca)); /* odd_bytes ? : */
    _mm512_store_si512(low, _mm512_ternarylogic_epi32(odd_bytes, split_up(odd), even_low, 0xca));
}

INLINE void split_block_q8(const uint8_t *numbers, const uint8_t *row_steps, uint8_t *high, uint8_t *low)
{
    __m512i steps = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)row_steps));

    steps = _mm512_or_si512(steps, _mm512_slli_epi32(steps, 16));
    UNROLL
    for (size_t at = 0; at < QUADS * QUADS_LINE; at += QUADS_LINE)
        split_q8(_mm512_loadu_si512(numbers + at), steps, high + at, low + at);
}

/* ---- Q4_0: the product has 11 bits ------------------------------------------------------------------------------- */

/* |steps| = 16 high + low, and n = nibble - 8 times each of these fits a byte: n * high is nibble * high less
 * 8 * high. Negative steps turn the nibble round instead: 16 - nibble. Both bytes of a word are multiplied at once, for
 * no product of theirs is more than 16 * 15. 128 goes from the high part to the low one, which is never negative so. */
struct split_steps {
    __mmask64 negative;
    __m512i high, low;           /* words */
    __m512i high_less, low_less; /* bytes */
};

INLINE struct split_steps split_steps_q4(const uint8_t *row_steps)
{
    const __m128i four_times = _mm_setr_epi8(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12);
    const __m512i nibble = _mm512_set1_epi8(15), even_bytes = _mm512_set1_epi16(0xff);
    __m512i lanes = _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)row_steps));
    __m512i steps = _mm512_shuffle_epi8(lanes, _mm512_broadcast_i32x4(four_times)), size = _mm512_abs_epi8(steps);
    __m512i high = _mm512_and_si512(_mm512_srli_epi16(size, 4), nibble), low = _mm512_and_si512(size, nibble);

    return (struct split_steps){
        .negative = _mm512_movepi8_mask(steps),
        .high = _mm512_and_si512(high, even_bytes),
        .low = _mm512_and_si512(low, even_bytes),
        .high_less = _mm512_add_epi8(_mm512_slli_epi16(high, 3), _mm512_set1_epi8(128 >> SPLIT_SHIFT_Q4)),
        .low_less = _mm512_sub_epi8(_mm512_slli_epi16(low, 3), _mm512_set1_epi8((char)128)),
    };
}

INLINE void split_q4(__m512i nibbles, const struct split_steps *steps, uint8_t *high, uint8_t *low)
{
    __m512i turned = _mm512_mask_sub_epi8(nibbles, steps->negative, _mm512_set1_epi8(16), nibbles);

    _mm512_store_si512(high, _mm512_sub_epi8(_mm512_mullo_epi16(turned, steps->high), steps->high_less));
    _mm512_store_si512(low, _mm512_sub_epi8(_mm512_mullo_epi16(turned, steps->low), steps->low_less));
}

INLINE void split_block_q4(const uint8_t *numbers, const uint8_t *row_steps, uint8_t *high, uint8_t *low)
{
    const struct split_steps steps = split_steps_q4(row_steps);
    const __m512i nibble = _mm512_set1_epi8(15);
    const size_t half = QUADS / 2 * QUADS_LINE;

    UNROLL
    for (size_t at = 0; at < half; at += QUADS_LINE) {
        __m512i bytes = _mm512_loadu_si512(numbers + at);

        split_q4(_mm512_and_si512(bytes, nibble), &steps, high + at, low + at);
        split_q4(_mm512_and_si512(_mm512_srli_epi16(bytes, 4), nibble), &steps, high + half + at, low + half + at);
    }
}

/* ---- panels ------------------------------------------------------------------------------------------------------ */

/* Fetch a part of what follows in this panel: it is split when other panels have had their turn. */
INLINE void split_fetch(const uint8_t *from, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += QUADS_LINE)
        _mm_prefetch((const char *)from + at, _MM_HINT_T1);
}

INLINE void split_group(enum ash_dtype dtype, const uint8_t *group, size_t blocks, size_t ahead_bytes, uint8_t *to)
{
    const size_t part_bytes = ash_quant_panel_group(ASH_QUANT_QUADS, dtype) / ASH_QUANT_GROUP_BLOCKS;
    uint8_t *high = to + QUADS_LINE, *low = high + SPLIT_NUMBERS;

    _mm512_store_si512(to, _mm512_loadu_si512(group));
    for (size_t b = 0; b < blocks; b++, high += QUADS * QUADS_LINE, low += QUADS * QUADS_LINE) {
        split_fetch(group + ahead_bytes + b * part_bytes, part_bytes);
        if (dtype == ASH_Q8_0)
            split_block_q8(quads_block(dtype, group, b), quads_steps(dtype, group, b), high, low);
        else
            split_block_q4(quads_block(dtype, group, b), quads_steps(dtype, group, b), high, low);
    }
}

/* k of a panel, and what fills it up to whole tiles of k. */
INLINE void split_as(enum ash_dtype dtype, const uint8_t *panel, size_t k, uint8_t *to)
{
    const size_t group_bytes = ash_quant_panel_group(ASH_QUANT_QUADS, dtype);
    size_t ahead_bytes = (k + ASH_QUANT_GROUP - 1) / ASH_QUANT_GROUP * group_bytes;

    for (size_t done = 0; done < k; done += ASH_QUANT_GROUP, panel += group_bytes, to += SPLIT_BYTES) {
        size_t tiles = (quads_count(k - done) + ASH_QUANT_PANEL_STEP - 1) / ASH_QUANT_PANEL_STEP;

        split_group(dtype, panel, tiles * (ASH_QUANT_PANEL_STEP / ASH_QUANT_BLOCK), ahead_bytes, to);
    }
}

/* As struct ash_quant_panels says of expand. */
static void split(enum ash_dtype dtype, const uint8_t *panel, size_t k, uint8_t *to)
{
    if (dtype == ASH_Q8_0)
        split_as(ASH_Q8_0, panel, k, to);
    else
        split_as(ASH_Q4_0, panel, k, to);
}

#endif
