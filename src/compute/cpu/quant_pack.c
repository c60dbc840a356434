/* Lays quantised weights out for the kernels: whole blocks are read where they lie in the file and written in order. */
#include "compute/cpu/quant_pack.h"

#include <string.h>

#include "base/assert.h"

#define PACK_MIN_PANELS 1

struct packing {
    const struct ash_quant_panels *kernels;
    enum ash_quant_layout layout;
    enum ash_dtype dtype;
    const uint8_t *rows; /* of the plain weight, from the first one of these panels */
    size_t count, blocks;
    uint8_t *panels;
};

/* What a byte of the file is XORed with: it makes an unsigned byte, or a high nibble in two's complement. */
static uint8_t flip(enum ash_quant_layout layout, enum ash_dtype dtype)
{
    return (layout == ASH_QUANT_QUADS) == (dtype == ASH_Q8_0) ? 0x80 : 0;
}

/* The whole numbers of one block of one row, in pieces of so many bytes that lie `step` bytes apart. */
static inline void place(const uint8_t *numbers, size_t bytes, size_t piece, uint64_t mask, uint8_t *to, size_t step)
{
    for (size_t i = 0; i < bytes; i += piece, to += step) {
        uint64_t word = 0;

        memcpy(&word, numbers + i, piece);
        word ^= mask;
        memcpy(to, &word, piece);
    }
}

static void pack_row(const struct packing *op, const uint8_t *block, size_t row, uint8_t *to)
{
    size_t rows = ash_quant_panel_rows(op->layout), bytes = ash_dtype_bytes(op->dtype) - sizeof(uint16_t);
    size_t panel_block = ash_quant_panel_block(op->layout, op->dtype);
    uint64_t mask = 0x0101010101010101ull * flip(op->layout, op->dtype);

    for (size_t b = 0; b < op->blocks; b++, block += sizeof(uint16_t) + bytes, to += panel_block) {
        uint8_t *numbers = to + rows * sizeof(uint16_t);

        memcpy(to + row * sizeof(uint16_t), block, sizeof(uint16_t));
        if (op->layout == ASH_QUANT_PAIRS)
            place(block + sizeof(uint16_t), bytes, 8, mask, numbers + 8 * row, 8 * rows);
        else
            place(block + sizeof(uint16_t), bytes, 4, mask, numbers + 4 * row, 4 * rows);
    }
}

static void pack_panel(const struct packing *op, size_t panel)
{
    size_t rows = ash_quant_panel_rows(op->layout), panel_bytes = rows * op->blocks * ash_dtype_bytes(op->dtype);
    uint8_t *to = op->panels + panel * panel_bytes;

    if (op->kernels->pack != NULL && (panel + 1) * rows <= op->count) {
        op->kernels->pack(op->dtype, op->rows + panel * panel_bytes, panel_bytes / rows, op->blocks, to);
        return;
    }
    if ((panel + 1) * rows > op->count) memset(to, 0, panel_bytes); /* rows that are not there have scale 0 */
    for (size_t row = 0; row < rows && panel * rows + row < op->count; row++)
        pack_row(op, op->rows + panel * panel_bytes + row * panel_bytes / rows, row, to);
}

static void pack_panels(void *ctx, size_t begin, size_t end, int worker)
{
    (void)worker;
    for (size_t panel = begin; panel < end; panel++)
        pack_panel(ctx, panel);
}

size_t ash_quant_packed_bytes(enum ash_quant_layout layout, enum ash_dtype dtype, size_t N, size_t K)
{
    size_t rows = ash_quant_panel_rows(layout), panels = (N + rows - 1) / rows;
    size_t bytes = panels * (K / ASH_QUANT_BLOCK) * ash_quant_panel_block(layout, dtype);

    return (bytes + ASH_MEMORY_ALIGN - 1) / ASH_MEMORY_ALIGN * ASH_MEMORY_ALIGN;
}

void ash_quant_pack(struct ash_exec *exec, const struct ash_quant_panels *kernels, const struct ash_weight *w, size_t K,
                    size_t first, size_t count, void *packed)
{
    enum ash_quant_layout layout = kernels->layout;
    size_t rows = ash_quant_panel_rows(layout), row_bytes = ash_dtype_size(w->mat.dtype, K);
    struct packing op = {
        .kernels = kernels, .layout = layout, .dtype = w->mat.dtype, .count = count, .blocks = K / ASH_QUANT_BLOCK};

    ash_assert(K % ASH_QUANT_BLOCK == 0 && first % ASH_PACK_ROWS == 0 && !w->packed);
    ash_assert(first + count <= w->N && (count % ASH_PACK_ROWS == 0 || first + count == w->N));
    op.rows = (const uint8_t *)w->mat.data + first * row_bytes;
    op.panels = (uint8_t *)packed + first / rows * op.blocks * ash_quant_panel_block(layout, op.dtype);
    ash_workers_run(exec->workers, (count + rows - 1) / rows, PACK_MIN_PANELS, pack_panels, &op);
}
