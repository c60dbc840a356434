/* Kernels of packed quantised weights for x86-64 with AVX-512 VNNI (VPDPBUSD: in each lane, four unsigned bytes times
 * four signed ones); quant_pack.h has the layout (quads). A vector is 16 rows of weights, so a dot needs no sum over
 * lanes. Weights are unsigned, 128 (Q8_0) or 8 (Q4_0) too large: a dot starts from minus that times the sum of x. */
#if defined(__x86_64__)

#include "compute/cpu/quant_pack.h"

#include <immintrin.h>
#include <string.h>

#include "compute/cpu/quant_quads.h"
#include "compute/quant.h"

#define TILE_AT_ONCE 8 /* rows of x whose dots and sums fit the registers */
/* Bytes of a stream of weights to fetch ahead: the processor does not go far enough itself. */
#define Q8_AHEAD 2048
#define Q4_AHEAD 3072

/* ---- quantising x ------------------------------------------------------------------------------------------------ */

/* ash_quant_block on vectors. Gives minus the sum of the numbers as well. */
INLINE float quantise_block(const float *x, uint8_t *q, int32_t *minus_sum)
{
    const __m512i no_sign = _mm512_set1_epi32(0x7fffffff);
    __m512 low = _mm512_loadu_ps(x), high = _mm512_loadu_ps(x + 16), factor;
    __m512i first = _mm512_castps_si512(low), second = _mm512_castps_si512(high);
    uint32_t bits =
        _mm512_reduce_max_epu32(_mm512_max_epu32(_mm512_and_si512(first, no_sign), _mm512_and_si512(second, no_sign)));
    float amax, d, inverse;

    memcpy(&amax, &bits, sizeof(amax));
    d = amax / 127.0f;
    inverse = 1.0f / d;
    if (bits >= ASH_QUANT_INFINITY_BITS || isinf(inverse)) {
        memset(q, 0, ASH_QUANT_BLOCK);
        *minus_sum = 0;
        return bits >= ASH_QUANT_INFINITY_BITS ? NAN : 0.0f;
    }
    factor = _mm512_set1_ps(inverse);
    low = _mm512_add_ps(_mm512_mul_ps(low, factor), _mm512_set1_ps(ASH_QUANT_ROUNDER));
    high = _mm512_add_ps(_mm512_mul_ps(high, factor), _mm512_set1_ps(ASH_QUANT_ROUNDER));
    first = _mm512_sub_epi32(_mm512_castps_si512(low), _mm512_set1_epi32((int)ASH_QUANT_ROUNDER_BITS));
    second = _mm512_sub_epi32(_mm512_castps_si512(high), _mm512_set1_epi32((int)ASH_QUANT_ROUNDER_BITS));
    _mm_storeu_si128((__m128i *)(void *)q, _mm512_cvtepi32_epi8(first));
    _mm_storeu_si128((__m128i *)(void *)(q + 16), _mm512_cvtepi32_epi8(second));
    *minus_sum = -_mm512_reduce_add_epi32(_mm512_add_epi32(first, second));
    return d;
}

void ash_quant_quads_quantise(const float *const *rows, size_t blocks, size_t strip, size_t strips, uint8_t *tile)
{
    for (size_t b = 0; b < blocks; b++, tile += strips * QUADS_STRIP_BYTES) {
        uint8_t *numbers = tile + (quads_row(tile, strips, strip) - tile);
        int32_t minus_sum;
        float scale = quantise_block(rows[0] + b * ASH_QUANT_BLOCK, numbers, &minus_sum);

        memcpy(tile + strip * sizeof(scale), &scale, sizeof(scale));
        memcpy(tile + (strips + strip) * sizeof(scale), &minus_sum, sizeof(minus_sum));
    }
}

void ash_quant_quads_quantise_one(enum ash_dtype dtype, const float *row, size_t blocks, uint8_t *x)
{
    (void)dtype;
    ash_quant_quads_quantise(&row, blocks, 0, 1, x);
}

/* ---- weights ----------------------------------------------------------------------------------------------------- */

