/* quant_gemv_q4_i8mm - one row of x times a group of four panels of Q4_0 (quant_pack.h, i8mm layout), in assembly. The
 * loop is bound by vector instructions, 30 per block of a panel, and by memory at once: both the order of instructions
 * and the prefetches matter. quant_gemv_i8mm.c has the arithmetic.
 *
 * v0 to v7 are totals, two a panel; v8 has 15 in every byte; v9 and v10 are sub-scales, v12 to v15 chunks of x; v16 to
 * v19 and v20 to v23 the lanes of two panels, v24 to v27 and v28 to v31 bytes of weights, alternating. */
#ifndef ASH_COMPUTE_QUANT_GEMV_Q4_I8MM_H
#define ASH_COMPUTE_QUANT_GEMV_Q4_I8MM_H

#include <arm_neon.h>
#include <stddef.h>
#include <stdint.h>

#define GEMV_Q4_MMLA(sum, w, x) "smmla v" #sum ".4s, v" #w ".16b, v" #x ".16b\n"
#define GEMV_Q4_AND(w) "and v" #w ".16b, v" #w ".16b, v8.16b\n"
#define GEMV_Q4_LOAD(w0, w1, w2, w3, panel, at)                                                                        \
    "ldp q" #w0 ", q" #w1 ", [%[" #panel "], #" #at "]\n"                                                              \
    "ldp q" #w2 ", q" #w3 ", [%[" #panel "], #" #at " + 32]\n"
/* A load each: next to vector instructions loads are free, copies of a register are not. */
#define GEMV_Q4_START(sum) "ldr q" #sum ", [%[x]]\n"
/* clang-format off */
#define GEMV_Q4_STARTS                                                                                                 \
    GEMV_Q4_START(16) GEMV_Q4_START(17) GEMV_Q4_START(18) GEMV_Q4_START(19)                                            \
    GEMV_Q4_START(20) GEMV_Q4_START(21) GEMV_Q4_START(22) GEMV_Q4_START(23)
/* clang-format on */
/* Half a block of a panel: its bytes as they are times one chunk of x, its low nibbles times another. `next` loads what
 * comes after it into the other four registers. */
/* clang-format off */
#define GEMV_Q4_HALF(s0, s1, s2, s3, w0, w1, w2, w3, bytes, low, next)                                                 \
    GEMV_Q4_MMLA(s0, w0, bytes) GEMV_Q4_MMLA(s1, w1, bytes) GEMV_Q4_MMLA(s2, w2, bytes) GEMV_Q4_MMLA(s3, w3, bytes)    \
    next                                                                                                               \
    GEMV_Q4_AND(w0) GEMV_Q4_AND(w1) GEMV_Q4_AND(w2) GEMV_Q4_AND(w3)                                                    \
    GEMV_Q4_MMLA(s0, w0, low) GEMV_Q4_MMLA(s1, w1, low) GEMV_Q4_MMLA(s2, w2, low) GEMV_Q4_MMLA(s3, w3, low)
/* clang-format on */
/* Lanes become dots: these are floats by where they started, and hold the dot in their low 16 bits. Times sub-scales
 * they are added to the totals. */
#define GEMV_Q4_ADD(total0, total1, s0, s1, s2, s3, subscales)                                                         \
    "faddp v" #s0 ".4s, v" #s0 ".4s, v" #s1 ".4s\n"                                                                    \
    "faddp v" #s2 ".4s, v" #s2 ".4s, v" #s3 ".4s\n"                                                                    \
    "sshll v" #subscales ".8h, v" #subscales ".8b, #0\n"                                                               \
    "uzp1 v" #s0 ".8h, v" #s0 ".8h, v" #s2 ".8h\n"                                                                     \
    "smlal v" #total0 ".4s, v" #s0 ".4h, v" #subscales ".4h\n"                                                         \
    "smlal2 v" #total1 ".4s, v" #s0 ".8h, v" #subscales ".8h\n"
#define GEMV_Q4_TEXT(number) GEMV_Q4_TEXT_OF(number)
#define GEMV_Q4_TEXT_OF(number) #number
/* clang-format off */
#define GEMV_Q4_FETCH(panel)                                                                                           \
    "prfm pldl2keep, [%[" #panel "], #" GEMV_Q4_TEXT(GEMV_Q4_AHEAD) "]\n"                                              \
    "prfm pldl2keep, [%[" #panel "], #" GEMV_Q4_TEXT(GEMV_Q4_AHEAD) " + 64]\n"
