/* quant_one_q4 - one row of x by four panels of Q4_0 (quant_pack.h, pairs), in assembly: the loop is bound by vector
 * instructions, 36 per block of a panel, and by memory at once, so both their order and the prefetches matter.
 * A compiler's order takes 13.2 cycles per block of a panel in the first cache, this one 11.1.
 *
 * v0 to v7 are sums of floats, two a panel; v8 has 15 in every byte, v10 where the sums of a block start; v11 is the
 * scale of x and v12 to v15 its chunks; v16 to v19 and v20 to v23 are the lanes of two panels, v24 to v27 and v28 to
 * v31 bytes of weights, by turns. quant_panel_i8mm.c has the arithmetic. */
#ifndef ASH_COMPUTE_QUANT_ONE_Q4_H
#define ASH_COMPUTE_QUANT_ONE_Q4_H

#include <arm_neon.h>
#include <stddef.h>
#include <stdint.h>

#define ONE_Q4_MMLA(sum, w, x) "smmla v" #sum ".4s, v" #w ".16b, v" #x ".16b\n"
#define ONE_Q4_AND(w) "and v" #w ".16b, v" #w ".16b, v8.16b\n"
#define ONE_Q4_LOAD(w0, w1, w2, w3, panel, at)                                                                         \
    "ldp q" #w0 ", q" #w1 ", [%[" #panel "], #" #at "]\n"                                                              \
    "ldp q" #w2 ", q" #w3 ", [%[" #panel "], #" #at " + 32]\n"
/* A load each: beside vector instructions loads are free, copies of a register are not. */
#define ONE_Q4_START(sum) "ldr q" #sum ", [%[x], #16]\n"
#define ONE_Q4_STARTS                                                                                                  \
    ONE_Q4_START(16)                                                                                                   \
    ONE_Q4_START(17)                                                                                                   \
    ONE_Q4_START(18) ONE_Q4_START(19) ONE_Q4_START(20) ONE_Q4_START(21) ONE_Q4_START(22) ONE_Q4_START(23)
/* Half a block of a panel: its bytes as they are times one chunk of x, its low nibbles times another. `next` loads what
 * comes after it into the other four registers. */
#define ONE_Q4_HALF(s0, s1, s2, s3, w0, w1, w2, w3, bytes, low, next)                                                  \
    ONE_Q4_MMLA(s0, w0, bytes)                                                                                         \
    ONE_Q4_MMLA(s1, w1, bytes)                                                                                         \
    ONE_Q4_MMLA(s2, w2, bytes)                                                                                         \
    ONE_Q4_MMLA(s3, w3, bytes)                                                                                         \
    next ONE_Q4_AND(w0) ONE_Q4_AND(w1) ONE_Q4_AND(w2) ONE_Q4_AND(w3) ONE_Q4_MMLA(s0, w0, low) ONE_Q4_MMLA(s1, w1, low) \
        ONE_Q4_MMLA(s2, w2, low) ONE_Q4_MMLA(s3, w3, low)
/* Lanes to floats, scales of a panel (in d) times that of x, and the sums. */
#define ONE_Q4_ADD(sum0, sum1, s0, s1, s2, s3, d, d0, d1)                                                              \
    "fcvtl v" #d0 ".4s, v" #d ".4h\n"                                                                                  \
    "fcvtl2 v" #d1 ".4s, v" #d ".8h\n"                                                                                 \
    "faddp v" #s0 ".4s, v" #s0 ".4s, v" #s1 ".4s\n"                                                                    \
    "faddp v" #s2 ".4s, v" #s2 ".4s, v" #s3 ".4s\n"                                                                    \
    "fmul v" #d0 ".4s, v" #d0 ".4s, v11.4s\n"                                                                          \
    "fmul v" #d1 ".4s, v" #d1 ".4s, v11.4s\n"                                                                          \
    "fsub v" #s0 ".4s, v" #s0 ".4s, v10.4s\n"                                                                          \
    "fsub v" #s2 ".4s, v" #s2 ".4s, v10.4s\n"                                                                          \
    "fmla v" #sum0 ".4s, v" #s0 ".4s, v" #d0 ".4s\n"                                                                   \
    "fmla v" #sum1 ".4s, v" #s2 ".4s, v" #d1 ".4s\n"
