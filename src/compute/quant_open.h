/* quant_open - a group of weights of any quantised type (ops.h) as integers and floats:
 *
 *   w[i] = scale * subscales[s] * q[i] + min * submins[s]          s = i / ASH_QUANT_SUB
 *
 * Types whose sub-blocks are larger than ASH_QUANT_SUB repeat their sub-scales; those without have ones. Products of
 * three are exact in float32: a scale has 11 bits, a sub-scale and a quant at most 12, and powers of two. So a weight
 * is rounded once, where a minimum is added. Nibbles of IQ4_NL, IQ4_XS and MXFP4 number the integers of a table. Q4_0's
 * sub-scales approximate its scales (ops.h). */
#ifndef ASH_COMPUTE_QUANT_OPEN_H
#define ASH_COMPUTE_QUANT_OPEN_H

#include "compute/quant.h"

#define ASH_QUANT_SUB 16 /* elements of the smallest sub-block */
#define ASH_QUANT_SUBS (ASH_QUANT_GROUP / ASH_QUANT_SUB)
#define ASH_QUANT_HALF_GROUP (ASH_QUANT_GROUP / 2)

/* A group; a shorter one leaves the rest as it was. */
struct ash_quant_opened {
    int8_t q[ASH_QUANT_GROUP];
    int8_t subscales[ASH_QUANT_SUBS];
    int8_t submins[ASH_QUANT_SUBS]; /* 0 to 63 */
    float scale, min;               /* min is 0 or below in the _K types */
};

/* Do groups of this type have minimums? */
static inline bool ash_quant_has_min(enum ash_dtype dtype)
{
    return dtype == ASH_Q4_1 || dtype == ASH_Q5_1 || dtype == ASH_Q2_K || dtype == ASH_Q4_K || dtype == ASH_Q5_K;
}

/* Elements that share a sub-scale, in the types that have any. */
static inline size_t ash_quant_sub(enum ash_dtype dtype)
{
    return dtype == ASH_Q2_K || dtype == ASH_Q3_K || dtype == ASH_Q6_K ? ASH_QUANT_SUB : ASH_QUANT_BLOCK;
}

/* The 16 integers that the nibbles of this type stand for; NULL: nibbles are integers themselves. Those of MXFP4 are
 * twice its values. */
