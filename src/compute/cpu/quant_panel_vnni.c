/* Kernels of packed quantised weights for x86-64 with AVX-512 VNNI (VPDPBUSD: in each lane, four unsigned bytes times
 * four signed ones); quant_pack.h has the layout (quads). A vector is 16 rows of weights, so a dot needs no sum over
 * lanes. Weights are unsigned, 128 (Q8_0, Q8_W) or 8 (Q4_0) too large: a dot starts from minus that times the sum of x.
 * One body serves all types: they differ in how bytes are read and in how many k share a scale. */
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

INLINE void quantise_as(size_t block_k, const float *row, size_t k, size_t strip, size_t strips, uint8_t *tile)
{
    for (; k > 0; tile += strips * QUADS_STRIP_BYTES(block_k)) {
        size_t count = k < block_k ? k : block_k;
        uint8_t *numbers = tile + (quads_row(tile, strips, strip, block_k) - tile);
        float factor, scale = quads_scale(row, count, &factor);
        int32_t minus_sum = -quads_numbers(row, count, factor, numbers);

        memcpy(tile + strip * sizeof(scale), &scale, sizeof(scale));
        memcpy(tile + (strips + strip) * sizeof(scale), &minus_sum, sizeof(minus_sum));
        row += count;
        k -= count;
    }
}

static void quantise(const float *const *rows, size_t k, size_t strip, size_t strips, uint8_t *tile)
{
    quantise_as(ASH_QUANT_BLOCK, rows[0], k, strip, strips, tile);
}

static void quantise_wide(const float *const *rows, size_t k, size_t strip, size_t strips, uint8_t *tile)
{
    quantise_as(ASH_QUANT_WIDE, rows[0], k, strip, strips, tile);
}

static void quantise_one(enum ash_dtype dtype, const float *row, size_t k, uint8_t *x)
{
    (dtype == ASH_Q8_W ? quantise_wide : quantise)(&row, k, 0, 1, x);
}

/* ---- weights ----------------------------------------------------------------------------------------------------- */

INLINE size_t block_k(enum ash_dtype dtype)
{
    return dtype == ASH_Q8_W ? ASH_QUANT_WIDE : ASH_QUANT_BLOCK;
}

INLINE size_t panel_block(enum ash_dtype dtype, bool expanded)
{
    if (dtype == ASH_Q8_W) return QUADS_WIDE_BYTES;
    return expanded ? QUADS_EXPANDED_BYTES : dtype == ASH_Q8_0 ? QUADS_ROWS * 34 : QUADS_ROWS * 18;
}

INLINE __m512 panel_scales(enum ash_dtype dtype, bool expanded, const uint8_t *block)
{
    if (expanded || dtype == ASH_Q8_W) return _mm512_loadu_ps(block);
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)block));
}

/* Four k of the 16 rows, as unsigned bytes. Q8_W has signed ones, as AMX wants them. */
INLINE __m512i panel_quad(enum ash_dtype dtype, bool expanded, const uint8_t *block, size_t quad)
{
    const __m512i nibble = _mm512_set1_epi8(15);

    if (dtype == ASH_Q8_W)
        return _mm512_xor_si512(_mm512_loadu_si512(block + (1 + quad) * 64), _mm512_set1_epi8((char)0x80));
    if (expanded) return _mm512_loadu_si512(block + (1 + quad) * 64);
    if (dtype == ASH_Q8_0) return _mm512_loadu_si512(block + 32 + quad * 64);
    if (quad < QUADS / 2) return _mm512_and_si512(_mm512_loadu_si512(block + 32 + quad * 64), nibble);
    return _mm512_and_si512(_mm512_srli_epi16(_mm512_loadu_si512(block + 32 + (quad - QUADS / 2) * 64), 4), nibble);
}

/* Fetch a block that lies ahead, a part beside each quad: the lines on their way are few. */
INLINE void fetch_quad(enum ash_dtype dtype, const uint8_t *block, size_t quad)
{
    const char *from = (const char *)block + (dtype == ASH_Q4_0 ? Q4_AHEAD : Q8_AHEAD) + 32 + quad * 64;

    if (dtype != ASH_Q8_W && quad == 0) _mm_prefetch(from - 32, _MM_HINT_T0);
    if (dtype != ASH_Q4_0 || quad < QUADS / 2) _mm_prefetch(from, _MM_HINT_T0);
}

