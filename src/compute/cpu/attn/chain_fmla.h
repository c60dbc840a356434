/* chain_fmla - 4 x 16 sums of products of float32 in registers, each one chain of fused multiply-adds: the register
 * tile of attention (chain_body.h). v16 + 4 r + j has row r and columns 4 j to 4 j + 3. Four k are a vector of each row
 * of the left operand, in v0 to v3 and v4 to v7 alternating, and four rows of the right one, in v8 to v11 and v12 to
 * v15 alternating. What a k needs is loaded while the previous one is used, where a search over orders found it best
 * (docs/kernels/attention.md). */
#ifndef ASH_COMPUTE_CHAIN_FMLA_H
#define ASH_COMPUTE_CHAIN_FMLA_H

#include <stdbool.h>
#include <stddef.h>

#define CHAIN_FMLA(sum, b, a, lane) "fmla v" #sum ".4s, v" #b ".4s, v" #a ".s[" #lane "]\n"
#define CHAIN_COLUMN(b, a0, a1, a2, a3, lane, s0, s1, s2, s3)                                                          \
    CHAIN_FMLA(s0, b, a0, lane) CHAIN_FMLA(s1, b, a1, lane) CHAIN_FMLA(s2, b, a2, lane) CHAIN_FMLA(s3, b, a3, lane)
#define CHAIN_B(b0, b1) "ldp q" #b0 ", q" #b1 ", [%[b]]\n"
#define CHAIN_B_REST(b2, b3)                                                                                           \
    "ldp q" #b2 ", q" #b3 ", [%[b], #32]\n"                                                                            \
    "add %[b], %[b], %[b_step]\n"
#define CHAIN_A(a0, a1, a2, a3)                                                                                        \
    "ldr q" #a0 ", [%[r0]], #16\n"                                                                                     \
    "ldr q" #a1 ", [%[r1]], #16\n"                                                                                     \
    "ldr q" #a2 ", [%[r2]], #16\n"                                                                                     \
    "ldr q" #a3 ", [%[r3]], #16\n"
/* One k. `next_a` is the next left operand, where it is time for that; n0 to n3 get the next right one. */
#define CHAIN_STEP(b0, b1, b2, b3, a0, a1, a2, a3, lane, next_a, n0, n1, n2, n3)                                       \
    CHAIN_COLUMN(b0, a0, a1, a2, a3, lane, 16, 20, 24, 28)                                                             \
    CHAIN_FMLA(17, b1, a0, lane)                                                                                       \
    next_a CHAIN_FMLA(21, b1, a1, lane) CHAIN_FMLA(25, b1, a2, lane) CHAIN_FMLA(29, b1, a3, lane)                      \
        CHAIN_COLUMN(b2, a0, a1, a2, a3, lane, 18, 22, 26, 30) CHAIN_FMLA(19, b3, a0, lane)                            \
            CHAIN_FMLA(23, b3, a1, lane) CHAIN_B(n0, n1) CHAIN_FMLA(27, b3, a2, lane) CHAIN_B_REST(n2, n3)             \
                CHAIN_FMLA(31, b3, a3, lane)
#define CHAIN_EVEN(a0, a1, a2, a3, lane, next_a) CHAIN_STEP(8, 9, 10, 11, a0, a1, a2, a3, lane, next_a, 12, 13, 14, 15)
#define CHAIN_ODD(a0, a1, a2, a3, lane) CHAIN_STEP(12, 13, 14, 15, a0, a1, a2, a3, lane, , 8, 9, 10, 11)

/* A row of c, at x9, into its sums (ld), or back (st). */
#define CHAIN_ROW(op, s0, s1, s2, s3)                                                                                  \
    op "p q" #s0 ", q" #s1 ", [x9]\n" op "p q" #s2 ", q" #s3 ", [x9, #32]\n"                                           \
       "add x9, x9, %[c_step]\n"
#define CHAIN_C(op)                                                                                                    \
    "mov x9, %[c]\n" CHAIN_ROW(op, 16, 17, 18, 19) CHAIN_ROW(op, 20, 21, 22, 23) CHAIN_ROW(op, 24, 25, 26, 27)         \
        CHAIN_ROW(op, 28, 29, 30, 31)