/* 48 bytes apart, so that blocks of 144 bytes touch every line. */
#define ONE_Q4_FETCH(panel)                                                                                            \
    "prfm pldl1keep, [%[" #panel "], %[ahead0]]\n"                                                                     \
    "prfm pldl1keep, [%[" #panel "], %[ahead1]]\n"                                                                     \
    "prfm pldl1keep, [%[" #panel "], %[ahead2]]\n"
/* One block of two panels. */
#define ONE_Q4_TWO(a, b, sum0, sum1, sum2, sum3)                                                                       \
    ONE_Q4_LOAD(24, 25, 26, 27, a, 16)                                                                                 \
    ONE_Q4_STARTS                                                                                                      \
    ONE_Q4_HALF(16, 17, 18, 19, 24, 25, 26, 27, 12, 13, ONE_Q4_LOAD(28, 29, 30, 31, b, 16))                            \
    ONE_Q4_HALF(20, 21, 22, 23, 28, 29, 30, 31, 12, 13, ONE_Q4_FETCH(a) ONE_Q4_LOAD(24, 25, 26, 27, a, 80))            \
    ONE_Q4_HALF(16, 17, 18, 19, 24, 25, 26, 27, 14, 15, ONE_Q4_LOAD(28, 29, 30, 31, b, 80))                            \
    ONE_Q4_HALF(20, 21, 22, 23, 28, 29, 30, 31, 14, 15, ONE_Q4_FETCH(b) "ldr q24, [%[" #a "]], #144\n")                \
    "ldr q28, [%[" #b "]], #144\n" ONE_Q4_ADD(sum0, sum1, 16, 17, 18, 19, 24, 25, 26)                                  \
        ONE_Q4_ADD(sum2, sum3, 20, 21, 22, 23, 28, 29, 30)

#define ONE_Q4_AHEAD 576 /* bytes of a panel that are on their way: fewer come late, more throw each other out */

/* y: 8 floats a panel. x: blocks of 96 bytes (quantise_one). start: what a dot of 0 is before it is taken away. */
static inline void one_q4_panels(const uint8_t *const *panels, const uint8_t *x, size_t blocks, float start, float *y)
{
    const uint8_t *p0 = panels[0], *p1 = panels[1], *p2 = panels[2], *p3 = panels[3];

    if (blocks == 0) {
        for (int i = 0; i < 32; i++)
            y[i] = 0.0f;
        return;
    }
    __asm__ volatile("dup v10.4s, %[start].s[0]\n"
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
                     "ldp q12, q13, [%[x], #32]\n"
                     "ldp q14, q15, [%[x], #64]\n"
                     "ldr q11, [%[x]]\n" ONE_Q4_TWO(p0, p1, 0, 1, 2, 3) ONE_Q4_TWO(p2, p3, 4, 5, 6, 7) /* */
                     "add %[x], %[x], #96\n"
                     "subs %[blocks], %[blocks], #1\n"
                     "b.ne 1b\n"
                     "stp q0, q1, [%[y]]\n"
                     "stp q2, q3, [%[y], #32]\n"
                     "stp q4, q5, [%[y], #64]\n"
                     "stp q6, q7, [%[y], #96]\n"
                     : [p0] "+r"(p0), [p1] "+r"(p1), [p2] "+r"(p2), [p3] "+r"(p3), [x] "+r"(x), [blocks] "+r"(blocks)
                     : [y] "r"(y), [start] "w"(start), [ahead0] "r"((size_t)ONE_Q4_AHEAD),
                       [ahead1] "r"((size_t)ONE_Q4_AHEAD + 48), [ahead2] "r"((size_t)ONE_Q4_AHEAD + 96)
                     : "cc", "memory", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v10", "v11", "v12", "v13",
                       "v14", "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27",
                       "v28", "v29", "v30", "v31");
}

#endif
