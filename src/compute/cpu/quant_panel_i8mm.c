/* Kernels of packed quantised weights for arm64 with SMMLA (2 x 8 times 8 x 2); quant_pack.h has the layout (pairs),
 * and quant_one_i8mm.c what is done for a single row.
 *
 * A tile is 3 pairs of rows of x by the 4 pairs of rows of a panel, so 12 blocks are in flight: what takes time per
 * block and pair of pairs is 4 SMMLA, a conversion (which counts twice), a product of scales and a fused multiply-add.
 * With Q8_W those floats come once per 32 SMMLA. Nibbles stay in the upper half of their byte, 16 times too large; the
 * conversion divides, exactly. */
#if defined(__aarch64__)

#include "compute/cpu/quant_pairs.h"

#define TILE_STRIPS 3
#define LINE 64                                             /* bytes of the caches */
#define AHEAD 8                                             /* blocks of a panel that are on their way */
#define STRIP_BYTES(dtype) (VEC + SPAN_CHUNKS(dtype) * VEC) /* scales of the two rows, each twice; then the chunks */
#define EXPANDED_BYTES (PAIRS * STRIP_BYTES(ASH_Q8_0))

/* Zeros, made where they are needed: the processor makes them for nothing, while a copy of a register of zeros, which
 * compilers prefer, takes the place of an instruction. */
INLINE int32x4_t zeros(void)
{
    int32x4_t zero;

    __asm__ volatile("movi %0.4s, #0" : "=w"(zero));
    return zero;
}

/* ---- quantising x ------------------------------------------------------------------------------------------------ */

/* One span of a strip. */
INLINE void quantise_span(const float *const *rows, size_t first, size_t count, size_t strip, size_t strips,
                          uint8_t *tile)
{
    int8_t *chunks = (int8_t *)tile + strips * VEC + strip * VEC;
    float factors[2] = {0}, scales[4] = {0};

    scales[0] = scales[1] = numbers_scale(rows[0] + first, count, &factors[0]);
    if (rows[1] != NULL) scales[2] = scales[3] = numbers_scale(rows[1] + first, count, &factors[1]);
    vst1q_f32((float *)(void *)(tile + strip * VEC), vld1q_f32(scales));
    for (size_t at = first; at < first + count; at += ASH_QUANT_BLOCK, chunks += CHUNKS * strips * VEC) {
        int8x16_t left[2], right[2];

        numbers_block(rows[0] + at, factors[0], left);
        numbers_block(rows[1] != NULL ? rows[1] + at : NULL, factors[1], right);
        UNROLL
        for (size_t c = 0; c < CHUNKS; c++)
            vst1q_s8(chunks + c * strips * VEC,
                     vcombine_s8(c % 2 == 0 ? vget_low_s8(left[c / 2]) : vget_high_s8(left[c / 2]),
                                 c % 2 == 0 ? vget_low_s8(right[c / 2]) : vget_high_s8(right[c / 2])));
    }
}

INLINE void quantise_as(enum ash_dtype dtype, const float *const *rows, size_t k, size_t strip, size_t strips,
                        uint8_t *tile)
{
    for (size_t done = 0; done < k; done += span_k(dtype, k - done), tile += strips * STRIP_BYTES(dtype))
        quantise_span(rows, done, span_k(dtype, k - done), strip, strips, tile);
}

static void quantise(const float *const *rows, size_t k, size_t strip, size_t strips, uint8_t *tile)
{
    quantise_as(ASH_Q8_0, rows, k, strip, strips, tile);
}

static void quantise_wide(const float *const *rows, size_t k, size_t strip, size_t strips, uint8_t *tile)
{
    quantise_as(ASH_Q8_W, rows, k, strip, strips, tile);
}

/* ---- panels ------------------------------------------------------------------------------------------------------ */

/* The scales of the rows: d0 d1 d0 d1, d2 d3 d2 d3, ... */
INLINE void panel_scales(enum ash_dtype dtype, const uint8_t *block, float32x4_t out[PAIRS])
{
    UNROLL
    for (size_t i = 0; i < 2; i++) {
        float64x2_t wide = vreinterpretq_f64_f32(four_scales(dtype, block, i));

        out[2 * i] = vreinterpretq_f32_f64(vzip1q_f64(wide, wide));
        out[2 * i + 1] = vreinterpretq_f32_f64(vzip2q_f64(wide, wide));
    }
}

