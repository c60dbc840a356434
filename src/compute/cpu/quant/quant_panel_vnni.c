/* Kernels of packed quantised weights for x86-64 with AVX-512 VNNI (VPDPBUSD: in each lane, four unsigned bytes times
 * four signed ones); quant_pack.h has the layout (vnni). A vector is 16 rows of weights, so a dot needs no sum over
 * lanes. Weights become unsigned, 128 (Q8_0, Q8_W) or 8 (Q4_0) too large: a block's dots start from minus that times
 * the sum of its x, and are added to those of the group, with Q4_0 times their sub-scales. A micro-panel is one row of
 * x. Of a group, a tile of up to 16 of them holds their scales, minus the sums of each row's blocks, and the quants,
 * row by row. One body serves all types: it is compiled for each, and so for the blocks of its groups. */
#if defined(__x86_64__)

#include "compute/cpu/quant/quant_panels.h"

#include <immintrin.h>
#include <string.h>

#include "compute/cpu/quant/quant_rows_vnni.h"
#include "compute/quant.h"

#define MICRO_BYTES(blocks) (sizeof(float) + (blocks) * (sizeof(int32_t) + ASH_QUANT_BLOCK)) /* of a group of x */
#define EXPANDED_BYTES (VNNI_LINE + VNNI_K4 * VNNI_LINE)                                     /* of one of Q8_0 */
/* Bytes of a stream of weights to fetch ahead: the processor does not go far enough itself. */
#define Q8_AHEAD 2048
#define Q4_AHEAD 3072

/* ---- x ----------------------------------------------------------------------------------------------------------- */

/* Where things lie in a group of a tile; blocks are those of a whole group. */
/* Minus the sums. */
INLINE const int32_t *x_sums(size_t blocks, const uint8_t *x, size_t micros, size_t micro)
{
    return (const int32_t *)(const void *)x + micros + micro * blocks;
}

INLINE const uint8_t *x_quants(size_t blocks, const uint8_t *x, size_t micros, size_t micro)
{
    return x + micros * (sizeof(float) + blocks * sizeof(int32_t)) + micro * blocks * ASH_QUANT_BLOCK;
}

INLINE void quantise_as(size_t blocks, const float *row, size_t k, size_t micro, size_t micros, uint8_t *tile)
{
    const size_t group = blocks * ASH_QUANT_BLOCK;

    for (size_t done = 0; done < k; done += group, row += group, tile += micros * MICRO_BYTES(blocks)) {
        size_t count = vnni_group_k(group, k - done);
        float factor, *scale = (float *)x_scales(tile, micro);
        int32_t *sums = (int32_t *)x_sums(blocks, tile, micros, micro);
        uint8_t *quants = (uint8_t *)x_quants(blocks, tile, micros, micro);

        *scale = vnni_scale(row, count, &factor);
        for (size_t i = 0; i < count; i += ASH_QUANT_BLOCK)
            *sums++ = -vnni_quants(row + i, ASH_QUANT_BLOCK, factor, quants + i);
    }
}

static void quantise(const float *const *rows, size_t k, size_t micro, size_t micros, uint8_t *tile)
{
    quantise_as(1, rows[0], k, micro, micros, tile);
}

static void quantise_wide(const float *const *rows, size_t k, size_t micro, size_t micros, uint8_t *tile)
{
    quantise_as(ASH_QUANT_GROUP_BLOCKS, rows[0], k, micro, micros, tile);
}

static void quantise_gemv(enum ash_dtype dtype, const float *row, size_t k, uint8_t *x)
{
    (dtype == ASH_Q8_0 ? quantise : quantise_wide)(&row, k, 0, 1, x);
}

/* ---- weights ----------------------------------------------------------------------------------------------------- */

/* Panels that come from memory are far. Others are in L1, as expand() made them: those of Q8_0, whose groups are not
 * whole lines, with group scales as floats and quants as unsigned bytes. */
INLINE bool is_expanded(enum ash_dtype dtype, bool far)
{
    return dtype == ASH_Q8_0 && !far;
}

INLINE size_t group_bytes(enum ash_dtype dtype, bool far)
{
    return is_expanded(dtype, far) ? EXPANDED_BYTES : ash_quant_panel_group(ASH_QUANT_LAYOUT_VNNI, dtype);
}

INLINE __m512 panel_group_scales(enum ash_dtype dtype, bool far, const uint8_t *group)
{
    if (dtype != ASH_Q8_0 || is_expanded(dtype, far)) return _mm512_loadu_ps(group);
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)group));
}

INLINE const uint8_t *panel_block(enum ash_dtype dtype, bool far, const uint8_t *group, size_t block)
{
    return is_expanded(dtype, far) ? group + VNNI_LINE : vnni_block(dtype, group, block);
}

