/* Lays quantised weights out for the kernels: whole blocks are read where they lie in the file and written in order. */
#include "compute/cpu/quant_pack.h"

#include <string.h>

#include "base/assert.h"
#include "compute/quant.h"

#define PACK_MIN_PANELS 1

struct packing {
    const struct ash_quant_panels *kernels;
    enum ash_quant_layout layout;
    enum ash_dtype dtype;
    const uint8_t *rows; /* of the plain weight, from the first one of these panels */
    size_t count, K;
    uint8_t *panels;
};

/* What a byte of the file is XORed with: it makes an unsigned byte, or a high nibble in two's complement. */
static uint8_t flip(enum ash_quant_layout layout, enum ash_dtype dtype)
{
    if (dtype == ASH_Q8_W) return 0;
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

/* Those of a block of the file, into a panel's. */
static void place_block(const struct packing *op, const uint8_t *block, size_t row, uint8_t *numbers)
{
    size_t rows = ash_quant_panel_rows(op->layout), bytes = ash_dtype_bytes(op->dtype) - sizeof(uint16_t);
    uint64_t mask = 0x0101010101010101ull * flip(op->layout, op->dtype);

    if (op->layout == ASH_QUANT_PAIRS)
        place(block + sizeof(uint16_t), bytes, 8, mask, numbers + 8 * row, 8 * rows);
    else
        place(block + sizeof(uint16_t), bytes, 4, mask, numbers + 4 * row, 4 * rows);
}

static void pack_row(const struct packing *op, const uint8_t *block, size_t row, uint8_t *to)
{
    size_t rows = ash_quant_panel_rows(op->layout), panel_block = ash_quant_panel_block(op->layout, op->dtype);

    for (size_t k = 0; k < op->K; k += ASH_QUANT_BLOCK, block += ash_dtype_bytes(op->dtype), to += panel_block) {
        memcpy(to + row * sizeof(uint16_t), block, sizeof(uint16_t));
        place_block(op, block, row, to + rows * sizeof(uint16_t));
    }
}

static void pack_row_wide(const struct packing *op, const uint8_t *block, size_t row, uint8_t *to)
{
    size_t rows = ash_quant_panel_rows(op->layout);

    for (size_t k = 0; k < op->K; k += ASH_QUANT_BLOCK, block += ash_dtype_bytes(op->dtype)) {
        if (k % ASH_QUANT_WIDE == 0) {
            float scale = ash_quant_scale(block);

            memcpy(to + row * sizeof(scale), &scale, sizeof(scale));
            to += rows * sizeof(scale);
        }
        place_block(op, block, row, to);
        to += rows * ASH_QUANT_BLOCK;
    }
}

static void pack_panel(const struct packing *op, size_t panel)
{
    size_t rows = ash_quant_panel_rows(op->layout), panel_bytes = ash_quant_panel_bytes(op->layout, op->dtype, op->K);
    size_t row_bytes = ash_dtype_size(op->dtype, op->K);
    const uint8_t *from = op->rows + panel * rows * row_bytes;
    uint8_t *to = op->panels + panel * panel_bytes;
    bool filled_up = op->dtype == ASH_Q8_W && op->K % ASH_QUANT_WIDE_STEP != 0;

    if ((panel + 1) * rows > op->count || filled_up) memset(to, 0, panel_bytes); /* rows that are not there: scale 0 */
    if (op->kernels->pack != NULL && (panel + 1) * rows <= op->count) {
        op->kernels->pack(op->dtype, from, row_bytes, op->K / ASH_QUANT_BLOCK, to);
        return;
    }
    for (size_t row = 0; row < rows && panel * rows + row < op->count; row++, from += row_bytes) {
        if (op->dtype == ASH_Q8_W)
            pack_row_wide(op, from, row, to);
        else
            pack_row(op, from, row, to);
    }
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
    size_t bytes = panels * ash_quant_panel_bytes(layout, dtype, K);

    return (bytes + ASH_MEMORY_ALIGN - 1) / ASH_MEMORY_ALIGN * ASH_MEMORY_ALIGN;
}

void ash_quant_pack(struct ash_exec *exec, const struct ash_quant_panels *kernels, const struct ash_weight *w, size_t K,
                    size_t first, size_t count, void *packed)
{
    enum ash_quant_layout layout = kernels->layout;
    size_t rows = ash_quant_panel_rows(layout), row_bytes = ash_dtype_size(w->mat.dtype, K);
    struct packing op = {.kernels = kernels, .layout = layout, .dtype = w->mat.dtype, .count = count, .K = K};

    ash_assert(K % ASH_QUANT_BLOCK == 0 && first % ASH_PACK_ROWS == 0 && !w->packed);
    ash_assert(first + count <= w->N && (count % ASH_PACK_ROWS == 0 || first + count == w->N));
    op.rows = (const uint8_t *)w->mat.data + first * row_bytes;
    op.panels = (uint8_t *)packed + first / rows * ash_quant_panel_bytes(layout, op.dtype, K);
    ash_workers_run(exec->workers, (count + rows - 1) / rows, PACK_MIN_PANELS, pack_panels, &op);
}
