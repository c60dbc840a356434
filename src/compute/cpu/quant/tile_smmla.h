/* tile_smmla - tiles of exact sums of products of bytes (SMMLA, 2 x 8 times 8 x 2), in assembly for the order of their
 * loads (see tile_neon.h). Each register holds a 2 x 2 block: (row 0 of x) x (w0, w1), (row 1 of x) x (w0, w1). Panels
 * are those of quant_pack.h, i8mm layout: w is four pairs of rows. */
#ifndef ASH_COMPUTE_TILE_SMMLA_H
#define ASH_COMPUTE_TILE_SMMLA_H

#include <arm_neon.h>
#include "compute/cpu/vec/tile_neon.h"
#include "compute/quant.h"

#define TILE_SMMLA_PAIRS 4 /* of w */
/* What tiles read, and do not use, after their operands: tile_smmla_subscales() a row of scales, micro-panels before
 * its own and a chunk; tile_smmla_wide() a chunk of the panel. */
#define TILE_SMMLA_X_SLACK_BYTES (16 * (WIDE_MICROS + 2 * SUBSCALE_MICROS))
#define TILE_SMMLA_PANEL_SLACK_BYTES 32
#define TILE_SMMLA_UNROLL _Pragma("GCC unroll 16")

#define SMMLA_X(reg, offset) "ldr q" #reg ", [%[x], #" #offset "]\n"
#define SMMLA_W(reg, offset) "ldr q" #reg ", [%[w], #" #offset "]\n"
#define SMMLA(sum, x, w) "smmla v" #sum ".4s, v" #x ".16b, v" #w ".16b\n"

/* ---- with sub-scales --------------------------------------------------------------------------------------------- */

/* Three micro-panels of x. v0 to v11 are dots, v(4 s + p) of micro-panel s and pair p of w, v12 to v23 totals. Dots are
 * not reset between the blocks of a group: at the end of block b they hold the sum so far. That is multiplied by the
 * difference between the sub-scales of this block and of the next, which adds up to every block's own dots times its
 * own sub-scales (intermediate integers may wrap) and saves an instruction a dot. v24 to v26 are chunks of x, v27 and
 * v28 pairs of w, v29 and v30 differences; each is loaded again as soon as it is free. */
#define SUBSCALE_MICROS 3
#define SUBSCALE_GROUPS 4 /* whose totals wait for their floats */
#define SUBSCALE_ADD(total, dot, subscales) "mla v" #total ".4s, v" #dot ".4s, v" #subscales ".4s\n"
#define SUBSCALE_SET(total, dot, subscales) "mul v" #total ".4s, v" #dot ".4s, v" #subscales ".4s\n"
#define SUBSCALE_LOAD(reg, offset) "ldr q" #reg ", [%[subscales], #" #offset "]\n"
#define SUBSCALE_ZERO(dot) "movi v" #dot ".2d, #0\n"
/* clang-format off */
#define SUBSCALE_ZEROS                                                                                                 \
    SUBSCALE_ZERO(0) SUBSCALE_ZERO(1) SUBSCALE_ZERO(2)  SUBSCALE_ZERO(3)                                               \
    SUBSCALE_ZERO(4) SUBSCALE_ZERO(5) SUBSCALE_ZERO(6)  SUBSCALE_ZERO(7)                                               \
    SUBSCALE_ZERO(8) SUBSCALE_ZERO(9) SUBSCALE_ZERO(10) SUBSCALE_ZERO(11)
/* clang-format on */
/* Where the next chunk of x is, and that of the next group, which begins with scales. */
#define SUBSCALE_ON "add %[x], %[x], %[x_step]\n"
#define SUBSCALE_ON_GROUP "add %[x], %[x], %[x_step], lsl #1\n"
/* Eight k, whose x and first pair of w are loaded; loads those of the next. Three slots for other instructions. */
/* clang-format off */
#define SUBSCALE_CHUNK(w, first, second, third)                                                                        \
    SMMLA(0, 24, 27) SMMLA_W(28, w + 16) SMMLA(4, 25, 27) SMMLA(8, 26, 27)                                             \
    SUBSCALE_ON first                                                                                                  \
    SMMLA(1, 24, 28) SMMLA_W(27, w + 32) SMMLA(5, 25, 28) SMMLA(9, 26, 28)                                             \
    second                                                                                                             \
    SMMLA(2, 24, 27) SMMLA_W(28, w + 48) SMMLA(6, 25, 27) SMMLA(10, 26, 27)                                            \
    third                                                                                                              \
    SMMLA(3, 24, 28) SMMLA_X(24, 0) SMMLA_W(27, w + 64) SMMLA(7, 25, 28) SMMLA_X(25, 16)                               \
    SMMLA(11, 26, 28) SMMLA_X(26, 32)
