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
#include "base/bf16.h"
#include "base/dtype.h"
#include "compute/cpu/gemm_blocks.h"

#define GROUP 4          /* k of one instruction */
#define PACK_TOGETHER 64 /* adjacent lines that are copied side by side: whole cache lines, few streams */
#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

INLINE const void *pack_at(const void *data, enum ash_dtype dtype, size_t index)
{
    return dtype == ASH_F32 ? (const void *)((const float *)data + index)
                            : (const void *)((const uint16_t *)data + index);
}

/* Rounded to nearest even. Not an intrinsic: clang 14 fails on vectors of bf16 that are turned over later. */
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

/* Two lines whose elements are adjacent. */
INLINE void pack_pair(const struct pack *p, enum ash_dtype dtype, size_t line, uint16_t *out, size_t width)
{
    size_t first = line * p->line_stride, second = first + p->line_stride, k = 0;

    for (; k + 2 * GROUP <= p->k_count; k += 2 * GROUP) {
        uint64x2_t x = vreinterpretq_u64_u16(pack_load8(p->data, dtype, first + k));
        uint64x2_t y = vreinterpretq_u64_u16(pack_load8(p->data, dtype, second + k));

        vst1q_u16(out + k * width, vreinterpretq_u16_u64(vtrn1q_u64(x, y)));
        vst1q_u16(out + (k + GROUP) * width, vreinterpretq_u16_u64(vtrn2q_u64(x, y)));
    }
    for (; k < p->k_count; k += GROUP) {
        pack_group(p, dtype, line, k, out + k * width);
        pack_group(p, dtype, line + 1, k, out + k * width + GROUP);
    }
}

/* A group of four lines that lie beside each other: a block that turns over. */
INLINE void pack_square(const struct pack *p, enum ash_dtype dtype, size_t line, size_t k, uint16_t *out)
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

/* Panels of lines that lie beside each other, k by k: a row of memory is read once. */
INLINE void pack_adjacent(const struct pack *p, enum ash_dtype dtype, size_t line, size_t panels, uint16_t *out,
                          size_t width)
{
    size_t panel_size = (p->k_count + GROUP - 1) / GROUP * GROUP * width;

    for (size_t k = 0; k < p->k_count; k += GROUP)
        for (size_t i = 0; i < panels; i++)
            for (size_t l = 0; l < width; l += GROUP) {
                uint16_t *to = out + i * panel_size + k * width + l * GROUP;

                if (k + GROUP <= p->k_count)
                    pack_square(p, dtype, line + i * width + l, k, to);
                else
                    for (size_t j = 0; j < GROUP; j++)
                        pack_group(p, dtype, line + i * width + l + j, k, to + j * GROUP);
            }
}

/* One panel from line on, with only count lines in it. */
INLINE void pack_panel(const struct pack *p, enum ash_dtype dtype, size_t line, size_t count, uint16_t *out,
                       size_t width)
{
    size_t l = 0;

    if (p->k_stride == 1)
        for (; l + 2 <= count; l += 2)
            pack_pair(p, dtype, line + l, out + l * GROUP, width);
    for (; l < count; l++)
        for (size_t k = 0; k < p->k_count; k += GROUP)
            pack_group(p, dtype, line + l, k, out + k * width + l * GROUP);
    for (size_t k = 0; k < p->k_count && l < width; k += GROUP)
        memset(out + k * width + l * GROUP, 0, (width - l) * GROUP * sizeof(*out));
}

INLINE void pack_as(const struct pack *pack, enum ash_dtype dtype, uint16_t *out, size_t width)
{
    const struct pack p = *pack; /* out may alias it as far as the compiler knows */
    size_t line = 0, k_padded = (p.k_count + GROUP - 1) / GROUP * GROUP;

    while (p.line_stride == 1 && width % GROUP == 0 && line + width <= p.count) {
        size_t fit = (p.count - line) / width, together = PACK_TOGETHER / width,
               panels = fit < together ? fit : together;

        pack_adjacent(&p, dtype, line, panels, out + line * k_padded, width);
        line += panels * width;
    }
    for (; line < p.count; line += width)
        pack_panel(&p, dtype, line, p.count - line < width ? p.count - line : width, out + line * k_padded, width);
}

/* Panels of width lines (even, at most PACK_TOGETHER), one after the other. */
static void pack_block(const struct pack *pack, void *out, size_t width)
{
    if (pack->dtype == ASH_BF16)
        pack_as(pack, ASH_BF16, out, width);
    else if (pack->dtype == ASH_F16)
        pack_as(pack, ASH_F16, out, width);
    else
        pack_as(pack, ASH_F32, out, width);
}

#endif
