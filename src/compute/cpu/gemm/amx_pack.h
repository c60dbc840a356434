/* amx_pack - copies a block of a strided matrix into tiles of bf16, each 16 lines (rows of the left operand, columns of
 * the right one) by 32 k, one KiB in one piece. The left operand's tile has a line in each row, the right one's a pair
 * of k. What is missing to whole tiles is zero. */
#ifndef ASH_COMPUTE_AMX_PACK_H
#define ASH_COMPUTE_AMX_PACK_H

#include <immintrin.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/math.h"
#include "base/bf16.h"
#include "base/dtype.h"
#include "compute/cpu/vec/amx.h"
#include "compute/cpu/gemm/gemm_blocks.h"

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")
#define CLASS_DENORMAL 0x20         /* of _mm512_fpclass_ps_mask */
#define PANEL_LINES (2 * TILE_SIDE) /* lines of two tiles, which take turns k by k */

INLINE const void *pack_at(const void *data, enum ash_dtype dtype, size_t index)
{
    return dtype == ASH_F32 ? (const void *)((const float *)data + index)
                            : (const void *)((const uint16_t *)data + index);
}

INLINE __mmask32 low_bits(size_t count)
{
    return count >= 32 ? 0xffffffffu : (1u << count) - 1;
}

/* 16 floats as bf16, to nearest even, in the low half of each lane. */
INLINE __m512i round_slowly(__m512 x)
{
    __m512i bits = _mm512_castps_si512(x), high = _mm512_srli_epi32(bits, 16);
    __m512i up = _mm512_add_epi32(_mm512_and_si512(high, _mm512_set1_epi32(1)), _mm512_set1_epi32(0x7fff));
    __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, up), 16);

    return _mm512_mask_or_epi32(rounded, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), high, _mm512_set1_epi32(0x40));
}

/* 32 floats as bf16, to nearest even. The instruction takes denormals for zeros, but the largest round to a number. */
INLINE __m512i round_both(__m512 low, __m512 high)
{
    if (__builtin_expect(_mm512_fpclass_ps_mask(low, CLASS_DENORMAL) | _mm512_fpclass_ps_mask(high, CLASS_DENORMAL), 0))
        return _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi32_epi16(round_slowly(low))),
                                  _mm512_cvtepi32_epi16(round_slowly(high)), 1);
    return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

/* The elements from index on that mask wants, as floats; the others are 0. */
INLINE __m512 load_floats(const void *data, enum ash_dtype dtype, size_t index, __mmask16 mask)
{
    const void *p = pack_at(data, dtype, index);

    if (dtype == ASH_F16) return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, p));
    return _mm512_maskz_loadu_ps(mask, p);
}

/* 32 adjacent elements as bf16. */
INLINE __m512i load_line(const void *data, enum ash_dtype dtype, size_t index, __mmask32 mask)
{
    if (dtype == ASH_BF16) return _mm512_maskz_loadu_epi16(mask, pack_at(data, dtype, index));
    return round_both(load_floats(data, dtype, index, (__mmask16)mask),
                      load_floats(data, dtype, index + 16, (__mmask16)(mask >> 16)));
}

/* 16 adjacent elements from first on and 16 from second on as bf16, taking turns. */
INLINE __m512i load_pairs(const void *data, enum ash_dtype dtype, size_t first, size_t second, __mmask16 mask,
                          __mmask16 second_mask)
{
    static const uint16_t turns[32] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                       8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    __m512i both;

    if (dtype == ASH_BF16)
        both = _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_maskz_loadu_epi16(mask, pack_at(data, dtype, first))),
                                  _mm256_maskz_loadu_epi16(second_mask, pack_at(data, dtype, second)), 1);
    else
        both = round_both(load_floats(data, dtype, first, mask), load_floats(data, dtype, second, second_mask));
    return _mm512_permutexvar_epi16(_mm512_loadu_si512(turns), both);
}

