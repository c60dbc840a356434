/* tile_smmla - tiles of exact sums of products of bytes (SMMLA, 2 x 8 times 8 x 2), in assembly for the order of their
 * loads (see tile_neon.h). "Steps" are those of quant.h: the scale of a block in whole numbers. Each register holds a 2
 * x 2 block: (row 0 of x) x (w0, w1), (row 1 of x) x (w0, w1). Panels are those of quant_pack.h, pairs: w is four of
 * them. */
#ifndef ASH_COMPUTE_TILE_SMMLA_H
#define ASH_COMPUTE_TILE_SMMLA_H

#include <arm_neon.h>
#include "compute/cpu/tile_neon.h"

#define TILE_SMMLA_PAIRS 4 /* of w */

#define SMMLA(sum, x, w) "smmla v" #sum ".4s, v" #x ".16b, v" #w ".16b\n"

/* ---- with steps -------------------------------------------------------------------------------------------------- */

/* Three pairs of rows of x. v0 to v11 are dots, v(4 s + p) of strip s and pair p of w, v12 to v23 totals. Dots are not
 * set back between the blocks of a group: at the end of block b they hold the sum up to there, which is taken times the
 * difference between the steps of this block and of the next; that adds up to every block's own dots times its own
 * steps (the numbers may wrap on the way), and saves an instruction a dot. v24 to v26 are chunks of x, v27 and v28
 * pairs of w, v29 and v30 differences; each is loaded again as soon as it is free. A group's totals become floats
 * beside the first block of the next group. */
#define STEPS_STRIPS 3
#define STEPS_X(reg, offset) "ldr q" #reg ", [%[x], #" #offset "]\n"
#define STEPS_W(reg, offset) "ldr q" #reg ", [%[w], #" #offset "]\n"
#define STEPS_LOAD(reg, offset) "ldr q" #reg ", [%[steps], #" #offset "]\n"
#define STEPS_ADD(total, dot, steps) "mla v" #total ".4s, v" #dot ".4s, v" #steps ".4s\n"
#define STEPS_SET(total, dot, steps) "mul v" #total ".4s, v" #dot ".4s, v" #steps ".4s\n"
#define STEPS_ZERO(dot) "movi v" #dot ".2d, #0\n"
/* Eight k, whose x is loaded and the first pair of w; loads those of the next. Three places for something else. */
#define STEPS_CHUNK(x, w, first, second, third)                                                                        \
    SMMLA(0, 24, 27)                                                                                                   \
    STEPS_W(28, w + 16)                                                                                                \
    SMMLA(4, 25, 27)                                                                                                   \
    SMMLA(8, 26, 27)                                                                                                   \
    first SMMLA(1, 24, 28) STEPS_W(27, w + 32) SMMLA(5, 25, 28) SMMLA(9, 26, 28) second SMMLA(2, 24, 27)               \
        STEPS_W(28, w + 48) SMMLA(6, 25, 27) SMMLA(10, 26, 27) third SMMLA(3, 24, 28) STEPS_X(24, x + 48)              \
            STEPS_W(27, w + 64) SMMLA(7, 25, 28) STEPS_X(25, x + 64) SMMLA(11, 26, 28) STEPS_X(26, x + 80)
/* What a block begins with, in three parts. */
#define STEPS_NEXT(x, w) STEPS_X(24, x) STEPS_W(27, w)
#define STEPS_NEXT_2(x) STEPS_X(25, x + 16)
#define STEPS_NEXT_3(x) STEPS_X(26, x + 32)
#define STEPS_NONE(x, w)
#define STEPS_NONE_2(x)
#define STEPS_NONE_3(x)
/* The last eight k of a block, and its totals. */
#define STEPS_LAST(TOTAL, x, w, steps, next)                                                                           \
    SMMLA(0, 24, 27)                                                                                                   \
    STEPS_W(28, w + 16)                                                                                                \
    SMMLA(4, 25, 27)                                                                                                   \
    STEPS_LOAD(29, steps)                                                                                              \
    SMMLA(8, 26, 27)                                                                                                   \
    SMMLA(1, 24, 28)                                                                                                   \
    TOTAL(12, 0, 29)                                                                                                   \
    TOTAL(16, 4, 29)                                                                                                   \
    SMMLA(5, 25, 28)                                                                                                   \
    STEPS_LOAD(30, steps + 16)                                                                                         \
    SMMLA(9, 26, 28)                                                                                                   \
    STEPS_W(27, w + 32)                                                                                                \
    TOTAL(20, 8, 29)                                                                                                   \
    TOTAL(13, 1, 30)                                                                                                   \
    SMMLA(2, 24, 27)                                                                                                   \
    SMMLA(6, 25, 27)                                                                                                   \
    TOTAL(17, 5, 30)                                                                                                   \
    STEPS_W(28, w + 48)                                                                                                \
    TOTAL(21, 9, 30)                                                                                                   \
    STEPS_LOAD(29, steps + 32)                                                                                         \
    SMMLA(10, 26, 27)                                                                                                  \
    SMMLA(3, 24, 28)                                                                                                   \
    TOTAL(14, 2, 29)                                                                                                   \
    TOTAL(18, 6, 29)                                                                                                   \
    SMMLA(7, 25, 28)                                                                                                   \
    STEPS_LOAD(30, steps + 48)                                                                                         \
    SMMLA(11, 26, 28)                                                                                                  \
    TOTAL(22, 10, 29)                                                                                                  \
    TOTAL(15, 3, 30)                                                                                                   \
    next(x + 48, w + 64) TOTAL(19, 7, 30) next##_2(x + 48) TOTAL(23, 11, 30) next##_3(x + 48)