INLINE size_t panel_block(enum ash_dtype dtype, bool expanded)
{
    return expanded ? QUADS_EXPANDED_BYTES : dtype == ASH_Q8_0 ? QUADS_ROWS * 34 : QUADS_ROWS * 18;
}

INLINE __m512 panel_scales(const uint8_t *block, bool expanded)
{
    if (expanded) return _mm512_loadu_ps(block);
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)block));
}

/* Four k of the 16 rows, as unsigned bytes. */
INLINE __m512i panel_quad(enum ash_dtype dtype, bool expanded, const uint8_t *block, size_t quad)
{
    const __m512i nibble = _mm512_set1_epi8(15);

    if (expanded) return _mm512_loadu_si512(block + (1 + quad) * 64);
    if (dtype == ASH_Q8_0) return _mm512_loadu_si512(block + 32 + quad * 64);
    if (quad < QUADS / 2) return _mm512_and_si512(_mm512_loadu_si512(block + 32 + quad * 64), nibble);
    return _mm512_and_si512(_mm512_srli_epi16(_mm512_loadu_si512(block + 32 + (quad - QUADS / 2) * 64), 4), nibble);
}

/* Fetch a block that lies ahead, a part beside each quad: the lines on their way are few. */
INLINE void fetch_quad(enum ash_dtype dtype, const uint8_t *block, size_t quad)
{
    const char *from = (const char *)block + (dtype == ASH_Q8_0 ? Q8_AHEAD : Q4_AHEAD) + 32 + quad * 64;

    if (quad == 0) _mm_prefetch(from - 32, _MM_HINT_T0);
    if (dtype == ASH_Q8_0 || quad < QUADS / 2) _mm_prefetch(from, _MM_HINT_T0);
}

/* What a dot starts from, for a row of x. */
INLINE __m512i dot_start(enum ash_dtype dtype, int32_t minus_sum)
{
    return _mm512_slli_epi32(_mm512_set1_epi32(minus_sum), dtype == ASH_Q8_0 ? 7 : 3);
}

INLINE __m512i x_quad(const uint8_t *row, size_t quad)
{
    int32_t four;

    memcpy(&four, row + 4 * quad, sizeof(four));
    return _mm512_set1_epi32(four);
}

INLINE void expand_as(enum ash_dtype dtype, const uint8_t *panel, size_t blocks, uint8_t *to)
{
    for (size_t b = 0; b < blocks; b++, panel += panel_block(dtype, false), to += QUADS_EXPANDED_BYTES) {
        _mm512_storeu_ps(to, panel_scales(panel, false));
        UNROLL
        for (size_t quad = 0; quad < QUADS; quad++)
            _mm512_storeu_si512(to + (1 + quad) * 64, panel_quad(dtype, false, panel, quad));
    }
}

static void expand(enum ash_dtype dtype, const uint8_t *panel, size_t blocks, uint8_t *expanded)
{
    if (dtype == ASH_Q8_0)
        expand_as(ASH_Q8_0, panel, blocks, expanded);
    else
        expand_as(ASH_Q4_0, panel, blocks, expanded);
}

/* ---- packing ----------------------------------------------------------------------------------------------------- */

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

