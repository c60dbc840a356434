/* Lays quantised weights out for the kernels: blocks are read where they lie in the file, group by group. */
#include "compute/cpu/quant/quant_pack.h"

#include <string.h>

#include "base/math.h"
#include "base/assert.h"
#include "compute/cpu/quant/quant_panels.h"

#define PACK_MIN_PANELS 1

struct packing {
    const struct ash_quant_panels *kernels;
    enum ash_quant_layout layout;
    enum ash_dtype dtype;
    const uint8_t *rows; /* of the plain weight, from the first one of these panels */
    size_t count, K;
    uint8_t *panels;
};

/* What a byte of the file is XORed with: it makes a high nibble in two's complement. */
static uint8_t flip(enum ash_quant_layout layout, enum ash_dtype dtype)
{
    return layout == ASH_QUANT_LAYOUT_I8MM && dtype == ASH_Q4_0 ? 0x80 : 0;
}

/* The quants of one block of one row, in pieces of `piece` bytes, to places `step` bytes apart. */
static inline void place(const uint8_t *quants, size_t bytes, size_t piece, uint64_t mask, uint8_t *to, size_t step)
{
    for (size_t i = 0; i < bytes; i += piece, to += step) {
        uint64_t word = 0;

        memcpy(&word, quants + i, piece);
        word ^= mask;
        memcpy(to, &word, piece);
    }
}

/* Those of a block of the file, to their place in a panel. */
static void place_block(const struct packing *op, const uint8_t *block, size_t row, uint8_t *quants)
{
    size_t rows = ash_quant_panel_rows(op->layout), bytes = ash_quant_quants_bytes(op->dtype);
    uint64_t mask = 0x0101010101010101ull * flip(op->layout, op->dtype);

    if (op->layout == ASH_QUANT_LAYOUT_I8MM)
        place(block + sizeof(uint16_t), bytes, 8, mask, quants + 8 * row, 8 * rows);
    else
        place(block + sizeof(uint16_t), bytes, 4, mask, quants + 4 * row, 4 * rows);
}

/* The group scale of a group of a row, and the sub-scales of its blocks. */
static void place_head(const struct packing *op, const uint8_t *blocks, size_t count, size_t row, uint8_t *group)
{
    size_t rows = ash_quant_panel_rows(op->layout);
    int32_t subscales[ASH_QUANT_GROUP_BLOCKS] = {0};
    float group_scale;

    if (op->dtype == ASH_Q8_0) {
        memcpy(group + row * sizeof(uint16_t), blocks, sizeof(uint16_t));
        return;
    }
    group_scale = op->dtype == ASH_Q4_0 && op->kernels->subscales != NULL
                      ? op->kernels->subscales(blocks, count, subscales)
                      : ash_quant_subscales(blocks, count, op->dtype, subscales);
    memcpy(group + row * sizeof(group_scale), &group_scale, sizeof(group_scale));
    for (size_t b = 0; b < ASH_QUANT_GROUP_BLOCKS && op->dtype == ASH_Q4_0; b++)
        group[rows * sizeof(group_scale) + b * rows + row] = (uint8_t)subscales[b];
}

/* ---- the types of quant_open.h ----------------------------------------------------------------------------------- */

/* Where the sub-scale of a sub-block is. */
static size_t subscale_at(const struct packing *op, size_t sub, size_t row)
{
    size_t rows = ash_quant_panel_rows(op->layout), of_block = ASH_QUANT_BLOCK / ash_quant_sub(op->dtype);

    if (op->layout == ASH_QUANT_LAYOUT_VNNI) return sub * rows + row;
    return sub / of_block * of_block * rows + row * of_block + sub % of_block;
}

/* The head of a group: scale, minimum, sub-scales, sub-minimums. */
static void place_open_head(const struct packing *op, const struct ash_quant_opened *opened, size_t row, uint8_t *group)
{
    size_t rows = ash_quant_panel_rows(op->layout), subs = ash_quant_packed_subs(op->dtype);
    size_t repeats = ash_quant_sub(op->dtype) / ASH_QUANT_SUB, piece = op->layout == ASH_QUANT_LAYOUT_I8MM ? 8 : 4;
    uint16_t scale = ash_f32_to_f16(opened->scale), min = ash_f32_to_f16(opened->min);
    bool is_half = ash_quant_packed_scale_bytes(op->dtype) == sizeof(scale);
    const void *stored = is_half ? (const void *)&scale : &opened->scale;

    memcpy(group + row * ash_quant_packed_scale_bytes(op->dtype), stored, ash_quant_packed_scale_bytes(op->dtype));
    group += rows * ash_quant_packed_scale_bytes(op->dtype);
    if (ash_quant_has_min(op->dtype)) {
        memcpy(group + row * sizeof(min), &min, sizeof(min));
        group += rows * sizeof(min);
    }
    for (size_t sub = 0; sub < subs; sub++)
        group[subscale_at(op, sub, row)] = (uint8_t)opened->subscales[sub * repeats];
    group += subs * rows;
    for (size_t sub = 0; ash_quant_has_min(op->dtype) && sub < subs; sub++)
        group[(sub / piece * rows + row) * piece + sub % piece] = (uint8_t)opened->submins[sub * repeats];
}

