/* tile_neon - what the register tiles of arm64 have in common. They are written in assembly, because the schedule of
 * loads decides a tenth of their speed and no compiler keeps it: v8 to v31 are the sums, v0 to v7 operands on their way
 * from memory. An operand is loaded as soon as its register is free, about eight products before its first use; the
 * loops are long and aligned, because each turn costs a cycle (docs/kernels/gemm.md has the search). */
#ifndef ASH_COMPUTE_TILE_NEON_H
#define ASH_COMPUTE_TILE_NEON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* clang-format off */
#define TILE_SUMS(X)                                                                                                   \
    X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15) X(16) X(17) X(18) X(19)                                              \
    X(20) X(21) X(22) X(23) X(24) X(25) X(26) X(27) X(28) X(29) X(30) X(31)
/* clang-format on */
#define TILE_ZERO(sum) "movi v" #sum ".2d, #0\n"
#define TILE_A(reg, offset) "ldr q" #reg ", [%[a], #" #offset "]\n"
#define TILE_B(reg, offset) "ldr q" #reg ", [%[b], #" #offset "]\n"
/* What instructions that multiply pairs of rows by pairs of columns have in common: each of the 24 registers holds a
 * 2 x 2 block, v8 + 6 i + j that of row pair i and column pair j. A group of k is 4 row pairs (64 bytes at a) and 6
 * column pairs (96 at b): columns stay in v2 to v7, rows take turns in v0 and v1. This multiplies a group whose first
 * operands are loaded, and loads those of the next, in an order that a search has found. */
#define TILE_MMLA_ROW(MMLA, a, s0, s1, s2, s3, s4, s5)                                                                 \
    MMLA(s0, a, 2) MMLA(s1, a, 3) MMLA(s2, a, 4) MMLA(s3, a, 5) MMLA(s4, a, 6) MMLA(s5, a, 7)
#define TILE_MMLA_GROUP(MMLA, fetch, a, b)                                                                             \
    TILE_MMLA_ROW(MMLA, 0, 8, 9, 10, 11, 12, 13)                                                                       \
    TILE_A(0, a + 32)                                                                                                  \
    TILE_MMLA_ROW(MMLA, 1, 14, 15, 16, 17, 18, 19)                                                                     \
    TILE_A(1, a + 48)                                                                                                  \
    TILE_MMLA_ROW(MMLA, 0, 20, 21, 22, 23, 24, 25)                                                                     \
    TILE_A(0, a + 64)                                                                                                  \
    fetch MMLA(26, 1, 2) TILE_B(2, b + 96) MMLA(27, 1, 3) TILE_B(3, b + 112) MMLA(28, 1, 4) TILE_B(4, b + 128)         \
        MMLA(29, 1, 5) TILE_B(5, b + 144) MMLA(30, 1, 6) TILE_B(6, b + 160) MMLA(31, 1, 7) TILE_B(7, b + 176)          \
            TILE_A(1, a + 80)
/* The first operands. */
#define TILE_MMLA_FIRST                                                                                                \
    TILE_A(0, 0)                                                                                                       \
    TILE_B(2, 0) TILE_B(3, 16) TILE_B(4, 32) TILE_B(5, 48) TILE_B(6, 64) TILE_B(7, 80) TILE_A(1, 16)
#define TILE_CLOBBERS                                                                                                  \
    "cc", "memory", "x9", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13",      \
        "v14", "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28",       \
        "v29", "v30", "v31"

#endif
