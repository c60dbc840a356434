/* Kernels of packed quantised weights for arm64 with SMMLA (2 x 8 times 8 x 2); quant_pack.h has the layout (pairs).
 *
 * Many rows: a tile is 3 pairs of rows of x by the 4 pairs of rows of a panel, so 12 blocks are in flight: what takes
 * time per block and pair of pairs is 4 SMMLA, a conversion (which counts twice), a product of scales and a fused
 * multiply-add. Nibbles stay in the upper half of their byte, 16 times too large; the conversion divides, exactly.
 *
 * One row: memory decides, if the instructions do not. For Q8_0 the row is paired with itself. For Q4_0 the second
 * row of an SMMLA saves an instruction: bytes b = 16 high + low, as they are, times (0, x of high), and low = b & 15
 * times (x of low, -x of high), give low . x in one lane and 16 high . x in the other. The lanes start from numbers
 * that make them floats, so that one pairwise addition of floats brings them together. */
#if defined(__aarch64__)

#include "compute/cpu/quant_pack.h"

#include <arm_neon.h>
#include <string.h>

#include "compute/cpu/quant_one_q4.h"
#include "compute/quant.h"

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

#define ROWS 8 /* of a panel */
#define PAIRS 4
#define CHUNKS 4 /* 8 k each */
#define TILE_STRIPS 3
#define LINE 64                          /* bytes of the caches */
#define AHEAD 8                          /* blocks of a panel that are on their way */
#define VEC 16                           /* bytes */
#define STRIP_BYTES (VEC + CHUNKS * VEC) /* scales of the two rows, each twice; then the chunks */
#define EXPANDED_BYTES (PAIRS * STRIP_BYTES)
#define ONE_PANELS 2                       /* whose dots are made together */
#define ONE_BYTES (2 * VEC + CHUNKS * VEC) /* the scale; where sums start; then the chunks */

/* Zeros, made where they are needed: the processor makes them for nothing, while a copy of a register of zeros, which
 * compilers prefer, takes the place of an instruction. */
INLINE int32x4_t zeros(void)
{
    int32x4_t zero;

    __asm__ volatile("movi %0.4s, #0" : "=w"(zero));
    return zero;
}

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

