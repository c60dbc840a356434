/* quant_pack - how pack() lays quantised weights out.
 *
 * Rows of w lie in panels of ash_quant_panel_rows rows, one panel after the other; the last one is padded with zeros. A
 * panel is its groups (ash_quant_group), one after the other. A group is:
 *   - group scales, of all rows side by side: float32, or with Q8_0 the scales as they are in the file (float16);
 *   - with Q4_0 the integer sub-scales, block by block, of all rows side by side, a byte each; always of
 *     ASH_QUANT_GROUP_BLOCKS blocks, zeros where there are fewer;
 *   - quants, block by block, in the order in which the instruction takes them. A row's last group has only its own
 *     blocks, padded with zeros (but for Q8_0) to whole ASH_QUANT_PANEL_STEPs; padding has sub-scales of 0.
 * The types of quant_open.h have group scales, and perhaps minimums, as they are in the file (float16; those of MXFP4
 * become float32), then sub-scales
 * and sub-minimums (but for groups of one block), a byte each, and quants of 4 or 6 bits, too large by their offset, or
 * nibbles that number integers of a table (vnni only: i8mm leaves these types as they are in the file).
 * So one panel is one stream of memory, read in order. Everything in it is aligned to 16 bytes (with 16 rows to 64, but
 * for Q8_0).
 *
 * ASH_QUANT_LAYOUT_I8MM (arm64, SMMLA multiplies 2 x 8 by 8 x 2): 8 rows.
 *   Q8_0, Q8_W, 256 bytes a block: for each 8 k (4 of them), for each pair of rows: 8 bytes of the first, 8 of the
 *   second.
 *   Q4_0, 128 bytes a block: for each half (2), for each pair of rows: 8 bytes of the first, 8 of the second; byte i of
 *   half h is element 8 h + i (low nibble, plus 8, as in the file) and 16 + 8 h + i (high nibble, two's complement).
 * ASH_QUANT_LAYOUT_VNNI (x86-64, VPDPBUSD and AMX multiply 4 k of a row at once): 16 rows.
 *   Q8_0, Q8_W, 512 bytes a block: for each 4 k (8 of them), for each row: 4 bytes.
 *   Q4_0, 256 bytes a block: for each 4 of the first 16 k (4 of them), for each row: 4 bytes as they are in the file:
 *   low nibbles are these k, high nibbles those 16 further, both plus 8.
 *
 * Types of quant_open.h, quants: 4 bits as Q4_0, but nibbles as they are. 6 bits: four pieces of a row's block lie in
 * three: i8mm pieces of 8 bytes, or twice vnni pieces of 4. The low 6 bits of piece i are those of k piece i;
 * the high 2 bits of the three are the last piece, lowest bits first.
 *   Sub-scales, i8mm: for each block, for each row, those of its one or two sub-blocks. vnni: for each sub-block, of
 *   all rows. Sub-minimums lie like quants of 8 bits do: eight (four) of a row, then of the next one. */
#ifndef ASH_COMPUTE_QUANT_PACK_H
#define ASH_COMPUTE_QUANT_PACK_H

#include <stddef.h>
#include <stdint.h>
#include "base/math.h"
#include "compute/ops.h"
#include "compute/cpu/quant/quant_priv.h"
#include "compute/quant_open.h"

enum ash_quant_layout { ASH_QUANT_LAYOUT_I8MM, ASH_QUANT_LAYOUT_VNNI };

#define ASH_QUANT_PANEL_STEP 64        /* quants of k are padded to a multiple of it: k of a tile of AMX */
#define ASH_QUANT_PANEL_ROWS_MAX 16    /* of any layout */
#define ASH_QUANT_PANEL_SLACK_BYTES 96 /* that kernels may read, and not use, after the last panel */

/* Rows of a panel. */
static inline size_t ash_quant_panel_rows(enum ash_quant_layout layout)
{
    return layout == ASH_QUANT_LAYOUT_I8MM ? 8 : 16;
}

/* Bits of a quant. */
static inline size_t ash_quant_packed_bits(enum ash_dtype dtype)
{
    if (!ash_quant_is_open(dtype)) return dtype == ASH_Q4_0 ? 4 : 8;
    return dtype == ASH_Q5_0 || dtype == ASH_Q5_1 || dtype == ASH_Q5_K || dtype == ASH_Q6_K ? 6 : 4;
}

/* Bytes of a block's quants, of one row. */
static inline size_t ash_quant_quants_bytes(enum ash_dtype dtype)
{
    return ASH_QUANT_BLOCK * ash_quant_packed_bits(dtype) / 8;
}

/* Sub-scales of a group of one row; as many sub-minimums, if it has any. */
static inline size_t ash_quant_packed_subs(enum ash_dtype dtype)
{
    if (dtype == ASH_Q4_0) return ASH_QUANT_GROUP_BLOCKS;
    return ash_quant_is_open(dtype) && ash_quant_group_blocks(dtype) > 1 ? ASH_QUANT_GROUP / ash_quant_sub(dtype) : 0;
}

/* Bytes of a group scale of one row. */
static inline size_t ash_quant_packed_scale_bytes(enum ash_dtype dtype)
{
    bool is_half = dtype == ASH_Q8_0 || (ash_quant_is_open(dtype) && dtype != ASH_MXFP4);

    return is_half ? sizeof(uint16_t) : sizeof(float);
}

/* Bytes of a group of a panel before its quants: group scales and sub-scales. */
static inline size_t ash_quant_panel_head(enum ash_quant_layout layout, enum ash_dtype dtype)
{
    size_t scale = ash_quant_packed_scale_bytes(dtype);
    size_t parts = ash_quant_has_min(dtype) ? 2 : 1;

    return ash_quant_panel_rows(layout) * parts * (scale + ash_quant_packed_subs(dtype));
}

/* Bytes of a whole group of a panel. */
static inline size_t ash_quant_panel_group(enum ash_quant_layout layout, enum ash_dtype dtype)
{
    return ash_quant_panel_head(layout, dtype) +
           ash_quant_panel_rows(layout) * ash_quant_group_blocks(dtype) * ash_quant_quants_bytes(dtype);
}

/* Bytes of a whole panel. */
static inline size_t ash_quant_panel_bytes(enum ash_quant_layout layout, enum ash_dtype dtype, size_t K)
{
    size_t step = ash_quant_group_blocks(dtype) == 1 ? ASH_QUANT_BLOCK : ASH_QUANT_PANEL_STEP;
    size_t blocks = ash_div_up(K, step) * (step / ASH_QUANT_BLOCK);

    return ash_quant_groups(dtype, K) * ash_quant_panel_head(layout, dtype) +
           blocks * ash_quant_panel_rows(layout) * ash_quant_quants_bytes(dtype);
}

/* ash_matrix_ops.packed_bytes for quantised weights of a layout. */
size_t ash_quant_packed_bytes(enum ash_quant_layout layout, enum ash_dtype dtype, size_t N, size_t K);
struct ash_quant_panels;
/* ash_matrix_ops.pack for quantised weights, in the layout of kernels: rows [first, first + count) of w. */
void ash_quant_pack(struct ash_exec *exec, const struct ash_quant_panels *kernels, const struct ash_weight *w, size_t K,
                    size_t first, size_t count, void *packed);

#endif