/* clang-format on */
/* The last eight k of a block, and its totals. `on` leads to what is loaded at the end: x, and w at `next`. */
/* clang-format off */
#define SUBSCALE_LAST(TOTAL, w, subscales, on, next)                                                                   \
    SMMLA(0, 24, 27) SMMLA_W(28, w + 16) SMMLA(4, 25, 27) SUBSCALE_LOAD(29, subscales) SMMLA(8, 26, 27)                \
    SMMLA(1, 24, 28) TOTAL(12, 0, 29) TOTAL(16, 4, 29) SMMLA(5, 25, 28) SUBSCALE_LOAD(30, subscales + 16)              \
    SMMLA(9, 26, 28) SMMLA_W(27, w + 32) TOTAL(20, 8, 29) TOTAL(13, 1, 30)                                             \
    SMMLA(2, 24, 27) SMMLA(6, 25, 27) TOTAL(17, 5, 30) SMMLA_W(28, w + 48) TOTAL(21, 9, 30)                            \
    SUBSCALE_LOAD(29, subscales + 32) SMMLA(10, 26, 27)                                                                \
    on                                                                                                                 \
    SMMLA(3, 24, 28) TOTAL(14, 2, 29) TOTAL(18, 6, 29) SMMLA(7, 25, 28) SUBSCALE_LOAD(30, subscales + 48)              \
    SMMLA(11, 26, 28) TOTAL(22, 10, 29) TOTAL(15, 3, 30) SMMLA_X(24, 0) SMMLA_W(27, next)                              \
    TOTAL(19, 7, 30) SMMLA_X(25, 16) TOTAL(23, 11, 30) SMMLA_X(26, 32)
#define SUBSCALE_BLOCK(w, subscales, on, next)                                                                         \
    SUBSCALE_CHUNK(w, , , ) SUBSCALE_CHUNK(w + 64, , , ) SUBSCALE_CHUNK(w + 128, , , )                                 \
    SUBSCALE_LAST(SUBSCALE_ADD, w + 192, subscales, on, next)
/* clang-format on */
/* Totals of the previous group go to memory during the first block of this one: their floats come later. */
#define SUBSCALE_KEEP(total, at) "str q" #total ", [%[totals], #" #at "]\n"
/* clang-format off */
#define SUBSCALE_KEEP_ALL                                                                                              \
    SUBSCALE_KEEP(12, 0)   SUBSCALE_KEEP(13, 16)  SUBSCALE_KEEP(14, 32)  SUBSCALE_KEEP(15, 48)                         \
    SUBSCALE_KEEP(16, 64)  SUBSCALE_KEEP(17, 80)  SUBSCALE_KEEP(18, 96)  SUBSCALE_KEEP(19, 112)                        \
    SUBSCALE_KEEP(20, 128) SUBSCALE_KEEP(21, 144) SUBSCALE_KEEP(22, 160) SUBSCALE_KEEP(23, 176)
/* clang-format on */

/* The integer totals of three micro-panels of x and of groups, one or more, of w. x: for each 8 k, 16 bytes a
 * micro-panel, x_step apart, which is also the distance between two groups. w: for each block four vectors of
 * differences; then, for each 8 k, 16 bytes a pair; after each group four vectors. totals: for each group and
 * micro-panel, four vectors. Reads x_step + 48 bytes after x and 16 after w, and does not use them. */
