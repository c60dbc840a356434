/* quant_types - elements of the quantised types of compute/quant_open.h, one at a time: the same integers. */
#ifndef ASH_COMPUTE_CUDA_QUANT_TYPES_CUH
#define ASH_COMPUTE_CUDA_QUANT_TYPES_CUH

#include "compute/cuda/tile/device.cuh"

#define SUB 16 /* elements of the smallest sub-block */

/* Is it one of these types? */
static __device__ inline bool is_open(int dtype)
{
    return dtype >= ASH_Q4_1 && dtype <= ASH_MXFP4;
}

/* Elements of a block in the file. */
static __device__ inline size_t file_block(int dtype)
{
    return dtype >= ASH_Q2_K && dtype <= ASH_IQ4_XS && dtype != ASH_IQ4_NL ? ASH_QUANT_GROUP : ASH_QUANT_BLOCK;
}

static __device__ inline size_t file_block_bytes(int dtype)
{
    switch (dtype) {
    case ASH_Q4_0:
    case ASH_IQ4_NL:
        return 18;
    case ASH_MXFP4:
        return 17;
    case ASH_IQ4_XS:
        return 136;
    case ASH_Q4_1:
        return 20;
    case ASH_Q5_0:
        return 22;
    case ASH_Q5_1:
        return 24;
    case ASH_Q2_K:
        return 84;
    case ASH_Q3_K:
        return 110;
    case ASH_Q4_K:
        return 144;
    case ASH_Q5_K:
        return 176;
    case ASH_Q6_K:
        return 210;
    default:
        return 34;
    }
}

static __device__ inline bool has_min(int dtype)
{
    return dtype == ASH_Q4_1 || dtype == ASH_Q5_1 || dtype == ASH_Q2_K || dtype == ASH_Q4_K || dtype == ASH_Q5_K;
}

static __device__ inline float half_at(const uint8_t *at)
{
    return __half2float(*(const __half *)at);
}

/* The scale of a block. */
static __device__ inline float open_scale(const uint8_t *block, int dtype)
{
    if (dtype == ASH_MXFP4)
        return __uint_as_float(block[0] < 2 ? 0x00200000u << block[0] : (unsigned)(block[0] - 1) << 23);
    return half_at(block + (dtype == ASH_Q2_K ? 80 : dtype == ASH_Q3_K ? 108 : dtype == ASH_Q6_K ? 208 : 0));
}

/* Its minimum, where it has one. */
static __device__ inline float open_min(const uint8_t *block, int dtype)
{
    if (dtype == ASH_Q4_1 || dtype == ASH_Q5_1) return half_at(block + 2);
    return -half_at(block + (dtype == ASH_Q2_K ? 82 : 2));
}

/* What a nibble stands for in the types with a table (ash_quant_table): bytes of words, as arrays would be in local
 * memory. */
static __device__ inline int open_table(int dtype, int nibble)
{
    const unsigned long long iq4_low = 0xf6eaddcfbfad9881ull, iq4_high = 0x7159453526190d01ull;
    const unsigned long long mxfp4 = 0x0c08060403020100ull;
    int shift = (nibble & 7) * 8;

    if (dtype != ASH_MXFP4) return (signed char)((nibble < 8 ? iq4_low : iq4_high) >> shift);
    return nibble < 8 ? (int)(mxfp4 >> shift & 255) : -(int)(mxfp4 >> shift & 255);
}

/* Element i of a block of 32: nibbles, with a fifth bit in Q5_0 and Q5_1. */
static __device__ inline int open_nibble(const uint8_t *block, int dtype, int i)
{
    const uint8_t *nibbles = block + file_block_bytes(dtype) - 16;
    int q = i < 16 ? nibbles[i] & 15 : nibbles[i - 16] >> 4;

    if (dtype == ASH_Q4_1) return q;
    if (dtype == ASH_IQ4_NL || dtype == ASH_MXFP4) return open_table(dtype, q);
    q |= (nibbles[i / 8 - 4] >> i % 8 & 1) << 4;
    return dtype == ASH_Q5_0 ? q - 16 : q;
}

/* Element i of a block of 256. */
static __device__ inline int open_wide(const uint8_t *block, int dtype, int i)
{
    int b = i / 32, at = i % 32, half = i / 128, q;

    if (dtype == ASH_IQ4_XS) return open_table(dtype, block[8 + b * 16 + at % 16] >> at / 16 * 4 & 15);
    if (dtype == ASH_Q4_K || dtype == ASH_Q5_K) {
        q = block[(dtype == ASH_Q4_K ? 16 : 48) + b / 2 * 32 + at] >> b % 2 * 4 & 15;
        return dtype == ASH_Q4_K ? q : q | (block[16 + at] >> b & 1) << 4;
    }
    if (dtype == ASH_Q6_K) {
        q = block[64 * half + b % 2 * 32 + at] >> b % 4 / 2 * 4 & 15;
        return (q | (block[128 + 32 * half + at] >> b % 4 * 2 & 3) << 4) - 32;
    }
    q = block[(dtype == ASH_Q2_K ? 16 : 32) + 32 * half + at] >> b % 4 * 2 & 3;
    return dtype == ASH_Q2_K ? q : q - 4 + (block[at] >> b & 1) * 4;
}

static __device__ inline int open_quant(const uint8_t *block, int dtype, int i)
{
    return file_block(dtype) == ASH_QUANT_BLOCK ? open_nibble(block, dtype, i) : open_wide(block, dtype, i);
}

/* The sub-scale and the sub-minimum of sub-block s, of 16 elements. */
static __device__ inline void open_sub(const uint8_t *block, int dtype, int s, int *scale, int *min)
{
    const uint8_t *sixes = block + (dtype == ASH_Q3_K ? 96 : 4);
    int b = s / 2;

    *scale = *min = 1;
    if (dtype == ASH_Q2_K) {
        *scale = block[s] & 15;
        *min = block[s] >> 4;
    } else if (dtype == ASH_Q3_K) {
        *scale = ((s < 8 ? sixes[s] & 15 : sixes[s - 8] >> 4) | (sixes[8 + s % 4] >> s / 4 * 2 & 3) << 4) - 32;
    } else if (dtype == ASH_Q6_K) {
        *scale = (int8_t)block[192 + s];
    } else if (dtype == ASH_IQ4_XS) {
        *scale = ((block[4 + b / 2] >> b % 2 * 4 & 15) | (block[2 + b / 4] >> b % 4 * 2 & 3) << 4) - 32;
    } else if (dtype == ASH_Q4_K || dtype == ASH_Q5_K) {
        *scale = b < 4 ? sixes[b] & 63 : (sixes[b + 4] & 15) | sixes[b - 4] >> 6 << 4;
        *min = b < 4 ? sixes[b + 4] & 63 : sixes[b + 4] >> 4 | sixes[b] >> 6 << 4;
    }
}

/* Element i of a block as a float. */
static __device__ inline float open_value(const uint8_t *block, int dtype, int i)
{
    int scale, min;
    float value;

    open_sub(block, dtype, i / SUB, &scale, &min);
    value = open_scale(block, dtype) * (float)scale * (float)open_quant(block, dtype, i);
    return has_min(dtype) ? value + open_min(block, dtype) * (float)min : value;
}

#endif
