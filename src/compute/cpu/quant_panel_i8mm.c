/* Kernels of packed quantised weights for arm64 with SMMLA (2 x 8 times 8 x 2); quant_pack.h has the layout (pairs).
 *
 * Many rows: a tile is 3 pairs of rows of x by the 4 pairs of rows of a panel, so 12 blocks are in flight: what takes
 * time per block and pair of pairs is 4 SMMLA, a conversion (which counts twice), a product of scales and a fused
 * multiply-add. Nibbles stay in the upper half of their byte, 16 times too large; the conversion divides, exactly.
 *
 * One row: memory decides, if the instructions do not. For Q8_0 the row is paired with itself. For Q4_0 the second
 * row of an SMMLA saves an instruction: bytes b = 16 high + low, as they are, times (x of high, 0), and low = b & 15
 * times (-x of high, x of low), give 16 high . x in one lane and low . x in the other. */
#if defined(__aarch64__)

#include "compute/cpu/quant_pack.h"

#include <arm_neon.h>
#include <string.h>

#include "compute/quant.h"

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

#define ROWS 8 /* of a panel */
#define PAIRS 4
#define CHUNKS 4 /* 8 k each */
#define TILE_STRIPS 3
#define VEC 16                           /* bytes */
#define STRIP_BYTES (VEC + CHUNKS * VEC) /* scales of the two rows, each twice; then the chunks */
#define EXPANDED_BYTES (PAIRS * STRIP_BYTES)
#define ONE_BYTES (2 * VEC + CHUNKS * VEC) /* the scale; where sums start; then the chunks */

/* ---- quantising x ------------------------------------------------------------------------------------------------ */

/* ash_quant_block on vectors. q: 32 numbers. */
INLINE float quantise_block(const float *x, int8x16_t q[2])
{
    float32x4_t v[8];
    uint32x4_t top;
    uint32_t bits;
    float amax, d, inverse;

    UNROLL
    for (int i = 0; i < 8; i++)
        v[i] = vld1q_f32(x + 4 * i);
    top = vshlq_n_u32(vreinterpretq_u32_f32(v[0]), 1); /* without the sign: ordered like |x|, NaN above infinity */
    UNROLL
    for (int i = 1; i < 8; i++)
        top = vmaxq_u32(top, vshlq_n_u32(vreinterpretq_u32_f32(v[i]), 1));
    bits = vmaxvq_u32(top) >> 1;
    memcpy(&amax, &bits, sizeof(amax));
    d = amax / 127.0f;
    inverse = 1.0f / d;
    if (bits >= ASH_QUANT_INFINITY_BITS || isinf(inverse)) {
        q[0] = q[1] = vdupq_n_s8(0);
        return bits >= ASH_QUANT_INFINITY_BITS ? NAN : 0.0f;
    }
    UNROLL
    for (int i = 0; i < 8; i++) /* the whole number is in the low byte of what has been rounded */
        v[i] = vaddq_f32(vmulq_n_f32(v[i], inverse), vdupq_n_f32(ASH_QUANT_ROUNDER));
    UNROLL
    for (int i = 0; i < 2; i++) {
        int16x8_t low = vuzp1q_s16(vreinterpretq_s16_f32(v[4 * i]), vreinterpretq_s16_f32(v[4 * i + 1]));
        int16x8_t high = vuzp1q_s16(vreinterpretq_s16_f32(v[4 * i + 2]), vreinterpretq_s16_f32(v[4 * i + 3]));

        q[i] = vuzp1q_s8(vreinterpretq_s8_s16(low), vreinterpretq_s8_s16(high));
    }
    return d;
}

