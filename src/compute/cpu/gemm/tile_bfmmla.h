/* tile_bfmmla - 8 x 12 sums of products of bf16 in registers, by groups of four k (TILE_MMLA_GROUP). The columns' panel
 * is expected in L1; the rows' comes from L2 and is fetched ahead. */
#ifndef ASH_COMPUTE_TILE_BFMMLA_H
#define ASH_COMPUTE_TILE_BFMMLA_H

#include "compute/cpu/vec/tile_neon.h"

#define BFMMLA(sum, a, b) "bfmmla v" #sum ".4s, v" #a ".8h, v" #b ".8h\n"
#define BFMMLA_GROUP(a, b) TILE_MMLA_GROUP(BFMMLA, "prfm pldl1keep, [%[a], #1024 + " #a "]\n", a, b)

/* Two rows of c, at x9, into six sums; and back. */
#define BFMMLA_TAKE(s0, s1, s2, s3, s4, s5)                                                                            \
    "ldp q0, q1, [x9]\n"                                                                                               \
    "ldr q2, [x9, #32]\n"                                                                                              \
    "add x9, x9, %[stride]\n"                                                                                          \
    "ldp q3, q4, [x9]\n"                                                                                               \
    "ldr q5, [x9, #32]\n"                                                                                              \
    "add x9, x9, %[stride]\n"                                                                                          \
    "zip1 v" #s0 ".2d, v0.2d, v3.2d\n"                                                                                 \
    "zip2 v" #s1 ".2d, v0.2d, v3.2d\n"                                                                                 \
    "zip1 v" #s2 ".2d, v1.2d, v4.2d\n"                                                                                 \
    "zip2 v" #s3 ".2d, v1.2d, v4.2d\n"                                                                                 \
    "zip1 v" #s4 ".2d, v2.2d, v5.2d\n"                                                                                 \
    "zip2 v" #s5 ".2d, v2.2d, v5.2d\n"
#define BFMMLA_GIVE(s0, s1, s2, s3, s4, s5)                                                                            \
    "zip1 v0.2d, v" #s0 ".2d, v" #s1 ".2d\n"                                                                           \
    "zip1 v1.2d, v" #s2 ".2d, v" #s3 ".2d\n"                                                                           \
    "zip1 v2.2d, v" #s4 ".2d, v" #s5 ".2d\n"                                                                           \
    "zip2 v3.2d, v" #s0 ".2d, v" #s1 ".2d\n"                                                                           \
    "zip2 v4.2d, v" #s2 ".2d, v" #s3 ".2d\n"                                                                           \
    "zip2 v5.2d, v" #s4 ".2d, v" #s5 ".2d\n"                                                                           \
    "stp q0, q1, [x9]\n"                                                                                               \
    "str q2, [x9, #32]\n"                                                                                              \
    "add x9, x9, %[stride]\n"                                                                                          \
    "stp q3, q4, [x9]\n"                                                                                               \
    "str q5, [x9, #32]\n"                                                                                              \
    "add x9, x9, %[stride]\n"
#define BFMMLA_ROWS(X)                                                                                                 \
    X(8, 9, 10, 11, 12, 13) X(14, 15, 16, 17, 18, 19) X(20, 21, 22, 23, 24, 25) X(26, 27, 28, 29, 30, 31)

#define TILE_BFMMLA_ROWS 8
#define TILE_BFMMLA_COLS 12
#define TILE_BFMMLA_SLACK_BYTES 96
#define TILE_BFMMLA_LONG 8 /* groups of a turn of the long loop */

/* c[8, 12] = a b, or += where add. a and b are packed panels (bfmmla_pack.h) of groups times four k; up to
 * TILE_BFMMLA_SLACK_BYTES after them are read, and not used. */
static void tile_bfmmla(size_t groups, const void *a, const void *b, bool add, float *c, size_t c_stride)
{
    size_t turns = groups / TILE_BFMMLA_LONG, rest = groups % TILE_BFMMLA_LONG, stride = c_stride * sizeof(*c);

    __asm__ volatile("mov x9, %[c]\n"
                     "cbnz %w[add], 1f\n" TILE_SUMS(TILE_ZERO) /* */
                     "b 2f\n"
                     "1:\n" BFMMLA_ROWS(BFMMLA_TAKE) /* */
                     "2:\n" TILE_MMLA_FIRST          /* */
                     "cbz %[turns], 4f\n"
                     ".p2align 6\n"
                     "3:\n" BFMMLA_GROUP(0, 0) BFMMLA_GROUP(64, 96) BFMMLA_GROUP(128, 192) BFMMLA_GROUP(192, 288)
                         BFMMLA_GROUP(256, 384) BFMMLA_GROUP(320, 480) BFMMLA_GROUP(384, 576)
                             BFMMLA_GROUP(448, 672) /* */
                     "add %[a], %[a], #512\n"
                     "add %[b], %[b], #768\n"
                     "subs %[turns], %[turns], #1\n"
                     "b.ne 3b\n"
                     "4:\n"
                     "cbz %[rest], 6f\n"
                     "5:\n" BFMMLA_GROUP(0, 0) /* */
                     "add %[a], %[a], #64\n"
                     "add %[b], %[b], #96\n"
                     "subs %[rest], %[rest], #1\n"
                     "b.ne 5b\n"
                     "6:\n"
                     "mov x9, %[c]\n" BFMMLA_ROWS(BFMMLA_GIVE)
                     : [a] "+&r"(a), [b] "+&r"(b), [turns] "+&r"(turns), [rest] "+&r"(rest)
                     : [c] "r"(c), [stride] "r"(stride), [add] "r"((int)add)
                     : TILE_CLOBBERS);
}

#endif
