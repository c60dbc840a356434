/* Packing quantised weights in the vnni layout with AVX-512: 16 rows of the file become the lanes of a vector. */
#if defined(__x86_64__)

#include "compute/cpu/quant/quant_layout_vnni.h"

/* ---- group scales and sub-scales --------------------------------------------------------------------------------- */

/* The scales of a block of 16 rows, that lie at `places` of the first one. */
INLINE __m256i row_halves(const uint8_t *rows, __m512i places)
{
    return _mm512_cvtepi32_epi16(_mm512_i32gather_epi32(places, rows, 1)); /* without the two bytes after each */
}

INLINE __m512 row_scales(const uint8_t *rows, __m512i places)
{
    return _mm512_cvtph_ps(row_halves(rows, places));
}

/* Scales as sub-scales, a scale of 1 being `times` of them, still with ASH_F32_ROUND_MAGIC added. */
INLINE __m512 subscales_rounded(__m512 scales, __m512 times)
{
    return _mm512_add_ps(_mm512_mul_ps(scales, times), _mm512_set1_ps(ASH_F32_ROUND_MAGIC));
}

/* ash_quant_pick_subscale_max of 16 rows. */
INLINE __m512 pick_subscale_max(const __m512 *scales, size_t blocks, __m512 top)
{
    const __m512 few = _mm512_set1_ps(ASH_QUANT_SUBSCALE_SMALL_MAX), times = _mm512_div_ps(few, top);
    __mmask16 same = 0xffff;

    for (size_t b = 0; b < blocks; b++) {
        __m512 subscales = _mm512_sub_ps(subscales_rounded(scales[b], times), _mm512_set1_ps(ASH_F32_ROUND_MAGIC));

        same &= _mm512_cmp_ps_mask(_mm512_mul_ps(subscales, top), _mm512_mul_ps(scales[b], few), _CMP_EQ_OQ);
    }
    return _mm512_mask_blend_ps(same, _mm512_set1_ps(ASH_QUANT_SUBSCALE_MAX), few);
}

/* ash_quant_subscales of 16 rows of Q4_0. Blocks that are not there have zeros already. */
INLINE void pack_subscales(const uint8_t *rows, __m512i places, size_t blocks, uint8_t *group)
{
    const __m512i rounder_bits = _mm512_set1_epi32((int)ASH_F32_ROUND_MAGIC_BITS);
    __m512 scales[ASH_QUANT_GROUP_BLOCKS], top = _mm512_setzero_ps(), most, inverse;
    __mmask16 finite = 0xffff, some;

    for (size_t b = 0; b < blocks; b++) {
        __m512 size;

        scales[b] = row_scales(rows + b * ash_dtype_bytes(ASH_Q4_0), places);
        size = _mm512_abs_ps(scales[b]);
        finite &= _mm512_cmp_ps_mask(size, _mm512_set1_ps(INFINITY), _CMP_LT_OQ);
        top = _mm512_max_ps(size, top);
    }
    some = finite & _mm512_cmp_ps_mask(top, _mm512_setzero_ps(), _CMP_GT_OQ);
    most = pick_subscale_max(scales, blocks, top);
    inverse = _mm512_div_ps(most, top);
    _mm512_storeu_ps(group, _mm512_mask_blend_ps(finite, _mm512_set1_ps(NAN), _mm512_div_ps(top, most)));
    group += VNNI_LINE;
    for (size_t b = 0; b < blocks; b++, group += VNNI_ROWS) {
        __m512i whole = _mm512_castps_si512(subscales_rounded(scales[b], inverse));
        __m512i subscales = _mm512_maskz_sub_epi32(some, whole, rounder_bits);

        _mm_storeu_si128((__m128i *)(void *)group, _mm512_cvtepi32_epi8(subscales));
    }
}

/* What a group of a panel begins with. */
INLINE void pack_head(enum ash_dtype dtype, const uint8_t *rows, __m512i places, size_t blocks, uint8_t *group)
{
    if (dtype == ASH_Q8_0)
        _mm256_storeu_si256((__m256i *)(void *)group, row_halves(rows, places));
    else if (dtype == ASH_Q8_W)
        _mm512_storeu_ps(group, row_scales(rows, places));
    else
        pack_subscales(rows, places, blocks, group);
}

