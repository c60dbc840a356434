/* quant_pack - how pack() lays quantised weights out, and what the kernels that read them offer.
 *
 * Rows of w lie in panels of `rows` rows, one panel after the other; the last one is filled up with zeros. A panel is
 * K / ASH_QUANT_BLOCK blocks, one after the other, each of:
 *   - the scales of its rows, side by side, IEEE half as in the file;
 *   - the whole numbers, in the order in which the instruction takes them.
 * So one panel is one stream of memory, read in order, and everything in it is aligned to 16 bytes (64 with 16 rows).
 *
 * ASH_QUANT_PAIRS (arm64 with SMMLA): 8 rows.
 *   Q8_0, 272 bytes a block: for each 8 k (4 of them), for each pair of rows: 8 bytes of the first, 8 of the second.
 *   Q4_0, 144 bytes a block: for each half (2), for each pair of rows: 8 bytes of the first, 8 of the second; byte i of
 *   half h is element 8 h + i (low nibble, plus 8, as in the file) and 16 + 8 h + i (high nibble, two's complement).
 * ASH_QUANT_QUADS (x86-64): 16 rows.
 *   Q8_0, 544 bytes a block: for each 4 k (8 of them), for each row: 4 bytes, each plus 128 (an unsigned byte).
 *   Q4_0, 288 bytes a block: for each 4 of the first 16 k (4 of them), for each row: 4 bytes as they are in the file,
 * so low nibbles are these k and high nibbles those 16 further, both plus 8.
 *
 * Q8_W: a block is a group of ASH_QUANT_WIDE k, the last one of a row perhaps less, filled up with zeros to whole
 * ASH_QUANT_WIDE_STEPs. Its scales are float32, 4 bytes a row, so that whole groups keep to the lines of the caches and
 * kernels for many rows read panels as they are; then numbers in the orders above, signed. */
#ifndef ASH_COMPUTE_QUANT_PACK_H
#define ASH_COMPUTE_QUANT_PACK_H

#include <stddef.h>
#include <stdint.h>
#include "compute/ops.h"

enum ash_quant_layout { ASH_QUANT_PAIRS, ASH_QUANT_QUADS };

#define ASH_QUANT_WIDE_STEP 64 /* k of a tile of AMX */
#define ASH_QUANT_PANEL_ROWS_MAX 16
#define ASH_QUANT_STRIP_ROWS_MAX 16
#define ASH_QUANT_PANEL_GROUP 4 /* panels that one() walks side by side: one stream does not fill the memory's time */

/* Rows of a panel, and bytes of one of its blocks. */
static inline size_t ash_quant_panel_rows(enum ash_quant_layout layout)
{
    return layout == ASH_QUANT_PAIRS ? 8 : 16;
}

static inline size_t ash_quant_panel_block(enum ash_quant_layout layout, enum ash_dtype dtype)
{
    size_t row_bytes = dtype == ASH_Q8_W ? sizeof(float) + ASH_QUANT_WIDE : ash_dtype_bytes(dtype);

    return ash_quant_panel_rows(layout) * row_bytes;
}

/* Bytes of a whole panel. */
static inline size_t ash_quant_panel_bytes(enum ash_quant_layout layout, enum ash_dtype dtype, size_t K)
{
    size_t groups = (K + ASH_QUANT_WIDE - 1) / ASH_QUANT_WIDE;
    size_t steps = (K + ASH_QUANT_WIDE_STEP - 1) / ASH_QUANT_WIDE_STEP;

    if (dtype != ASH_Q8_W) return K / ASH_QUANT_BLOCK * ash_quant_panel_block(layout, dtype);
    return ash_quant_panel_rows(layout) * (groups * sizeof(float) + steps * ASH_QUANT_WIDE_STEP);
}

/* ash_matrix_ops.packed_bytes and pack, for quantised weights of a layout, and for these kernels. */
struct ash_quant_panels;
size_t ash_quant_packed_bytes(enum ash_quant_layout layout, enum ash_dtype dtype, size_t N, size_t K);
void ash_quant_pack(struct ash_exec *exec, const struct ash_quant_panels *kernels, const struct ash_weight *w, size_t K,
                    size_t first, size_t count, void *packed);

/* k of count expanded panels times full tiles of x, one after the other. A panel has the sums of all tiles, panel_sums
 * apart. */
struct ash_quant_many {
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

/* What a set of instructions does with panels. Prepared x is made of strips of strip_rows rows; up to tile_strips of
 * them make a tile, in which the strips of one block (of block_k) lie together: strips * strip_bytes bytes for each
 * block, also where the last one of Q8_W is shorter. k that functions get is whole blocks but for that. */
struct ash_quant_panels {
    enum ash_quant_layout layout;
    size_t block_k;                     /* that share a scale */
    const struct ash_quant_panels *few; /* the kernels for few rows, where these are for many alone; NULL: these */
    size_t strip_rows, strip_bytes, tile_strips;
    size_t expanded_bytes;            /* of a block of a panel */
    size_t k_blocks, expanded_panels; /* that the first cache holds beside a tile of x, for many rows */
    size_t one_bytes;                 /* of a block of a single row, as one() takes it */

    /* Lay a whole panel out; rows of the plain weight lie row_bytes apart. NULL: plain C does. */
    void (*pack)(enum ash_dtype dtype, const uint8_t *rows, size_t row_bytes, size_t blocks, uint8_t *panel);
    /* Quantise a strip (rows[i] NULL: zeros) into its place among the strips of a tile: k numbers of each row. */
    void (*quantise)(const float *const *rows, size_t k, size_t strip, size_t strips, uint8_t *tile);
    /* A panel as tile() reads it fastest, for many rows of x. NULL: it is that already. */
    void (*expand)(enum ash_dtype dtype, const uint8_t *panel, size_t k, uint8_t *expanded);
    /* Add k of a panel (expanded, or not) times a tile to sums, which are in an order of the kernel's own:
     * tile_strips * strip_rows times the panel's rows floats, zero at first. */
    void (*tile)(enum ash_dtype dtype, bool expanded, const uint8_t *panel, const uint8_t *x, size_t strips, size_t k,
                 float *sums);
    /* The same for many rows. A thread calls begin before and end after any number of these. NULL: tile() does it. */
    void (*begin)(void);
    void (*many)(const struct ash_quant_many *job);
    void (*end)(void);
    bool many_ends; /* it heeds first and y_tiles; else sums are zeros at first and stay in memory */
    /* Those sums as rows. */
    void (*untile)(const float *sums, size_t rows, float *y, size_t y_stride);
    /* A single row of x, and its products with up to ASH_QUANT_PANEL_GROUP panels. */
    void (*quantise_one)(enum ash_dtype dtype, const float *row, size_t k, uint8_t *x);
    void (*one)(enum ash_dtype dtype, const uint8_t *const *panels, size_t count, const uint8_t *x, size_t k, float *y);
};

#if defined(__aarch64__)
extern const struct ash_quant_panels ash_quant_panels_i8mm, ash_quant_wide_i8mm;
#elif defined(__x86_64__)
extern const struct ash_quant_panels ash_quant_panels_vnni, ash_quant_wide_vnni;
extern const struct ash_quant_panels ash_quant_panels_amx, ash_quant_wide_amx;
#endif

#endif
