/* quant - blocks of quants: making those of a row of activations, and reading those of a weight matrix of Q8_0, Q8_W
 * and Q4_0. quant_open.h reads all types. ops.h defines the arithmetic. Only IEEE operations whose result does not
 * depend on the machine. */
#ifndef ASH_COMPUTE_QUANT_H
#define ASH_COMPUTE_QUANT_H

#include <math.h>
#include <stdint.h>
#include <string.h>
#include "base/bf16.h"
#include "base/bits.h"
#include "compute/ops.h"

/* Blocks of a group (ops.h); a row's last group may have fewer. */
static inline size_t ash_quant_group_blocks(enum ash_dtype dtype)
{
    bool is_one = dtype == ASH_Q8_0 || dtype == ASH_Q4_1 || dtype == ASH_Q5_0 || dtype == ASH_Q5_1;

    return is_one || dtype == ASH_IQ4_NL || dtype == ASH_MXFP4 ? 1 : ASH_QUANT_GROUP_BLOCKS;
}

/* k of a group. */
static inline size_t ash_quant_group(enum ash_dtype dtype)
{
    return ash_quant_group_blocks(dtype) * ASH_QUANT_BLOCK;
}

/* Groups of a row of K. */
static inline size_t ash_quant_groups(enum ash_dtype dtype, size_t K)
{
    return (K + ash_quant_group(dtype) - 1) / ash_quant_group(dtype);
}

/* A small float as an integer, to nearest even. */
static inline int32_t ash_quant_round(float x)
{
    float whole = x + ASH_F32_ROUND_MAGIC;
    uint32_t value;

    memcpy(&value, &whole, sizeof(value));
    return (int32_t)(value - ASH_F32_ROUND_MAGIC_BITS);
}

/* Quantise count floats of x, a group: q gets as many quants in [-127, 127]. Returns their scale. */
static inline float ash_quant_quantise(const float *x, size_t count, int8_t *q)
{
    uint32_t top = 0;
    float amax, d, inverse;

    for (size_t i = 0; i < count; i++) {
        uint32_t size;

        memcpy(&size, x + i, sizeof(size));
        size &= 0x7fffffffu; /* ordered like |x|, with NaN above infinity */
        top = size > top ? size : top;
    }
    memcpy(&amax, &top, sizeof(amax));
    d = amax / 127.0f;
    inverse = 1.0f / d;
    if (top >= ASH_F32_INFINITY_BITS || isinf(inverse)) {
        memset(q, 0, count);
        return top >= ASH_F32_INFINITY_BITS ? NAN : 0.0f;
    }
    for (size_t i = 0; i < count; i++)
        q[i] = (int8_t)ash_quant_round(x[i] * inverse);
    return d;
}

/* The scale of a block of weights. */
static inline float ash_quant_scale(const uint8_t *block)
{
    uint16_t half;

    memcpy(&half, block, sizeof(half));
    return ash_f16_to_f32(half);
}

/* The largest sub-scale of a group whose largest |scale| is top: small, if every scale is then exact. These products
 * are exact: a scale has 11 bits. */
static inline float ash_quant_pick_subscale_max(const float *scales, size_t count, float top)
{
    for (size_t b = 0; b < count; b++) {
        float subscales = (float)ash_quant_round(scales[b] * (ASH_QUANT_SUBSCALE_SMALL_MAX / top));

        if (subscales * top != ASH_QUANT_SUBSCALE_SMALL_MAX * scales[b]) return ASH_QUANT_SUBSCALE_MAX;
    }
    return ASH_QUANT_SUBSCALE_SMALL_MAX;
}

/* Integer sub-scales of count blocks of weights, a group. Returns the group scale. */
static inline float ash_quant_subscales(const uint8_t *blocks, size_t count, enum ash_dtype dtype, int32_t *subscales)
{
    float scales[ASH_QUANT_GROUP_BLOCKS], top = 0.0f, most;
    bool finite = true;

    for (size_t b = 0; b < count; b++)
        subscales[b] = dtype != ASH_Q4_0;
    if (dtype != ASH_Q4_0) return ash_quant_scale(blocks);
    for (size_t b = 0; b < count; b++) {
        scales[b] = ash_quant_scale(blocks + b * ash_dtype_bytes(dtype));
        finite = finite && isfinite(scales[b]);
        top = fabsf(scales[b]) > top ? fabsf(scales[b]) : top;
    }
    if (!finite || top == 0.0f) return finite ? 0.0f : NAN;
    most = ash_quant_pick_subscale_max(scales, count, top);
    for (size_t b = 0; b < count; b++)
        subscales[b] = ash_quant_round(scales[b] * (most / top));
    return top / most;
}

/* The quants of a block of weights. */
static inline void ash_quant_unpack(const uint8_t *block, enum ash_dtype dtype, int8_t *q)
{
    const uint8_t *bytes = block + sizeof(uint16_t);

    if (dtype != ASH_Q4_0) {
        memcpy(q, bytes, ASH_QUANT_BLOCK);
        return;
    }
    for (int i = 0; i < ASH_QUANT_BLOCK / 2; i++) {
        q[i] = (int8_t)((bytes[i] & 15) - 8);
        q[i + ASH_QUANT_BLOCK / 2] = (int8_t)((bytes[i] >> 4) - 8);
    }
}

#endif