/* ---- integer values ---------------------------------------------------------------------------------------------- */

/* Sixteen bytes of each of 16 rows: word i of all of them, side by side, in v[i]. A quarter of a vector begins as four
 * words of one row and ends as one word of four rows. */
INLINE void load_words(const uint8_t *rows, size_t row_bytes, __m512i v[4])
{
    __m512i low, high, low_next, high_next;

    UNROLL
    for (size_t i = 0; i < 4; i++) {
        const uint8_t *row = rows + i * row_bytes;

        v[i] = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(const void *)row));
        v[i] = _mm512_inserti32x4(v[i], _mm_loadu_si128((const __m128i *)(const void *)(row + 4 * row_bytes)), 1);
        v[i] = _mm512_inserti32x4(v[i], _mm_loadu_si128((const __m128i *)(const void *)(row + 8 * row_bytes)), 2);
        v[i] = _mm512_inserti32x4(v[i], _mm_loadu_si128((const __m128i *)(const void *)(row + 12 * row_bytes)), 3);
    }
    low = _mm512_unpacklo_epi32(v[0], v[1]);
    high = _mm512_unpackhi_epi32(v[0], v[1]);
    low_next = _mm512_unpacklo_epi32(v[2], v[3]);
    high_next = _mm512_unpackhi_epi32(v[2], v[3]);
    v[0] = _mm512_unpacklo_epi64(low, low_next);
    v[1] = _mm512_unpackhi_epi64(low, low_next);
    v[2] = _mm512_unpacklo_epi64(high, high_next);
    v[3] = _mm512_unpackhi_epi64(high, high_next);
}

/* Those of a block; returns what follows them. */
INLINE uint8_t *pack_quants(enum ash_dtype dtype, const uint8_t *rows, size_t row_bytes, uint8_t *to)
{
    for (size_t first = 0; first < VNNI_LINES(dtype); first += 4, to += 4 * VNNI_LINE) {
        __m512i v[4];

        load_words(rows + sizeof(uint16_t) + 4 * first, row_bytes, v);
        UNROLL
        for (size_t i = 0; i < 4; i++)
            _mm512_storeu_si512(to + i * VNNI_LINE, v[i]);
    }
    return to;
}

/* ---- panels ------------------------------------------------------------------------------------------------------ */

INLINE void pack_as(enum ash_dtype dtype, const uint8_t *rows, size_t row_bytes, size_t blocks, uint8_t *panel)
{
    const __m512i places = _mm512_mullo_epi32(_mm512_set1_epi32((int)row_bytes),
                                              _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));

    for (size_t done = 0; done < blocks; done += ash_quant_group_blocks(dtype)) {
        size_t count = vnni_group_k(ash_quant_group(dtype), (blocks - done) * ASH_QUANT_BLOCK) / ASH_QUANT_BLOCK;

        pack_head(dtype, rows, places, count, panel);
        panel += ash_quant_panel_head(ASH_QUANT_LAYOUT_VNNI, dtype);
        for (size_t b = 0; b < count; b++, rows += ash_dtype_bytes(dtype))
            panel = pack_quants(dtype, rows, row_bytes, panel);
    }
}

void ash_quant_vnni_pack(enum ash_dtype dtype, const uint8_t *rows, size_t row_bytes, size_t blocks, uint8_t *panel)
{
    if (dtype == ASH_Q8_0)
        pack_as(ASH_Q8_0, rows, row_bytes, blocks, panel);
    else if (dtype == ASH_Q8_W)
        pack_as(ASH_Q8_W, rows, row_bytes, blocks, panel);
    else
        pack_as(ASH_Q4_0, rows, row_bytes, blocks, panel);
}

void ash_quant_vnni_untile(const float *sums, size_t rows, float *y, size_t y_stride)
{
    for (size_t m = 0; m < rows; m++)
        _mm512_storeu_ps(y + m * y_stride, _mm512_loadu_ps(sums + m * VNNI_ROWS));
}

#endif