INLINE void expand_block(enum ash_dtype dtype, const uint8_t *block, uint8_t *to)
{
    float32x4_t scales[PAIRS];

    panel_scales(dtype, block, scales);
    UNROLL
    for (size_t p = 0; p < PAIRS; p++)
        vst1q_f32((float *)(void *)(to + p * VEC), scales[p]);
    UNROLL
    for (size_t i = 0; i < CHUNKS * PAIRS; i++)
        vst1q_s8((int8_t *)to + (PAIRS + i) * VEC,
                 dtype == ASH_Q8_0 ? chunk_q8(block, i / PAIRS, i % PAIRS) : chunk_q4(block, i / PAIRS, i % PAIRS));
}

static void expand(enum ash_dtype dtype, const uint8_t *panel, size_t k, uint8_t *to)
{
    size_t blocks = k / ASH_QUANT_BLOCK;

    if (dtype == ASH_Q8_0) {
        for (size_t b = 0; b < blocks; b++)
            expand_block(ASH_Q8_0, panel + b * ROWS * 34, to + b * EXPANDED_BYTES);
        return;
    }
    for (size_t b = 0; b < blocks; b++)
        expand_block(ASH_Q4_0, panel + b * ROWS * 18, to + b * EXPANDED_BYTES);
}

/* ---- many rows --------------------------------------------------------------------------------------------------- */

/* Dots of a span of a panel with all strips. Breadth first: neighbours in the program do not wait for each other. */
INLINE void tile_dots(enum ash_dtype dtype, bool expanded, const uint8_t *panel, const uint8_t *x, size_t strips,
                      size_t chunks, int32x4_t dots[][PAIRS])
{
    for (size_t first = 0; first < chunks; first += CHUNKS) {
        UNROLL
        for (size_t c = first; c < first + CHUNKS; c++) {
            int8x16_t left[TILE_STRIPS];

            UNROLL
            for (size_t s = 0; s < strips; s++)
                left[s] = vld1q_s8((const int8_t *)x + (strips + c * strips + s) * VEC);
            UNROLL
            for (size_t p = 0; p < PAIRS; p++) {
                int8x16_t right = panel_chunk(dtype, expanded, panel, c, p);

                UNROLL
                for (size_t s = 0; s < strips; s++)
                    dots[s][p] = vmmlaq_s32(dots[s][p], left[s], right);
            }
        }
    }
}

/* One span (k of them left) of a panel times all strips, added to acc. */
INLINE void tile_span(enum ash_dtype dtype, bool expanded, const uint8_t *panel, const uint8_t *x, size_t strips,
                      size_t k, const float32x4_t *scales, float32x4_t acc[][PAIRS])
{
    int32x4_t dots[TILE_STRIPS][PAIRS];
    float32x4_t dx[TILE_STRIPS];

    UNROLL
    for (size_t s = 0; s < strips; s++) {
        UNROLL
        for (size_t p = 0; p < PAIRS; p++)
            dots[s][p] = zeros();
    }
    tile_dots(dtype, expanded, panel, x, strips, span_k(dtype, k) / 8, dots);
    UNROLL
    for (size_t s = 0; s < strips; s++)
        dx[s] = vld1q_f32((const float *)(const void *)x + 4 * s);
    UNROLL
    for (size_t p = 0; p < PAIRS; p++) {
        float32x4_t dw = expanded ? vld1q_f32((const float *)(const void *)panel + 4 * p) : scales[p];

        UNROLL
        for (size_t s = 0; s < strips; s++) {
            float32x4_t scale = vmulq_f32(dx[s], dw);
            float32x4_t dot = dtype == ASH_Q4_0 ? vcvtq_n_f32_s32(dots[s][p], 4) : vcvtq_f32_s32(dots[s][p]);

            acc[s][p] = vfmaq_f32(acc[s][p], dot, scale);
        }
    }
}

/* Bytes that will be needed soon, or (past the last panel) never. */
INLINE void prefetch(const uint8_t *at, size_t bytes)
{
    UNROLL
    for (size_t i = 0; i < bytes; i += LINE)
        __builtin_prefetch(at + i);
}