static inline void tile_smmla_totals(size_t groups, const uint8_t *x, size_t x_step, const uint8_t *w, int32_t *totals)
{
    const size_t w_step = (8 + 1) * 16 * TILE_SMMLA_PAIRS + 32 * 16 * TILE_SMMLA_PAIRS;
    const uint8_t *subscales = w;

    w += 8 * 16 * TILE_SMMLA_PAIRS;
    /* clang-format off */
    __asm__ volatile(
        SUBSCALE_ZEROS
        SMMLA_X(24, 0) SMMLA_X(25, 16) SMMLA_X(26, 32) SMMLA_W(27, 0)
        SUBSCALE_CHUNK(0, , , )
        SUBSCALE_CHUNK(64, , , )
        SUBSCALE_CHUNK(128, , , )
        "b 2f\n"
        ".p2align 6\n"
        "1:\n"
        SUBSCALE_ZEROS
        SUBSCALE_CHUNK(0, SUBSCALE_KEEP(12, 0), SUBSCALE_KEEP(13, 16), SUBSCALE_KEEP(14, 32))
        SUBSCALE_CHUNK(64, SUBSCALE_KEEP(15, 48), SUBSCALE_KEEP(16, 64), SUBSCALE_KEEP(17, 80))
        SUBSCALE_CHUNK(128, SUBSCALE_KEEP(18, 96) SUBSCALE_KEEP(19, 112), SUBSCALE_KEEP(20, 128) SUBSCALE_KEEP(21, 144),
                       SUBSCALE_KEEP(22, 160) SUBSCALE_KEEP(23, 176))
        "add %[totals], %[totals], #192\n"
        "2:\n"
        SUBSCALE_LAST(SUBSCALE_SET, 192, 0, SUBSCALE_ON, 256)
        SUBSCALE_BLOCK(256, 64, SUBSCALE_ON, 512)
        SUBSCALE_BLOCK(512, 128, SUBSCALE_ON, 768)
        SUBSCALE_BLOCK(768, 192, SUBSCALE_ON, 1024)
        SUBSCALE_BLOCK(1024, 256, SUBSCALE_ON, 1280)
        SUBSCALE_BLOCK(1280, 320, SUBSCALE_ON, 1536)
        SUBSCALE_BLOCK(1536, 384, SUBSCALE_ON, 1792)
        SUBSCALE_BLOCK(1792, 448, SUBSCALE_ON_GROUP, 2624)
        "add %[w], %[w], %[w_step]\n"
        "add %[subscales], %[subscales], %[w_step]\n"
        "subs %[groups], %[groups], #1\n"
        "b.ne 1b\n"
        SUBSCALE_KEEP_ALL
        : [x] "+&r"(x), [w] "+&r"(w), [subscales] "+&r"(subscales), [totals] "+&r"(totals), [groups] "+&r"(groups)
        : [x_step] "r"(x_step), [w_step] "r"(w_step)
        : TILE_CLOBBERS);
    /* clang-format on */
}

/* Those totals as floats, times scales of x and group scales, added to sums: for each micro-panel four vectors. */
static inline void tile_smmla_floats(size_t groups, const int32_t *totals, const uint8_t *scales, size_t scales_step,
                                     const uint8_t *group_scales, size_t group_scales_step, float *sums)
{
    float32x4_t sum[SUBSCALE_MICROS][TILE_SMMLA_PAIRS];

    TILE_SMMLA_UNROLL
    for (size_t i = 0; i < SUBSCALE_MICROS * TILE_SMMLA_PAIRS; i++)
        sum[i / TILE_SMMLA_PAIRS][i % TILE_SMMLA_PAIRS] = vld1q_f32(sums + 4 * i);
    for (; groups > 0; groups--, scales += scales_step, group_scales += group_scales_step) {
        TILE_SMMLA_UNROLL
        for (size_t s = 0; s < SUBSCALE_MICROS; s++) {
            float32x4_t scale = vld1q_f32((const float *)(const void *)scales + 4 * s);

            TILE_SMMLA_UNROLL
            for (size_t p = 0; p < TILE_SMMLA_PAIRS; p++, totals += 4) {
                float32x4_t group_scale = vld1q_f32((const float *)(const void *)group_scales + 4 * p);

                sum[s][p] = vfmaq_f32(sum[s][p], vcvtq_f32_s32(vld1q_s32(totals)), vmulq_f32(scale, group_scale));
            }
        }
    }
    TILE_SMMLA_UNROLL
    for (size_t i = 0; i < SUBSCALE_MICROS * TILE_SMMLA_PAIRS; i++)
        vst1q_f32(sums + 4 * i, sum[i / TILE_SMMLA_PAIRS][i % TILE_SMMLA_PAIRS]);
}

