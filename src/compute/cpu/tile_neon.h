/* tile_neon - what the register tiles of arm64 have in common. They are written in assembly, because the schedule of
 * loads decides a tenth of their speed and no compiler keeps it: v8 to v31 are the sums, v0 to v7 operands on their way
 * from memory. An operand is loaded as soon as its register is free, about eight products before its first use; the
 * loops are long and aligned, because each turn costs a cycle (docs/performance.md has the search). */
#ifndef ASH_COMPUTE_TILE_NEON_H
#define ASH_COMPUTE_TILE_NEON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TILE_SUMS(X)                                                                                                   \
    X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15) X(16) X(17) X(18) X(19)                                              \
    X(20) X(21) X(22) X(23) X(24) X(25) X(26) X(27) X(28) X(29) X(30) X(31)
#define TILE_ZERO(sum) "movi v" #sum ".2d, #0\n"
#define TILE_A(reg, offset) "ldr q" #reg ", [%[a], #" #offset "]\n"
#define TILE_B(reg, offset) "ldr q" #reg ", [%[b], #" #offset "]\n"
#define TILE_CLOBBERS                                                                                                  \
    "cc", "memory", "x9", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13",      \
        "v14", "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28",       \
        "v29", "v30", "v31"

#endif