/* One block of a panel times all strips, added to acc. */
INLINE void tile_block(enum ash_dtype dtype, bool expanded, const uint8_t *panel, const uint8_t *x, size_t strips,
                       const float32x4_t *scales, float32x4_t acc[][PAIRS])
{
    int32x4_t dots[TILE_STRIPS][PAIRS];
    float32x4_t dx[TILE_STRIPS];

    UNROLL
    for (size_t s = 0; s < strips; s++) {
        UNROLL
        for (size_t p = 0; p < PAIRS; p++)
            dots[s][p] = zeros();
    }
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
    UNROLL
    for (size_t s = 0; s < strips; s++)
        dx[s] = vld1q_f32((const float *)(const void *)x + 4 * s);
    UNROLL
    for (size_t p = 0; p < PAIRS; p++) {
        float32x4_t dw = expanded ? vld1q_f32((const float *)(const void *)panel + 4 * p) : scales[p];

        UNROLL
        for (size_t s = 0; s < strips; s++) {
            float32x4_t scale = vmulq_f32(dx[s], dw);
            float32x4_t dot = dtype == ASH_Q8_0 ? vcvtq_f32_s32(dots[s][p]) : vcvtq_n_f32_s32(dots[s][p], 4);

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
                     size_t blocks, float *sums)
{
    const size_t panel_block = expanded ? EXPANDED_BYTES : dtype == ASH_Q8_0 ? ROWS * 34 : ROWS * 18;
    float32x4_t acc[TILE_STRIPS][PAIRS];

    UNROLL
    for (size_t i = 0; i < strips * PAIRS; i++)
        acc[i / PAIRS][i % PAIRS] = vld1q_f32(sums + 4 * i);
    for (size_t b = 0; b < blocks; b++, panel += panel_block, x += strips * STRIP_BYTES) {
        float32x4_t scales[PAIRS];

        if (!expanded) {
            prefetch(panel + AHEAD * panel_block, panel_block);
            panel_scales(panel, scales);
        }
        tile_block(dtype, expanded, panel, x, strips, scales, acc);
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

/* A float of 1.5 * 2^(23 - n) has its whole part, times 2^n, in its low bits: whole numbers that are added to its bits
 * are floats without being converted, off by that much. So sums start there. The lanes of high nibbles are 16 times too
 * large, and their start, with n = 4, divides them. Adding the two lanes of a row and taking the starts away is exact.
 */
#define START_BITS ((int32_t)ASH_QUANT_ROUNDER_BITS)
#define START_HIGH_BITS (START_BITS - (4 << 23))
#define START_HIGH (ASH_QUANT_ROUNDER / 16.0f)

/* Where the sums of a block start. Loaded anew for each: a load is free beside vector instructions, a copy of a
 * register is one. */
INLINE int32x4_t load_start(const uint8_t *x)
{
    int32x4_t start;

    __asm__ volatile("ldr %q0, %1" : "=w"(start) : "m"(*(const int32x4_t *)(const void *)(x + VEC)));
    return start;
}

/* Q8_0: chunk c twice. Q4_0: for each half, (0, x of high), then (x of low, -x of high). */
static void quantise_one(enum ash_dtype dtype, const float *row, size_t blocks, uint8_t *x)
{
    for (size_t b = 0; b < blocks; b++, x += ONE_BYTES) {
        int8x16_t q[2];
        int8_t *chunks = (int8_t *)x + 2 * VEC;
        float scale = quantise_block(row + b * ASH_QUANT_BLOCK, q);
        int32x4_t start = vdupq_n_s32(START_BITS);

        if (dtype == ASH_Q4_0) { /* low nibbles: plus 8 */
            int32x2_t lanes = {START_BITS - 8 * vaddlvq_s8(q[0]), START_HIGH_BITS};

            start = vcombine_s32(lanes, lanes);
        }
        vst1q_f32((float *)(void *)x, vdupq_n_f32(scale));
        vst1q_s32((int32_t *)(void *)(x + VEC), start);
        UNROLL
        for (int half = 0; half < 2; half++) {
            int8x8_t low = half == 0 ? vget_low_s8(q[0]) : vget_high_s8(q[0]);
            int8x8_t high = half == 0 ? vget_low_s8(q[1]) : vget_high_s8(q[1]);

            if (dtype == ASH_Q8_0) {
                vst1q_s8(chunks + half * VEC, vcombine_s8(low, low));
                vst1q_s8(chunks + (2 + half) * VEC, vcombine_s8(high, high));
            } else {
                vst1q_s8(chunks + 2 * half * VEC, vcombine_s8(vdup_n_s8(0), high));
                vst1q_s8(chunks + (2 * half + 1) * VEC, vcombine_s8(low, vneg_s8(high)));
            }
        }
    }
}

/* One block of panels times the row: for each pair of rows of w, a vector with two lanes a row. Breadth first:
 * neighbours in the program do not wait for each other. */
INLINE void lanes_one_q8(const uint8_t *const *at, size_t count, const int8x16_t *x, int32x4_t sums[][PAIRS])
{
    UNROLL
    for (size_t c = 0; c < CHUNKS; c++) {
        UNROLL
        for (size_t i = 0; i < count * PAIRS; i++)
            sums[i / PAIRS][i % PAIRS] =
                vmmlaq_s32(sums[i / PAIRS][i % PAIRS], chunk_q8(at[i / PAIRS], c, i % PAIRS), x[c]);
    }
}

INLINE void lanes_one_q4(const uint8_t *const *at, size_t count, const int8x16_t *x, int32x4_t sums[][PAIRS])
{
    UNROLL
    for (size_t half = 0; half < 2; half++) {
        UNROLL
        for (size_t i = 0; i < count; i++) {
            int8x16_t bytes[PAIRS];

            UNROLL
            for (size_t p = 0; p < PAIRS; p++) {
                bytes[p] = vld1q_s8((const int8_t *)at[i] + VEC + (half * PAIRS + p) * VEC);
                sums[i][p] = vmmlaq_s32(sums[i][p], bytes[p], x[2 * half]);
            }
            UNROLL
            for (size_t p = 0; p < PAIRS; p++)
                sums[i][p] = vmmlaq_s32(sums[i][p], vandq_s8(bytes[p], vdupq_n_s8(15)), x[2 * half + 1]);
        }
    }
}

/* The dots of two pairs of rows as floats: Q8_0 has each twice, Q4_0 in two parts. */
INLINE float32x4_t dots_one(enum ash_dtype dtype, int32x4_t first, int32x4_t second)
{
    float32x4_t a = vreinterpretq_f32_s32(first), b = vreinterpretq_f32_s32(second);

    if (dtype == ASH_Q8_0) return vsubq_f32(vuzp1q_f32(a, b), vdupq_n_f32(ASH_QUANT_ROUNDER));
    return vsubq_f32(vpaddq_f32(a, b), vdupq_n_f32(ASH_QUANT_ROUNDER + START_HIGH));
}

/* The whole numbers of some panels first, then the floats. */
INLINE void run_one(enum ash_dtype dtype, const uint8_t *const *panels, size_t count, const uint8_t *x, size_t blocks,
                    float *y)
{
    const size_t panel_block = dtype == ASH_Q8_0 ? ROWS * 34 : ROWS * 18,
                 together = count < ONE_PANELS ? count : ONE_PANELS;
    const uint8_t *at[ASH_QUANT_PANEL_GROUP];
    float32x4_t acc[ASH_QUANT_PANEL_GROUP][2];

    UNROLL
    for (size_t i = 0; i < count; i++) {
        at[i] = panels[i];
        acc[i][0] = acc[i][1] = vdupq_n_f32(0.0f);
    }
    for (size_t b = 0; b < blocks; b++, x += ONE_BYTES) {
        float32x4_t scale = vld1q_f32((const float *)(const void *)x);
        int8x16_t chunks[CHUNKS];

        UNROLL
        for (size_t c = 0; c < CHUNKS; c++)
            chunks[c] = vld1q_s8((const int8_t *)x + (2 + c) * VEC);
        UNROLL
        for (size_t i = 0; i < count; i += together) {
            int32x4_t sums[ONE_PANELS][PAIRS];

            UNROLL
            for (size_t j = 0; j < together * PAIRS; j++)
                sums[j / PAIRS][j % PAIRS] = load_start(x);
            if (dtype == ASH_Q8_0)
                lanes_one_q8(at + i, together, chunks, sums);
            else
                lanes_one_q4(at + i, together, chunks, sums);
            UNROLL
            for (size_t j = 0; j < together; j++) {
                float16x8_t halves = vreinterpretq_f16_u16(vld1q_u16((const uint16_t *)(const void *)at[i + j]));

                acc[i + j][0] = vfmaq_f32(acc[i + j][0], dots_one(dtype, sums[j][0], sums[j][1]),
                                          vmulq_f32(scale, vcvt_f32_f16(vget_low_f16(halves))));
                acc[i + j][1] = vfmaq_f32(acc[i + j][1], dots_one(dtype, sums[j][2], sums[j][3]),
                                          vmulq_f32(scale, vcvt_high_f32_f16(halves)));
                at[i + j] += panel_block;
            }
        }
    }
    UNROLL
    for (size_t i = 0; i < count; i++) {
        vst1q_f32(y + i * ROWS, acc[i][0]);
        vst1q_f32(y + i * ROWS + 4, acc[i][1]);
    }
}

static void one_group(enum ash_dtype dtype, const uint8_t *const *panels, const uint8_t *x, size_t blocks, float *y)
{
    if (dtype == ASH_Q8_0)
        run_one(ASH_Q8_0, panels, ASH_QUANT_PANEL_GROUP, x, blocks, y);
    else
        one_q4_panels(panels, x, blocks, ASH_QUANT_ROUNDER + START_HIGH, y);
}

/* A few panels are made up to a group by the first of them, whose bytes are there already: memory decides, not how much
 * is computed. */
static void one(enum ash_dtype dtype, const uint8_t *const *panels, size_t count, const uint8_t *x, size_t blocks,
                float *y)
{
    const uint8_t *group[ASH_QUANT_PANEL_GROUP];
    float sums[ASH_QUANT_PANEL_GROUP * ROWS];

    if (count == ASH_QUANT_PANEL_GROUP) {
        one_group(dtype, panels, x, blocks, y);
    } else if (count > 1) {
        for (size_t i = 0; i < ASH_QUANT_PANEL_GROUP; i++)
            group[i] = panels[i < count ? i : 0];
        one_group(dtype, group, x, blocks, sums);
        memcpy(y, sums, count * ROWS * sizeof(*y));
    } else if (count == 1 && dtype == ASH_Q8_0) {
        run_one(ASH_Q8_0, panels, 1, x, blocks, y);
    } else if (count == 1) {
        run_one(ASH_Q4_0, panels, 1, x, blocks, y);
    }
}

const struct ash_quant_panels ash_quant_panels_i8mm = {.layout = ASH_QUANT_PAIRS,
                                                       .strip_rows = 2,
                                                       .strip_bytes = STRIP_BYTES,
                                                       .tile_strips = TILE_STRIPS,
                                                       .expanded_bytes = EXPANDED_BYTES,
                                                       .k_blocks = 32,
                                                       .expanded_panels = 4,
                                                       .one_bytes = ONE_BYTES,
                                                       .quantise = quantise,
                                                       .expand = expand,
                                                       .tile = tile,
                                                       .untile = untile,
                                                       .quantise_one = quantise_one,
                                                       .one = one};

#endif