static void quantise(const float *const *rows, size_t blocks, size_t strip, size_t strips, uint8_t *tile)
{
    for (size_t b = 0; b < blocks; b++, tile += strips * STRIP_BYTES) {
        int8x16_t first[2], second[2] = {vdupq_n_s8(0), vdupq_n_s8(0)};
        int8_t *chunks = (int8_t *)tile + strips * VEC + strip * VEC;
        float scales[4] = {0};

        scales[0] = scales[1] = quantise_block(rows[0] + b * ASH_QUANT_BLOCK, first);
        if (rows[1] != NULL) scales[2] = scales[3] = quantise_block(rows[1] + b * ASH_QUANT_BLOCK, second);
        vst1q_f32((float *)(void *)(tile + strip * VEC), vld1q_f32(scales));
        UNROLL
        for (size_t c = 0; c < CHUNKS; c++) {
            int8x8_t left = c % 2 == 0 ? vget_low_s8(first[c / 2]) : vget_high_s8(first[c / 2]);
            int8x8_t right = c % 2 == 0 ? vget_low_s8(second[c / 2]) : vget_high_s8(second[c / 2]);

            vst1q_s8(chunks + c * strips * VEC, vcombine_s8(left, right));
        }
    }
}

/* ---- panels ------------------------------------------------------------------------------------------------------ */

/* One block of a panel in registers' order: chunk c of pair p, numbers of Q4_0 16 times too large. */
INLINE int8x16_t chunk_q8(const uint8_t *block, size_t c, size_t p)
{
    return vld1q_s8((const int8_t *)block + VEC + (c * PAIRS + p) * VEC);
}

INLINE int8x16_t chunk_q4(const uint8_t *block, size_t c, size_t p)
{
    uint8x16_t bytes = vld1q_u8(block + VEC + (c % 2 * PAIRS + p) * VEC);

    if (c >= 2) return vreinterpretq_s8_u8(vandq_u8(bytes, vdupq_n_u8(0xf0)));
    return vreinterpretq_s8_u8(veorq_u8(vshlq_n_u8(bytes, 4), vdupq_n_u8(0x80)));
}

/* The scales of the rows: d0 d1 d0 d1, d2 d3 d2 d3, ... */
INLINE void panel_scales(const uint8_t *block, float32x4_t out[PAIRS])
{
    uint16x8_t halves = vld1q_u16((const uint16_t *)(const void *)block);

    UNROLL
    for (int i = 0; i < 2; i++) {
        float16x4_t four = vreinterpret_f16_u16(i == 0 ? vget_low_u16(halves) : vget_high_u16(halves));
        float64x2_t wide = vreinterpretq_f64_f32(vcvt_f32_f16(four));

        out[2 * i] = vreinterpretq_f32_f64(vzip1q_f64(wide, wide));
        out[2 * i + 1] = vreinterpretq_f32_f64(vzip2q_f64(wide, wide));
    }
}

INLINE void expand_block(enum ash_dtype dtype, const uint8_t *block, uint8_t *to)
{
    float32x4_t scales[PAIRS];

    panel_scales(block, scales);
    UNROLL
    for (size_t p = 0; p < PAIRS; p++)
        vst1q_f32((float *)(void *)(to + p * VEC), scales[p]);
    UNROLL
    for (size_t i = 0; i < CHUNKS * PAIRS; i++)
        vst1q_s8((int8_t *)to + (PAIRS + i) * VEC,
                 dtype == ASH_Q8_0 ? chunk_q8(block, i / PAIRS, i % PAIRS) : chunk_q4(block, i / PAIRS, i % PAIRS));
}

static void expand(enum ash_dtype dtype, const uint8_t *panel, size_t blocks, uint8_t *to)
{
    if (dtype == ASH_Q8_0) {
        for (size_t b = 0; b < blocks; b++)
            expand_block(ASH_Q8_0, panel + b * ROWS * 34, to + b * EXPANDED_BYTES);
        return;
    }
    for (size_t b = 0; b < blocks; b++)
        expand_block(ASH_Q4_0, panel + b * ROWS * 18, to + b * EXPANDED_BYTES);
}

/* ---- many rows --------------------------------------------------------------------------------------------------- */