INLINE void pack_as(enum ash_dtype dtype, const uint8_t *rows, size_t row_bytes, size_t blocks, uint8_t *panel)
{
    const __m512i places = _mm512_mullo_epi32(_mm512_set1_epi32((int)row_bytes),
                                              _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
    const __m512i flip = _mm512_set1_epi8(dtype == ASH_Q8_0 ? (char)0x80 : 0);
    const size_t quads = dtype == ASH_Q8_0 ? QUADS : QUADS / 2;

    for (size_t b = 0; b < blocks; b++, rows += ash_dtype_bytes(dtype), panel += panel_block(dtype, false)) {
        __m512i scales = _mm512_i32gather_epi32(places, rows, 1); /* and the two bytes behind them */
        __m512i v[4];

        _mm256_storeu_si256((__m256i *)(void *)panel, _mm512_cvtepi32_epi16(scales));
        for (size_t first = 0; first < quads; first += 4) {
            load_words(rows + sizeof(uint16_t) + 4 * first, row_bytes, v);
            UNROLL
            for (size_t i = 0; i < 4; i++)
                _mm512_storeu_si512(panel + 32 + (first + i) * 64, _mm512_xor_si512(v[i], flip));
        }
    }
}

void ash_quant_quads_pack(enum ash_dtype dtype, const uint8_t *rows, size_t row_bytes, size_t blocks, uint8_t *panel)
{
    if (dtype == ASH_Q8_0)
        pack_as(ASH_Q8_0, rows, row_bytes, blocks, panel);
    else
        pack_as(ASH_Q4_0, rows, row_bytes, blocks, panel);
}

/* ---- several rows ------------------------------------------------------------------------------------------------ */

/* Rows first ... first + count - 1 of a tile. */
INLINE void run_rows(enum ash_dtype dtype, bool expanded, const uint8_t *panel, const uint8_t *x, size_t strips,
                     size_t first, size_t count, size_t blocks, float *sums)
{
    __m512 acc[TILE_AT_ONCE];

    UNROLL
    for (size_t i = 0; i < count; i++)
        acc[i] = _mm512_loadu_ps(sums + (first + i) * QUADS_ROWS);
    for (size_t b = 0; b < blocks; b++, panel += panel_block(dtype, expanded), x += strips * QUADS_STRIP_BYTES) {
        const uint8_t *rows = quads_row(x, strips, first);
        const int32_t *minus_sums = quads_sums(x, strips) + first;
        const float *x_scales = quads_scales(x) + first;
        __m512 scales = panel_scales(panel, expanded);
        __m512i dots[TILE_AT_ONCE];

        UNROLL
        for (size_t i = 0; i < count; i++)
            dots[i] = dot_start(dtype, minus_sums[i]);
        UNROLL
        for (size_t quad = 0; quad < QUADS; quad++) {
            __m512i w = panel_quad(dtype, expanded, panel, quad);

            if (!expanded) fetch_quad(dtype, panel, quad);
            UNROLL
            for (size_t i = 0; i < count; i++)
                dots[i] = _mm512_dpbusd_epi32(dots[i], w, x_quad(rows + i * ASH_QUANT_BLOCK, quad));
        }
        UNROLL
        for (size_t i = 0; i < count; i++) {
            __m512 scale = _mm512_mul_ps(_mm512_set1_ps(x_scales[i]), scales);

            acc[i] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[i]), scale, acc[i]);
        }
    }
    UNROLL
    for (size_t i = 0; i < count; i++)
        _mm512_storeu_ps(sums + (first + i) * QUADS_ROWS, acc[i]);
}

INLINE void run_tile(enum ash_dtype dtype, bool expanded, const uint8_t *panel, const uint8_t *x, size_t strips,
                     size_t blocks, float *sums)
{
    size_t first = 0;

    for (; first + 8 <= strips; first += 8)
        run_rows(dtype, expanded, panel, x, strips, first, 8, blocks, sums);
    for (; first + 4 <= strips; first += 4)
        run_rows(dtype, expanded, panel, x, strips, first, 4, blocks, sums);
    for (; first + 2 <= strips; first += 2)
        run_rows(dtype, expanded, panel, x, strips, first, 2, blocks, sums);
    for (; first < strips; first++)
        run_rows(dtype, expanded, panel, x, strips, first, 1, blocks, sums);
}

void ash_quant_quads_tile(enum ash_dtype dtype, bool expanded, const uint8_t *panel, const uint8_t *x, size_t strips,
                          size_t blocks, float *sums)
{
    if (expanded && dtype == ASH_Q8_0)
        run_tile(ASH_Q8_0, true, panel, x, strips, blocks, sums);
    else if (expanded)
        run_tile(ASH_Q4_0, true, panel, x, strips, blocks, sums);
    else if (dtype == ASH_Q8_0)
        run_tile(ASH_Q8_0, false, panel, x, strips, blocks, sums);
    else
        run_tile(ASH_Q4_0, false, panel, x, strips, blocks, sums);
}

