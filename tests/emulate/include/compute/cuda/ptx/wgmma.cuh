/* wgmma - asynchronous products: src/compute/cuda/ptx/wgmma.cuh. */
#ifndef ASH_COMPUTE_CUDA_WGMMA_CUH
#define ASH_COMPUTE_CUDA_WGMMA_CUH

#include "emulate/cuda.h"

#define WGMMA_M 64
#define WGMMA_N 128
#define WGMMA_BORDER 1024

static inline uint64_t wgmma_operand(unsigned at)
{
    return (uint64_t)((at & 0x3ffff) >> 4) | (uint64_t)1 << 16 | (uint64_t)(WGMMA_BORDER >> 4) << 32 |
           (uint64_t)1 << 62;
}

static inline void wgmma_fence(void)
{
    emu_wgmma_fence();
}

static inline void wgmma_commit(void)
{
    emu_wgmma_commit();
}

static inline void wgmma_wait(void)
{
    emu_wgmma_wait(0);
}

static inline void wgmma_wait_older(void)
{
    emu_wgmma_wait(1);
}

static inline void wgmma_see_shared(void)
{
    emu_maybe_yield();
}

static inline void wgmma(float d[16][4], uint64_t a, uint64_t b)
{
    emu_wgmma(d, 16, a, NULL, b, false, false, true);
}

static inline void wgmma_16(float (*d)[4], uint64_t a, uint64_t b)
{
    emu_wgmma(d, 2, a, NULL, b, false, false, true);
}

static inline void wgmma_32(float (*d)[4], uint64_t a, uint64_t b)
{
    emu_wgmma(d, 4, a, NULL, b, false, false, true);
}

static inline void wgmma_64(float (*d)[4], uint64_t a, uint64_t b)
{
    emu_wgmma(d, 8, a, NULL, b, false, false, true);
}

#endif