/* 16 x 16 words change places: of words, then of twos, then of fours within and across the quarters. */
INLINE void turn_over(__m512i v[TILE_SIDE])
{
    __m512i t[TILE_SIDE];

    UNROLL
    for (size_t i = 0; i < TILE_SIDE; i += 2) {
        t[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
    }
    UNROLL
    for (size_t i = 0; i < TILE_SIDE; i += 4) {
        v[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        v[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        v[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        v[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    UNROLL
    for (size_t i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_i32x4(v[i], v[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_i32x4(v[i], v[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_i32x4(v[i + 8], v[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_i32x4(v[i + 8], v[i + 12], 0xdd);
    }
    UNROLL
    for (size_t i = 0; i < 4; i++) {
        v[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
        v[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
        v[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
        v[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
    }
}

/* A tile whose elements are adjacent neither way. */
static void pack_tile_apart(const struct pack *p, size_t line, size_t k, uint16_t *out)
{
    for (size_t i = 0; i < TILE_SIDE; i++)
        for (size_t j = 0; j < TILE_K; j++) {
            size_t index = (line + i) * p->line_stride + (k + j) * p->k_stride;
            size_t at = p->right ? (j / 2 * TILE_SIDE + i) * 2 + j % 2 : i * TILE_K + j;
            const void *from = pack_at(p->data, p->dtype, index);

            if (line + i >= p->count || k + j >= p->k_count)
                out[at] = 0;
            else if (p->dtype == ASH_BF16)
                out[at] = *(const uint16_t *)from;
            else
                out[at] = ash_f32_to_bf16(p->dtype == ASH_F16 ? ash_f16_to_f32(*(const uint16_t *)from)
                                                              : *(const float *)from);
        }
}

/* One tile from (line, k) on. dtype is p's, as a constant; adjacent: its k are, else its lines. */
INLINE void pack_tile(const struct pack *p, enum ash_dtype dtype, bool adjacent, size_t line, size_t k, uint16_t *out)
{
    size_t lines = p->count - line, k_left = p->k_count - k, first = line * p->line_stride + k * p->k_stride;
    __mmask16 line_mask = (__mmask16)low_bits(lines);
    __mmask32 k_mask = low_bits(k_left);
    __m512i v[TILE_SIDE];

    UNROLL
    for (size_t i = 0; i < TILE_SIDE; i++)
        if (adjacent)
            v[i] = load_line(p->data, dtype, first + i * p->line_stride, i < lines ? k_mask : 0);
        else
            v[i] = load_pairs(p->data, dtype, first + 2 * i * p->k_stride, first + (2 * i + 1) * p->k_stride,
                              2 * i < k_left ? line_mask : 0, 2 * i + 1 < k_left ? line_mask : 0);
    if (adjacent == p->right) turn_over(v);
    UNROLL
    for (size_t i = 0; i < TILE_SIDE; i++)
        _mm512_storeu_si512(out + i * TILE_K, v[i]);
}

/* Where the tile from (line, k) on belongs. */
INLINE uint16_t *pack_place(const struct pack *p, size_t line, size_t k, uint16_t *out)
{
    size_t panel = ash_round_up(p->k_count, TILE_K) / TILE_K * 2;

    return out + (line / PANEL_LINES * panel + k / TILE_K * 2 + line / TILE_SIDE % 2) * TILE_SIZE;
}

INLINE void pack_as(const struct pack *pack, enum ash_dtype dtype, bool adjacent, uint16_t *out)
{
    const struct pack p = *pack; /* out may alias it as far as the compiler knows */
    size_t line;

    for (size_t k = 0; k < p.k_count; k += TILE_K) {
        for (line = 0; line < p.count; line += TILE_SIDE)
            pack_tile(&p, dtype, adjacent, line, k, pack_place(&p, line, k, out));
        if (line % PANEL_LINES != 0) memset(pack_place(&p, line, k, out), 0, TILE_SIZE * sizeof(*out));
    }
}

static void pack_apart(const struct pack *p, uint16_t *out)
{
    for (size_t k = 0; k < p->k_count; k += TILE_K)
        for (size_t line = 0; line < ash_round_up(p->count, PANEL_LINES); line += TILE_SIDE)
            pack_tile_apart(p, line, k, pack_place(p, line, k, out));
}

/* Panels of PANEL_LINES lines, one after the other: for each TILE_K of k, two tiles. */
static void pack_block(const struct pack *p, void *out, size_t width)
{
    bool adjacent = p->k_stride == 1;

    (void)width; /* PANEL_LINES */
    if (!adjacent && p->line_stride != 1)
        pack_apart(p, out);
    else if (p->dtype == ASH_BF16 && adjacent)
        pack_as(p, ASH_BF16, true, out);
    else if (p->dtype == ASH_BF16)
        pack_as(p, ASH_BF16, false, out);
    else if (p->dtype == ASH_F16 && adjacent)
        pack_as(p, ASH_F16, true, out);
    else if (p->dtype == ASH_F16)
        pack_as(p, ASH_F16, false, out);
    else if (adjacent)
        pack_as(p, ASH_F32, true, out);
    else
        pack_as(p, ASH_F32, false, out);
}

#endif
