/* Kernels of packed quantised weights for x86-64 with AVX-512 VNNI (VPDPBUSD: in each lane, four unsigned bytes times
 * four signed ones); quant_pack.h has the layout (quads). A vector is 16 rows of weights, so a dot needs no sum over
 * lanes. Weights become unsigned, 128 (Q8_0, Q8_W) or 8 (Q4_0) too large: a block's dots start from minus that times
 * the sum of its x, and go into those of the group times their steps. Of a group, a tile of up to 16 rows of x holds
 * their scales, minus the sums of each row's blocks, and the numbers, row by row. */
#if defined(__x86_64__)

#include "compute/cpu/quant_pack.h"

#include <immintrin.h>
#include <string.h>

#include "compute/cpu/quant_quads.h"
#include "compute/quant.h"

#define TILE_STRIPS 16
#define STRIP_BYTES (sizeof(float) + ASH_QUANT_GROUP_BLOCKS * sizeof(int32_t) + ASH_QUANT_GROUP)
#define AT_ONCE 8 /* products of a row and a panel whose dots and sums fit the registers */
/* Bytes of a stream of weights to fetch ahead: the processor does not go far enough itself. */
#define Q8_AHEAD 2048
#define Q4_AHEAD 3072

/* ---- x ----------------------------------------------------------------------------------------------------------- */

INLINE const float *x_scales(const uint8_t *x, size_t strip)
{
    return (const float *)(const void *)x + strip;
}

/* Minus the sums. */
INLINE const int32_t *x_sums(const uint8_t *x, size_t strips, size_t strip)
{
    return (const int32_t *)(const void *)x + strips + strip * ASH_QUANT_GROUP_BLOCKS;
}

INLINE const uint8_t *x_numbers(const uint8_t *x, size_t strips, size_t strip)
{
    return x + strips * (STRIP_BYTES - ASH_QUANT_GROUP) + strip * ASH_QUANT_GROUP;
}

static void quantise(const float *const *rows, size_t k, size_t strip, size_t strips, uint8_t *tile)
{
    for (size_t done = 0; done < k; done += ASH_QUANT_GROUP, tile += strips * STRIP_BYTES) {
        const float *row = rows[0] + done;
        float factor, *scale = (float *)x_scales(tile, strip);
        int32_t *sums = (int32_t *)x_sums(tile, strips, strip);
        uint8_t *numbers = (uint8_t *)x_numbers(tile, strips, strip);

        *scale = quads_scale(row, quads_count(k - done), &factor);
        for (size_t i = 0; i < quads_count(k - done); i += ASH_QUANT_BLOCK)
            *sums++ = -quads_numbers(row + i, ASH_QUANT_BLOCK, factor, numbers + i);
    }
}

static void quantise_one(enum ash_dtype dtype, const float *row, size_t k, uint8_t *x)
{
    (void)dtype;
    quantise(&row, k, 0, 1, x);
}

INLINE __m512i x_quad(const uint8_t *numbers, size_t quad)
{
    int32_t four;

    memcpy(&four, numbers + 4 * quad, sizeof(four));
    return _mm512_set1_epi32(four);
}

/* ---- weights ----------------------------------------------------------------------------------------------------- */

INLINE size_t ahead(enum ash_dtype dtype)
{
    return dtype == ASH_Q4_0 ? Q4_AHEAD : Q8_AHEAD;
}

/* Four k of the 16 rows, as unsigned bytes. */
INLINE __m512i panel_quad(enum ash_dtype dtype, const uint8_t *block, size_t quad)
{
    __m512i bytes = _mm512_loadu_si512(block + quad % QUADS_LINES(dtype) * QUADS_LINE);

    if (dtype != ASH_Q4_0) return _mm512_xor_si512(bytes, _mm512_set1_epi8((char)0x80));
    return _mm512_and_si512(quad < QUADS / 2 ? bytes : _mm512_srli_epi16(bytes, 4), _mm512_set1_epi8(15));
}

