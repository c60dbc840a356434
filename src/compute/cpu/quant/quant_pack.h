/* quant_pack - how pack() lays quantised weights out, and what the kernels that read them offer.
 *
 * Rows of w lie in panels of `rows` rows, one panel after the other; the last one is filled up with zeros. A panel is
 * its groups (ash_quant_group), one after the other, each of:
 *   - the units of its rows, side by side: float32, or with Q8_0 the scales as they are in the file;
 *   - with Q4_0 the subscales of its blocks, block by block, those of a block's rows side by side, a byte each; always of
 *     ASH_QUANT_GROUP_BLOCKS blocks, zeros where there are fewer;
 *   - the integer values, block by block, in the order in which the instruction takes them; a row's last group has only
 *     its own, filled up with zeros (but for Q8_0) to whole ASH_QUANT_PANEL_STEPs. What is filled up has 0 subscales.
 * So one panel is one stream of memory, read in order, and everything in it is aligned to 16 bytes (with 16 rows to 64,
 * but for Q8_0).
 *
 * ASH_QUANT_LAYOUT_I8MM (arm64 with SMMLA): 8 rows.
 *   Q8_0, Q8_W, 256 bytes a block: for each 8 k (4 of them), for each pair of rows: 8 bytes of the first, 8 of the
 *   second.
 *   Q4_0, 128 bytes a block: for each half (2), for each pair of rows: 8 bytes of the first, 8 of the second; byte i of
 *   half h is element 8 h + i (low nibble, plus 8, as in the file) and 16 + 8 h + i (high nibble, two's complement).
 * ASH_QUANT_LAYOUT_VNNI (x86-64): 16 rows.
 *   Q8_0, Q8_W, 512 bytes a block: for each 4 k (8 of them), for each row: 4 bytes.
 *   Q4_0, 256 bytes a block: for each 4 of the first 16 k (4 of them), for each row: 4 bytes as they are in the file,
 *   so low nibbles are these k and high nibbles those 16 further, both plus 8. */
#ifndef ASH_COMPUTE_QUANT_PACK_H
#define ASH_COMPUTE_QUANT_PACK_H

#include <stddef.h>
#include <stdint.h>
#include "compute/ops.h"
#include "compute/quant.h"

enum ash_quant_layout { ASH_QUANT_LAYOUT_I8MM, ASH_QUANT_LAYOUT_VNNI };

#define ASH_QUANT_PANEL_STEP 64 /* k of a tile of AMX */
#define ASH_QUANT_PANEL_ROWS_MAX 16
#define ASH_QUANT_MICRO_ROWS_MAX 16
#define ASH_QUANT_STREAMS 4 /* panels that gemv() walks side by side: one stream does not fill the memory's time */

/* Rows of a panel. */
static inline size_t ash_quant_panel_rows(enum ash_quant_layout layout)
{
    return layout == ASH_QUANT_LAYOUT_I8MM ? 8 : 16;
}

/* Bytes of a block's integer values, of one row. */
static inline size_t ash_quant_quants_bytes(enum ash_dtype dtype)
{
    return dtype == ASH_Q4_0 ? ASH_QUANT_BLOCK / 2 : ASH_QUANT_BLOCK;
}

/* Bytes of a group of a panel that come before its integer values, and of all of it. */
static inline size_t ash_quant_panel_head(enum ash_quant_layout layout, enum ash_dtype dtype)
{
    size_t subscales = dtype == ASH_Q4_0 ? ASH_QUANT_GROUP_BLOCKS : 0;

    return ash_quant_panel_rows(layout) * ((dtype == ASH_Q8_0 ? sizeof(uint16_t) : sizeof(float)) + subscales);
}

static inline size_t ash_quant_panel_group(enum ash_quant_layout layout, enum ash_dtype dtype)
{
    return ash_quant_panel_head(layout, dtype) +
           ash_quant_panel_rows(layout) * ash_quant_group_blocks(dtype) * ash_quant_quants_bytes(dtype);
}

/* Bytes of a whole panel. */
static inline size_t ash_quant_panel_bytes(enum ash_quant_layout layout, enum ash_dtype dtype, size_t K)
{
    size_t step = dtype == ASH_Q8_0 ? ASH_QUANT_BLOCK : ASH_QUANT_PANEL_STEP;
    size_t blocks = (K + step - 1) / step * (step / ASH_QUANT_BLOCK);

    return ash_quant_groups(dtype, K) * ash_quant_panel_head(layout, dtype) +
           blocks * ash_quant_panel_rows(layout) * ash_quant_quants_bytes(dtype);
}