void ash_quant_quads_untile(const float *sums, size_t rows, float *y, size_t y_stride)
{
    for (size_t m = 0; m < rows; m++)
        _mm512_storeu_ps(y + m * y_stride, _mm512_loadu_ps(sums + m * QUADS_ROWS));
}

/* ---- one row ----------------------------------------------------------------------------------------------------- */

/* Panels side by side: as many streams of memory. */
INLINE void run_one(enum ash_dtype dtype, const uint8_t *const *panels, size_t count, const uint8_t *x, size_t blocks,
                    float *y)
{
    const uint8_t *at[ASH_QUANT_PANEL_GROUP];
    __m512 acc[ASH_QUANT_PANEL_GROUP];

    UNROLL
    for (size_t i = 0; i < count; i++) {
        at[i] = panels[i];
        acc[i] = _mm512_setzero_ps();
    }
    for (size_t b = 0; b < blocks; b++, x += QUADS_STRIP_BYTES) {
        const uint8_t *row = quads_row(x, 1, 0);
        __m512 scale = _mm512_set1_ps(quads_scales(x)[0]);
        __m512i dots[ASH_QUANT_PANEL_GROUP];

        UNROLL
        for (size_t i = 0; i < count; i++)
            dots[i] = dot_start(dtype, quads_sums(x, 1)[0]);
        UNROLL
        for (size_t quad = 0; quad < QUADS; quad++) {
            __m512i four = x_quad(row, quad);

            UNROLL
            for (size_t i = 0; i < count; i++) {
                fetch_quad(dtype, at[i], quad);
                dots[i] = _mm512_dpbusd_epi32(dots[i], panel_quad(dtype, false, at[i], quad), four);
            }
        }
        UNROLL
        for (size_t i = 0; i < count; i++) {
            __m512 scales = _mm512_mul_ps(scale, panel_scales(at[i], false));

            acc[i] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[i]), scales, acc[i]);
            at[i] += panel_block(dtype, false);
        }
    }
    UNROLL
    for (size_t i = 0; i < count; i++)
        _mm512_storeu_ps(y + i * QUADS_ROWS, acc[i]);
}

INLINE void one_as(enum ash_dtype dtype, const uint8_t *const *panels, size_t count, const uint8_t *x, size_t blocks,
                   float *y)
{
    if (count == ASH_QUANT_PANEL_GROUP) {
        run_one(dtype, panels, ASH_QUANT_PANEL_GROUP, x, blocks, y);
        return;
    }
    for (size_t i = 0; i < count; i++)
        run_one(dtype, panels + i, 1, x, blocks, y + i * QUADS_ROWS);
}

void ash_quant_quads_one(enum ash_dtype dtype, const uint8_t *const *panels, size_t count, const uint8_t *x,
                         size_t blocks, float *y)
{
    if (dtype == ASH_Q8_0)
        one_as(ASH_Q8_0, panels, count, x, blocks, y);
    else
        one_as(ASH_Q4_0, panels, count, x, blocks, y);
}

const struct ash_quant_panels ash_quant_panels_vnni = {.layout = ASH_QUANT_QUADS,
                                                       .strip_rows = 1,
                                                       .strip_bytes = QUADS_STRIP_BYTES,
                                                       .tile_strips = QUADS_TILE_STRIPS,
                                                       .expanded_bytes = QUADS_EXPANDED_BYTES,
                                                       .k_blocks = 32,
                                                       .expanded_panels = 4,
                                                       .one_bytes = QUADS_STRIP_BYTES,
                                                       .pack = ash_quant_quads_pack,
                                                       .quantise = ash_quant_quads_quantise,
                                                       .expand = expand,
                                                       .tile = ash_quant_quads_tile,
                                                       .untile = ash_quant_quads_untile,
                                                       .quantise_one = ash_quant_quads_quantise_one,
                                                       .one = ash_quant_quads_one};

#endif
