/* quant_layout_vnni - what the kernels for weights packed in the vnni layout (quant_pack.h) share: quantising x,
 * packing, and sums as rows. */
#ifndef ASH_COMPUTE_QUANT_LAYOUT_VNNI_H
#define ASH_COMPUTE_QUANT_LAYOUT_VNNI_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>
#include "compute/cpu/quant/quant_panels.h"
#include "compute/quant.h"

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

#define VNNI_K4 8          /* groups of four k in a block: what a lane multiplies at once */
#define VNNI_SMALL_M_MAX 8 /* rows of x that are small M to the kernels of this layout */
#define VNNI_ROWS 16       /* of a panel */
#define VNNI_LINE 64       /* bytes of four k of a panel's rows, and of their group scales as floats */
#define VNNI_LINES(dtype) (ash_quant_quants_bytes(dtype) / 4) /* of a block's quants */

/* Of a group of a panel: the sub-scales of a block of Q4_0, and the quants of a block. */
static inline const uint8_t *vnni_subscales(const uint8_t *group, size_t block)
{
    return group + VNNI_LINE + block * VNNI_ROWS;
}

static inline const uint8_t *vnni_block(enum ash_dtype dtype, const uint8_t *group, size_t block)
{
    return group + ash_quant_panel_head(ASH_QUANT_LAYOUT_VNNI, dtype) + block * VNNI_LINES(dtype) * VNNI_LINE;
}

/* k of a group, which are `group` unless it is a row's last one, where k are left. These are whole blocks, so a group
 * of one block is never shorter: a compiler would not see it. */
static inline size_t vnni_group_k(size_t group, size_t k)
{
    return group == ASH_QUANT_BLOCK || k > group ? group : k;
}

/* ash_quant_quantise on vectors, in two halves. First: the scale of count floats (a multiple of 16), and the factor
 * that makes quants of them (0: they become zeros). Second: the quants, all of them or a part; returns their sum. */
INLINE float vnni_scale(const float *x, size_t count, float *factor_out)
{
    const __m512i no_sign = _mm512_set1_epi32(0x7fffffff);
    __m512i top = _mm512_setzero_si512();
    uint32_t bits;
    float amax, d;

    for (size_t i = 0; i < count; i += 16)
        top = _mm512_max_epu32(top, _mm512_and_si512(_mm512_loadu_si512(x + i), no_sign));
    bits = _mm512_reduce_max_epu32(top);
    memcpy(&amax, &bits, sizeof(amax));
    d = amax / 127.0f;
    *factor_out = 1.0f / d;
    if (bits < ASH_F32_INFINITY_BITS && !isinf(*factor_out)) return d;
    *factor_out = 0.0f;
    return bits >= ASH_F32_INFINITY_BITS ? NAN : 0.0f;
}

INLINE int32_t vnni_quants(const float *x, size_t count, float factor, uint8_t *q)
{
    const __m512i rounder_bits = _mm512_set1_epi32((int)ASH_F32_ROUND_MAGIC_BITS);
    __m512i sum = _mm512_setzero_si512();

    if (factor == 0.0f) { /* x may be no number */
        memset(q, 0, count);
        return 0;
    }
    for (size_t i = 0; i < count; i += 16) {
        __m512 scaled = _mm512_mul_ps(_mm512_loadu_ps(x + i), _mm512_set1_ps(factor));
        __m512i bits = _mm512_castps_si512(_mm512_add_ps(scaled, _mm512_set1_ps(ASH_F32_ROUND_MAGIC)));
        __m512i quants = _mm512_sub_epi32(bits, rounder_bits);

        _mm_storeu_si128((__m128i *)(void *)(q + i), _mm512_cvtepi32_epi8(quants));
        sum = _mm512_add_epi32(sum, quants);
    }
    return _mm512_reduce_add_epi32(sum);
}

/* ash_quant_panels.pack of this layout. */
void ash_quant_vnni_pack(enum ash_dtype dtype, const uint8_t *rows, size_t row_bytes, size_t blocks, uint8_t *panel);
/* ash_quant_panels.untile of this layout. */
void ash_quant_vnni_untile(const float *sums, size_t rows, float *y, size_t y_stride);

#endif