/* 32 quants in 16 bytes, or in 24. */
static void squeeze(const int8_t *q, size_t bits, size_t piece, int offset, uint8_t *out)
{
    uint8_t raw[ASH_QUANT_BLOCK];

    for (size_t i = 0; i < ASH_QUANT_BLOCK; i++)
        raw[i] = (uint8_t)(q[i] + offset);
    if (bits == 4) {
        for (size_t i = 0; i < ASH_QUANT_BLOCK / 2; i++)
            out[i] = (uint8_t)(raw[i] | raw[i + ASH_QUANT_BLOCK / 2] << 4);
        return;
    }
    for (size_t at = 0; at < ASH_QUANT_BLOCK; at += 4 * piece, out += 3 * piece)
        for (size_t third = 0; third < 3; third++)
            for (size_t i = 0; i < piece; i++) {
                uint8_t last = raw[at + 3 * piece + i];

                out[third * piece + i] = (uint8_t)(raw[at + third * piece + i] | (last >> 2 * third & 3) << 6);
            }
}

/* One group of one row. */
static void pack_open_group(const struct packing *op, const uint8_t *blocks, size_t count, size_t row, uint8_t *group)
{
    size_t rows = ash_quant_panel_rows(op->layout), bytes = ash_quant_quants_bytes(op->dtype);
    size_t piece = op->layout == ASH_QUANT_LAYOUT_I8MM ? 8 : 4;
    struct ash_quant_opened opened;

    ash_quant_open(blocks, op->dtype, count * ASH_QUANT_BLOCK, &opened);
    place_open_head(op, &opened, row, group);
    group += ash_quant_panel_head(op->layout, op->dtype);
    for (size_t b = 0; b < count; b++, group += rows * bytes) {
        uint8_t squeezed[ASH_QUANT_BLOCK];

        if (ash_quant_table(op->dtype) != NULL)
            memcpy(squeezed, ash_quant_nibbles(blocks, op->dtype, b), bytes);
        else
            squeeze(opened.q + b * ASH_QUANT_BLOCK, ash_quant_packed_bits(op->dtype), piece,
                    ash_quant_offset(op->dtype), squeezed);
        place(squeezed, bytes, piece, 0, group + piece * row, piece * rows);
    }
}

/* ---- panels ------------------------------------------------------------------------------------------------------ */

static void pack_group(const struct packing *op, const uint8_t *block, size_t count, size_t row, uint8_t *group)
{
    size_t quants = ash_quant_panel_rows(op->layout) * ash_quant_quants_bytes(op->dtype);

    place_head(op, block, count, row, group);
    group += ash_quant_panel_head(op->layout, op->dtype);
    for (size_t i = 0; i < count; i++, block += ash_dtype_bytes(op->dtype), group += quants)
        place_block(op, block, row, group);
}

static void pack_row(const struct packing *op, const uint8_t *block, size_t row, uint8_t *group)
{
    size_t blocks = op->K / ASH_QUANT_BLOCK, group_blocks = ash_quant_group_blocks(op->dtype);

    for (size_t b = 0; b < blocks; b += group_blocks) {
        size_t count = ash_min(blocks - b, group_blocks);

        if (ash_quant_is_open(op->dtype))
            pack_open_group(op, block, count, row, group);
        else
            pack_group(op, block, count, row, group);
        block += ash_dtype_size(op->dtype, count * ASH_QUANT_BLOCK);
        group += ash_quant_panel_group(op->layout, op->dtype);
    }
}

static void pack_panel(const struct packing *op, size_t panel)
{
    size_t rows = ash_quant_panel_rows(op->layout), panel_bytes = ash_quant_panel_bytes(op->layout, op->dtype, op->K);
    size_t row_bytes = ash_dtype_size(op->dtype, op->K);
    const uint8_t *from = op->rows + panel * rows * row_bytes;
    uint8_t *to = op->panels + panel * panel_bytes;

    if ((panel + 1) * rows > op->count || op->K % ash_quant_group(op->dtype) != 0) memset(to, 0, panel_bytes);
    if (op->kernels->pack != NULL && (panel + 1) * rows <= op->count) {
        op->kernels->pack(op->dtype, from, row_bytes, op->K / ASH_QUANT_BLOCK, to);
        return;
    }
    for (size_t row = 0; row < rows && panel * rows + row < op->count; row++, from += row_bytes)
        pack_row(op, from, row, to);
}

static void pack_panels(void *ctx, size_t begin, size_t end, int worker)
{
    (void)worker;
    for (size_t panel = begin; panel < end; panel++)
        pack_panel(ctx, panel);
}

size_t ash_quant_packed_bytes(enum ash_quant_layout layout, enum ash_dtype dtype, size_t N, size_t K)
{
    size_t panels = ash_div_up(N, ash_quant_panel_rows(layout));

    return ash_round_up(panels * ash_quant_panel_bytes(layout, dtype, K) + ASH_QUANT_PANEL_SLACK_BYTES,
                        ASH_MEMORY_ALIGN);
}

void ash_quant_pack(struct ash_exec *exec, const struct ash_quant_panels *kernels, const struct ash_weight *w, size_t K,
                    size_t first, size_t count, void *packed)
{
    enum ash_quant_layout layout = kernels->layout;
    size_t rows = ash_quant_panel_rows(layout), row_bytes = ash_dtype_size(w->mat.dtype, K);
    struct packing op = {.kernels = kernels, .layout = layout, .dtype = w->mat.dtype, .count = count, .K = K};

    ash_assert(K % ash_dtype_block(w->mat.dtype) == 0 && first % ASH_PACK_ROWS == 0 && !w->packed);
    ash_assert(first + count <= w->N && (count % ASH_PACK_ROWS == 0 || first + count == w->N));
    op.rows = (const uint8_t *)w->mat.data + first * row_bytes;
    op.panels = (uint8_t *)packed + first / rows * ash_quant_panel_bytes(layout, op.dtype, K);
    ash_workers_run(exec->workers, ash_div_up(count, rows), PACK_MIN_PANELS, pack_panels, &op);
}