/* Three micro-panels of x, from number `first` of `micros` on, times whole groups of w, added to sums. x: for each
 * group the scales of the micro-panels, a vector each; then, for each 8 k, 16 bytes a micro-panel. w: for each group
 * the group scales of the pairs, a vector each; then as above. sums: for each micro-panel, four vectors. Reads up to
 * TILE_SMMLA_X_SLACK_BYTES after x. */
static inline void tile_smmla_subscales(size_t groups, const uint8_t *x, size_t micros, size_t first, const uint8_t *w,
                                        float *sums)
{
    const size_t x_step = 16 * micros, w_step = (1 + 8 + 32) * 16 * TILE_SMMLA_PAIRS;
    int32_t totals[SUBSCALE_GROUPS * SUBSCALE_MICROS * TILE_SMMLA_PAIRS * 4];

    x += 16 * first;
    sums += 4 * TILE_SMMLA_PAIRS * first;
    for (size_t count; groups > 0; groups -= count, x += count * 33 * x_step, w += count * w_step) {
        count = groups < SUBSCALE_GROUPS ? groups : SUBSCALE_GROUPS;
        tile_smmla_totals(count, x + x_step, x_step, w + 16 * TILE_SMMLA_PAIRS, totals);
        tile_smmla_floats(count, totals, x, 33 * x_step, w, w_step, sums);
    }
}

/* ---- floats in every block --------------------------------------------------------------------------------------- */

/* Three micro-panels of x. v0 to v11 are dots as with sub-scales, v12 to v23 sums of floats; v24 to v27 are the pairs
 * of w and v28 to v30 the chunks of x, then a pair's scales, products of scales, and the micro-panels' scales. Dots
 * start from ASH_F32_ROUND_MAGIC_BITS: an integer added to the bits of 1.5 * 2^23 is that float plus the integer, so a
 * subtraction of floats replaces a conversion, which would count twice. To start from there is a load: next to vector
 * instructions it is cheaper than the copy of a register. Operands are loaded before all their products, and additions
 * are grouped by kind; finer orders were no faster (docs/kernels/quantised-gemm.md). */
#define BLOCK_MICROS 3
/* clang-format off */
#define BLOCK_CHUNK(x, w)                                                                                              \
    SMMLA_W(24, w) SMMLA_W(25, w + 16) SMMLA_W(26, w + 32) SMMLA_W(27, w + 48)                                         \
    SMMLA_X(28, x) SMMLA_X(29, x + 16) SMMLA_X(30, x + 32)                                                             \
    SMMLA(0, 28, 24) SMMLA(4, 29, 24) SMMLA(8, 30, 24)                                                                 \
    SMMLA(1, 28, 25) SMMLA(5, 29, 25) SMMLA(9, 30, 25)                                                                 \
    SMMLA(2, 28, 26) SMMLA(6, 29, 26) SMMLA(10, 30, 26)                                                                \
    SMMLA(3, 28, 27) SMMLA(7, 29, 27) SMMLA(11, 30, 27)
/* clang-format on */
#define BLOCK_SCALES(product, micro) "fmul v" #product ".4s, v" #micro ".4s, v24.4s\n"
#define BLOCK_DOT(dot) "fsub v" #dot ".4s, v" #dot ".4s, v31.4s\n"
#define BLOCK_ADD(sum, dot, product) "fmla v" #sum ".4s, v" #dot ".4s, v" #product ".4s\n"
#define BLOCK_BACK(dot) "ldr q" #dot ", [%[start]]\n"
/* The floats of a pair of w. */
#define BLOCK_PAIR(reg, offset) "ldr q" #reg ", [%[scales], #" #offset "]\n"
/* clang-format off */
#define BLOCK_FLOATS(scales, dot0, dot1, dot2, sum0, sum1, sum2)                                                       \
    BLOCK_PAIR(24, scales)                                                                                             \
    BLOCK_SCALES(25, 28) BLOCK_SCALES(26, 29) BLOCK_SCALES(27, 30)                                                     \
    BLOCK_DOT(dot0) BLOCK_DOT(dot1) BLOCK_DOT(dot2)                                                                    \
    BLOCK_ADD(sum0, dot0, 25) BLOCK_ADD(sum1, dot1, 26) BLOCK_ADD(sum2, dot2, 27)                                      \
    BLOCK_BACK(dot0) BLOCK_BACK(dot1) BLOCK_BACK(dot2)
