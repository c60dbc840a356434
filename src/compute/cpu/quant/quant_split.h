/* quant_split - packed weights of Q4_0 in quads as AMX takes them. Where all steps are few, a number times its steps is
 * a byte, and a panel becomes one of Q8_W. Else it has 11 bits and becomes two bytes, high << SPLIT_SHIFT plus low, of
 * which high is signed and low is not: of a group of a panel there are the units of its rows, then all high bytes and
 * then all low ones, in the order of the packed numbers of Q8_W. A line before the groups says which they are. */
#ifndef ASH_COMPUTE_QUANT_SPLIT_H
#define ASH_COMPUTE_QUANT_SPLIT_H

#include "compute/cpu/quant/quant_quads.h"

#define SPLIT_SHIFT 4
#define SPLIT_NUMBERS (ASH_QUANT_GROUP * QUADS_ROWS) /* high ones of a group, and low ones */
#define SPLIT_BYTES (QUADS_LINE + 2 * SPLIT_NUMBERS)
#define WHOLE_BYTES (QUADS_LINE + SPLIT_NUMBERS) /* of a group of Q8_W */

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

/* |steps| = 16 high + low, and n = nibble - 8 times each of these fits a byte: n * high is nibble * high less
 * 8 * high. Negative steps turn the nibble round instead: 16 - nibble. Both bytes of a word are multiplied at once, for
 * no product of theirs is more than 16 * 15. 128 goes from the high part to the low one, which is never negative so. */
struct split_steps {
    __mmask64 negative;
    __m512i high, low;           /* words */
    __m512i high_less, low_less; /* bytes */
};

INLINE struct split_steps split_steps_of(const uint8_t *row_steps)
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
        .high_less = _mm512_add_epi8(_mm512_slli_epi16(high, 3), _mm512_set1_epi8(128 >> SPLIT_SHIFT)),
        .low_less = _mm512_sub_epi8(_mm512_slli_epi16(low, 3), _mm512_set1_epi8((char)128)),
    };
}

INLINE void split_numbers(__m512i nibbles, const struct split_steps *steps, uint8_t *high, uint8_t *low)
{
    __m512i turned = _mm512_mask_sub_epi8(nibbles, steps->negative, _mm512_set1_epi8(16), nibbles);

    _mm512_store_si512(high, _mm512_sub_epi8(_mm512_mullo_epi16(turned, steps->high), steps->high_less));
    _mm512_store_si512(low, _mm512_sub_epi8(_mm512_mullo_epi16(turned, steps->low), steps->low_less));
}

/* The numbers of a block, 64 nibbles at a time: low ones (these k) and then high ones (those 16 further). */
INLINE __m512i split_nibbles(const uint8_t *numbers, size_t line)
{
    __m512i bytes = _mm512_loadu_si512(numbers + line % (QUADS / 2) * QUADS_LINE);

    return _mm512_and_si512(line < QUADS / 2 ? bytes : _mm512_srli_epi16(bytes, 4), _mm512_set1_epi8(15));
}

INLINE void split_block(const uint8_t *numbers, const uint8_t *row_steps, uint8_t *high, uint8_t *low)
{
    const struct split_steps steps = split_steps_of(row_steps);

    UNROLL
    for (size_t line = 0; line < QUADS; line++)
        split_numbers(split_nibbles(numbers, line), &steps, high + line * QUADS_LINE, low + line * QUADS_LINE);
}

/* Few steps have no high part. What is left is 128 too large for a signed byte. */
INLINE void whole_block(const uint8_t *numbers, const uint8_t *row_steps, uint8_t *to)
{
    const struct split_steps steps = split_steps_of(row_steps);
    const __m512i less = _mm512_add_epi8(steps.low_less, _mm512_set1_epi8((char)128));

    UNROLL
    for (size_t line = 0; line < QUADS; line++) {
        __m512i nibbles = split_nibbles(numbers, line);
        __m512i turned = _mm512_mask_sub_epi8(nibbles, steps.negative, _mm512_set1_epi8(16), nibbles);

        _mm512_store_si512(to + line * QUADS_LINE, _mm512_sub_epi8(_mm512_mullo_epi16(turned, steps.low), less));
    }
}

/* ---- panels ------------------------------------------------------------------------------------------------------ */

/* Fetch a part of what follows in this panel: it is split when other panels have had their turn. */
INLINE void split_fetch(const uint8_t *from, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += QUADS_LINE)
        _mm_prefetch((const char *)from + at, _MM_HINT_T1);
}

INLINE void split_group(bool whole, const uint8_t *group, size_t blocks, size_t ahead_bytes, uint8_t *to)
{
    const size_t part_bytes = ash_quant_panel_group(ASH_QUANT_QUADS, ASH_Q4_0) / ASH_QUANT_GROUP_BLOCKS;
    uint8_t *high = to + QUADS_LINE, *low = high + SPLIT_NUMBERS;

    _mm512_store_si512(to, _mm512_loadu_si512(group));
    for (size_t b = 0; b < blocks; b++, high += QUADS * QUADS_LINE, low += QUADS * QUADS_LINE) {
        split_fetch(group + ahead_bytes + b * part_bytes, part_bytes);
        if (whole)
            whole_block(quads_block(ASH_Q4_0, group, b), quads_steps(group, b), high);
        else
            split_block(quads_block(ASH_Q4_0, group, b), quads_steps(group, b), high, low);
    }
}

INLINE void split_groups(bool whole, const uint8_t *panel, size_t k, uint8_t *to)
{
    const size_t group_bytes = ash_quant_panel_group(ASH_QUANT_QUADS, ASH_Q4_0);
    size_t ahead_bytes = (k + ASH_QUANT_GROUP - 1) / ASH_QUANT_GROUP * group_bytes;

    for (size_t done = 0; done < k; done += ASH_QUANT_GROUP, panel += group_bytes) {
        size_t tiles = (quads_count(ASH_QUANT_GROUP, k - done) + ASH_QUANT_PANEL_STEP - 1) / ASH_QUANT_PANEL_STEP;

        split_group(whole, panel, tiles * (ASH_QUANT_PANEL_STEP / ASH_QUANT_BLOCK), ahead_bytes, to);
        to += whole ? WHOLE_BYTES : SPLIT_BYTES;
    }
}

/* Have all blocks of these groups few steps? */
static bool split_few_steps(const uint8_t *panel, size_t k)
{
    __m512i most = _mm512_setzero_si512();

    for (size_t done = 0; done < k; done += ASH_QUANT_GROUP) {
        for (size_t at = 0; at < ASH_QUANT_GROUP_BLOCKS * QUADS_ROWS; at += QUADS_LINE)
            most = _mm512_max_epu8(most, _mm512_abs_epi8(_mm512_loadu_si512(quads_steps(panel, 0) + at)));
        panel += ash_quant_panel_group(ASH_QUANT_QUADS, ASH_Q4_0);
    }
    return _mm512_cmpgt_epu8_mask(most, _mm512_set1_epi8(ASH_QUANT_FEW_STEPS)) == 0;
}

/* As struct ash_quant_panels says of expand: k of a panel, and what fills it up to whole tiles of k. */
static void split(enum ash_dtype dtype, const uint8_t *panel, size_t k, uint8_t *to)
{
    (void)dtype;
    to[0] = split_few_steps(panel, k);
    if (to[0])
        split_groups(true, panel, k, to + QUADS_LINE);
    else
        split_groups(false, panel, k, to + QUADS_LINE);
}

/* Of what it made: are its groups those of Q8_W? */
static inline bool split_is_whole(const uint8_t *made)
{
    return made[0] != 0;
}

#endif
