/* quant_quads - what the kernels for weights packed in quads (quant_pack.h) share: how x is prepared, and functions
 * that do not differ between VNNI and AMX. Of each block of k, a tile of up to 16 rows of x holds their scales, minus
 * the sums of their numbers, and the numbers, row by row. */
#ifndef ASH_COMPUTE_QUANT_QUADS_H
#define ASH_COMPUTE_QUANT_QUADS_H

#include <stdint.h>
#include "compute/cpu/quant_pack.h"

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

#define QUADS 8       /* fours of k in a block */
#define QUADS_ROWS 16 /* of a panel */
#define QUADS_TILE_STRIPS 16
#define QUADS_STRIP_BYTES (sizeof(float) + sizeof(int32_t) + ASH_QUANT_BLOCK)
#define QUADS_EXPANDED_BYTES (64 + QUADS * 64) /* scales as floats, then the numbers as bytes */

static inline const float *quads_scales(const uint8_t *tile)
{
    return (const float *)(const void *)tile;
}

/* Minus the sums. */
static inline const int32_t *quads_sums(const uint8_t *tile, size_t strips)
{
    return (const int32_t *)(const void *)(tile + strips * sizeof(float));
}

static inline const uint8_t *quads_row(const uint8_t *tile, size_t strips, size_t strip)
{
    return tile + strips * (sizeof(float) + sizeof(int32_t)) + strip * ASH_QUANT_BLOCK;
}

/* As struct ash_quant_panels says; with VNNI. */
void ash_quant_quads_pack(enum ash_dtype dtype, const uint8_t *rows, size_t row_bytes, size_t blocks, uint8_t *panel);
void ash_quant_quads_quantise(const float *const *rows, size_t blocks, size_t strip, size_t strips, uint8_t *tile);
void ash_quant_quads_quantise_one(enum ash_dtype dtype, const float *row, size_t blocks, uint8_t *x);
void ash_quant_quads_tile(enum ash_dtype dtype, bool expanded, const uint8_t *panel, const uint8_t *x, size_t strips,
                          size_t blocks, float *sums);
void ash_quant_quads_untile(const float *sums, size_t rows, float *y, size_t y_stride);
void ash_quant_quads_one(enum ash_dtype dtype, const uint8_t *const *panels, size_t count, const uint8_t *x,
                         size_t blocks, float *y);

#endif