/* What a dot starts from, for a row of x. */
INLINE __m512i dot_start(enum ash_dtype dtype, int32_t minus_sum)
{
    return _mm512_slli_epi32(_mm512_set1_epi32(minus_sum), dtype == ASH_Q4_0 ? 3 : 7);
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
        _mm512_storeu_ps(to, panel_scales(dtype, false, panel));
        UNROLL
        for (size_t quad = 0; quad < QUADS; quad++)
            _mm512_storeu_si512(to + (1 + quad) * 64, panel_quad(dtype, false, panel, quad));
    }
}

static void expand(enum ash_dtype dtype, const uint8_t *panel, size_t k, uint8_t *expanded)
{
    if (dtype == ASH_Q8_0)
        expand_as(ASH_Q8_0, panel, k / ASH_QUANT_BLOCK, expanded);
    else
        expand_as(ASH_Q4_0, panel, k / ASH_QUANT_BLOCK, expanded);
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

/* The scales of a block of 16 rows, that lie at `places` of the first one. */
INLINE __m256i row_scales(const uint8_t *rows, __m512i places)
{
    return _mm512_cvtepi32_epi16(_mm512_i32gather_epi32(places, rows, 1)); /* without the two bytes behind them */
}

/* Numbers of a block of 16 rows; returns what follows them. */
INLINE uint8_t *pack_numbers(enum ash_dtype dtype, const uint8_t *rows, size_t row_bytes, uint8_t *to)
{
    const __m512i flip = _mm512_set1_epi8(dtype == ASH_Q8_0 ? (char)0x80 : 0);
    const size_t quads = dtype == ASH_Q4_0 ? QUADS / 2 : QUADS;

    for (size_t first = 0; first < quads; first += 4) {
        __m512i v[4];

        load_words(rows + sizeof(uint16_t) + 4 * first, row_bytes, v);
        UNROLL
        for (size_t i = 0; i < 4; i++)
            _mm512_storeu_si512(to + (first + i) * 64, _mm512_xor_si512(v[i], flip));
    }
    return to + quads * 64;
}

INLINE void pack_as(enum ash_dtype dtype, const uint8_t *rows, size_t row_bytes, size_t blocks, uint8_t *panel)
{
    const __m512i places = _mm512_mullo_epi32(_mm512_set1_epi32((int)row_bytes),
                                              _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));

    for (size_t b = 0; b < blocks; b++, rows += ash_dtype_bytes(dtype)) {
        if (dtype == ASH_Q8_W && b % (ASH_QUANT_WIDE / ASH_QUANT_BLOCK) == 0) {
            _mm512_storeu_ps(panel, _mm512_cvtph_ps(row_scales(rows, places)));
            panel += 64;
        } else if (dtype != ASH_Q8_W) {
            _mm256_storeu_si256((__m256i *)(void *)panel, row_scales(rows, places));
            panel += 32;
        }
        panel = pack_numbers(dtype, rows, row_bytes, panel);
    }
}

void ash_quant_quads_pack(enum ash_dtype dtype, const uint8_t *rows, size_t row_bytes, size_t blocks, uint8_t *panel)
{
    if (dtype == ASH_Q8_0)
        pack_as(ASH_Q8_0, rows, row_bytes, blocks, panel);
    else if (dtype == ASH_Q8_W)
        pack_as(ASH_Q8_W, rows, row_bytes, blocks, panel);
    else
        pack_as(ASH_Q4_0, rows, row_bytes, blocks, panel);
}

/* ---- several rows ------------------------------------------------------------------------------------------------ */

/* Blocks of 32 k, which are unrolled, of the next span that shares a scale. */
INLINE size_t span_parts(enum ash_dtype dtype, size_t k)
{
    if (dtype != ASH_Q8_W) return 1;
    return k < ASH_QUANT_WIDE ? k / ASH_QUANT_BLOCK : ASH_QUANT_WIDE / ASH_QUANT_BLOCK;
}

