/* quant_quads - what the kernels for weights packed in quads (quant_pack.h) share: how x is prepared, and functions
 * that do not differ between VNNI and AMX. Of each block of k, a tile of up to 16 rows of x holds their scales, minus
 * the sums of their numbers, and the numbers, row by row. */
#ifndef ASH_COMPUTE_QUANT_QUADS_H
#define ASH_COMPUTE_QUANT_QUADS_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>
#include "compute/cpu/quant_pack.h"
#include "compute/quant.h"

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

#define QUADS 8       /* fours of k in a block */
#define QUADS_ROWS 16 /* of a panel */
#define QUADS_TILE_STRIPS 16
#define QUADS_STRIP_BYTES(block_k) (sizeof(float) + sizeof(int32_t) + (block_k))
#define QUADS_EXPANDED_BYTES (64 + QUADS * 64)              /* scales as floats, then the numbers as bytes */
#define QUADS_WIDE_BYTES (64 + ASH_QUANT_WIDE * QUADS_ROWS) /* the same of a group of Q8_W */

static inline const float *quads_scales(const uint8_t *tile)
{
    return (const float *)(const void *)tile;
}

/* Minus the sums. */
static inline const int32_t *quads_sums(const uint8_t *tile, size_t strips)
{
    return (const int32_t *)(const void *)(tile + strips * sizeof(float));
}

static inline const uint8_t *quads_row(const uint8_t *tile, size_t strips, size_t strip, size_t block_k)
{
    return tile + strips * (sizeof(float) + sizeof(int32_t)) + strip * block_k;
}

/* ash_quant_numbers on vectors; count is a multiple of 16. Gives minus the sum of the numbers as well. */
INLINE float quads_numbers(const float *x, size_t count, uint8_t *q, int32_t *minus_sum)
{
    const __m512i no_sign = _mm512_set1_epi32(0x7fffffff),
                  rounder_bits = _mm512_set1_epi32((int)ASH_QUANT_ROUNDER_BITS);
    __m512i top = _mm512_setzero_si512(), sum = top;
    __m512 factor;
    uint32_t bits;
    float amax, d, inverse;

    for (size_t i = 0; i < count; i += 16)
        top = _mm512_max_epu32(top, _mm512_and_si512(_mm512_loadu_si512(x + i), no_sign));
    bits = _mm512_reduce_max_epu32(top);
    memcpy(&amax, &bits, sizeof(amax));
    d = amax / 127.0f;
    inverse = 1.0f / d;
    *minus_sum = 0;
    if (bits >= ASH_QUANT_INFINITY_BITS || isinf(inverse)) {
        memset(q, 0, count);
        return bits >= ASH_QUANT_INFINITY_BITS ? NAN : 0.0f;
    }
    factor = _mm512_set1_ps(inverse);
    for (size_t i = 0; i < count; i += 16) {
        __m512 whole = _mm512_add_ps(_mm512_mul_ps(_mm512_loadu_ps(x + i), factor), _mm512_set1_ps(ASH_QUANT_ROUNDER));
        __m512i numbers = _mm512_sub_epi32(_mm512_castps_si512(whole), rounder_bits);

        _mm_storeu_si128((__m128i *)(void *)(q + i), _mm512_cvtepi32_epi8(numbers));
        sum = _mm512_add_epi32(sum, numbers);
    }
    *minus_sum = -_mm512_reduce_add_epi32(sum);
    return d;
}

/* As struct ash_quant_panels says. */
void ash_quant_quads_pack(enum ash_dtype dtype, const uint8_t *rows, size_t row_bytes, size_t blocks, uint8_t *panel);
void ash_quant_quads_untile(const float *sums, size_t rows, float *y, size_t y_stride);

#endif
