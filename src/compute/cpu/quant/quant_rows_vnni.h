/* quant_rows_vnni - what the kernels of packed weights for AVX-512 VNNI have in common: panels of weights, and tiles of
 * rows of x, whose groups begin with the scales of the rows. */
#ifndef ASH_COMPUTE_QUANT_ROWS_VNNI_H
#define ASH_COMPUTE_QUANT_ROWS_VNNI_H

#include <immintrin.h>
#include <string.h>

#include "compute/cpu/quant/quant_layout_vnni.h"

#define TILE_MICROS 16
#define AT_ONCE 8 /* products of a row and a panel whose dots and sums fit the registers */

/* Panels that are multiplied at the same time; far: they come from memory, not from a cache. */
struct panels {
    const uint8_t *at[ASH_QUANT_STREAMS];
    size_t count;
    bool far;
};

/* Rows of a tile. */
struct rows {
    const uint8_t *tile;
    size_t micros, first, count;
};

/* The scale of row `micro` of a group of a tile, and of those after it. */
INLINE const float *x_scales(const uint8_t *x, size_t micro)
{
    return (const float *)(const void *)x + micro;
}

/* Four bytes, number k4 of them, in every lane. */
INLINE __m512i vnni_four(const void *bytes, size_t k4)
{
    int32_t four;

    memcpy(&four, (const char *)bytes + 4 * k4, sizeof(four));
    return _mm512_set1_epi32(four);
}

#endif
