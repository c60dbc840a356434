/* wgmma - asynchronous products: src/compute/cuda/ptx/wgmma.cuh. */
#ifndef ASH_COMPUTE_CUDA_WGMMA_CUH
#define ASH_COMPUTE_CUDA_WGMMA_CUH

#include "emulate/cuda.h"

#define WGMMA_M 64
#define WGMMA_N 128
#define WGMMA_BORDER 1024

static inline uint64_t wgmma_descriptor(unsigned at, unsigned leading_bytes)
{
    return (uint64_t)((at & 0x3ffff) >> 4) | (uint64_t)(leading_bytes >> 4) << 16 |
           (uint64_t)(WGMMA_BORDER >> 4) << 32 | (uint64_t)1 << 62;
}

static inline uint64_t wgmma_operand(unsigned at)
{
    return wgmma_descriptor(at, 16);
}

static inline uint64_t wgmma_operand_across(unsigned at, unsigned panel_bytes)
{
    return wgmma_descriptor(at, panel_bytes);
}

static inline void wgmma_fence(void)
{
    emu_wgmma_fence();
}

static inline void wgmma_commit(void)
{
    emu_wgmma_commit();
}

template <int LEFT> static inline void wgmma_wait_for(void)
{
    emu_wgmma_wait(LEFT);
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

template <int N> static inline void wgmma_take(float (*)[4])
{
}

template <int N, int TRANS_A, int TRANS_B> static inline void wgmma(float (*d)[4], uint64_t a, uint64_t b, int keep)
{
    static_assert(N % 8 == 0 && N >= 8 && N <= 256, "a size that wgmma has");
    emu_wgmma(d, N / 8, a, NULL, b, TRANS_A != 0, TRANS_B != 0, keep != 0);
}

static inline void wgmma_e4m3(float (*d)[4], uint64_t a, uint64_t b)
{
    emu_wgmma_e4m3(d, a, b);
}

template <int N, int TRANS_B> static inline void wgmma_a(float (*d)[4], const uint32_t a[4], uint64_t b, int keep)
{
    static_assert(N % 8 == 0 && N >= 8 && N <= 256, "a size that wgmma has");
    emu_wgmma(d, N / 8, 0, a, b, false, TRANS_B != 0, keep != 0);
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