#define BLOCK                                                                                                          \
    BLOCK_FETCH(0) BLOCK_CHUNK(48, 0)                                                                                  \
    BLOCK_FETCH(64) BLOCK_CHUNK(96, 64)                                                                                \
    BLOCK_FETCH(128) BLOCK_CHUNK(144, 128)                                                                             \
    BLOCK_FETCH(192) BLOCK_CHUNK(192, 192)                                                                             \
    SMMLA_X(28, 0) SMMLA_X(29, 16) SMMLA_X(30, 32)                                                                     \
    BLOCK_FLOATS(0, 0, 4, 8, 12, 16, 20)                                                                               \
    BLOCK_FLOATS(16, 1, 5, 9, 13, 17, 21)                                                                              \
    BLOCK_FLOATS(32, 2, 6, 10, 14, 18, 22)                                                                             \
    BLOCK_FLOATS(48, 3, 7, 11, 15, 19, 23)
/* clang-format on */
/* For medium M, where w comes from memory. */
#define BLOCK_FETCH(w) "prfm pldl1keep, [%[w], #2176 + " #w "]\n"
#define BLOCK_LOAD(sum, offset) "ldr q" #sum ", [%[sums], #" #offset "]\n"
#define BLOCK_STORE(sum, offset) "str q" #sum ", [%[sums], #" #offset "]\n"
/* clang-format off */
#define BLOCK_SUMS(X)                                                                                                  \
    X(12, 0)   X(13, 16)  X(14, 32)  X(15, 48)                                                                         \
    X(16, 64)  X(17, 80)  X(18, 96)  X(19, 112)                                                                        \
    X(20, 128) X(21, 144) X(22, 160) X(23, 176)
#define BLOCK_BACKS                                                                                                    \
    BLOCK_BACK(0) BLOCK_BACK(1) BLOCK_BACK(2)  BLOCK_BACK(3)                                                           \
    BLOCK_BACK(4) BLOCK_BACK(5) BLOCK_BACK(6)  BLOCK_BACK(7)                                                           \
    BLOCK_BACK(8) BLOCK_BACK(9) BLOCK_BACK(10) BLOCK_BACK(11)                                                          \
    BLOCK_BACK(31)
/* clang-format on */

/* Blocks, one or more. x: for each block the scales of the micro-panels, a vector each, then for each 8 k 16 bytes a
 * micro-panel. w: for each block, w_step apart, for each 8 k 16 bytes a pair; scales: for each block those of the
 * pairs, a vector each. sums: for each micro-panel, four vectors. Reads nothing after x and w. */
static inline void tile_smmla_blocks(size_t blocks, const uint8_t *x, const uint8_t *w, size_t w_step,
                                     const uint8_t *scales, float *sums)
{
    static const uint32_t start[4] __attribute__((aligned(16))) = {ASH_F32_ROUND_MAGIC_BITS, ASH_F32_ROUND_MAGIC_BITS,
                                                                   ASH_F32_ROUND_MAGIC_BITS, ASH_F32_ROUND_MAGIC_BITS};

    /* clang-format off */
    __asm__ volatile(
        BLOCK_SUMS(BLOCK_LOAD)
        BLOCK_BACKS
        ".p2align 6\n"
        "1:\n"
        BLOCK
        "add %[x], %[x], #240\n"
        "add %[w], %[w], %[w_step]\n"
        "add %[scales], %[scales], #64\n"
        "subs %[blocks], %[blocks], #1\n"
        "b.ne 1b\n"
        BLOCK_SUMS(BLOCK_STORE)
        : [x] "+&r"(x), [w] "+&r"(w), [scales] "+&r"(scales), [blocks] "+&r"(blocks)
        : [sums] "r"(sums), [start] "r"(start), [w_step] "r"(w_step)
        : TILE_CLOBBERS);
    /* clang-format on */
}

/* ---- without sub-scales ------------------------------------------------------------------------------------------ */

#define WIDE_MICROS 6
#define WIDE_SMMLA(sum, w, x) SMMLA(sum, x, w)
#define WIDE_CHUNK(w, x) TILE_MMLA_GROUP(WIDE_SMMLA, "prfm pldl1keep, [%[b], #1536 + " #x "]\n", w, x)