/* sums: for each strip and pair of the panel, (row 0 of x) x (w0, w1), (row 1 of x) x (w0, w1). */
INLINE void run_tile(enum ash_dtype dtype, bool expanded, const uint8_t *panel, const uint8_t *x, size_t strips,
                     size_t k, float *sums)
{
    const size_t panel_block = expanded ? EXPANDED_BYTES : panel_bytes(dtype), span = span_k(dtype, ASH_QUANT_WIDE);
    float32x4_t acc[TILE_STRIPS][PAIRS];

    UNROLL
    for (size_t i = 0; i < strips * PAIRS; i++)
        acc[i / PAIRS][i % PAIRS] = vld1q_f32(sums + 4 * i);
    for (size_t done = 0; done < k; done += span, panel += panel_block, x += strips * STRIP_BYTES(dtype)) {
        float32x4_t scales[PAIRS];

        if (!expanded && dtype != ASH_Q8_W) prefetch(panel + AHEAD * panel_block, panel_block);
        if (!expanded) panel_scales(dtype, panel, scales);
        tile_span(dtype, expanded, panel, x, strips, k - done, scales, acc);
    }
    UNROLL
    for (size_t i = 0; i < strips * PAIRS; i++)
        vst1q_f32(sums + 4 * i, acc[i / PAIRS][i % PAIRS]);
}

#define DEFINE_TILES(NAME, DTYPE, EXPANDED)                                                                            \
    static void NAME(const uint8_t *panel, const uint8_t *x, size_t strips, size_t k, float *sums)                     \
    {                                                                                                                  \
        if (strips == 3)                                                                                               \
            run_tile(DTYPE, EXPANDED, panel, x, 3, k, sums);                                                           \
        else if (strips == 2)                                                                                          \
            run_tile(DTYPE, EXPANDED, panel, x, 2, k, sums);                                                           \
        else                                                                                                           \
            run_tile(DTYPE, EXPANDED, panel, x, 1, k, sums);                                                           \
    }

DEFINE_TILES(tile_q8, ASH_Q8_0, false)
DEFINE_TILES(tile_q4, ASH_Q4_0, false)
DEFINE_TILES(tile_q8_expanded, ASH_Q8_0, true)
DEFINE_TILES(tile_q4_expanded, ASH_Q4_0, true)
DEFINE_TILES(tile_wide, ASH_Q8_W, false)

static void tile(enum ash_dtype dtype, bool expanded, const uint8_t *panel, const uint8_t *x, size_t strips, size_t k,
                 float *sums)
{
    if (dtype == ASH_Q8_W)
        tile_wide(panel, x, strips, k, sums);
    else if (dtype == ASH_Q8_0)
        (expanded ? tile_q8_expanded : tile_q8)(panel, x, strips, k, sums);
    else
        (expanded ? tile_q4_expanded : tile_q4)(panel, x, strips, k, sums);
}

static void untile(const float *sums, size_t rows, float *y, size_t y_stride)
{
    for (size_t m = 0; m < rows; m += 2, sums += 4 * PAIRS)
        for (size_t p = 0; p < PAIRS; p++) {
            float32x4_t four = vld1q_f32(sums + 4 * p);

            vst1_f32(y + m * y_stride + 2 * p, vget_low_f32(four));
            if (m + 1 < rows) vst1_f32(y + (m + 1) * y_stride + 2 * p, vget_high_f32(four));
        }
}

const struct ash_quant_panels ash_quant_panels_i8mm = {.layout = ASH_QUANT_PAIRS,
                                                       .block_k = ASH_QUANT_BLOCK,
                                                       .strip_rows = 2,
                                                       .strip_bytes = STRIP_BYTES(ASH_Q8_0),
                                                       .tile_strips = TILE_STRIPS,
                                                       .expanded_bytes = EXPANDED_BYTES,
                                                       .k_blocks = 32,
                                                       .expanded_panels = 4,
                                                       .one_bytes = ONE_BYTES(ASH_Q8_0),
                                                       .quantise = quantise,
                                                       .expand = expand,
                                                       .tile = tile,
                                                       .untile = untile,
                                                       .quantise_one = ash_quant_pairs_quantise_one,
                                                       .one = ash_quant_pairs_one};

const struct ash_quant_panels ash_quant_wide_i8mm = {.layout = ASH_QUANT_PAIRS,
                                                     .block_k = ASH_QUANT_WIDE,
                                                     .strip_rows = 2,
                                                     .strip_bytes = STRIP_BYTES(ASH_Q8_W),
                                                     .tile_strips = TILE_STRIPS,
                                                     .k_blocks = 4,
                                                     .expanded_panels = 4,
                                                     .one_bytes = ONE_BYTES(ASH_Q8_W),
                                                     .quantise = quantise_wide,
                                                     .tile = tile,
                                                     .untile = untile,
                                                     .quantise_one = ash_quant_pairs_quantise_one,
                                                     .one = ash_quant_pairs_one};

#endif
