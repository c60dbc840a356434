/* Kernels of packed weights of the types of quant_open.h for x86-64 with AVX-512 VNNI (VPDPBUSD: in each lane, four
 * unsigned bytes times four signed ones); quant_pack.h has the layout (vnni). A vector is 16 rows of weights. Dots of a
 * sub-block start from minus the offset of its quants times the sum of its x, and times sub-scales are added to those
 * of the group. A micro-panel is one row of x. Of a group, a tile of up to 16 of them holds their scales; what minimums
 * and offsets need of each row (struct sub_sums); and the quants, row by row. */
#if defined(__x86_64__)

#include "compute/cpu/quant/quant_panels.h"

#include <immintrin.h>
#include <string.h>

#include "compute/cpu/quant/quant_rows_vnni.h"
#include "compute/quant_open.h"

#define SUM_UNIT 64  /* sums are this times a high byte, plus a low one */
#define AHEAD 2560   /* bytes of a stream of weights to fetch ahead */
#define SUB_K4 4     /* of a sub-block of 16 */
#define BLOCK_SUBS 2 /* of a block */

/* The sums of sub-blocks of a row, and for wide groups the same as bytes, of sub-blocks of 16 and of 32. */
struct sub_sums {
    int32_t subs[ASH_QUANT_SUBS];
    int8_t high16[ASH_QUANT_SUBS], low16[ASH_QUANT_SUBS];
    int8_t high32[ASH_QUANT_GROUP_BLOCKS], low32[ASH_QUANT_GROUP_BLOCKS];
};

#define WIDE_SUM_BYTES sizeof(struct sub_sums)
#define BLOCK_SUM_BYTES (BLOCK_SUBS * sizeof(int32_t))
#define MICRO_BYTES(blocks)                                                                                            \
    (sizeof(float) + ((blocks) > 1 ? WIDE_SUM_BYTES : BLOCK_SUM_BYTES) + (blocks)*ASH_QUANT_BLOCK)

/* ---- x ----------------------------------------------------------------------------------------------------------- */

/* Where things lie in a group of a tile; blocks are those of a group. */
INLINE const struct sub_sums *x_sums(size_t blocks, const uint8_t *x, size_t micros, size_t micro)
{
    size_t bytes = blocks > 1 ? WIDE_SUM_BYTES : BLOCK_SUM_BYTES;

    return (const struct sub_sums *)(const void *)(x + micros * sizeof(float) + micro * bytes);
}

INLINE const uint8_t *x_quants(size_t blocks, const uint8_t *x, size_t micros, size_t micro)
{
    return x + micros * (MICRO_BYTES(blocks) - blocks * ASH_QUANT_BLOCK) + micro * blocks * ASH_QUANT_BLOCK;
}

static void split_sums(struct sub_sums *sums)
{
    for (size_t s = 0; s < ASH_QUANT_SUBS; s++) {
        sums->high16[s] = (int8_t)((sums->subs[s] + SUM_UNIT / 2) >> 6);
        sums->low16[s] = (int8_t)(sums->subs[s] - sums->high16[s] * SUM_UNIT);
    }
    for (size_t b = 0; b < ASH_QUANT_GROUP_BLOCKS; b++) {
        sums->high32[b] = (int8_t)(sums->high16[2 * b] + sums->high16[2 * b + 1]);
        sums->low32[b] = (int8_t)(sums->low16[2 * b] + sums->low16[2 * b + 1]);
    }
}

INLINE void quantise_as(size_t blocks, const float *row, size_t k, size_t micro, size_t micros, uint8_t *tile)
{
    const size_t group = blocks * ASH_QUANT_BLOCK;

    for (size_t done = 0; done < k; done += group, row += group, tile += micros * MICRO_BYTES(blocks)) {
        float factor, *scale = (float *)x_scales(tile, micro);
        struct sub_sums *sums = (struct sub_sums *)x_sums(blocks, tile, micros, micro);
        uint8_t *quants = (uint8_t *)x_quants(blocks, tile, micros, micro);

        *scale = vnni_scale(row, group, &factor);
        for (size_t i = 0; i < group; i += ASH_QUANT_SUB)
            sums->subs[i / ASH_QUANT_SUB] = vnni_quants(row + i, ASH_QUANT_SUB, factor, quants + i);
        if (blocks > 1) split_sums(sums);
    }
}