/* clang-format on */

/* Bytes of a panel that are on their way to L2: fewer come late, more sometimes not at all. */
#define GEMV_Q4_AHEAD 2048
#define GEMV_Q4_BLOCK 80 /* bytes of x: where lanes start, and four chunks */

/* One block of two panels. */
#define GEMV_Q4_TWO(a, b, a_subscales, b_subscales, total0, total1, total2, total3)                                    \
    GEMV_Q4_LOAD(24, 25, 26, 27, a, 0)                                                                                 \
    GEMV_Q4_STARTS                                                                                                     \
    GEMV_Q4_HALF(16, 17, 18, 19, 24, 25, 26, 27, 12, 13, GEMV_Q4_LOAD(28, 29, 30, 31, b, 0))                           \
    GEMV_Q4_HALF(20, 21, 22, 23, 28, 29, 30, 31, 12, 13, GEMV_Q4_FETCH(a) GEMV_Q4_LOAD(24, 25, 26, 27, a, 64))         \
    GEMV_Q4_HALF(16, 17, 18, 19, 24, 25, 26, 27, 14, 15,                                                               \
                 GEMV_Q4_LOAD(28, 29, 30, 31, b, 64) "ldr d9, [%[" #a_subscales "]], #8\nadd %[" #a "], %[" #a         \
                                                     "], #128\n")                                                      \
    GEMV_Q4_HALF(20, 21, 22, 23, 28, 29, 30, 31, 14, 15,                                                               \
                 GEMV_Q4_FETCH(b) "ldr d10, [%[" #b_subscales "]], #8\nadd %[" #b "], %[" #b "], #128\n")              \
    GEMV_Q4_ADD(total0, total1, 16, 17, 18, 19, 9)                                                                     \
    GEMV_Q4_ADD(total2, total3, 20, 21, 22, 23, 10)

/* A group of up to eight blocks of four panels: their quants and sub-scales, and blocks of x. */
static inline void gemv_q4_group(const uint8_t *const *quants, const uint8_t *const *subscales, const uint8_t *x,
                                 size_t blocks, int32x4_t totals[8])
{
    const uint8_t *a = quants[0], *b = quants[1], *c = quants[2], *d = quants[3];
    const uint8_t *a_subscales = subscales[0], *b_subscales = subscales[1], *c_subscales = subscales[2],
                  *d_subscales = subscales[3];
    register int32x4_t t0 __asm__("v0"), t1 __asm__("v1"), t2 __asm__("v2"), t3 __asm__("v3");
    register int32x4_t t4 __asm__("v4"), t5 __asm__("v5"), t6 __asm__("v6"), t7 __asm__("v7");

    /* clang-format off */
    __asm__ volatile(
        "movi v8.16b, #15\n"
        "movi v0.4s, #0\n"
        "movi v1.4s, #0\n"
        "movi v2.4s, #0\n"
        "movi v3.4s, #0\n"
        "movi v4.4s, #0\n"
        "movi v5.4s, #0\n"
        "movi v6.4s, #0\n"
        "movi v7.4s, #0\n"
        "1:\n"
        "ldp q12, q13, [%[x], #16]\n"
        "ldp q14, q15, [%[x], #48]\n"
        GEMV_Q4_TWO(a, b, a_subscales, b_subscales, 0, 1, 2, 3)
        GEMV_Q4_TWO(c, d, c_subscales, d_subscales, 4, 5, 6, 7)
        "add %[x], %[x], #80\n"
        "subs %[blocks], %[blocks], #1\n"
        "b.ne 1b\n"
        : [a] "+r"(a), [b] "+r"(b), [c] "+r"(c), [d] "+r"(d), [a_subscales] "+r"(a_subscales),
          [b_subscales] "+r"(b_subscales), [c_subscales] "+r"(c_subscales), [d_subscales] "+r"(d_subscales),
          [x] "+r"(x), [blocks] "+r"(blocks),
          "=w"(t0), "=w"(t1), "=w"(t2), "=w"(t3), "=w"(t4), "=w"(t5), "=w"(t6), "=w"(t7)
        :
        : "cc", "memory", "v8", "v9", "v10", "v12", "v13", "v14", "v15", "v16", "v17", "v18", "v19", "v20", "v21",
          "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29", "v30", "v31");
    /* clang-format on */
    totals[0] = t0, totals[1] = t1, totals[2] = t2, totals[3] = t3;
    totals[4] = t4, totals[5] = t5, totals[6] = t6, totals[7] = t7;
}

#endif