/* Fetch what lies ahead, a line beside each that is used: the lines on their way are few. */
INLINE void fetch_head(enum ash_dtype dtype, const uint8_t *group)
{
    for (size_t at = 0; at < ash_quant_panel_head(ASH_QUANT_QUADS, dtype); at += QUADS_LINE)
        _mm_prefetch((const char *)group + ahead(dtype) + at, _MM_HINT_T0);
}

INLINE void fetch_quad(enum ash_dtype dtype, const uint8_t *block, size_t quad)
{
    if (quad < QUADS_LINES(dtype)) _mm_prefetch((const char *)block + ahead(dtype) + quad * QUADS_LINE, _MM_HINT_T0);
}

/* What the dots of a block start from, for a row of x. */
INLINE __m512i dots_start(enum ash_dtype dtype, int32_t minus_sum)
{
    return _mm512_slli_epi32(_mm512_set1_epi32(minus_sum), dtype == ASH_Q4_0 ? 3 : 7);
}

/* The steps of a block, as add_dots takes them. */
INLINE __m512i panel_steps(enum ash_dtype dtype, const uint8_t *group, size_t block)
{
    const uint8_t *steps = quads_steps(dtype, group, block);

    if (dtype == ASH_Q8_W) return _mm512_setzero_si512();
    if (dtype == ASH_Q8_0) return _mm512_cvtepi16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)steps));
    return _mm512_cvtepu16_epi32(_mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)steps)));
}

/* Dots of a block into those of the group. Those of Q4_0 have 16 bits, so one instruction does it: its second product
 * in each lane is with 0. */
INLINE __m512i add_dots(enum ash_dtype dtype, __m512i total, __m512i dots, __m512i steps)
{
    if (dtype == ASH_Q8_W) return _mm512_add_epi32(total, dots);
    if (dtype == ASH_Q8_0) return _mm512_add_epi32(total, _mm512_mullo_epi32(dots, steps));
    return _mm512_dpwssd_epi32(total, dots, steps);
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

/* Some panels, or parts of them; far: they come from memory. */
struct panels {
    const uint8_t *at[ASH_QUANT_STREAMS];
    size_t count;
    bool far;
};

/* Rows of a tile. */
struct rows {
    const uint8_t *tile;
    size_t strips, first, count;
};

/* A block of all panels times all rows, into the dots of the group: panel by panel, row by row. */
INLINE void run_block(enum ash_dtype dtype, struct panels panels, const struct rows *rows, size_t block,
                      __m512i *totals)
{
    const uint8_t *numbers = x_numbers(rows->tile, rows->strips, rows->first) + block * ASH_QUANT_BLOCK;
    const int32_t *sums = x_sums(rows->tile, rows->strips, rows->first) + block;
    __m512i dots[AT_ONCE];

    UNROLL
    for (size_t i = 0; i < panels.count * rows->count; i++)
        dots[i] = dots_start(dtype, sums[i % rows->count * ASH_QUANT_GROUP_BLOCKS]);
    UNROLL
    for (size_t quad = 0; quad < QUADS; quad++) {
        UNROLL
        for (size_t p = 0; p < panels.count; p++) {
            const uint8_t *w = quads_block(dtype, panels.at[p], block);
            __m512i four = panel_quad(dtype, w, quad);

            if (panels.far) fetch_quad(dtype, w, quad);
            UNROLL
            for (size_t i = 0; i < rows->count; i++)
                dots[p * rows->count + i] =
                    _mm512_dpbusd_epi32(dots[p * rows->count + i], four, x_quad(numbers + i * ASH_QUANT_GROUP, quad));
        }
    }
    UNROLL
    for (size_t i = 0; i < panels.count * rows->count; i++)
        totals[i] = add_dots(dtype, totals[i], dots[i], panel_steps(dtype, panels.at[i / rows->count], block));
}

/* k of panels times rows, added to sums: panel by panel, row by row. How many there are of each is known when it is
 * compiled. */
INLINE void run(enum ash_dtype dtype, struct panels panels, struct rows rows, size_t k, float *sums)
{
    const size_t count = panels.count * rows.count;
    __m512 acc[AT_ONCE];

    UNROLL
    for (size_t i = 0; i < count; i++)
        acc[i] = _mm512_loadu_ps(sums + i * QUADS_ROWS);
    for (size_t done = 0; done < k; done += ASH_QUANT_GROUP, rows.tile += rows.strips * STRIP_BYTES) {
        __m512i totals[AT_ONCE];

        UNROLL
        for (size_t i = 0; i < count; i++)
            totals[i] = _mm512_setzero_si512();
        UNROLL
        for (size_t p = 0; p < panels.count; p++)
            if (panels.far) fetch_head(dtype, panels.at[p]);
        for (size_t block = 0; block < quads_count(k - done) / ASH_QUANT_BLOCK; block++)
            run_block(dtype, panels, &rows, block, totals);
        UNROLL
        for (size_t i = 0; i < count; i++) {
            __m512 x_scale = _mm512_set1_ps(x_scales(rows.tile, rows.first)[i % rows.count]);
            __m512 units = _mm512_loadu_ps(panels.at[i / rows.count]);

            acc[i] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(totals[i]), _mm512_mul_ps(x_scale, units), acc[i]);
        }
        UNROLL
        for (size_t p = 0; p < panels.count; p++)
            panels.at[p] += ash_quant_panel_group(ASH_QUANT_QUADS, dtype);
    }
    UNROLL
    for (size_t i = 0; i < count; i++)
        _mm512_storeu_ps(sums + i * QUADS_ROWS, acc[i]);
}

