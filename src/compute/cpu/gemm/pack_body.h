/* pack_body - copies a block of a strided matrix into the order in which kernels read it, as float32. */
#ifndef ASH_COMPUTE_PACK_BODY_H
#define ASH_COMPUTE_PACK_BODY_H

#ifndef ASH_COMPUTE_WIDE_H
#error "include wide.h first"
#endif

#include "base/math.h"
#include "base/bf16.h"
#include "compute/cpu/gemm/gemm_blocks.h"

#define PACK_TOGETHER 64 /* adjacent lines that are copied at once: whole cache lines, few streams */
#define PACK_K 64        /* k of a panel that are written together: they stay in L1 */

INLINE const void *pack_at(const void *data, enum ash_dtype dtype, size_t index)
{
    return dtype == ASH_F32 ? (const void *)((const float *)data + index)
                            : (const void *)((const uint16_t *)data + index);
}

INLINE float pack_read(const void *data, enum ash_dtype dtype, bool round, size_t index)
{
    float x;

    if (dtype == ASH_BF16) return ash_bf16_to_f32(((const uint16_t *)data)[index]);
    x = dtype == ASH_F16 ? ash_f16_to_f32(((const uint16_t *)data)[index]) : ((const float *)data)[index];
    return round ? ash_bf16_round(x) : x;
}

INLINE f32x4 pack_f32x4(const void *data, enum ash_dtype dtype, bool round, size_t index)
{
    const void *p = pack_at(data, dtype, index);
    f32x4 x;

    if (dtype == ASH_BF16) return f32x4_load_bf16(p);
    x = dtype == ASH_F16 ? f32x4_load_f16(p) : f32x4_load(p);
    return round ? f32x4_round_bf16(x) : x;
}

/* Four lines whose elements are adjacent: 4 x 4 blocks are transposed. */
INLINE void pack_four(const void *data, enum ash_dtype dtype, bool round, size_t stride, size_t k_count, float *out,
                      size_t width)
{
    size_t k = 0;

    for (; k + 4 <= k_count; k += 4, out += 4 * width) {
        f32x4 block[4];

        UNROLL
        for (size_t n = 0; n < 4; n++)
            block[n] = pack_f32x4(data, dtype, round, n * stride + k);
        f32x4_transpose(block);
        UNROLL
        for (size_t n = 0; n < 4; n++)
            f32x4_store(out + n * width, block[n]);
    }
    for (; k < k_count; k++, out += width)
        for (size_t n = 0; n < 4; n++)
            out[n] = pack_read(data, dtype, round, n * stride + k);
}

/* Panels of adjacent lines: a row of the block is a row of each panel. */
INLINE void pack_adjacent(const void *data, enum ash_dtype dtype, bool round, size_t k_stride, size_t panels,
                          size_t k_count, float *out, size_t width)
{
    for (size_t k = 0; k < k_count; k++)
        for (size_t p = 0; p < panels; p++) {
            float *to = out + (p * k_count + k) * width;

            for (size_t n = 0; n < width; n += 4)
                f32x4_store(to + n, pack_f32x4(data, dtype, round, k * k_stride + p * width + n));
        }
}

/* One panel with only count lines in it, of any strides; the others are 0. */
INLINE void pack_panel(const void *data, enum ash_dtype dtype, bool round, const struct pack *pack, size_t count,
                       float *out, size_t width)
{
    size_t n = 0;

    if (pack->k_stride == 1)
        for (size_t k = 0; k < pack->k_count; k += PACK_K)
            for (n = 0; n + 4 <= count; n += 4)
                pack_four(pack_at(data, dtype, n * pack->line_stride + k), dtype, round, pack->line_stride,
                          ash_min(PACK_K, pack->k_count - k), out + k * width + n, width);
    else if (pack->line_stride == 1)
        for (; n + 4 <= count; n += 4)
            for (size_t k = 0; k < pack->k_count; k++)
                f32x4_store(out + k * width + n, pack_f32x4(data, dtype, round, k * pack->k_stride + n));
    for (; n < count; n++)
        for (size_t k = 0; k < pack->k_count; k++)
            out[k * width + n] = pack_read(data, dtype, round, n * pack->line_stride + k * pack->k_stride);
    for (size_t k = 0; k < pack->k_count && n < width; k++)
        memset(out + k * width + n, 0, (width - n) * sizeof(*out));
}

INLINE void pack_as(const struct pack *pack, enum ash_dtype dtype, bool round, float *out, size_t width)
{
    const struct pack p = *pack; /* out may alias it as far as the compiler knows */
    size_t i = 0;

    while (p.line_stride == 1 && width % 4 == 0 && i + width <= p.count) {
        size_t fit = (p.count - i) / width, together = width < PACK_TOGETHER ? PACK_TOGETHER / width : 1;
        size_t panels = ash_min(fit, together);

        pack_adjacent(pack_at(p.data, dtype, i), dtype, round, p.k_stride, panels, p.k_count, out + i * p.k_count,
                      width);
        i += panels * width;
    }
    for (; i < p.count; i += width)
        pack_panel(pack_at(p.data, dtype, i * p.line_stride), dtype, round, &p, ash_min(p.count - i, width),
                   out + i * p.k_count, width);
}

/* Panels of width lines, one after the other: element k of line i is out[(i / width * k_count + k) * width + i %
 * width]. The last panel is padded with zeros. */
static void pack_block(const struct pack *pack, void *out, size_t width)
{
    if (pack->dtype == ASH_BF16)
        pack_as(pack, ASH_BF16, false, out, width);
    else if (pack->dtype == ASH_F16 && pack->round_bf16)
        pack_as(pack, ASH_F16, true, out, width);
    else if (pack->dtype == ASH_F16)
        pack_as(pack, ASH_F16, false, out, width);
    else if (pack->round_bf16)
        pack_as(pack, ASH_F32, true, out, width);
    else
        pack_as(pack, ASH_F32, false, out, width);
}

#endif