static void quantise_blocks(const float *const *rows, size_t k, size_t micro, size_t micros, uint8_t *tile)
{
    quantise_as(1, rows[0], k, micro, micros, tile);
}

static void quantise_wide(const float *const *rows, size_t k, size_t micro, size_t micros, uint8_t *tile)
{
    quantise_as(ASH_QUANT_GROUP_BLOCKS, rows[0], k, micro, micros, tile);
}

static void quantise_gemv(enum ash_dtype dtype, const float *row, size_t k, uint8_t *x)
{
    (ash_quant_group_blocks(dtype) == 1 ? quantise_blocks : quantise_wide)(&row, k, 0, 1, x);
}

/* ---- weights ----------------------------------------------------------------------------------------------------- */

INLINE bool is_wide(enum ash_dtype dtype)
{
    return ash_quant_group_blocks(dtype) > 1;
}

/* Group scales (part 0) or minimums (part 1). */
INLINE __m512 panel_scales(const uint8_t *group, size_t part)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)group + part));
}

INLINE __m512 panel_group_scales(enum ash_dtype dtype, const uint8_t *group)
{
    return ash_quant_packed_scale_bytes(dtype) == sizeof(float) ? _mm512_loadu_ps(group) : panel_scales(group, 0);
}

INLINE const uint8_t *panel_subscales(enum ash_dtype dtype, const uint8_t *group)
{
    return group + VNNI_ROWS * ash_quant_packed_scale_bytes(dtype) * (ash_quant_has_min(dtype) ? 2 : 1);
}

/* Nibbles as the integers they stand for, without sign. */
INLINE __m512i look_up(enum ash_dtype dtype, __m512i nibbles)
{
    const int8_t *table = ash_quant_table(dtype);
    __m128i values;

    if (table == NULL) return nibbles;
    values = _mm_add_epi8(_mm_loadu_si128((const __m128i *)(const void *)table),
                          _mm_set1_epi8((char)ash_quant_offset(dtype)));
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(values), nibbles);
}

/* The k of a sub-block of 16 of a panel, four at a time, as unsigned bytes. */
INLINE void open_sub(enum ash_dtype dtype, const uint8_t *block, size_t sub, __m512i k4[SUB_K4])
{
    const __m512i low = _mm512_set1_epi8(ash_quant_packed_bits(dtype) == 6 ? 63 : 15);
    __m512i a, b, c;

    if (ash_quant_packed_bits(dtype) == 4) {
        UNROLL
        for (size_t i = 0; i < SUB_K4; i++) {
            __m512i bytes = _mm512_loadu_si512(block + i * VNNI_LINE);

            k4[i] = look_up(dtype, _mm512_and_si512(sub == 0 ? bytes : _mm512_srli_epi16(bytes, 4), low));
        }
        return;
    }
    block += sub * 3 * VNNI_LINE;
    a = _mm512_loadu_si512(block);
    b = _mm512_loadu_si512(block + VNNI_LINE);
    c = _mm512_loadu_si512(block + 2 * VNNI_LINE);
    k4[0] = _mm512_and_si512(a, low);
    k4[1] = _mm512_and_si512(b, low);
    k4[2] = _mm512_and_si512(c, low);
    a = _mm512_and_si512(_mm512_srli_epi16(a, 6), _mm512_set1_epi8(3));
    b = _mm512_and_si512(_mm512_srli_epi16(b, 4), _mm512_set1_epi8(12));
    c = _mm512_and_si512(_mm512_srli_epi16(c, 2), _mm512_set1_epi8(48));
    k4[3] = _mm512_or_si512(_mm512_or_si512(a, b), c);
}

/* Prefetch ahead what lies from `at` on. */
INLINE void fetch(const uint8_t *at, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += VNNI_LINE)
        _mm_prefetch((const char *)at + AHEAD + i, _MM_HINT_T0);
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

INLINE const struct sub_sums *row_sums(enum ash_dtype dtype, const struct rows *rows, size_t row)
{
    return x_sums(ash_quant_group_blocks(dtype), rows->tile, rows->micros, rows->first + row);
}