/* Four k of the 16 rows, as unsigned bytes. */
INLINE __m512i panel_k4(enum ash_dtype dtype, bool far, const uint8_t *block, size_t k4)
{
    __m512i bytes = _mm512_loadu_si512(block + k4 % VNNI_LINES(dtype) * VNNI_LINE);

    if (is_expanded(dtype, far)) return bytes;
    if (dtype != ASH_Q4_0) return _mm512_xor_si512(bytes, _mm512_set1_epi8((char)0x80));
    return _mm512_and_si512(k4 < VNNI_K4 / 2 ? bytes : _mm512_srli_epi16(bytes, 4), _mm512_set1_epi8(15));
}

static void expand_q8(enum ash_dtype dtype, const uint8_t *panel, size_t k, uint8_t *to)
{
    (void)dtype;
    for (size_t done = 0; done < k; done += ASH_QUANT_BLOCK, to += EXPANDED_BYTES) {
        _mm512_storeu_ps(to, panel_group_scales(ASH_Q8_0, true, panel));
        UNROLL
        for (size_t k4 = 0; k4 < VNNI_K4; k4++)
            _mm512_storeu_si512(to + (1 + k4) * VNNI_LINE,
                                panel_k4(ASH_Q8_0, true, vnni_block(ASH_Q8_0, panel, 0), k4));
        panel += group_bytes(ASH_Q8_0, true);
    }
}

INLINE size_t ahead(enum ash_dtype dtype)
{
    return dtype == ASH_Q4_0 ? Q4_AHEAD : Q8_AHEAD;
}

/* Prefetch ahead, one line with each that is used: the line-fill buffers are few. */
INLINE void fetch_head(enum ash_dtype dtype, const uint8_t *group)
{
    for (size_t at = 0; at < ash_quant_panel_head(ASH_QUANT_LAYOUT_VNNI, dtype); at += VNNI_LINE)
        _mm_prefetch((const char *)group + ahead(dtype) + at, _MM_HINT_T0);
}

INLINE void fetch_k4(enum ash_dtype dtype, const uint8_t *block, size_t k4)
{
    if (k4 < VNNI_LINES(dtype)) _mm_prefetch((const char *)block + ahead(dtype) + k4 * VNNI_LINE, _MM_HINT_T0);
}

/* What the dots of a block start from, for a row of x. */
INLINE __m512i dots_start(enum ash_dtype dtype, int32_t minus_sum)
{
    return _mm512_slli_epi32(_mm512_set1_epi32(minus_sum), dtype == ASH_Q4_0 ? 3 : 7);
}

/* Dots of a block into those of the group. Those of Q4_0 have 16 bits, as sub-scales in words have, so one instruction
 * multiplies and adds: its second product in each lane is with 0. */
INLINE __m512i add_dots(enum ash_dtype dtype, __m512i total, __m512i dots, const uint8_t *group, size_t block)
{
    const __m128i *subscales = (const __m128i *)(const void *)vnni_subscales(group, block);

    if (dtype != ASH_Q4_0) return _mm512_add_epi32(total, dots);
    return _mm512_dpwssd_epi32(total, dots, _mm512_cvtepu16_epi32(_mm256_cvtepi8_epi16(_mm_loadu_si128(subscales))));
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

/* A block of all panels times all rows, into the dots of the group: panel by panel, row by row. */
INLINE void run_block(enum ash_dtype dtype, const struct panels *panels, const struct rows *rows, size_t block,
                      __m512i *totals)
{
    const size_t blocks = ash_quant_group_blocks(dtype);
    const uint8_t *quants = x_quants(blocks, rows->tile, rows->micros, rows->first) + block * ASH_QUANT_BLOCK;
    const int32_t *sums = x_sums(blocks, rows->tile, rows->micros, rows->first) + block;
    __m512i dots[AT_ONCE];

    UNROLL
    for (size_t i = 0; i < panels->count * rows->count; i++)
        dots[i] = dots_start(dtype, sums[i % rows->count * blocks]);
    UNROLL
    for (size_t k4 = 0; k4 < VNNI_K4; k4++) {
        UNROLL
        for (size_t p = 0; p < panels->count; p++) {
            const uint8_t *w = panel_block(dtype, panels->far, panels->at[p], block);
            __m512i four = panel_k4(dtype, panels->far, w, k4);

            if (panels->far) fetch_k4(dtype, w, k4);
            UNROLL
            for (size_t i = 0; i < rows->count; i++)
                dots[p * rows->count + i] = _mm512_dpbusd_epi32(dots[p * rows->count + i], four,
                                                                vnni_four(quants + i * blocks * ASH_QUANT_BLOCK, k4));
        }
    }
    UNROLL
    for (size_t i = 0; i < panels->count * rows->count; i++)
        totals[i] = add_dots(dtype, totals[i], dots[i], panels->at[i / rows->count], block);
}

/* The last group may be short. */
INLINE size_t blocks_of(enum ash_dtype dtype, size_t left)
{
    return vnni_group_k(ash_quant_group(dtype), left) / ASH_QUANT_BLOCK;
}

INLINE __m512 add_group(enum ash_dtype dtype, __m512 acc, __m512i total, const struct panels *panels,
                        const struct rows *rows, size_t i)
{
    __m512 x_scale = _mm512_set1_ps(x_scales(rows->tile, rows->first)[i % rows->count]);
    __m512 group_scales = panel_group_scales(dtype, panels->far, panels->at[i / rows->count]);

    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(total), _mm512_mul_ps(x_scale, group_scales), acc);
}

