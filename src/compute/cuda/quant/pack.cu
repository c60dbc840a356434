/* pack - quantised weights from the file's blocks to the layout of packed.h. A thread makes one lane of a unit. */
#include "compute/cuda/quant/packed.h"
#include "compute/cuda/quant/quant_scales.cuh"
#include "compute/cuda/quant/quant_types.cuh"

#define LANE_BLOCKS 2
#define LANE_K (LANE_BLOCKS * ASH_QUANT_BLOCK)

/* The elements of a lane: of row `row`, from k on. */
struct from {
    const uint8_t *row; /* NULL: past the last row */
    size_t K, k;
    int dtype;
};

static __device__ inline const uint8_t *block_of(const struct from &from, size_t k)
{
    return from.row + k / file_block(from.dtype) * file_block_bytes(from.dtype);
}

static __device__ inline bool is_there(const struct from &from, size_t k)
{
    return from.row != NULL && k < from.K;
}

/* Element k as the kernel multiplies it: bytes are signed, nibbles with high bits are not. */
static __device__ inline unsigned quant_at(const struct from &from, size_t k)
{
    const uint8_t *block;
    int i = (int)(k % ASH_QUANT_BLOCK);

    if (!is_there(from, k)) return 0;
    block = block_of(from, k);
    if (from.dtype == ASH_Q8_0 || from.dtype == ASH_Q8_W) return block[2 + i];
    if (from.dtype == ASH_Q4_0) return i < 16 ? block[2 + i] & 15 : block[2 + i - 16] >> 4;
    return (unsigned)open_wide(block, from.dtype, (int)(k % ASH_QUANT_GROUP)) + (from.dtype == ASH_Q6_K ? 32 : 0);
}

/* ---- scales ------------------------------------------------------------------------------------------------------ */

/* Sub-scales of a group of Q4_0, a byte each, from its blocks' scales (zeros where there are none): compute/ops.h. */
static __device__ inline uint64_t find_subscales(const float scales[ASH_QUANT_GROUP_BLOCKS], float *group)
{
    float top = 0.0f, most = ASH_QUANT_SUBSCALE_SMALL_MAX;
    uint64_t subscales = 0;
    bool finite = true;

#pragma unroll
    for (int b = 0; b < ASH_QUANT_GROUP_BLOCKS; b++) {
        finite = finite && isfinite(scales[b]);
        top = fabsf(scales[b]) > top ? fabsf(scales[b]) : top;
    }
    *group = finite ? 0.0f : NAN;
    if (!finite || top == 0.0f) return 0;
#pragma unroll
    for (int b = 0; b < ASH_QUANT_GROUP_BLOCKS; b++) {
        float steps = (float)round_quant(scales[b] * (ASH_QUANT_SUBSCALE_SMALL_MAX / top));

        if (steps * top != ASH_QUANT_SUBSCALE_SMALL_MAX * scales[b]) most = ASH_QUANT_SUBSCALE_MAX;
    }
#pragma unroll
    for (int b = 0; b < ASH_QUANT_GROUP_BLOCKS; b++)
        subscales |= (uint64_t)(uint8_t)round_quant(scales[b] * (most / top)) << b * 8;
    *group = top / most;
    return subscales;
}

/* Q4_0: the lane's two sub-scales, and its row's scale. */
static __device__ inline void put_scales_q4_0(const struct from &from, size_t j, uint8_t *subs, float *group)
{
    size_t first = from.k - j * LANE_K;
    float scales[ASH_QUANT_GROUP_BLOCKS];
    uint64_t subscales;

#pragma unroll
    for (int b = 0; b < ASH_QUANT_GROUP_BLOCKS; b++) {
        size_t k = first + b * ASH_QUANT_BLOCK;

        scales[b] = is_there(from, k) ? half_at(block_of(from, k)) : 0.0f;
    }
    subscales = find_subscales(scales, group) >> j * 16;
    subs[0] = (uint8_t)subscales;
    subs[1] = (uint8_t)(subscales >> 8);
}

/* Bits of a half in the file, 0 where the row or k has ended. */
static __device__ inline uint16_t half_bits(const struct from &from, size_t k, int at)
{
    return is_there(from, k) ? *(const uint16_t *)(block_of(from, k) + at) : (uint16_t)0;
}