/* Dots of a sub-block of 16 of all panels and rows are added: panel by panel, row by row. */
INLINE void run_sub(enum ash_dtype dtype, const struct panels *panels, const struct rows *rows, size_t block,
                    size_t sub, __m512i *dots)
{
    const size_t blocks = ash_quant_group_blocks(dtype), block_bytes = VNNI_ROWS * ash_quant_quants_bytes(dtype);
    const uint8_t *x = x_quants(blocks, rows->tile, rows->micros, rows->first) + block * ASH_QUANT_BLOCK;

    UNROLL
    for (size_t p = 0; p < panels->count; p++) {
        const uint8_t *at = panels->at[p] + ash_quant_panel_head(ASH_QUANT_LAYOUT_VNNI, dtype) + block * block_bytes;
        __m512i k4[SUB_K4];

        if (panels->far) fetch(at + sub * block_bytes / 2, block_bytes / 2);
        open_sub(dtype, at, sub, k4);
        UNROLL
        for (size_t i = 0; i < SUB_K4; i++) {
            UNROLL
            for (size_t r = 0; r < rows->count; r++)
                dots[p * rows->count + r] = _mm512_dpbusd_epi32(
                    dots[p * rows->count + r], k4[i], vnni_four(x + r * blocks * ASH_QUANT_BLOCK, sub * SUB_K4 + i));
        }
    }
}

/* Minus what the offset of quants adds to the dots of a sub-block of a row. */
INLINE __m512i dots_start(enum ash_dtype dtype, const struct rows *rows, size_t row, size_t sub)
{
    return ash_quant_offset(dtype) == 0
               ? _mm512_setzero_si512()
               : _mm512_set1_epi32(-ash_quant_offset(dtype) * row_sums(dtype, rows, row)->subs[sub]);
}

/* Dots of a sub-block, times sub-scales, into those of the group. */
INLINE __m512i add_dots(enum ash_dtype dtype, __m512i total, __m512i dots, const uint8_t *group, size_t sub)
{
    const __m128i *subscales = (const __m128i *)(const void *)(panel_subscales(dtype, group) + sub * VNNI_ROWS);

    if (!is_wide(dtype)) return _mm512_add_epi32(total, dots);
    return _mm512_add_epi32(total, _mm512_mullo_epi32(dots, _mm512_cvtepi8_epi32(_mm_loadu_si128(subscales))));
}

/* A block of all panels times all rows, into the dots of the group. */
INLINE void run_block(enum ash_dtype dtype, const struct panels *panels, const struct rows *rows, size_t block,
                      __m512i *totals)
{
    const size_t halves = ash_quant_sub(dtype) / ASH_QUANT_SUB, count = panels->count * rows->count;

    UNROLL
    for (size_t first = 0; first < BLOCK_SUBS; first += halves) {
        __m512i dots[AT_ONCE];

        UNROLL
        for (size_t i = 0; i < count; i++) {
            dots[i] = dots_start(dtype, rows, i % rows->count, block * BLOCK_SUBS + first);
            if (halves == 2)
                dots[i] = _mm512_add_epi32(dots[i], dots_start(dtype, rows, i % rows->count, block * BLOCK_SUBS + 1));
        }
        UNROLL
        for (size_t half = 0; half < halves; half++)
            run_sub(dtype, panels, rows, block, first + half, dots);
        UNROLL
        for (size_t i = 0; i < count; i++)
            totals[i] =
                add_dots(dtype, totals[i], dots[i], panels->at[i / rows->count], (block * BLOCK_SUBS + first) / halves);
    }
}

/* The sums of a row's group times the sub-minimums of a panel's. */
INLINE __m512i group_low(enum ash_dtype dtype, const uint8_t *group, const struct sub_sums *sums)
{
    const size_t subs = ash_quant_packed_subs(dtype);
    const uint8_t *submins = panel_subscales(dtype, group) + subs * VNNI_ROWS;
    const int8_t *highs = subs == ASH_QUANT_SUBS ? sums->high16 : sums->high32;
    const int8_t *lows = subs == ASH_QUANT_SUBS ? sums->low16 : sums->low32;
    __m512i high = _mm512_setzero_si512(), low = high;

    if (!is_wide(dtype)) return _mm512_set1_epi32(sums->subs[0] + sums->subs[1]);
    UNROLL
    for (size_t i = 0; i < subs / 4; i++) {
        __m512i four = _mm512_loadu_si512(submins + i * VNNI_LINE);

        high = _mm512_dpbusd_epi32(high, four, vnni_four(highs, i));
        low = _mm512_dpbusd_epi32(low, four, vnni_four(lows, i));
    }
    return _mm512_add_epi32(_mm512_slli_epi32(high, 6), low);
}

