/* bfmmla_pack - copies a block of a strided matrix into the order in which BFMMLA reads it, as bf16: panels of some
 * lines (rows of the left operand, columns of the right one), in each the lines' first four k side by side, then their
 * next four. So any two neighbours are one operand. What is missing to whole panels and groups of four is zero. */
#ifndef ASH_COMPUTE_BFMMLA_PACK_H
#define ASH_COMPUTE_BFMMLA_PACK_H

#include <arm_neon.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include "base/math.h"
#include "base/assert.h"
#include "base/bf16.h"
#include "base/dtype.h"
#include "compute/cpu/gemm/gemm_blocks.h"

#define GROUP 4 /* k of one instruction */
#define PACK_WIDTH_MAX 12
#define PACK_K 16     /* k of a line that are read at once: 64 bytes of float32 */
#define PACK_AHEAD 32 /* k that are prefetched, where each lies in a row of its own */
#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

INLINE const void *pack_at(const void *data, enum ash_dtype dtype, size_t index)
{
    return dtype == ASH_F32 ? (const void *)((const float *)data + index)
                            : (const void *)((const uint16_t *)data + index);
}

/* Rounded to nearest even. Not an intrinsic: clang 14 fails on vectors of bf16 that are transposed later. */
INLINE uint16x8_t pack_round8(float32x4_t low, float32x4_t high)
{
    uint16x8_t out;

    __asm__("bfcvtn %0.4h, %1.4s\n\tbfcvtn2 %0.8h, %2.4s" : "=&w"(out) : "w"(low), "w"(high));
    return out;
}

INLINE uint16x4_t pack_round4(float32x4_t x)
{
    uint16x4_t out;

    __asm__("bfcvtn %0.4h, %1.4s" : "=w"(out) : "w"(x));
    return out;
}

/* Four adjacent elements as bf16. */
INLINE uint16x4_t pack_load4(const void *data, enum ash_dtype dtype, size_t index)
{
    const void *p = pack_at(data, dtype, index);

    if (dtype == ASH_BF16) return vld1_u16(p);
    if (dtype == ASH_F16) return pack_round4(vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))));
    return pack_round4(vld1q_f32(p));
}

/* Eight. */
INLINE uint16x8_t pack_load8(const void *data, enum ash_dtype dtype, size_t index)
{
    const float *p = pack_at(data, dtype, index);

    if (dtype == ASH_BF16) return vld1q_u16((const uint16_t *)data + index);
    if (dtype == ASH_F16) return vcombine_u16(pack_load4(data, dtype, index), pack_load4(data, dtype, index + 4));
    return pack_round8(vld1q_f32(p), vld1q_f32(p + 4));
}

/* One element as bf16. */
INLINE uint16_t pack_load1(const void *data, enum ash_dtype dtype, size_t index)
{
    if (dtype == ASH_BF16) return ((const uint16_t *)data)[index];
    return ash_f32_to_bf16(dtype == ASH_F16 ? ash_f16_to_f32(((const uint16_t *)data)[index])
                                            : ((const float *)data)[index]);
}

/* The group of one line that starts at k, of any stride; zeros from the line's end on. */
INLINE void pack_group(const struct pack *p, enum ash_dtype dtype, size_t line, size_t k, uint16_t *out)
{
    for (size_t i = 0; i < GROUP; i++)
        out[i] = k + i < p->k_count ? pack_load1(p->data, dtype, line * p->line_stride + (k + i) * p->k_stride) : 0;
}

/* A panel of lines whose elements are adjacent, PACK_K k of all lines at a time, so that the panel is written in order.
 * The next panel is prefetched: it is likely to follow. */
INLINE void pack_along(const struct pack *p, enum ash_dtype dtype, size_t line, uint16_t *out, size_t width)
{
    const size_t first = line * p->line_stride, stride = p->line_stride;
    size_t k = 0;

    for (; k + PACK_K <= p->k_count; k += PACK_K, out += PACK_K * width) {
        uint64x2_t x[PACK_WIDTH_MAX][PACK_K / 8];

        UNROLL
        for (size_t l = 0; l < width; l++) {
            __builtin_prefetch(pack_at(p->data, dtype, first + (width + l) * stride + k), 0, 2);
            UNROLL for (size_t h = 0; h < PACK_K / 8; h++) x[l][h] =
                vreinterpretq_u64_u16(pack_load8(p->data, dtype, first + l * stride + k + 8 * h));
        }
        UNROLL
        for (size_t h = 0; h < PACK_K / 8; h++) {
            uint16_t *to = out + 8 * h * width;

            UNROLL for (size_t l = 0; l < width; l += 2)
                vst1q_u16(to + l * GROUP, vreinterpretq_u16_u64(vtrn1q_u64(x[l][h], x[l + 1][h])));
            UNROLL for (size_t l = 0; l < width; l += 2)
                vst1q_u16(to + (width + l) * GROUP, vreinterpretq_u16_u64(vtrn2q_u64(x[l][h], x[l + 1][h])));
        }
    }
    for (; k < p->k_count; k += GROUP, out += GROUP * width)
        for (size_t l = 0; l < width; l++)
            pack_group(p, dtype, line + l, k, out + l * GROUP);
}

