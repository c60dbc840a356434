/* pack_body - copies a block of a strided matrix into the order in which kernels read it, as float32. Include after
 * vmath.h. */
#ifndef ASH_COMPUTE_PACK_BODY_H
#define ASH_COMPUTE_PACK_BODY_H

#include "base/bf16.h"

/* A block of count lines of k_count elements: element k of line i is at data[i * line_stride + k * k_stride]. For the
 * left operand of a product lines are rows, for the right one columns. */
struct pack {
    const void *data;
    enum ash_dtype dtype;
    bool round_bf16;
    size_t line_stride, k_stride;
    size_t count, k_count;
};

static inline __attribute__((always_inline)) const void *pack_at(const void *data, enum ash_dtype dtype, size_t index)
{
    return dtype == ASH_F32 ? (const void *)((const float *)data + index)
                            : (const void *)((const uint16_t *)data + index);
}

static inline __attribute__((always_inline)) float pack_read(const void *data, enum ash_dtype dtype, bool round,
                                                             size_t index)
{
    float x;

    if (dtype == ASH_BF16) return ash_bf16_to_f32(((const uint16_t *)data)[index]);
    x = dtype == ASH_F16 ? ash_f16_to_f32(((const uint16_t *)data)[index]) : ((const float *)data)[index];
    return round ? ash_bf16_round(x) : x;
}

static inline __attribute__((always_inline)) quad pack_quad(const void *data, enum ash_dtype dtype, bool round,
                                                            size_t index)
{
    const void *p = pack_at(data, dtype, index);
    quad x;

    if (dtype == ASH_BF16) return quad_load_bf16(p);
    x = dtype == ASH_F16 ? quad_load_f16(p) : quad_load(p);
    return round ? quad_round_bf16(x) : x;
}

/* Four adjacent lines whose elements are adjacent: 4 x 4 blocks turn over. */
static inline __attribute__((always_inline)) void pack_four(const struct pack *pack, enum ash_dtype dtype, bool round,
                                                            size_t i, float *out, size_t width)
{
    size_t k = 0;

    for (; k + 4 <= pack->k_count; k += 4) {
        quad block[4];

        UNROLL
        for (size_t n = 0; n < 4; n++)
            block[n] = pack_quad(pack->data, dtype, round, (i + n) * pack->line_stride + k);
        quad_transpose(block);
        UNROLL
        for (size_t n = 0; n < 4; n++)
            quad_store(out + (k + n) * width + i, block[n]);
    }
    for (; k < pack->k_count; k++)
        for (size_t n = 0; n < 4; n++)
            out[k * width + i + n] = pack_read(pack->data, dtype, round, (i + n) * pack->line_stride + k);
}

/* Lines whose neighbours are adjacent: rows of the output are rows of the input. */
static inline __attribute__((always_inline)) size_t pack_adjacent(const struct pack *pack, enum ash_dtype dtype,
                                                                  bool round, float *out, size_t width)
{
    size_t count = pack->count / 4 * 4;

    for (size_t k = 0; k < pack->k_count; k++)
        for (size_t i = 0; i < count; i += 4)
            quad_store(out + k * width + i, pack_quad(pack->data, dtype, round, k * pack->k_stride + i));
    return count;
}

static inline __attribute__((always_inline)) void pack_as(const struct pack *pack, enum ash_dtype dtype, bool round,
                                                          float *out, size_t width)
{
    size_t i = 0;

    if (pack->k_stride == 1)
        for (; i + 4 <= pack->count; i += 4)
            pack_four(pack, dtype, round, i, out, width);
    else if (pack->line_stride == 1)
        i = pack_adjacent(pack, dtype, round, out, width);
    for (; i < pack->count; i++)
        for (size_t k = 0; k < pack->k_count; k++)
            out[k * width + i] = pack_read(pack->data, dtype, round, i * pack->line_stride + k * pack->k_stride);
    for (; i < width; i++)
        for (size_t k = 0; k < pack->k_count; k++)
            out[k * width + i] = 0.0f;
}

/* out[k * width + i] = element k of line i, 0 for the lines from count to width. */
static void pack_block(const struct pack *pack, float *out, size_t width)
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