/* Floats of three micro-panels and a pair of w, whose group scales are in v0: totals, sums, scales. Resets totals. */
#define WIDE_LOAD(scale_reg, sum_reg, scale, sum)                                                                      \
    "ldr q" #scale_reg ", [%[scales], #" #scale "]\n"                                                                  \
    "ldr q" #sum_reg ", [%[sums], #" #sum "]\n"
#define WIDE_SCALE(scale_reg, total)                                                                                   \
    "fmul v" #scale_reg ".4s, v" #scale_reg ".4s, v0.4s\n"                                                             \
    "scvtf v" #total ".4s, v" #total ".4s\n"
#define WIDE_ADD(scale_reg, sum_reg, total, sum)                                                                       \
    "fmla v" #sum_reg ".4s, v" #total ".4s, v" #scale_reg ".4s\n"                                                      \
    "movi v" #total ".2d, #0\n"                                                                                        \
    "str q" #sum_reg ", [%[sums], #" #sum "]\n"
/* clang-format off */
#define WIDE_THREE(scale, sum, t0, t1, t2)                                                                             \
    WIDE_LOAD(1, 2, scale, sum) WIDE_LOAD(3, 4, scale + 16, sum + 64) WIDE_LOAD(5, 6, scale + 32, sum + 128)           \
    WIDE_SCALE(1, t0) WIDE_SCALE(3, t1) WIDE_SCALE(5, t2)                                                              \
    WIDE_ADD(1, 2, t0, sum) WIDE_ADD(3, 4, t1, sum + 64) WIDE_ADD(5, 6, t2, sum + 128)
#define WIDE_FLOATS(sum, t0, t1, t2, t3, t4, t5)                                                                       \
    "ld1r {v0.2d}, [%[group_scales]], #8\n"                                                                            \
    WIDE_THREE(0, sum, t0, t1, t2)                                                                                     \
    WIDE_THREE(48, sum + 192, t3, t4, t5)
/* clang-format on */

/* Six micro-panels of x, groups of `turns` times 64 k (the same in all of them), added to sums. x: for each group the
 * scales of the micro-panels, a vector each, then for each 8 k 16 bytes a micro-panel. panel: for each group the group
 * scales of its rows, then for each 8 k 16 bytes a pair. sums: for each micro-panel, four vectors. Reads 96 bytes after
 * x and 32 after the panel, and does not use them. */
static inline void tile_smmla_wide(size_t groups, size_t turns, const uint8_t *x, const uint8_t *panel, float *sums)
{
    const uint8_t *a, *b;
    size_t left;

    /* clang-format off */
    __asm__ volatile(
        TILE_SUMS(TILE_ZERO)
        "2:\n"
        "add %[a], %[group_scales], #32\n"
        "add %[b], %[scales], #96\n"
        "mov %[left], %[turns]\n"
        TILE_MMLA_FIRST
        ".p2align 6\n"
        "1:\n"
        WIDE_CHUNK(0, 0)
        WIDE_CHUNK(64, 96)
        WIDE_CHUNK(128, 192)
        WIDE_CHUNK(192, 288)
        WIDE_CHUNK(256, 384)
        WIDE_CHUNK(320, 480)
        WIDE_CHUNK(384, 576)
        WIDE_CHUNK(448, 672)
        "add %[a], %[a], #512\n"
        "add %[b], %[b], #768\n"
        "subs %[left], %[left], #1\n"
        "b.ne 1b\n"
        WIDE_FLOATS(0, 8, 9, 10, 11, 12, 13)
        WIDE_FLOATS(16, 14, 15, 16, 17, 18, 19)
        WIDE_FLOATS(32, 20, 21, 22, 23, 24, 25)
        WIDE_FLOATS(48, 26, 27, 28, 29, 30, 31)
        "mov %[group_scales], %[a]\n"
        "mov %[scales], %[b]\n"
        "subs %[groups], %[groups], #1\n"
        "b.ne 2b\n"
        : [a] "=&r"(a), [b] "=&r"(b), [left] "=&r"(left), [group_scales] "+&r"(panel), [scales] "+&r"(x),
          [groups] "+&r"(groups)
        : [turns] "r"(turns), [sums] "r"(sums)
        : TILE_CLOBBERS);
    /* clang-format on */
}

#endif
