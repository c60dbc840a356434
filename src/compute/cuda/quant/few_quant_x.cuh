/* few_quant_x - rows of x in shared memory, normed and quantised, for few_quant.cu. */
#ifndef ASH_COMPUTE_CUDA_FEW_QUANT_X_CUH
#define ASH_COMPUTE_CUDA_FEW_QUANT_X_CUH

#include "compute/cuda/gemm/few_rows.cuh"
#include "compute/cuda/quant/packed.h"
#include "compute/cuda/quant/quant_scales.cuh"

static_assert(ASH_CUDA_FEW_QUANT_WARPS == ASH_CUDA_FEW_WARPS, "few_rows.cuh counts threads for both");

/* Shared memory: x as quants, their scales, and sums of each 16. Of a unit of 256 k, chunk q of 16 lies at place
 * q % 4 * 4 + q / 4, so that the four lanes of a row of weights read 64 adjacent bytes. */
struct quants {
    int8_t *q; /* [M, units, 256] */
    float *d;  /* [M, units, groups of a unit] */
    int *sums; /* [M, units, 16] */
};

static __device__ inline struct quants quants_at(const struct ash_cuda_few_quant &op, unsigned char *at)
{
    struct quants x;
    size_t units = op.M * op.units;

    x.q = (int8_t *)at;
    x.sums = (int *)(at + units * ASH_CUDA_UNIT_K);
    x.d = (float *)(x.sums + units * (ASH_CUDA_UNIT_K / 16));
    return x;
}

/* Rows of x to `floats` [M, K] as the norm makes them. Quants come later: sums of blocks of squares lie there. */
static __device__ inline void norm_x(const struct ash_cuda_few_quant &op, const struct chunks &weights,
                                     const struct quants &quants, float *floats)
{
    if (op.round_bf16)
        norm_blocks(op, weights, (float *)quants.q,
                    [&](unsigned m, unsigned k, float4 x) { *(float4 *)(floats + m * op.K + k) = x; });
    else
        norm_lanes(op, weights, floats);
    __syncthreads();
}

/* Eight values of row m, from k on; zeros after the last one. */
static __device__ inline void read_eight(const struct ash_cuda_few_quant &op, const float *floats, unsigned m,
                                         unsigned k, float x[8])
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float4 four = make_float4(0.0f, 0.0f, 0.0f, 0.0f);

        if (k < op.K)
            four =
                op.norm != NULL ? *(const float4 *)(floats + m * op.K + k + half * 4) : read_four(op, m, k + half * 4);
        x[half * 4] = four.x, x[half * 4 + 1] = four.y, x[half * 4 + 2] = four.z, x[half * 4 + 3] = four.w;
    }
}

/* Quantise all rows of x: a thread has 8 values, and those of a group find their largest together. Whole warps walk
 * together: a unit is one warp's. */
template <int DTYPE>
static __device__ inline void put_quants(const struct ash_cuda_few_quant &op, const struct quants &to,
                                         const float *floats)
{
    constexpr int SIZE = DTYPE == ASH_Q8_0 ? ASH_QUANT_BLOCK : ASH_QUANT_GROUP, LANES = SIZE / 8;
    unsigned eights = op.units * (ASH_CUDA_UNIT_K / 8);

    for (unsigned i = threadIdx.x; i < op.M * eights; i += FEW_THREADS) {
        unsigned m = i / eights, k = i % eights * 8, at = m * op.units * ASH_CUDA_UNIT_K + k, chunk = k % 256 / 16;
        uint32_t top = 0, words[2] = {0, 0};
        float x[8], d, inverse;
        int sum = 0;
        bool lost;

        read_eight(op, floats, m, k, x);
#pragma unroll
        for (int e = 0; e < 8; e++)
            top = max(top, ash_f32_bits(x[e]) & ~ASH_F32_SIGN_BIT);
#pragma unroll
        for (int step = LANES / 2; step > 0; step /= 2)
            top = max(top, __shfl_xor_sync(0xffffffffu, top, step));
        d = ash_f32_from_bits(top) / 127.0f;
        inverse = 1.0f / d;
        lost = top >= ASH_F32_INFINITY_BITS || isinf(inverse);
#pragma unroll
        for (int e = 0; e < 8; e++) {
            int q = lost ? 0 : round_quant(x[e] * inverse);

            words[e / 4] |= (uint32_t)(q & 255) << e % 4 * 8;
            sum += q;
        }
        *(uint2 *)(to.q + at / 256 * 256 + (chunk % 4 * 4 + chunk / 4) * 16 + k % 16) = make_uint2(words[0], words[1]);
        if (k % SIZE == 0) to.d[at / SIZE] = !lost ? d : top >= ASH_F32_INFINITY_BITS ? NAN : 0.0f;
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        if (k % 16 == 0) to.sums[at / 16] = sum;
    }
    __syncthreads();
}

#endif
