/* quant_pack - how pack() lays quantised weights out.
 *
 * Rows of w lie in panels of ash_quant_panel_rows rows, one panel after the other; the last one is padded with zeros. A
 * panel is its groups (ash_quant_group), one after the other. A group is:
 *   - group scales, of all rows side by side: float32, or with Q8_0 the scales as they are in the file (float16);
 *   - with Q4_0 the integer sub-scales, block by block, of all rows side by side, a byte each; always of
 *     ASH_QUANT_GROUP_BLOCKS blocks, zeros where there are fewer;
 *   - quants, block by block, in the order in which the instruction takes them. A row's last group has only its own
 *     blocks, padded with zeros (but for Q8_0) to whole ASH_QUANT_PANEL_STEPs; padding has sub-scales of 0.
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
 *   low nibbles are these k, high nibbles those 16 further, both plus 8. */
#ifndef ASH_COMPUTE_QUANT_PACK_H
#define ASH_COMPUTE_QUANT_PACK_H

#include <stddef.h>
#include <stdint.h>
#include "base/math.h"
#include "compute/ops.h"
#include "compute/quant.h"

enum ash_quant_layout { ASH_QUANT_LAYOUT_I8MM, ASH_QUANT_LAYOUT_VNNI };

#define ASH_QUANT_PANEL_STEP 64        /* quants of k are padded to a multiple of it: k of a tile of AMX */
#define ASH_QUANT_PANEL_ROWS_MAX 16    /* of any layout */
#define ASH_QUANT_PANEL_SLACK_BYTES 96 /* that kernels may read, and not use, after the last panel */

/* Rows of a panel. */
static inline size_t ash_quant_panel_rows(enum ash_quant_layout layout)
{
    return layout == ASH_QUANT_LAYOUT_I8MM ? 8 : 16;
}

/* Bytes of a block's quants, of one row. */
static inline size_t ash_quant_quants_bytes(enum ash_dtype dtype)
{
    return dtype == ASH_Q4_0 ? ASH_QUANT_BLOCK / 2 : ASH_QUANT_BLOCK;
}

/* Bytes of a group of a panel before its quants: group scales and sub-scales. */
static inline size_t ash_quant_panel_head(enum ash_quant_layout layout, enum ash_dtype dtype)
{
    size_t subscales = dtype == ASH_Q4_0 ? ASH_QUANT_GROUP_BLOCKS : 0;

    return ash_quant_panel_rows(layout) * ((dtype == ASH_Q8_0 ? sizeof(uint16_t) : sizeof(float)) + subscales);
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
    size_t step = dtype == ASH_Q8_0 ? ASH_QUANT_BLOCK : ASH_QUANT_PANEL_STEP;
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