/* sums: for each strip and pair of the panel, (row 0 of x) x (w0, w1), (row 1 of x) x (w0, w1). */
INLINE void run_tile(enum ash_dtype dtype, bool expanded, const uint8_t *panel, const uint8_t *x, size_t strips,
                     size_t blocks, float *sums)
{
    const size_t panel_block = expanded ? EXPANDED_BYTES : dtype == ASH_Q8_0 ? ROWS * 34 : ROWS * 18;
    float32x4_t acc[TILE_STRIPS][PAIRS];

    UNROLL
    for (size_t i = 0; i < strips * PAIRS; i++)
        acc[i / PAIRS][i % PAIRS] = vld1q_f32(sums + 4 * i);
    for (size_t b = 0; b < blocks; b++, panel += panel_block, x += strips * STRIP_BYTES) {
        int32x4_t dots[TILE_STRIPS][PAIRS];
        float32x4_t scales[PAIRS];

        UNROLL
        for (size_t i = 0; i < strips * PAIRS; i++)
            dots[i / PAIRS][i % PAIRS] = vdupq_n_s32(0);
        /* breadth first: neighbours in the program do not wait for each other */
        UNROLL
        for (size_t c = 0; c < CHUNKS; c++) {
            int8x16_t left[TILE_STRIPS];

            UNROLL
            for (size_t s = 0; s < strips; s++)
                left[s] = vld1q_s8((const int8_t *)x + (strips + c * strips + s) * VEC);
            UNROLL
            for (size_t p = 0; p < PAIRS; p++) {
                int8x16_t right = expanded            ? vld1q_s8((const int8_t *)panel + (PAIRS + c * PAIRS + p) * VEC)
                                  : dtype == ASH_Q8_0 ? chunk_q8(panel, c, p)
                                                      : chunk_q4(panel, c, p);
                UNROLL
                for (size_t s = 0; s < strips; s++)
                    dots[s][p] = vmmlaq_s32(dots[s][p], left[s], right);
            }
        }
        if (expanded) {
            UNROLL
            for (size_t p = 0; p < PAIRS; p++)
                scales[p] = vld1q_f32((const float *)(const void *)panel + 4 * p);
        } else {
            panel_scales(panel, scales);
        }
        UNROLL
        for (size_t s = 0; s < strips; s++) {
            float32x4_t dx = vld1q_f32((const float *)(const void *)x + 4 * s);

            UNROLL
            for (size_t p = 0; p < PAIRS; p++) {
                float32x4_t dot = dtype == ASH_Q8_0 ? vcvtq_f32_s32(dots[s][p]) : vcvtq_n_f32_s32(dots[s][p], 4);

                acc[s][p] = vfmaq_f32(acc[s][p], dot, vmulq_f32(dx, scales[p]));
            }
        }
    }
    UNROLL
    for (size_t i = 0; i < strips * PAIRS; i++)
        vst1q_f32(sums + 4 * i, acc[i / PAIRS][i % PAIRS]);
}

#define DEFINE_TILES(NAME, DTYPE, EXPANDED)                                                                            \
    static void NAME(const uint8_t *panel, const uint8_t *x, size_t strips, size_t blocks, float *sums)                \
    {                                                                                                                  \
        if (strips == 3)                                                                                               \
            run_tile(DTYPE, EXPANDED, panel, x, 3, blocks, sums);                                                      \
        else if (strips == 2)                                                                                          \
            run_tile(DTYPE, EXPANDED, panel, x, 2, blocks, sums);                                                      \
        else                                                                                                           \
            run_tile(DTYPE, EXPANDED, panel, x, 1, blocks, sums);                                                      \
    }

DEFINE_TILES(tile_q8, ASH_Q8_0, false)
DEFINE_TILES(tile_q4, ASH_Q4_0, false)
DEFINE_TILES(tile_q8_expanded, ASH_Q8_0, true)
DEFINE_TILES(tile_q4_expanded, ASH_Q4_0, true)

