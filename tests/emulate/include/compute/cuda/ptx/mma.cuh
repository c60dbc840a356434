/* mma - tensor cores: src/compute/cuda/ptx/mma.cuh. */
#ifndef ASH_COMPUTE_CUDA_MMA_CUH
#define ASH_COMPUTE_CUDA_MMA_CUH

#include "emulate/cuda.h"

static inline void load_matrices(unsigned at, uint32_t out[4])
{
    emu_load_matrices(at, out, false);
}

static inline void load_transposed(unsigned at, uint32_t out[4])
{
    emu_load_matrices(at, out, true);
}

static inline void mma(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    emu_mma(d, a, b);
}

/* NaN is the one that the chip makes. */
static inline uint32_t emu_bf16(float x)
{
    uint32_t bits = __float_as_uint(x);

    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
    return (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
}

static inline uint32_t pack_bf16(float low, float high)
{
    return emu_bf16(low) | emu_bf16(high) << 16;
}

#endif