/* Floats of a group of a panel and a row: dots, then minimums. */
INLINE __m512 add_floats(enum ash_dtype dtype, __m512 acc, __m512i dots, const uint8_t *group, const struct rows *rows,
                         size_t row)
{
    const __m512 scale = _mm512_set1_ps(x_scales(rows->tile, rows->first)[row]);

    acc = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots), _mm512_mul_ps(scale, panel_group_scales(dtype, group)), acc);
    if (!ash_quant_has_min(dtype)) return acc;
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(group_low(dtype, group, row_sums(dtype, rows, row))),
                           _mm512_mul_ps(scale, panel_scales(group, 1)), acc);
}

INLINE size_t group_bytes(enum ash_dtype dtype, bool far)
{
    (void)far;
    return ash_quant_panel_group(ASH_QUANT_LAYOUT_VNNI, dtype);
}

/* Groups are whole. */
INLINE size_t blocks_of(enum ash_dtype dtype, size_t left)
{
    (void)left;
    return ash_quant_group_blocks(dtype);
}

INLINE void fetch_head(enum ash_dtype dtype, const uint8_t *group)
{
    fetch(group, ash_quant_panel_head(ASH_QUANT_LAYOUT_VNNI, dtype));
}

INLINE __m512 add_group(enum ash_dtype dtype, __m512 acc, __m512i total, const struct panels *panels,
                        const struct rows *rows, size_t i)
{
    return add_floats(dtype, acc, total, panels->at[i / rows->count], rows, i % rows->count);
}

#include "compute/cpu/quant/quant_run_vnni_body.h"

INLINE void tile_any(enum ash_dtype dtype, const uint8_t *panel, const uint8_t *expanded, struct rows rows, size_t k,
                     float *sums)
{
    if (expanded == NULL)
        tile_as(dtype, true, panel, rows, k, sums);
    else
        tile_as(dtype, false, panel, rows, k, sums);
}

/* Panels that are used again soon are told by `expanded`, which is the panel itself. */
static void tile(enum ash_dtype dtype, const uint8_t *panel, const uint8_t *expanded, const uint8_t *x, size_t micros,
                 size_t k, float *sums)
{
    const struct rows rows = {.tile = x, .micros = micros};

    ASH_QUANT_OPEN_CALL(dtype, tile_any, panel, expanded, rows, k, sums);
}

INLINE void gemv_as(enum ash_dtype dtype, const uint8_t *const *panels, size_t count, const uint8_t *x, size_t k,
                    float *y)
{
    if (count == 4) {
        run_gemv(dtype, panels, 4, x, k, y);
        return;
    }
    for (size_t i = 0; i < count; i++)
        run_gemv(dtype, panels + i, 1, x, k, y + i * VNNI_ROWS);
}

static void gemv(enum ash_dtype dtype, const uint8_t *const *panels, size_t count, const uint8_t *x, size_t k, float *y)
{
    ASH_QUANT_OPEN_CALL(dtype, gemv_as, panels, count, x, k, y);
}

ASH_QUANT_CHECK_PANELS(1, TILE_MICROS, VNNI_SMALL_M_MAX);

/* Tables that differ in how x is quantised only. */
#define OPEN_PANELS(micro_bytes_, k_groups_, gemv_bytes_, quantise_)                                                   \
    {                                                                                                                  \
        .layout = ASH_QUANT_LAYOUT_VNNI, .micro_rows = 1, .micro_bytes = micro_bytes_, .tile_micros = TILE_MICROS,     \
        .small_m_max = VNNI_SMALL_M_MAX, .k_groups = k_groups_, .expanded_panels = 2, .gemv_bytes = gemv_bytes_,       \
        .quantise = quantise_, .tile = tile, .untile = ash_quant_vnni_untile, .quantise_gemv = quantise_gemv,          \
        .gemv = gemv                                                                                                   \
    }

const struct ash_quant_panels ash_quant_open_wide_vnni =
    OPEN_PANELS(MICRO_BYTES(ASH_QUANT_GROUP_BLOCKS), 2, MICRO_BYTES(ASH_QUANT_GROUP_BLOCKS), quantise_wide);
const struct ash_quant_panels ash_quant_open_block_vnni =
    OPEN_PANELS(MICRO_BYTES(1), 16, MICRO_BYTES(1), quantise_blocks);

#endif