static void tile(enum ash_dtype dtype, bool expanded, const uint8_t *panel, const uint8_t *x, size_t strips,
                 size_t blocks, float *sums)
{
    if (dtype == ASH_Q8_0)
        (expanded ? tile_q8_expanded : tile_q8)(panel, x, strips, blocks, sums);
    else
        (expanded ? tile_q4_expanded : tile_q4)(panel, x, strips, blocks, sums);
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

/* ---- one row ----------------------------------------------------------------------------------------------------- */

/* The float 1.5 * 2^23 has its whole part in its low bits: a sum that starts from its bits is a float without
 * converting, off by that much. */
#define START_BITS ((int32_t)ASH_QUANT_ROUNDER_BITS)

/* Q8_0: chunk c twice. Q4_0: for each half, (x of high, 0), then (-x of high, x of low). */
static void quantise_one(enum ash_dtype dtype, const float *row, size_t blocks, uint8_t *x)
{
    for (size_t b = 0; b < blocks; b++, x += ONE_BYTES) {
        int32_t start[4] = {START_BITS, START_BITS, START_BITS, START_BITS};
        int8x16_t q[2];
        int8_t *chunks = (int8_t *)x + 2 * VEC;
        float scale = quantise_block(row + b * ASH_QUANT_BLOCK, q);

        vst1q_f32((float *)(void *)x, vdupq_n_f32(scale));
        if (dtype == ASH_Q8_0) {
            for (int i = 0; i < 2; i++) {
                vst1q_s8(chunks + 2 * i * VEC, vcombine_s8(vget_low_s8(q[i]), vget_low_s8(q[i])));
                vst1q_s8(chunks + (2 * i + 1) * VEC, vcombine_s8(vget_high_s8(q[i]), vget_high_s8(q[i])));
            }
        } else {
            start[0] = start[2] = 0;
            start[1] = start[3] = START_BITS - 8 * vaddlvq_s8(q[0]); /* low nibbles are 8 too large */
            for (int half = 0; half < 2; half++) {
                int8x8_t low = half == 0 ? vget_low_s8(q[0]) : vget_high_s8(q[0]);
                int8x8_t high = half == 0 ? vget_low_s8(q[1]) : vget_high_s8(q[1]);

                vst1q_s8(chunks + 2 * half * VEC, vcombine_s8(high, vdup_n_s8(0)));
                vst1q_s8(chunks + (2 * half + 1) * VEC, vcombine_s8(vneg_s8(high), low));
            }
        }
        vst1q_s32((int32_t *)(void *)(x + VEC), vld1q_s32(start));
    }
}

/* One block of a panel times the row: dots of its 8 rows as floats. */
INLINE void dots_one_q8(const uint8_t *block, const int8x16_t *x, int32x4_t start, float32x4_t out[2])
{
    int32x4_t sums[PAIRS];

    UNROLL
    for (size_t p = 0; p < PAIRS; p++)
        sums[p] = vmmlaq_s32(start, chunk_q8(block, 0, p), x[0]);
    UNROLL
    for (size_t c = 1; c < CHUNKS; c++) {
        UNROLL
        for (size_t p = 0; p < PAIRS; p++)
            sums[p] = vmmlaq_s32(sums[p], chunk_q8(block, c, p), x[c]);
    }
    UNROLL
    for (int i = 0; i < 2; i++) {
        int32x4_t four = vuzp1q_s32(sums[2 * i], sums[2 * i + 1]);

        out[i] = vsubq_f32(vreinterpretq_f32_s32(four), vdupq_n_f32(ASH_QUANT_ROUNDER));
    }
}

INLINE void dots_one_q4(const uint8_t *block, const int8x16_t *x, int32x4_t start, float32x4_t out[2])
{
    int32x4_t sums[PAIRS];

    UNROLL
    for (size_t p = 0; p < PAIRS; p++)
        sums[p] = start;
    UNROLL
    for (size_t half = 0; half < 2; half++) {
        int8x16_t bytes[PAIRS];

        UNROLL
        for (size_t p = 0; p < PAIRS; p++) {
            bytes[p] = vld1q_s8((const int8_t *)block + VEC + (half * PAIRS + p) * VEC);
            sums[p] = vmmlaq_s32(sums[p], bytes[p], x[2 * half]);
        }
        UNROLL
        for (size_t p = 0; p < PAIRS; p++)
            sums[p] = vmmlaq_s32(sums[p], vandq_s8(bytes[p], vdupq_n_s8(15)), x[2 * half + 1]);
    }
    UNROLL
    for (int i = 0; i < 2; i++) {
        int32x4_t high = vuzp1q_s32(sums[2 * i], sums[2 * i + 1]), low = vuzp2q_s32(sums[2 * i], sums[2 * i + 1]);

        out[i] = vsubq_f32(vreinterpretq_f32_s32(vsraq_n_s32(low, high, 4)), vdupq_n_f32(ASH_QUANT_ROUNDER));
    }
}

INLINE void run_one(enum ash_dtype dtype, const uint8_t *const *panels, size_t count, const uint8_t *x, size_t blocks,
                    float *y)
{
    const size_t panel_block = dtype == ASH_Q8_0 ? ROWS * 34 : ROWS * 18;
    const uint8_t *at[ASH_QUANT_PANEL_GROUP];
    float32x4_t acc[ASH_QUANT_PANEL_GROUP][2];

    UNROLL
    for (size_t i = 0; i < count; i++) {
        at[i] = panels[i];
        acc[i][0] = acc[i][1] = vdupq_n_f32(0.0f);
    }
    for (size_t b = 0; b < blocks; b++, x += ONE_BYTES) {
        float32x4_t scale = vld1q_f32((const float *)(const void *)x);
        int32x4_t start = vld1q_s32((const int32_t *)(const void *)(x + VEC));
        int8x16_t chunks[CHUNKS];

        UNROLL
        for (size_t c = 0; c < CHUNKS; c++)
            chunks[c] = vld1q_s8((const int8_t *)x + (2 + c) * VEC);
        UNROLL
        for (size_t i = 0; i < count; i++) {
            float16x8_t halves = vreinterpretq_f16_u16(vld1q_u16((const uint16_t *)(const void *)at[i]));
            float32x4_t dots[2];

            if (dtype == ASH_Q8_0)
                dots_one_q8(at[i], chunks, start, dots);
            else
                dots_one_q4(at[i], chunks, start, dots);
            acc[i][0] = vfmaq_f32(acc[i][0], dots[0], vmulq_f32(scale, vcvt_f32_f16(vget_low_f16(halves))));
            acc[i][1] = vfmaq_f32(acc[i][1], dots[1], vmulq_f32(scale, vcvt_high_f32_f16(halves)));
            at[i] += panel_block;
        }
    }
    UNROLL
    for (size_t i = 0; i < count; i++) {
        vst1q_f32(y + i * ROWS, acc[i][0]);
        vst1q_f32(y + i * ROWS + 4, acc[i][1]);
    }
}

static void one(enum ash_dtype dtype, const uint8_t *const *panels, size_t count, const uint8_t *x, size_t blocks,
                float *y)
{
    if (count == ASH_QUANT_PANEL_GROUP) {
        if (dtype == ASH_Q8_0)
            run_one(ASH_Q8_0, panels, ASH_QUANT_PANEL_GROUP, x, blocks, y);
        else
            run_one(ASH_Q4_0, panels, ASH_QUANT_PANEL_GROUP, x, blocks, y);
        return;
    }
    for (size_t i = 0; i < count; i++)
        if (dtype == ASH_Q8_0)
            run_one(ASH_Q8_0, panels + i, 1, x, blocks, y + i * ROWS);
        else
            run_one(ASH_Q4_0, panels + i, 1, x, blocks, y + i * ROWS);
}

const struct ash_quant_panels ash_quant_panels_i8mm = {.layout = ASH_QUANT_PAIRS,
                                                       .strip_rows = 2,
                                                       .strip_bytes = STRIP_BYTES,
                                                       .tile_strips = TILE_STRIPS,
                                                       .expanded_bytes = EXPANDED_BYTES,
                                                       .one_bytes = ONE_BYTES,
                                                       .quantise = quantise,
                                                       .expand = expand,
                                                       .tile = tile,
                                                       .untile = untile,
                                                       .quantise_one = quantise_one,
                                                       .one = one};

#endif