/* ash_matrix_ops.packed_bytes and pack, for quantised weights of a layout, and for these kernels. */
struct ash_quant_panels;
size_t ash_quant_packed_bytes(enum ash_quant_layout layout, enum ash_dtype dtype, size_t N, size_t K);
void ash_quant_pack(struct ash_exec *exec, const struct ash_quant_panels *kernels, const struct ash_weight *w, size_t K,
                    size_t first, size_t count, void *packed);

/* k of count expanded panels times full tiles of x, one after the other. A panel has the sums of all tiles, panel_sums
 * apart. */
struct ash_quant_large_m {
    enum ash_dtype dtype;
    const uint8_t *const *panels;
    size_t count;
    const uint8_t *x;
    size_t tiles, k;
    float *sums;
    size_t panel_sums;
    bool first;     /* sums begin here: memory holds none */
    size_t y_tiles; /* so many tiles' sums are the outputs: with y they go there, not to memory for sums */
    float *y;       /* where sums go, or will soon: rows y_stride apart, panels side by side; NULL: not yet */
    size_t y_stride;
};

/* What a set of instructions does with panels. Prepared x is made of micros of micro_rows rows; up to tile_micros of
 * them make a tile, in which the micros of one group lie together: micros * micro_bytes bytes for each group, also for
 * a last one that is shorter. k that functions get is whole groups but for that. */
struct ash_quant_panels {
    enum ash_quant_layout layout;
    const struct ash_quant_panels *small_m; /* the kernels for few rows, where these are for many alone; NULL: these */
    size_t micro_rows, micro_bytes, tile_micros;
    size_t expanded_bytes;            /* of a group of a panel */
    size_t small_m_max;               /* up to so many rows of x are quickly prepared, by every thread for itself */
    size_t k_groups, expanded_panels; /* that L1 holds beside a tile of x, for many rows */
    bool even_tiles, whole_k; /* tile() takes less than tile_micros, and more k, about as well: for some rows it gets
                                 that */
    size_t gemv_bytes;        /* of a group of a single row, as gemv() takes it */

    /* ash_quant_subscales of Q4_0, faster. NULL: plain C does. */
    float (*subscales)(const uint8_t *blocks, size_t count, int32_t *subscales);
    /* Lay a whole panel out; rows of the plain weight lie row_bytes apart, and what is filled up is zeros already.
     * NULL: plain C does. */
    void (*pack)(enum ash_dtype dtype, const uint8_t *rows, size_t row_bytes, size_t blocks, uint8_t *panel);
    /* Quantise a micro (rows[i] NULL: zeros) into its place among the micros of a tile: k quants of each row. */
    void (*quantise)(const float *const *rows, size_t k, size_t micro, size_t micros, uint8_t *tile);
    /* What tile() or large_m() reads of a panel, or beside it, for many rows of x. NULL: the panel alone. */
    void (*expand)(enum ash_dtype dtype, const uint8_t *panel, size_t k, uint8_t *expanded);
    /* Add k of a panel times a tile to sums, which are in an order of the kernel's own: tile_micros * micro_rows times
     * the panel's rows floats, zero at first. For many rows, expanded is what expand() made of the panel (or the
     * panel); for a few it is NULL, and the panel comes from memory. */
    void (*tile)(enum ash_dtype dtype, const uint8_t *panel, const uint8_t *expanded, const uint8_t *x, size_t micros,
                 size_t k, float *sums);
    /* The same for many rows. A thread calls begin before and end after any number of these. NULL: tile() does it. */
    void (*begin)(void);
    void (*large_m)(const struct ash_quant_large_m *job);
    void (*end)(void);
    bool large_m_writes_y; /* it heeds first and y_tiles; else sums are zeros at first and stay in memory */
    /* Those sums as rows. */
    void (*untile)(const float *sums, size_t rows, float *y, size_t y_stride);
    /* A single row of x, and its products with up to ASH_QUANT_STREAMS panels. */
    void (*quantise_gemv)(enum ash_dtype dtype, const float *row, size_t k, uint8_t *x);
    void (*gemv)(enum ash_dtype dtype, const uint8_t *const *panels, size_t count, const uint8_t *x, size_t k,
                 float *y);
};

#if defined(__aarch64__)
extern const struct ash_quant_panels ash_quant_q8_i8mm, ash_quant_q4_i8mm, ash_quant_q8w_i8mm;
#elif defined(__x86_64__)
extern const struct ash_quant_panels ash_quant_q8_vnni, ash_quant_wide_vnni; /* the second: Q4_0 and Q8_W */
extern const struct ash_quant_panels ash_quant_q8_amx, ash_quant_q4_amx, ash_quant_q8w_amx;
#endif

#endif