#define STEPS_BLOCK(x, w, steps, next)                                                                                 \
    STEPS_CHUNK(x, w, , , )                                                                                            \
    STEPS_CHUNK(x + 48, w + 64, , , )                                                                                  \
    STEPS_CHUNK(x + 96, w + 128, , , ) STEPS_LAST(STEPS_ADD, x + 144, w + 192, steps, next)
/* The first block of a group, which sets the dots back and the totals anew. */
#define STEPS_BEGIN                                                                                                    \
    STEPS_ZERO(0)                                                                                                      \
    STEPS_ZERO(1)                                                                                                      \
    STEPS_ZERO(2)                                                                                                      \
    STEPS_ZERO(3)                                                                                                      \
    STEPS_ZERO(4)                                                                                                      \
    STEPS_ZERO(5)                                                                                                      \
    STEPS_ZERO(6)                                                                                                      \
    STEPS_ZERO(7)                                                                                                      \
    STEPS_ZERO(8)                                                                                                      \
    STEPS_ZERO(9) STEPS_ZERO(10) STEPS_ZERO(11) STEPS_NEXT(0, 0) STEPS_NEXT_2(0) STEPS_NEXT_3(0)
/* Floats of strip s and pair p, of the group before: its scale of x, its unit, its total, its sum. */
#define STEPS_FLOAT(s, p, total, sum)                                                                                  \
    "ldr q29, [%[scales], #" #s "]\n"                                                                                  \
    "ldr q30, [%[units], #" #p "]\n"                                                                                   \
    "fmul v29.4s, v29.4s, v30.4s\n"                                                                                    \
    "ldr q31, [%[sums], #" #sum "]\n"                                                                                  \
    "scvtf v" #total ".4s, v" #total ".4s\n"                                                                           \
    "fmla v31.4s, v" #total ".4s, v29.4s\n"                                                                            \
    "str q31, [%[sums], #" #sum "]\n"
#define STEPS_FLOATS_0 STEPS_FLOAT(0, 0, 12, 0)
#define STEPS_FLOATS_1 STEPS_FLOAT(16, 0, 16, 64)
#define STEPS_FLOATS_2 STEPS_FLOAT(32, 0, 20, 128)
#define STEPS_FLOATS_3 STEPS_FLOAT(0, 16, 13, 16)
#define STEPS_FLOATS_4 STEPS_FLOAT(16, 16, 17, 80)
#define STEPS_FLOATS_5 STEPS_FLOAT(32, 16, 21, 144)
#define STEPS_FLOATS_6 STEPS_FLOAT(0, 32, 14, 32) STEPS_FLOAT(16, 32, 18, 96)
#define STEPS_FLOATS_7 STEPS_FLOAT(32, 32, 22, 160) STEPS_FLOAT(0, 48, 15, 48)
#define STEPS_FLOATS_8 STEPS_FLOAT(16, 48, 19, 112) STEPS_FLOAT(32, 48, 23, 176)

/* Whole groups, one or more, which lie x_step and so on apart. x: the scales of the strips, a vector each; then, for
 * each 8 k, 16 bytes a strip. w: for each 8 k, 16 bytes a pair. head: the units of the pairs; then, for each block,
 * four vectors of differences. sums: for each strip, four vectors. */