/* A group of four adjacent lines: a block that is transposed. */
INLINE void pack_four(const struct pack *p, enum ash_dtype dtype, size_t line, size_t k, uint16_t *out)
{
    uint16x8_t row[GROUP];
    uint32x4_t low, high;

    UNROLL
    for (size_t i = 0; i < GROUP; i++)
        row[i] = vcombine_u16(pack_load4(p->data, dtype, line + (k + i) * p->k_stride), vdup_n_u16(0));
    low = vreinterpretq_u32_u16(vzip1q_u16(row[0], row[1]));
    high = vreinterpretq_u32_u16(vzip1q_u16(row[2], row[3]));
    vst1q_u16(out, vreinterpretq_u16_u32(vzip1q_u32(low, high)));
    vst1q_u16(out + 2 * GROUP, vreinterpretq_u16_u32(vzip2q_u32(low, high)));
}

/* Of eight lines. */
INLINE void pack_eight(const struct pack *p, enum ash_dtype dtype, size_t line, size_t k, uint16_t *out)
{
    uint16x8_t row[GROUP];
    uint32x4_t half[GROUP];

    UNROLL
    for (size_t i = 0; i < GROUP; i++)
        row[i] = pack_load8(p->data, dtype, line + (k + i) * p->k_stride);
    half[0] = vreinterpretq_u32_u16(vzip1q_u16(row[0], row[1]));
    half[1] = vreinterpretq_u32_u16(vzip1q_u16(row[2], row[3]));
    half[2] = vreinterpretq_u32_u16(vzip2q_u16(row[0], row[1]));
    half[3] = vreinterpretq_u32_u16(vzip2q_u16(row[2], row[3]));
    UNROLL
    for (size_t i = 0; i < GROUP; i += 2) {
        vst1q_u16(out + 2 * i * GROUP, vreinterpretq_u16_u32(vzip1q_u32(half[i], half[i + 1])));
        vst1q_u16(out + 2 * (i + 1) * GROUP, vreinterpretq_u16_u32(vzip2q_u32(half[i], half[i + 1])));
    }
}

/* A group of one panel of adjacent lines. */
INLINE void pack_across_group(const struct pack *p, enum ash_dtype dtype, size_t line, size_t k, uint16_t *out,
                              size_t width)
{
    size_t l = 0;

    UNROLL
    for (; l + 8 <= width; l += 8)
        pack_eight(p, dtype, line + l, k, out + l * GROUP);
    UNROLL
    for (; l < width; l += GROUP)
        pack_four(p, dtype, line + l, k, out + l * GROUP);
}

/* Prefetch a group of adjacent lines: each k lies in a row of its own, which no hardware prefetcher foresees. */
INLINE void pack_fetch(const struct pack *p, enum ash_dtype dtype, size_t count, size_t k)
{
    for (size_t i = 0; i < GROUP; i++)
        for (size_t l = 0; l < count; l += dtype == ASH_F32 ? 16 : 32)
            __builtin_prefetch(pack_at(p->data, dtype, l + (k + i) * p->k_stride), 0, 2);
}

/* Panels of adjacent lines, k by k: a row of memory is read once. */
INLINE void pack_across(const struct pack *p, enum ash_dtype dtype, size_t panels, uint16_t *out, size_t width)
{
    size_t panel_size = ash_round_up(p->k_count, GROUP) * width, k = 0;

    for (; k + GROUP <= p->k_count; k += GROUP) {
        if (k + PACK_AHEAD < p->k_count) pack_fetch(p, dtype, panels * width, k + PACK_AHEAD);
        for (size_t i = 0; i < panels; i++)
            pack_across_group(p, dtype, i * width, k, out + i * panel_size + k * width, width);
    }
    for (size_t i = 0; i < panels && k < p->k_count; i++)
        for (size_t l = 0; l < width; l++)
            pack_group(p, dtype, i * width + l, k, out + i * panel_size + k * width + l * GROUP);
}

/* One panel from line on, of any strides, with only count lines in it. */
INLINE void pack_part(const struct pack *p, enum ash_dtype dtype, size_t line, size_t count, uint16_t *out,
                      size_t width)
{
    for (size_t k = 0; k < p->k_count; k += GROUP) {
        for (size_t l = 0; l < count; l++)
            pack_group(p, dtype, line + l, k, out + k * width + l * GROUP);
        memset(out + k * width + count * GROUP, 0, (width - count) * GROUP * sizeof(*out));
    }
}

INLINE void pack_as(const struct pack *pack, enum ash_dtype dtype, uint16_t *out, size_t width)
{
    const struct pack p = *pack; /* out may alias it as far as the compiler knows */
    size_t line = 0, k_padded = ash_round_up(p.k_count, GROUP);

    if (p.k_stride == 1) {
        for (; line + width <= p.count; line += width)
            pack_along(&p, dtype, line, out + line * k_padded, width);
    } else if (p.line_stride == 1 && width % GROUP == 0) {
        pack_across(&p, dtype, p.count / width, out, width);
        line = p.count / width * width;
    }
    for (; line < p.count; line += width)
        pack_part(&p, dtype, line, ash_min(p.count - line, width), out + line * k_padded, width);
}

INLINE void pack_width(const struct pack *pack, uint16_t *out, size_t width)
{
    if (pack->dtype == ASH_BF16)
        pack_as(pack, ASH_BF16, out, width);
    else if (pack->dtype == ASH_F16)
        pack_as(pack, ASH_F16, out, width);
    else
        pack_as(pack, ASH_F32, out, width);
}

/* Panels of width lines (2, 4, 8 or 12), one after the other. */
static void pack_block(const struct pack *pack, void *out, size_t width)
{
    ash_assert(width == 2 || width == 4 || width == 8 || width == 12);
    if (width == 2)
        pack_width(pack, out, 2);
    else if (width == 4)
        pack_width(pack, out, 4);
    else if (width == 8)
        pack_width(pack, out, 8);
    else
        pack_width(pack, out, 12);
}

#endif
