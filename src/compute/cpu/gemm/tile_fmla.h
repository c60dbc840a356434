/* tile_fmla - 8 x 12 sums of products of float32 in registers, each one chain of fused multiply-adds; v8 + 3 i + j has
 * row i and columns 4 j to 4 j + 3. A k is eight elements of the left operand, in v0 and v1, and twelve of the right
 * one, in v2 to v4 and v5 to v7 alternating. */
#ifndef ASH_COMPUTE_TILE_FMLA_H
#define ASH_COMPUTE_TILE_FMLA_H

#include "compute/cpu/vec/tile_neon.h"

#define FMLA(sum, b, a, lane) "fmla v" #sum ".4s, v" #b ".4s, v" #a ".s[" #lane "]\n"
#define FMLA_ROW(b0, b1, b2, a, lane, s0, s1, s2) FMLA(s0, b0, a, lane) FMLA(s1, b1, a, lane) FMLA(s2, b2, a, lane)
/* One k, of which all but v1 is loaded; loads as much of the next, columns into n0 to n2. */
#define FMLA_STEP(b0, b1, b2, n0, n1, n2, a, b)                                                                        \
    FMLA_ROW(b0, b1, b2, 0, 0, 8, 9, 10)                                                                               \
    FMLA(11, b0, 0, 1)                                                                                                 \
    TILE_A(1, a + 16)                                                                                                  \
    FMLA(12, b1, 0, 1)                                                                                                 \
    FMLA(13, b2, 0, 1)                                                                                                 \
    FMLA_ROW(b0, b1, b2, 0, 2, 14, 15, 16)                                                                             \
    FMLA_ROW(b0, b1, b2, 0, 3, 17, 18, 19)                                                                             \
    FMLA_ROW(b0, b1, b2, 1, 0, 20, 21, 22)                                                                             \
    FMLA(23, b0, 1, 1)                                                                                                 \
    TILE_A(0, a + 32)                                                                                                  \
    TILE_B(n0, b + 48)                                                                                                 \
    FMLA(24, b1, 1, 1)                                                                                                 \
    TILE_B(n1, b + 64)                                                                                                 \
    FMLA(25, b2, 1, 1)                                                                                                 \
    TILE_B(n2, b + 80)                                                                                                 \
    FMLA_ROW(b0, b1, b2, 1, 2, 26, 27, 28)                                                                             \
    FMLA_ROW(b0, b1, b2, 1, 3, 29, 30, 31)

/* A row of c, at x9, into three sums; and back. */
#define FMLA_TAKE(s0, s1, s2)                                                                                          \
    "ldp q" #s0 ", q" #s1 ", [x9]\n"                                                                                   \
    "ldr q" #s2 ", [x9, #32]\n"                                                                                        \
    "add x9, x9, %[stride]\n"
#define FMLA_GIVE(s0, s1, s2)                                                                                          \
    "stp q" #s0 ", q" #s1 ", [x9]\n"                                                                                   \
    "str q" #s2 ", [x9, #32]\n"                                                                                        \
    "add x9, x9, %[stride]\n"
#define FMLA_ROWS(X)                                                                                                   \
    X(8, 9, 10) X(11, 12, 13) X(14, 15, 16) X(17, 18, 19) X(20, 21, 22) X(23, 24, 25) X(26, 27, 28) X(29, 30, 31)

#define TILE_FMLA_SLACK_BYTES 48
#define TILE_FMLA_LONG 4 /* k of a turn of the long loop; even */

/* c[8, 12] = a b, or += where add. a is [k_count, 8] and b is [k_count, 12]; up to TILE_FMLA_SLACK_BYTES after them are
 * read, and not used. */
static void tile_fmla(size_t k_count, const void *a, const void *b, bool add, float *c, size_t c_stride)
{
    size_t turns = k_count / TILE_FMLA_LONG, rest = k_count % TILE_FMLA_LONG, stride = c_stride * sizeof(*c);

    __asm__ volatile("mov x9, %[c]\n"
                     "cbnz %w[add], 1f\n" TILE_SUMS(TILE_ZERO) /* */
                     "b 2f\n"
                     "1:\n" FMLA_ROWS(FMLA_TAKE)                                  /* */
                     "2:\n" TILE_A(0, 0) TILE_B(2, 0) TILE_B(3, 16) TILE_B(4, 32) /* */
                     "cbz %[turns], 4f\n"
                     ".p2align 6\n"
                     "3:\n" FMLA_STEP(2, 3, 4, 5, 6, 7, 0, 0) FMLA_STEP(5, 6, 7, 2, 3, 4, 32, 48)
                         FMLA_STEP(2, 3, 4, 5, 6, 7, 64, 96) FMLA_STEP(5, 6, 7, 2, 3, 4, 96, 144) /* */
                     "add %[a], %[a], #128\n"
                     "add %[b], %[b], #192\n"
                     "subs %[turns], %[turns], #1\n"
                     "b.ne 3b\n"
                     "4:\n"
                     "cbz %[rest], 6f\n"
                     "5:\n" FMLA_STEP(2, 3, 4, 5, 6, 7, 0, 0) /* */
                     "mov v2.16b, v5.16b\n"
                     "mov v3.16b, v6.16b\n"
                     "mov v4.16b, v7.16b\n"
                     "add %[a], %[a], #32\n"
                     "add %[b], %[b], #48\n"
                     "subs %[rest], %[rest], #1\n"
                     "b.ne 5b\n"
                     "6:\n"
                     "mov x9, %[c]\n" FMLA_ROWS(FMLA_GIVE)
                     : [a] "+&r"(a), [b] "+&r"(b), [turns] "+&r"(turns), [rest] "+&r"(rest)
                     : [c] "r"(c), [stride] "r"(stride), [add] "r"((int)add)
                     : TILE_CLOBBERS);
}

#endif