static inline const int8_t *ash_quant_table(enum ash_dtype dtype)
{
    static const int8_t iq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
    static const int8_t mxfp4[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

    if (dtype == ASH_MXFP4) return mxfp4;
    return dtype == ASH_IQ4_NL || dtype == ASH_IQ4_XS ? iq4 : NULL;
}

/* What its quants are too large by where they are stored as unsigned numbers. */
static inline int ash_quant_offset(enum ash_dtype dtype)
{
    switch (dtype) {
    case ASH_Q3_K:
        return 4;
    case ASH_MXFP4:
        return 12;
    case ASH_Q4_0:
        return 8;
    case ASH_Q5_0:
        return 16;
    case ASH_Q6_K:
        return 32;
    case ASH_Q8_0:
    case ASH_Q8_W:
    case ASH_IQ4_NL:
    case ASH_IQ4_XS:
        return 128;
    default:
        return 0;
    }
}

/* ---- blocks of 32 ------------------------------------------------------------------------------------------------ */

/* Q4_1, Q5_0 and Q5_1: scale, perhaps a minimum, perhaps the fifth bits, nibbles. */
static inline void ash_quant_open_block(const uint8_t *block, enum ash_dtype dtype, struct ash_quant_opened *out)
{
    const uint8_t *nibbles = block + ash_dtype_bytes(dtype) - ASH_QUANT_BLOCK / 2;
    int offset = ash_quant_offset(dtype);
    uint32_t fifths = 0;

    if (dtype != ASH_Q4_1) memcpy(&fifths, nibbles - sizeof(fifths), sizeof(fifths));
    out->scale = ash_quant_scale(block);
    out->min = dtype != ASH_Q5_0 ? ash_quant_scale(block + sizeof(uint16_t)) : 0.0f;
    for (int i = 0; i < ASH_QUANT_BLOCK / 2; i++) {
        int low = (nibbles[i] & 15) | (int)(fifths >> i & 1) << 4;
        int high = nibbles[i] >> 4 | (int)(fifths >> (i + ASH_QUANT_BLOCK / 2) & 1) << 4;

        out->q[i] = (int8_t)(low - offset);
        out->q[i + ASH_QUANT_BLOCK / 2] = (int8_t)(high - offset);
    }
    for (size_t s = 0; s < ASH_QUANT_BLOCK / ASH_QUANT_SUB; s++)
        out->subscales[s] = out->submins[s] = 1;
}

/* The 16 bytes of nibbles of block b of a group of a type with a table: low ones are elements 0 to 15, high ones 16 to
 * 31. */
static inline const uint8_t *ash_quant_nibbles(const uint8_t *group, enum ash_dtype dtype, size_t b)
{
    size_t bytes = ash_quant_group_blocks(dtype) * ASH_QUANT_BLOCK / 2;

    return group + ash_dtype_bytes(dtype) - bytes + b * ASH_QUANT_BLOCK / 2;
}

/* The quants of such a block. */
static inline void ash_quant_open_nibbles(const uint8_t *nibbles, const int8_t *table, int8_t *q)
{
    for (int i = 0; i < ASH_QUANT_BLOCK / 2; i++) {
        q[i] = table[nibbles[i] & 15];
        q[i + ASH_QUANT_BLOCK / 2] = table[nibbles[i] >> 4];
    }
}

/* Half of 2^(code - 127), for a table of doubled values. */
static inline float ash_quant_mx_scale(uint8_t code)
{
    return ash_f32_from_bits(code < 2 ? 0x00200000u << code : (uint32_t)(code - 1) << 23);
}

/* IQ4_NL: scale, nibbles. MXFP4: the exponent of the scale, nibbles. */
static inline void ash_quant_open_table(const uint8_t *block, enum ash_dtype dtype, struct ash_quant_opened *out)
{
    out->scale = dtype == ASH_MXFP4 ? ash_quant_mx_scale(block[0]) : ash_quant_scale(block);
    ash_quant_open_nibbles(ash_quant_nibbles(block, dtype, 0), ash_quant_table(dtype), out->q);
    out->subscales[0] = out->subscales[1] = 1;
}

/* ---- blocks of 256 ----------------------------------------------------------------------------------------------- */

/* The 6-bit sub-scales and minimums of Q4_K and Q5_K, eight of each in 12 bytes. */
static inline void ash_quant_open_sixes(const uint8_t *bytes, struct ash_quant_opened *out)
{
    for (int b = 0; b < ASH_QUANT_GROUP_BLOCKS; b++) {
        int scale = b < 4 ? bytes[b] & 63 : (bytes[b + 4] & 15) | bytes[b - 4] >> 6 << 4;
        int min = b < 4 ? bytes[b + 4] & 63 : bytes[b + 4] >> 4 | bytes[b] >> 6 << 4;

        out->subscales[2 * b] = out->subscales[2 * b + 1] = (int8_t)scale;
        out->submins[2 * b] = out->submins[2 * b + 1] = (int8_t)min;
    }
}

/* d, dmin, 12 bytes of sub-scales, with Q5_K 32 bytes of fifth bits, nibbles: low ones of 32 bytes are a block, high
 * ones the next. */
static inline void ash_quant_open_q45_k(const uint8_t *block, enum ash_dtype dtype, struct ash_quant_opened *out)
{
    const uint8_t *nibbles = block + ash_dtype_bytes(dtype) - ASH_QUANT_HALF_GROUP;

    out->scale = ash_quant_scale(block);
    out->min = -ash_quant_scale(block + 2);
    ash_quant_open_sixes(block + 4, out);
    for (int b = 0; b < ASH_QUANT_GROUP_BLOCKS; b += 2, nibbles += ASH_QUANT_BLOCK)
        for (int i = 0; i < ASH_QUANT_BLOCK; i++) {
            int fifths = dtype == ASH_Q5_K ? block[16 + i] >> b : 0;

            out->q[b * ASH_QUANT_BLOCK + i] = (int8_t)((nibbles[i] & 15) | (fifths & 1) << 4);
            out->q[(b + 1) * ASH_QUANT_BLOCK + i] = (int8_t)(nibbles[i] >> 4 | (fifths & 2) << 3);
        }
}

/* 128 bytes of nibbles, 64 of the two bits above them, 16 sub-scales, d. */
static inline void ash_quant_open_q6_k(const uint8_t *block, struct ash_quant_opened *out)
{
    int8_t *q = out->q;

    out->scale = ash_quant_scale(block + 208);
    memcpy(out->subscales, block + 192, ASH_QUANT_SUBS);
    for (int half = 0; half < 2; half++, q += ASH_QUANT_HALF_GROUP) {
        const uint8_t *nibbles = block + 64 * half, *highs = block + 128 + 32 * half;

        for (int i = 0; i < ASH_QUANT_BLOCK; i++) {
            q[i] = (int8_t)(((nibbles[i] & 15) | (highs[i] & 3) << 4) - 32);
            q[i + 32] = (int8_t)(((nibbles[i + 32] & 15) | (highs[i] >> 2 & 3) << 4) - 32);
            q[i + 64] = (int8_t)((nibbles[i] >> 4 | (highs[i] >> 4 & 3) << 4) - 32);
            q[i + 96] = (int8_t)((nibbles[i + 32] >> 4 | highs[i] >> 6 << 4) - 32);
        }
    }
}

/* 64 bytes of pairs of bits at `pairs`: of 32 bytes, the first pairs are a block, the second ones the next. */
static inline void ash_quant_open_pairs(const uint8_t *pairs, int8_t *q)
{
    for (int half = 0; half < 2; half++, pairs += ASH_QUANT_BLOCK)
        for (int b = 0; b < 4; b++, q += ASH_QUANT_BLOCK)
            for (int i = 0; i < ASH_QUANT_BLOCK; i++)
                q[i] = (int8_t)(pairs[i] >> 2 * b & 3);
}

/* 16 bytes of sub-scales (low nibble) and minimums, pairs of bits, d, dmin. */
static inline void ash_quant_open_q2_k(const uint8_t *block, struct ash_quant_opened *out)
{
    out->scale = ash_quant_scale(block + 80);
    out->min = -ash_quant_scale(block + 82);
    for (int s = 0; s < ASH_QUANT_SUBS; s++) {
        out->subscales[s] = (int8_t)(block[s] & 15);
        out->submins[s] = (int8_t)(block[s] >> 4);
    }
    ash_quant_open_pairs(block + 16, out->q);
}

/* 32 bytes of third bits (set: plus 4), pairs of bits, 12 bytes of 6-bit sub-scales, d. */
static inline void ash_quant_open_q3_k(const uint8_t *block, struct ash_quant_opened *out)
{
    const uint8_t *sixes = block + 96;

    out->scale = ash_quant_scale(block + 108);
    for (int s = 0; s < ASH_QUANT_SUBS; s++) {
        int low = s < 8 ? sixes[s] & 15 : sixes[s - 8] >> 4, high = sixes[8 + s % 4] >> s / 4 * 2 & 3;

        out->subscales[s] = (int8_t)((low | high << 4) - 32);
    }
    ash_quant_open_pairs(block + 32, out->q);
    for (int b = 0; b < ASH_QUANT_GROUP_BLOCKS; b++)
        for (int i = 0; i < ASH_QUANT_BLOCK; i++)
            out->q[b * ASH_QUANT_BLOCK + i] = (int8_t)(out->q[b * ASH_QUANT_BLOCK + i] - 4 + (block[i] >> b & 1) * 4);
}

/* IQ4_XS: d, two high bits of eight sub-scales, their low nibbles, nibbles. */
static inline void ash_quant_open_iq4_xs(const uint8_t *block, struct ash_quant_opened *out)
{
    const int8_t *table = ash_quant_table(ASH_IQ4_XS);

    out->scale = ash_quant_scale(block);
    for (size_t b = 0; b < ASH_QUANT_GROUP_BLOCKS; b++) {
        int low = block[4 + b / 2] >> b % 2 * 4 & 15, high = block[2 + b / 4] >> b % 4 * 2 & 3;

        out->subscales[2 * b] = out->subscales[2 * b + 1] = (int8_t)((low | high << 4) - 32);
        ash_quant_open_nibbles(ash_quant_nibbles(block, ASH_IQ4_XS, b), table, out->q + b * ASH_QUANT_BLOCK);
    }
}

/* ---- all types --------------------------------------------------------------------------------------------------- */

/* Blocks of 32 as quant.h reads them: Q8_0, Q8_W and Q4_0. */
static inline void ash_quant_open_plain(const uint8_t *blocks, size_t count, enum ash_dtype dtype,
                                        struct ash_quant_opened *out)
{
    int32_t subscales[ASH_QUANT_GROUP_BLOCKS];

    out->scale = ash_quant_subscales(blocks, count, dtype, subscales);
    for (size_t b = 0; b < count; b++, blocks += ash_dtype_bytes(dtype)) {
        ash_quant_unpack(blocks, dtype, out->q + b * ASH_QUANT_BLOCK);
        out->subscales[2 * b] = out->subscales[2 * b + 1] = (int8_t)subscales[b];
    }
}

/* Open a group of count elements, whole blocks of 32. */
static inline void ash_quant_open(const uint8_t *group, enum ash_dtype dtype, size_t count,
                                  struct ash_quant_opened *out)
{
    out->min = 0.0f;
    switch (dtype) {
    case ASH_Q4_1:
    case ASH_Q5_0:
    case ASH_Q5_1:
        ash_quant_open_block(group, dtype, out);
        break;
    case ASH_Q2_K:
        ash_quant_open_q2_k(group, out);
        break;
    case ASH_Q3_K:
        ash_quant_open_q3_k(group, out);
        break;
    case ASH_Q4_K:
    case ASH_Q5_K:
        ash_quant_open_q45_k(group, dtype, out);
        break;
    case ASH_Q6_K:
        ash_quant_open_q6_k(group, out);
        break;
    case ASH_IQ4_NL:
    case ASH_MXFP4:
        ash_quant_open_table(group, dtype, out);
        break;
    case ASH_IQ4_XS:
        ash_quant_open_iq4_xs(group, out);
        break;
    default:
        ash_quant_open_plain(group, count / ASH_QUANT_BLOCK, dtype, out);
    }
}

/* The elements of an opened group, but for Q4_0, as floats. */
static inline void ash_quant_opened_to_f32(const struct ash_quant_opened *group, enum ash_dtype dtype, size_t count,
                                           float *out)
{
    for (size_t i = 0; i < count; i++) {
        float value = group->scale * (float)group->subscales[i / ASH_QUANT_SUB] * (float)group->q[i];

        out[i] = ash_quant_has_min(dtype) ? value + group->min * (float)group->submins[i / ASH_QUANT_SUB] : value;
    }
}

/* count quantised elements (whole blocks) as floats, to the bit as llama.cpp has them. */
static inline void ash_quant_to_f32(const void *data, enum ash_dtype dtype, size_t count, float *out)
{
    size_t step = dtype == ASH_Q4_0 || dtype == ASH_Q8_W ? ASH_QUANT_BLOCK : ash_quant_group(dtype);
    const uint8_t *block = data;

    for (size_t i = 0; i < count; i += step, block += ash_dtype_size(dtype, step)) {
        struct ash_quant_opened group;

        ash_quant_open(block, dtype, step, &group);
        if (dtype == ASH_Q4_0) { /* the scale itself, not a sub-scale of the group's */
            group.scale = ash_quant_scale(block);
            group.subscales[0] = group.subscales[1] = 1;
        }
        ash_quant_opened_to_f32(&group, dtype, step, out + i);
    }
}

#endif