/* So many rows at once, as long as there are as many; returns the rest. */
INLINE struct rows run_rows(enum ash_dtype dtype, struct panels panels, struct rows rows, size_t count, size_t k,
                            float *sums)
{
    for (rows.count = count; rows.first + count <= rows.strips; rows.first += count)
        run(dtype, panels, rows, k, sums + rows.first * QUADS_ROWS);
    return rows;
}

INLINE void tile_as(enum ash_dtype dtype, bool far, const uint8_t *panel, struct rows rows, size_t k, float *sums)
{
    const struct panels panels = {.at = {panel}, .count = 1, .far = far};

    rows = run_rows(dtype, panels, rows, 8, k, sums);
    rows = run_rows(dtype, panels, rows, 4, k, sums);
    rows = run_rows(dtype, panels, rows, 2, k, sums);
    run_rows(dtype, panels, rows, 1, k, sums);
}

static void tile(enum ash_dtype dtype, const uint8_t *panel, const uint8_t *expanded, const uint8_t *x, size_t strips,
                 size_t k, float *sums)
{
    const struct rows rows = {.tile = x, .strips = strips};
    const bool many = expanded != NULL;

    if (dtype == ASH_Q8_0 && many)
        tile_as(ASH_Q8_0, false, panel, rows, k, sums);
    else if (dtype == ASH_Q8_0)
        tile_as(ASH_Q8_0, true, panel, rows, k, sums);
    else if (dtype == ASH_Q8_W && many)
        tile_as(ASH_Q8_W, false, panel, rows, k, sums);
    else if (dtype == ASH_Q8_W)
        tile_as(ASH_Q8_W, true, panel, rows, k, sums);
    else if (many)
        tile_as(ASH_Q4_0, false, panel, rows, k, sums);
    else
        tile_as(ASH_Q4_0, true, panel, rows, k, sums);
}

/* Panels side by side: as many streams of memory. */
INLINE void run_one(enum ash_dtype dtype, const uint8_t *const *at, size_t count, const uint8_t *x, size_t k, float *y)
{
    const struct rows row = {.tile = x, .strips = 1, .count = 1};
    struct panels panels = {.count = count, .far = true};

    memcpy(panels.at, at, count * sizeof(*at));
    memset(y, 0, count * QUADS_ROWS * sizeof(*y));
    run(dtype, panels, row, k, y);
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
                                                       .strip_rows = 1,
                                                       .strip_bytes = STRIP_BYTES,
                                                       .tile_strips = TILE_STRIPS,
                                                       .k_groups = 2,
                                                       .expanded_panels = 2,
                                                       .one_bytes = STRIP_BYTES,
                                                       .pack = ash_quant_quads_pack,
                                                       .quantise = quantise,
                                                       .tile = tile,
                                                       .untile = ash_quant_quads_untile,
                                                       .quantise_one = quantise_one,
                                                       .one = one};

#endif