static inline void tile_smmla_steps(size_t groups, const uint8_t *x, size_t x_step, const int8_t *w, size_t w_step,
                                    const uint8_t *head, size_t head_step, float *sums)
{
    const uint8_t *scales = x, *units = head, *chunks = x + 16 * STEPS_STRIPS, *steps = head + 16 * TILE_SMMLA_PAIRS;

    __asm__ volatile(STEPS_BEGIN STEPS_CHUNK(0, 0, , , ) STEPS_CHUNK(48, 64, , , ) STEPS_CHUNK(96, 128, , , ) /* */
                     "b 2f\n"
                     ".p2align 6\n"
                     "1:\n" STEPS_BEGIN STEPS_CHUNK(0, 0, STEPS_FLOATS_0, STEPS_FLOATS_1, STEPS_FLOATS_2)
                         STEPS_CHUNK(48, 64, STEPS_FLOATS_3, STEPS_FLOATS_4, STEPS_FLOATS_5)
                             STEPS_CHUNK(96, 128, STEPS_FLOATS_6, STEPS_FLOATS_7, STEPS_FLOATS_8) /* */
                     "add %[scales], %[scales], %[x_step]\n"
                     "add %[units], %[units], %[head_step]\n"
                     "2:\n" STEPS_LAST(STEPS_SET, 144, 192, 0, STEPS_NEXT) /* */
                     STEPS_BLOCK(192, 256, 64, STEPS_NEXT)                 /* */
                     STEPS_BLOCK(384, 512, 128, STEPS_NEXT)                /* */
                     STEPS_BLOCK(576, 768, 192, STEPS_NEXT)                /* */
                     STEPS_BLOCK(768, 1024, 256, STEPS_NEXT)               /* */
                     STEPS_BLOCK(960, 1280, 320, STEPS_NEXT)               /* */
                     STEPS_BLOCK(1152, 1536, 384, STEPS_NEXT)              /* */
                     STEPS_BLOCK(1344, 1792, 448, STEPS_NONE)              /* */
                     "add %[x], %[x], %[x_step]\n"
                     "add %[w], %[w], %[w_step]\n"
                     "add %[steps], %[steps], %[head_step]\n"
                     "subs %[groups], %[groups], #1\n"
                     "b.ne 1b\n" /* */
                     STEPS_FLOATS_0 STEPS_FLOATS_1 STEPS_FLOATS_2 STEPS_FLOATS_3 STEPS_FLOATS_4 STEPS_FLOATS_5
                         STEPS_FLOATS_6 STEPS_FLOATS_7 STEPS_FLOATS_8
                     : [x] "+r"(chunks), [w] "+r"(w), [steps] "+r"(steps), [scales] "+r"(scales), [units] "+r"(units),
                       [groups] "+r"(groups)
                     : [sums] "r"(sums), [x_step] "r"(x_step), [w_step] "r"(w_step), [head_step] "r"(head_step)
                     : "cc", "memory", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12",
                       "v13", "v14", "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26",
                       "v27", "v28", "v29", "v30", "v31");
}

/* ---- without steps ----------------------------------------------------------------------------------------------- */

#define WIDE_STRIPS 6
#define WIDE_SMMLA(sum, w, x) SMMLA(sum, x, w)
#define WIDE_CHUNK(w, x) TILE_MMLA_GROUP(WIDE_SMMLA, "prfm pldl1keep, [%[b], #1536 + " #x "]\n", w, x)

/* Floats of strip j and pair i of w, in v(8 + 6 i + j): its scale of x times the unit, in v0, its sum. */
#define WIDE_FLOAT(total, scale, sum)                                                                                  \
    "ldr q1, [%[scales], #" #scale "]\n"                                                                               \
    "ldr q2, [%[sums], #" #sum "]\n"                                                                                   \
    "fmul v1.4s, v1.4s, v0.4s\n"                                                                                       \
    "scvtf v" #total ".4s, v" #total ".4s\n"                                                                           \
    "fmla v2.4s, v" #total ".4s, v1.4s\n"                                                                              \
    "str q2, [%[sums], #" #sum "]\n"
#define WIDE_FLOATS(unit, s0, s1, s2, s3, s4, s5)                                                                      \
    "ldr q0, [%[units], #" #unit "]\n" WIDE_FLOAT(s0, 0, unit) WIDE_FLOAT(s1, 16, unit + 64)                           \
        WIDE_FLOAT(s2, 32, unit + 128) WIDE_FLOAT(s3, 48, unit + 192) WIDE_FLOAT(s4, 64, unit + 256)                   \
            WIDE_FLOAT(s5, 80, unit + 320)

/* Six pairs of rows of x, one group of so many turns of 64 k, added to sums. x: the scales of the strips, then for each
 * 8 k 16 bytes a strip; w: for each 8 k, 16 bytes a pair; units: a vector a pair; sums: for each strip, four vectors.
 * Up to 96 bytes behind x and w are read, and not used. */
static inline void tile_smmla_wide(size_t turns, const uint8_t *x, const int8_t *w, const float32x4_t *units,
                                   float *sums)
{
    const uint8_t *chunks = x + 16 * WIDE_STRIPS;

    __asm__ volatile(TILE_SUMS(TILE_ZERO) TILE_MMLA_FIRST /* */
                     ".p2align 6\n"
                     "1:\n" WIDE_CHUNK(0, 0) WIDE_CHUNK(64, 96) WIDE_CHUNK(128, 192) WIDE_CHUNK(192, 288)
                         WIDE_CHUNK(256, 384) WIDE_CHUNK(320, 480) WIDE_CHUNK(384, 576) WIDE_CHUNK(448, 672) /* */
                     "add %[a], %[a], #512\n"
                     "add %[b], %[b], #768\n"
                     "subs %[turns], %[turns], #1\n"
                     "b.ne 1b\n" /* */
                     WIDE_FLOATS(0, 8, 9, 10, 11, 12, 13) WIDE_FLOATS(16, 14, 15, 16, 17, 18, 19)
                         WIDE_FLOATS(32, 20, 21, 22, 23, 24, 25) WIDE_FLOATS(48, 26, 27, 28, 29, 30, 31)
                     : [a] "+r"(w), [b] "+r"(chunks), [turns] "+r"(turns)
                     : [scales] "r"(x), [units] "r"(units), [sums] "r"(sums)
                     : TILE_CLOBBERS);
}

#endif