#include "compute/cpu/quant/quant_run_vnni_body.h"

static void tile(enum ash_dtype dtype, const uint8_t *panel, const uint8_t *expanded, const uint8_t *x, size_t micros,
                 size_t k, float *sums)
{
    const struct rows rows = {.tile = x, .micros = micros};
    const bool many = expanded != NULL;

    if (dtype == ASH_Q8_0 && many)
        tile_as(ASH_Q8_0, false, expanded, rows, k, sums);
    else if (dtype == ASH_Q8_0)
        tile_as(ASH_Q8_0, true, panel, rows, k, sums);
    else if (dtype == ASH_Q8_W && many)
        tile_as(ASH_Q8_W, false, expanded, rows, k, sums);
    else if (dtype == ASH_Q8_W)
        tile_as(ASH_Q8_W, true, panel, rows, k, sums);
    else if (many)
        tile_as(ASH_Q4_0, false, expanded, rows, k, sums);
    else
        tile_as(ASH_Q4_0, true, panel, rows, k, sums);
}

INLINE void gemv_as(enum ash_dtype dtype, const uint8_t *const *panels, size_t count, const uint8_t *x, size_t k,
                    float *y)
{
    if (count == 4)
        run_gemv(dtype, panels, 4, x, k, y);
    else if (count == 3)
        run_gemv(dtype, panels, 3, x, k, y);
    else if (count == 2)
        run_gemv(dtype, panels, 2, x, k, y);
    else if (count == 1)
        run_gemv(dtype, panels, 1, x, k, y);
}

static void gemv(enum ash_dtype dtype, const uint8_t *const *panels, size_t count, const uint8_t *x, size_t k, float *y)
{
    if (dtype == ASH_Q8_0)
        gemv_as(ASH_Q8_0, panels, count, x, k, y);
    else if (dtype == ASH_Q8_W)
        gemv_as(ASH_Q8_W, panels, count, x, k, y);
    else
        gemv_as(ASH_Q4_0, panels, count, x, k, y);
}

ASH_QUANT_CHECK_PANELS(1, TILE_MICROS, VNNI_SMALL_M_MAX);

const struct ash_quant_panels ash_quant_q8_vnni = {.layout = ASH_QUANT_LAYOUT_VNNI,
                                                   .micro_rows = 1,
                                                   .micro_bytes = MICRO_BYTES(1),
                                                   .tile_micros = TILE_MICROS,
                                                   .small_m_max = VNNI_SMALL_M_MAX,
                                                   .expanded_bytes = EXPANDED_BYTES,
                                                   .k_groups = 32,
                                                   .expanded_panels = 4,
                                                   .gemv_bytes = MICRO_BYTES(1),
                                                   .pack = ash_quant_vnni_pack,
                                                   .quantise = quantise,
                                                   .expand = expand_q8,
                                                   .tile = tile,
                                                   .untile = ash_quant_vnni_untile,
                                                   .quantise_gemv = quantise_gemv,
                                                   .gemv = gemv};

const struct ash_quant_panels ash_quant_wide_vnni = {.layout = ASH_QUANT_LAYOUT_VNNI,
                                                     .micro_rows = 1,
                                                     .micro_bytes = MICRO_BYTES(ASH_QUANT_GROUP_BLOCKS),
                                                     .tile_micros = TILE_MICROS,
                                                     .small_m_max = VNNI_SMALL_M_MAX,
                                                     .k_groups = 2,
                                                     .expanded_panels = 2,
                                                     .gemv_bytes = MICRO_BYTES(ASH_QUANT_GROUP_BLOCKS),
                                                     .pack = ash_quant_vnni_pack,
                                                     .quantise = quantise_wide,
                                                     .tile = tile,
                                                     .untile = ash_quant_vnni_untile,
                                                     .quantise_gemv = quantise_gemv,
                                                     .gemv = gemv};

#endif