static __device__ inline void put_subs_k(const struct from &from, size_t j, uint8_t *subs)
{
    for (int i = 0; i < 4; i++)
        subs[i] = 0;
    if (!is_there(from, from.k)) return;
    for (int s = 0; s < LANE_K / SUB; s++) {
        int scale, min;

        open_sub(block_of(from, from.k), from.dtype, (int)j * (LANE_K / SUB) + s, &scale, &min);
        if (from.dtype == ASH_Q6_K) subs[s] = (uint8_t)scale;
        if (from.dtype != ASH_Q6_K && s % 2 == 0) subs[s / 2] = (uint8_t)scale, subs[2 + s / 2] = (uint8_t)min;
    }
}

/* Subs of the lane, and what its row has. */
static __device__ inline void put_scales(const struct from &from, size_t j, uint8_t *subs, uint8_t *row)
{
    if (from.dtype == ASH_Q8_0) {
        for (int b = 0; b < LANE_BLOCKS; b++)
            ((uint16_t *)subs)[b] = half_bits(from, from.k + b * ASH_QUANT_BLOCK, 0);
        return;
    }
    if (from.dtype == ASH_Q4_0) {
        put_scales_q4_0(from, j, subs, (float *)row);
        return;
    }
    if (from.dtype != ASH_Q8_W) put_subs_k(from, j, subs);
    if (j != 0) return;
    ((uint16_t *)row)[0] = half_bits(from, from.k, from.dtype == ASH_Q6_K ? 208 : 0);
    ((uint16_t *)row)[1] = from.dtype == ASH_Q4_K || from.dtype == ASH_Q5_K ? half_bits(from, from.k, 2) : (uint16_t)0;
}

/* ---- quants ------------------------------------------------------------------------------------------------------ */

static __device__ inline void put_bytes(const struct from &from, unsigned lane, uint8_t *quants)
{
    for (unsigned i = 0; i < LANE_K; i++)
        quants[(i / 16 * ASH_CUDA_UNIT_LANES + lane) * 16 + i % 16] = (uint8_t)quant_at(from, from.k + i);
}

/* Nibbles, and the bits above them: of a word of a block (four elements; low nibbles are words 0 to 3), by bytes. */
static __device__ inline void put_nibbles(const struct from &from, unsigned lane, unsigned high_bytes, uint8_t *quants,
                                          uint8_t *high)
{
    unsigned bits = high_bytes / 8; /* of an element */

    for (unsigned i = 0; i < high_bytes; i++)
        high[lane * high_bytes + i] = 0;
    for (unsigned b = 0; b < LANE_BLOCKS; b++)
        for (unsigned i = 0; i < 16; i++) {
            size_t k = from.k + b * ASH_QUANT_BLOCK + i;
            unsigned low = quant_at(from, k), up = quant_at(from, k + 16);

            quants[(b * ASH_CUDA_UNIT_LANES + lane) * 16 + i] = (uint8_t)((low & 15) | (up & 15) << 4);
            if (bits == 0) continue;
            /* Q5_K: a word of 4 bytes a block, 8 bits a byte. Q6_K: two words, for low and for high nibbles. */
            uint8_t *at = high + lane * high_bytes + b * (high_bytes / 2) + i % 4;
            unsigned shift = i / 4 * bits;

            at[0] |= (uint8_t)(low >> 4 << shift);
            if (bits == 1)
                at[0] |= (uint8_t)(up >> 4 << (4 + shift));
            else
                at[4] |= (uint8_t)(up >> 4 << shift);
        }
}

extern "C" __global__ void quant_pack(struct ash_cuda_quant_pack op)
{
    struct ash_cuda_unit unit = ash_cuda_unit_of(op.dtype);
    size_t index = (size_t)blockIdx.x * blockDim.x + threadIdx.x, units = ash_cuda_units(op.K);
    unsigned lane = index % ASH_CUDA_UNIT_LANES;
    size_t u = index / ASH_CUDA_UNIT_LANES % units, panel = index / ASH_CUDA_UNIT_LANES / units, j = lane % 4;
    size_t row = panel * ASH_CUDA_PANEL_ROWS + lane / 4;
    uint8_t *to = op.packed + (panel * units + u) * ash_cuda_unit_bytes(op.dtype);
    uint8_t *high = to + ASH_CUDA_UNIT_LANES * unit.quants, *subs = high + ASH_CUDA_UNIT_LANES * unit.high;
    struct from from = {NULL, op.K, u * ASH_CUDA_UNIT_K + j * LANE_K, op.dtype};

    if (panel >= op.panels) return;
    if (row < op.rows) from.row = op.w + row * op.row_bytes;
    if (unit.quants == LANE_K)
        put_bytes(from, lane, to);
    else
        put_nibbles(from, lane, unit.high, to, high);
    put_scales(from, j, subs + lane * unit.subs, subs + ASH_CUDA_UNIT_LANES * unit.subs + lane / 4 * unit.rows);
}
