/* quant - products with a quantised matrix. Dot products of groups are exact integers, so a warp adds them in any
 * order; groups then join in one fused multiply-add chain, ascending, as compute/ops.h says. */
#include "compute/cuda/quant/quant_scales.cuh"
#include "compute/cuda/quant/quant_types.cuh"

#define WARPS 4
#define ROWS 8 /* of x, that share one reading of w */

static __device__ inline size_t group_blocks(int dtype)
{
    bool one = dtype == ASH_Q8_0 || dtype == ASH_Q4_1 || dtype == ASH_Q5_0 || dtype == ASH_Q5_1 ||
               dtype == ASH_IQ4_NL || dtype == ASH_MXFP4;

    return one ? 1 : ASH_QUANT_GROUP_BLOCKS;
}

/* A warp quantises one group of one row of x. */
extern "C" __global__ void quant_rows(struct ash_cuda_quant op)
{
    size_t unit = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) / WARP, m = unit / op.groups, g = unit % op.groups;
    size_t size = group_blocks(op.dtype) * ASH_QUANT_BLOCK, first = g * size, lane = threadIdx.x % WARP;
    size_t end = first + size < op.K ? first + size : op.K;
    const float *x = op.x + m * op.x_stride;
    uint32_t top = 0;
    float d, inverse;
    bool lost;

    if (m >= op.M) return;
    for (size_t k = first + lane; k < end; k += WARP) {
        uint32_t bits = ash_f32_bits(x[k]) & ~ASH_F32_SIGN_BIT;

        top = bits > top ? bits : top;
    }
    top = __reduce_max_sync(0xffffffffu, top);
    d = ash_f32_from_bits(top) / 127.0f;
    inverse = 1.0f / d;
    lost = top >= ASH_F32_INFINITY_BITS || isinf(inverse);
    for (size_t k = first + lane; k < end; k += WARP)
        op.qx[m * op.K + k] = lost ? 0 : (int8_t)round_quant(x[k] * inverse);
    if (lane == 0) op.dx[unit] = !lost ? d : top >= ASH_F32_INFINITY_BITS ? NAN : 0.0f;
}

/* Scales of the types of quant_types.cuh, whose sub-scales are part of the dots. */
static __device__ inline struct scales read_scales(const uint8_t *block, bool real, int dtype)
{
    struct scales scales;

    scales.sub = 1;
    scales.group = real ? open_scale(block, dtype) : 0.0f;
    scales.min = real && has_min(dtype) ? open_min(block, dtype) : 0.0f;
    return scales;
}

static __device__ inline int dot_block(const uint8_t *block, int dtype, const int8_t *x)
{
    const uint8_t *bytes = block + 2;
    int dot = 0;

    if (dtype == ASH_Q4_0) {
        for (int i = 0; i < ASH_QUANT_BLOCK / 2; i++)
            dot += ((bytes[i] & 15) - 8) * x[i] + ((bytes[i] >> 4) - 8) * x[i + ASH_QUANT_BLOCK / 2];
        return dot;
    }
    for (int i = 0; i < ASH_QUANT_BLOCK; i++)
        dot += (int8_t)bytes[i] * x[i];
    return dot;
}

/* The dot of elements first ... first + 31 of a block of these types, with sub-scales; and the sums of x with
 * sub-minimums. */
static __device__ inline int dot_open(const uint8_t *block, int dtype, int first, const int8_t *x, int *low)
{
    int dot = 0;

    *low = 0;
    for (int s = 0; s < ASH_QUANT_BLOCK / SUB; s++) {
        int scale, min, part = 0, sum = 0;

        open_sub(block, dtype, first / SUB + s, &scale, &min);
        for (int i = s * SUB; i < (s + 1) * SUB; i++) {
            part += open_quant(block, dtype, first + i) * x[i];
            sum += x[i];
        }
        dot += scale * part;
        *low += min * sum;
    }
    return dot;
}

/* A warp owns output n of ROWS rows; a lane has a block of every 32. */
extern "C" __global__ void quant_gemm(struct ash_cuda_quant op)
{
    size_t n = (size_t)blockIdx.x * WARPS + threadIdx.x / WARP, m0 = (size_t)blockIdx.y * ROWS;
    size_t blocks = op.K / ASH_QUANT_BLOCK, rows = op.M - m0 < ROWS ? op.M - m0 : ROWS;
    size_t of_block = file_block(op.dtype) / ASH_QUANT_BLOCK, bytes = file_block_bytes(op.dtype);
    const uint8_t *w = op.w + n * (blocks / of_block) * bytes;
    int lane = threadIdx.x % WARP, width = (int)group_blocks(op.dtype);
    float acc[ROWS];

    if (n >= op.N) return;
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        acc[r] = op.accumulate && r < rows ? op.y[(m0 + r) * op.y_stride + n] : 0.0f;
    for (size_t b0 = 0; b0 < blocks; b0 += WARP) {
        bool real = b0 + lane < blocks;
        const uint8_t *block = w + (b0 + lane) / of_block * bytes;
        struct scales scales =
            is_open(op.dtype) ? read_scales(block, real, op.dtype)
                              : find_scales(real ? __half2float(*(const __half *)block) : 0.0f, real, op.dtype, width);
        int groups = (int)((blocks - b0 < WARP ? blocks - b0 : WARP) + width - 1) / width;

#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const int8_t *x = op.qx + (m0 + r) * op.K + (b0 + lane) * ASH_QUANT_BLOCK;
            int dot = 0, low = 0;

            if (r >= rows) break;
            if (real && is_open(op.dtype))
                dot = dot_open(block, op.dtype, (int)((b0 + lane) % of_block * ASH_QUANT_BLOCK), x, &low);
            else if (real)
                dot = scales.sub * dot_block(block, op.dtype, x);
            for (int half = width / 2; half > 0; half /= 2) {
                dot += __shfl_xor_sync(0xffffffffu, dot, half, width);
                low += __shfl_xor_sync(0xffffffffu, low, half, width);
            }
            for (int g = 0; g < groups; g++) {
                float sum = (float)__shfl_sync(0xffffffffu, dot, g * width);
                float scale = __shfl_sync(0xffffffffu, scales.group, g * width);
                float dx = op.dx[(m0 + r) * op.groups + b0 / width + g];

                acc[r] = fmaf(sum, dx * scale, acc[r]);
                sum = (float)__shfl_sync(0xffffffffu, low, g * width);
                scale = __shfl_sync(0xffffffffu, scales.min, g * width);
                if (has_min(op.dtype)) acc[r] = fmaf(sum, dx * scale, acc[r]);
            }
        }
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        if (r >= rows || lane != 0) break;
        op.y[(m0 + r) * op.y_stride + n] = op.bias != NULL ? acc[r] + op.bias[n] : acc[r];
    }
}