#define CHAIN_ZERO(sum) "movi v" #sum ".2d, #0\n"
/* clang-format off */
#define CHAIN_ZEROS                                                                                                    \
    CHAIN_ZERO(16) CHAIN_ZERO(17) CHAIN_ZERO(18) CHAIN_ZERO(19) CHAIN_ZERO(20) CHAIN_ZERO(21)                          \
    CHAIN_ZERO(22) CHAIN_ZERO(23) CHAIN_ZERO(24) CHAIN_ZERO(25) CHAIN_ZERO(26) CHAIN_ZERO(27)                          \
    CHAIN_ZERO(28) CHAIN_ZERO(29) CHAIN_ZERO(30) CHAIN_ZERO(31)
/* clang-format on */

#define CHAIN_LONG 8 /* k of a turn of the long loop */

/* c[4, 16] = a b, or += where add: row r of a starts at a + r * a_stride, row k of b at b + k * b_stride. 16 bytes
 * after each row of a (CHAIN_SLACK_FLOATS) and one row after b are read, and not used. */
static void chain_fmla(float *c, size_t c_stride, const float *a, size_t a_stride, const float *b, size_t b_stride,
                       size_t count, bool add)
{
    const float *r0 = a, *r1 = r0 + a_stride, *r2 = r1 + a_stride, *r3 = r2 + a_stride;
    size_t turns = count / CHAIN_LONG, rest = count % CHAIN_LONG;

    __asm__ volatile(
        "cbnz %w[add], 1f\n" CHAIN_ZEROS /* */
        "b 2f\n"
        "1:\n" CHAIN_C("ld") /* */
        "2:\n"
        "cbz %[turns], 4f\n" CHAIN_A(0, 1, 2, 3) CHAIN_B(8, 9) CHAIN_B_REST(10, 11) /* */
        ".p2align 6\n"
        "3:\n" CHAIN_EVEN(0, 1, 2, 3, 0, ) CHAIN_ODD(0, 1, 2, 3, 1)             /* */
        CHAIN_EVEN(0, 1, 2, 3, 2, CHAIN_A(4, 5, 6, 7)) CHAIN_ODD(0, 1, 2, 3, 3) /* */
        CHAIN_EVEN(4, 5, 6, 7, 0, ) CHAIN_ODD(4, 5, 6, 7, 1)                    /* */
        CHAIN_EVEN(4, 5, 6, 7, 2, CHAIN_A(0, 1, 2, 3)) CHAIN_ODD(4, 5, 6, 7, 3) /* */
        "subs %[turns], %[turns], #1\n"
        "b.ne 3b\n"
        "sub %[r0], %[r0], #16\n"
        "sub %[r1], %[r1], #16\n"
        "sub %[r2], %[r2], #16\n"
        "sub %[r3], %[r3], #16\n"
        "sub %[b], %[b], %[b_step]\n"
        "4:\n"
        "cbz %[rest], 6f\n"
        "5:\n"
        "ldr s0, [%[r0]], #4\n"
        "ldr s1, [%[r1]], #4\n"
        "ldr s2, [%[r2]], #4\n"
        "ldr s3, [%[r3]], #4\n" CHAIN_B(8, 9) CHAIN_B_REST(10, 11) /* */
        CHAIN_COLUMN(8, 0, 1, 2, 3, 0, 16, 20, 24, 28)             /* */
        CHAIN_COLUMN(9, 0, 1, 2, 3, 0, 17, 21, 25, 29)             /* */
        CHAIN_COLUMN(10, 0, 1, 2, 3, 0, 18, 22, 26, 30)            /* */
        CHAIN_COLUMN(11, 0, 1, 2, 3, 0, 19, 23, 27, 31)            /* */
        "subs %[rest], %[rest], #1\n"
        "b.ne 5b\n"
        "6:\n" CHAIN_C("st")
        : [r0] "+&r"(r0), [r1] "+&r"(r1), [r2] "+&r"(r2), [r3] "+&r"(r3), [b] "+&r"(b), [turns] "+&r"(turns),
          [rest] "+&r"(rest)
        : [c] "r"(c), [c_step] "r"(c_stride * sizeof(*c)), [b_step] "r"(b_stride * sizeof(*b)), [add] "r"((int)add)
        : "cc", "memory", "x9", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13",
          "v14", "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28",
          "v29", "v30", "v31");
}

#endif
