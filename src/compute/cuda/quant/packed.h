/* packed - how quantised weights lie in GPU memory: panels of 8 rows, each a row of units of 256 k that a warp reads
 * with 16-byte loads. A lane has blocks 2 j and 2 j + 1 (of 32 k) of row r: lane 4 r + j. A unit is, one part after the
 * other:
 *   quants   [pieces][lane][16 bytes]   bytes: both halves of a block; nibbles: element i low, element i + 16 high
 *   high     [lane]                     Q5_K: 8 bytes, Q6_K: 16; of a block's words, low nibbles first, in each byte
 *                                       bits from low to high
 *   subs     [lane]                     Q8_0: a scale for each block, as in the file. Q4_0: sub-scales. Q4_K and Q5_K:
 *                                       sub-scales, sub-minimums. Q6_K: four sub-scales, of 16 elements each
 *   rows     [row][4 bytes]             scale of the group (Q4_0: a float, else a half), minimum (a half)
 * Rows after the last one, and k after the last one, are zeros. Plain C that both compilers read. */
#ifndef ASH_COMPUTE_CUDA_PACKED_H
#define ASH_COMPUTE_CUDA_PACKED_H

#include <stddef.h>
#include "base/device_code.h"
#include "compute/ops.h"

#define ASH_CUDA_PANEL_ROWS 8
#define ASH_CUDA_UNIT_K ASH_QUANT_GROUP
#define ASH_CUDA_UNIT_LANES 32

/* Bytes of each part for one lane (rows: for one row), in types that are packed; else quants are 0. */
struct ash_cuda_unit {
    unsigned quants, high, subs, rows;
};

#if defined(__cplusplus)
#define ASH_CONSTEXPR constexpr ASH_INLINE
#else
#define ASH_CONSTEXPR ASH_INLINE
#endif

ASH_CONSTEXPR struct ash_cuda_unit ash_cuda_unit_of(int dtype)
{
    struct ash_cuda_unit none = {0, 0, 0, 0}, q8_0 = {64, 0, 4, 0}, q8_w = {64, 0, 0, 4}, q4_0 = {32, 0, 2, 4},
                         q4_k = {32, 0, 4, 4}, q5_k = {32, 8, 4, 4}, q6_k = {32, 16, 4, 4};

    return dtype == ASH_Q8_0   ? q8_0
           : dtype == ASH_Q8_W ? q8_w
           : dtype == ASH_Q4_0 ? q4_0
           : dtype == ASH_Q4_K ? q4_k
           : dtype == ASH_Q5_K ? q5_k
           : dtype == ASH_Q6_K ? q6_k
                               : none;
}

/* Bytes of a unit: a multiple of 16. */
ASH_CONSTEXPR unsigned ash_cuda_unit_bytes(int dtype)
{
    struct ash_cuda_unit unit = ash_cuda_unit_of(dtype);

    return ASH_CUDA_UNIT_LANES * (unit.quants + unit.high + unit.subs) + ASH_CUDA_PANEL_ROWS * unit.rows;
}

/* Units of a row of K. */
ASH_CONSTEXPR size_t ash_cuda_units(size_t K)
{
    return (K + ASH_CUDA_UNIT_K - 1) / ASH_CUDA_UNIT_K;
}

#endif