/* Rows first ... first + count - 1 of a tile. */
INLINE void run_rows(enum ash_dtype dtype, bool expanded, const uint8_t *panel, const uint8_t *x, size_t strips,
                     size_t first, size_t count, size_t k, float *sums)
{
    const size_t span = block_k(dtype);
    __m512 acc[TILE_AT_ONCE];

    UNROLL
    for (size_t i = 0; i < count; i++)
        acc[i] = _mm512_loadu_ps(sums + (first + i) * QUADS_ROWS);
    for (size_t at = 0; at < k;
         at += span, panel += panel_block(dtype, expanded), x += strips * QUADS_STRIP_BYTES(span)) {
        const uint8_t *rows = quads_row(x, strips, first, span);
        const int32_t *minus_sums = quads_sums(x, strips) + first;
        const float *x_scales = quads_scales(x) + first;
        __m512 scales = panel_scales(dtype, expanded, panel);
        __m512i dots[TILE_AT_ONCE];

        UNROLL
        for (size_t i = 0; i < count; i++)
            dots[i] = dot_start(dtype, minus_sums[i]);
        for (size_t part = 0; part < span_parts(dtype, k - at); part++) {
            UNROLL
            for (size_t i = 0; i < QUADS; i++) {
                size_t quad = part * QUADS + i;
                __m512i w = panel_quad(dtype, expanded, panel, quad);

                if (!expanded) fetch_quad(dtype, panel, quad);
                UNROLL
                for (size_t j = 0; j < count; j++)
                    dots[j] = _mm512_dpbusd_epi32(dots[j], w, x_quad(rows + j * span, quad));
            }
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
                     size_t k, float *sums)
{
    size_t first = 0;

    for (; first + 8 <= strips; first += 8)
        run_rows(dtype, expanded, panel, x, strips, first, 8, k, sums);
    for (; first + 4 <= strips; first += 4)
        run_rows(dtype, expanded, panel, x, strips, first, 4, k, sums);
    for (; first + 2 <= strips; first += 2)
        run_rows(dtype, expanded, panel, x, strips, first, 2, k, sums);
    for (; first < strips; first++)
        run_rows(dtype, expanded, panel, x, strips, first, 1, k, sums);
}

static void tile(enum ash_dtype dtype, bool expanded, const uint8_t *panel, const uint8_t *x, size_t strips, size_t k,
                 float *sums)
{
    if (expanded && dtype == ASH_Q8_W)
        run_tile(ASH_Q8_W, true, panel, x, strips, k, sums);
    else if (dtype == ASH_Q8_W)
        run_tile(ASH_Q8_W, false, panel, x, strips, k, sums);
    else if (expanded && dtype == ASH_Q8_0)
        run_tile(ASH_Q8_0, true, panel, x, strips, k, sums);
    else if (expanded)
        run_tile(ASH_Q4_0, true, panel, x, strips, k, sums);
    else if (dtype == ASH_Q8_0)
        run_tile(ASH_Q8_0, false, panel, x, strips, k, sums);
    else
        run_tile(ASH_Q4_0, false, panel, x, strips, k, sums);
}

void ash_quant_quads_untile(const float *sums, size_t rows, float *y, size_t y_stride)
{
    for (size_t m = 0; m < rows; m++)
        _mm512_storeu_ps(y + m * y_stride, _mm512_loadu_ps(sums + m * QUADS_ROWS));
}

/* ---- one row ----------------------------------------------------------------------------------------------------- */

/* Panels side by side: as many streams of memory. */
INLINE void run_one(enum ash_dtype dtype, const uint8_t *const *panels, size_t count, const uint8_t *x, size_t k,
                    float *y)
{
    const size_t span = block_k(dtype);
    const uint8_t *at[ASH_QUANT_PANEL_GROUP];
    __m512 acc[ASH_QUANT_PANEL_GROUP];

    UNROLL
    for (size_t i = 0; i < count; i++) {
        at[i] = panels[i];
        acc[i] = _mm512_setzero_ps();
    }
    for (size_t done = 0; done < k; done += span, x += QUADS_STRIP_BYTES(span)) {
        const uint8_t *row = quads_row(x, 1, 0, span);
        __m512 scale = _mm512_set1_ps(quads_scales(x)[0]);
        __m512i dots[ASH_QUANT_PANEL_GROUP];

        UNROLL
        for (size_t i = 0; i < count; i++)
            dots[i] = dot_start(dtype, quads_sums(x, 1)[0]);
        for (size_t part = 0; part < span_parts(dtype, k - done); part++) {
            UNROLL
            for (size_t i = 0; i < QUADS; i++) {
                size_t quad = part * QUADS + i;
                __m512i four = x_quad(row, quad);

                UNROLL
                for (size_t j = 0; j < count; j++) {
                    fetch_quad(dtype, at[j], quad);
                    dots[j] = _mm512_dpbusd_epi32(dots[j], panel_quad(dtype, false, at[j], quad), four);
                }
            }
        }
        UNROLL
        for (size_t i = 0; i < count; i++) {
            __m512 scales = _mm512_mul_ps(scale, panel_scales(dtype, false, at[i]));

            acc[i] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[i]), scales, acc[i]);
            at[i] += panel_block(dtype, false);
        }
    }
    UNROLL
    for (size_t i = 0; i < count; i++)
        _mm512_storeu_ps(y + i * QUADS_ROWS, acc[i]);
}

INLINE void one_as(enum ash_dtype dtype, const uint8_t *const *panels, size_t count, const uint8_t *x, size_t k,
                   float *y)
{
    if (count == 4)
        run_one(dtype, panels, 4, x, k, y);
    else if (count == 3)
        run_one(dtype, panels, 3, x, k, y);
    else if (count == 2)
        run_one(dtype, panels, 2, x, k, y);
    else if (count == 1)
        run_one(dtype, panels, 1, x, k, y);
}

static void one(enum ash_dtype dtype, const uint8_t *const *panels, size_t count, const uint8_t *x, size_t k, float *y)
{
    if (dtype == ASH_Q8_0)
        one_as(ASH_Q8_0, panels, count, x, k, y);
    else if (dtype == ASH_Q8_W)
        one_as(ASH_Q8_W, panels, count, x, k, y);
    else
        one_as(ASH_Q4_0, panels, count, x, k, y);
}

const struct ash_quant_panels ash_quant_panels_vnni = {.layout = ASH_QUANT_QUADS,
                                                       .block_k = ASH_QUANT_BLOCK,
                                                       .strip_rows = 1,
                                                       .strip_bytes = QUADS_STRIP_BYTES(ASH_QUANT_BLOCK),
                                                       .tile_strips = QUADS_TILE_STRIPS,
                                                       .expanded_bytes = QUADS_EXPANDED_BYTES,
                                                       .k_blocks = 32,
                                                       .expanded_panels = 4,
                                                       .one_bytes = QUADS_STRIP_BYTES(ASH_QUANT_BLOCK),
                                                       .pack = ash_quant_quads_pack,
                                                       .quantise = quantise,
                                                       .expand = expand,
                                                       .tile = tile,
                                                       .untile = ash_quant_quads_untile,
                                                       .quantise_one = quantise_one,
                                                       .one = one};

const struct ash_quant_panels ash_quant_wide_vnni = {.layout = ASH_QUANT_QUADS,
                                                     .block_k = ASH_QUANT_WIDE,
                                                     .strip_rows = 1,
                                                     .strip_bytes = QUADS_STRIP_BYTES(ASH_QUANT_WIDE),
                                                     .tile_strips = QUADS_TILE_STRIPS,
                                                     .k_blocks = 4,
                                                     .expanded_panels = 2,
                                                     .one_bytes = QUADS_STRIP_BYTES(ASH_QUANT_WIDE),
                                                     .pack = ash_quant_quads_pack,
                                                     .quantise = quantise_wide,
                                                     .tile = tile,
                                                     .untile = ash_quant_quads_untile,
                                                     .quantise_one = quantise_one,
                                                     .one = one};

#endif
