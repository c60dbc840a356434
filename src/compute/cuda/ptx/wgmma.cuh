/* wgmma - Hopper's asynchronous products of bf16: four warps multiply 64 lines of a by N lines of b, 16 k at a time.
 * Sums grow as with mma.sync: ref/wgmma.h. A thread has, of each 8 columns, two in its row (lane / 4 of its warp's 16)
 * and two in the row 8 below. b is in shared memory, a there or in registers.
 * In shared memory operands are panels: lines of 128 bytes whose chunks of 16 bytes are permuted (128-byte swizzle), as
 * tma.cuh brings them, from a border of WGMMA_BORDER on. */
#ifndef ASH_COMPUTE_CUDA_WGMMA_CUH
#define ASH_COMPUTE_CUDA_WGMMA_CUH

#include <stdint.h>
#include "compute/cuda/ptx/target.cuh"

#define WGMMA_M 64
#define WGMMA_N 128
#define WGMMA_BORDER 1024 /* of panels: 8 lines */

static __device__ inline uint64_t wgmma_descriptor(unsigned at, unsigned leading_bytes)
{
    return (uint64_t)((at & 0x3ffff) >> 4) | (uint64_t)(leading_bytes >> 4) << 16 |
           (uint64_t)(WGMMA_BORDER >> 4) << 32 | (uint64_t)1 << 62;
}

/* An operand whose lines are its rows (of a) or columns (of b): 64 k of each. 16 k further are 32 bytes further. */
static __device__ inline uint64_t wgmma_operand(unsigned at)
{
    return wgmma_descriptor(at, 16);
}

/* An operand whose lines are k, each with 64 rows of a, or columns of b; the next 64 are panel_bytes further. 16 k
 * further are 16 lines further. TRANS_A or TRANS_B is 1. */
static __device__ inline uint64_t wgmma_operand_across(unsigned at, unsigned panel_bytes)
{
    return wgmma_descriptor(at, panel_bytes);
}

/* Before the first product that uses registers which ordinary instructions have written. */
static __device__ inline void wgmma_fence(void)
{
    WGMMA_ASM("wgmma.fence.sync.aligned;" ::: "memory");
}

static __device__ inline void wgmma_commit(void)
{
    WGMMA_ASM("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Until all but the LEFT groups that were begun last are done. */
template <int LEFT> static __device__ inline void wgmma_wait_for(void)
{
    WGMMA_ASM("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}

/* Until all products that were begun are done. */
static __device__ inline void wgmma_wait(void)
{
    wgmma_wait_for<0>();
}

/* After a wait: the compiler reads these sums no earlier. */
template <int N> static __device__ inline void wgmma_take(float (*d)[4])
{
#pragma unroll
    for (int i = 0; i < N / 8; i++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            asm volatile("" : "+f"(d[i][e])::"memory");
}

/* What this thread wrote to shared memory is seen by products (and copies by tma.cuh) that begin after a barrier. */
static __device__ inline void wgmma_see_shared(void)
{
    ASYNC_ASM("fence.proxy.async.shared::cta;" ::: "memory");
}

#define WGMMA_SUMS(i) "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])
#define WGMMA_REGISTERS_8 "%0, %1, %2, %3"
#define WGMMA_REGISTERS_16 "%0, %1, %2, %3, %4, %5, %6, %7"
#define WGMMA_REGISTERS_32 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define WGMMA_REGISTERS_64                                                                                             \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                                           \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define WGMMA_REGISTERS_128                                                                                            \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                                           \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "                                 \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "                                 \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define WGMMA_REGISTERS_256                                                                                            \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                                           \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "                                 \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "                                 \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "                                 \
    "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "                                 \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "                                 \
    "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "                     \
    "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define WGMMA_SUMS_8 WGMMA_SUMS(0)
#define WGMMA_SUMS_16 WGMMA_SUMS_8, WGMMA_SUMS(1)
#define WGMMA_SUMS_32 WGMMA_SUMS_16, WGMMA_SUMS(2), WGMMA_SUMS(3)
#define WGMMA_SUMS_64 WGMMA_SUMS_32, WGMMA_SUMS(4), WGMMA_SUMS(5), WGMMA_SUMS(6), WGMMA_SUMS(7)
#define WGMMA_SUMS_128                                                                                                 \
    WGMMA_SUMS_64, WGMMA_SUMS(8), WGMMA_SUMS(9), WGMMA_SUMS(10), WGMMA_SUMS(11), WGMMA_SUMS(12), WGMMA_SUMS(13),       \
        WGMMA_SUMS(14), WGMMA_SUMS(15)
#define WGMMA_SUMS_256                                                                                                 \
    WGMMA_SUMS_128, WGMMA_SUMS(16), WGMMA_SUMS(17), WGMMA_SUMS(18), WGMMA_SUMS(19), WGMMA_SUMS(20), WGMMA_SUMS(21),    \
        WGMMA_SUMS(22), WGMMA_SUMS(23), WGMMA_SUMS(24), WGMMA_SUMS(25), WGMMA_SUMS(26), WGMMA_SUMS(27),                \
        WGMMA_SUMS(28), WGMMA_SUMS(29), WGMMA_SUMS(30), WGMMA_SUMS(31)

#define WGMMA(N, A, B, KEEP, TA, TB)                                                                                   \
    WGMMA_ASM("{\n.reg .pred keep;\nsetp.ne.b32 keep, %" KEEP ", 0;\n"                                                 \
              "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" WGMMA_REGISTERS_##N                         \
              "}, %" A ", %" B ", keep, 1, 1, %" TA ", %" TB ";\n}"                                                    \
              : WGMMA_SUMS_##N                                                                                         \
              : "l"(a), "l"(b), "r"(keep), "n"(TRANS_A), "n"(TRANS_B))
#define WGMMA_A(N, A0, A1, A2, A3, B, KEEP, TB)                                                                        \
    WGMMA_ASM("{\n.reg .pred keep;\nsetp.ne.b32 keep, %" KEEP ", 0;\n"                                                 \
              "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" WGMMA_REGISTERS_##N                         \
              "}, {%" A0 ", %" A1 ", %" A2 ", %" A3 "}, %" B ", keep, 1, 1, %" TB ";\n}"                               \
              : WGMMA_SUMS_##N                                                                                         \
              : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep), "n"(TRANS_B))

/* Begin d = a b, or d += a b if keep is not 0. */
template <int N, int TRANS_A, int TRANS_B>
static __device__ inline void wgmma(float (*d)[4], uint64_t a, uint64_t b, int keep)
{
    static_assert(N == 8 || N == 16 || N == 32 || N == 64 || N == 128 || N == 256,
                  "a size that has an instruction here");
    if constexpr (N == 8) WGMMA(8, "4", "5", "6", "7", "8");
    if constexpr (N == 16) WGMMA(16, "8", "9", "10", "11", "12");
    if constexpr (N == 32) WGMMA(32, "16", "17", "18", "19", "20");
    if constexpr (N == 64) WGMMA(64, "32", "33", "34", "35", "36");
    if constexpr (N == 128) WGMMA(128, "64", "65", "66", "67", "68");
    if constexpr (N == 256) WGMMA(256, "128", "129", "130", "131", "132");
}

/* Begin d += a b of 8 columns, with values of e4m3: 32 k. ref/fp8.h describes what it computes. */
static __device__ inline void wgmma_e4m3(float (*d)[4], uint64_t a, uint64_t b)
{
    WGMMA_ASM("{\n.reg .pred keep;\nsetp.ne.b32 keep, %6, 0;\n"
              "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 {" WGMMA_REGISTERS_8 "}, %4, %5, keep, 1, 1;\n}"
              : WGMMA_SUMS_8
              : "l"(a), "l"(b), "r"(1));
}

/* As wgmma with 64 rows of a in registers: of each 16 k a thread has two of its row, two of the row 8 below, and the
 * same 8 further. */
template <int N, int TRANS_B>
static __device__ inline void wgmma_a(float (*d)[4], const uint32_t a[4], uint64_t b, int keep)
{
    static_assert(N == 64 || N == 128, "a size that has an instruction here");
    if constexpr (N == 64) WGMMA_A(64, "32", "33", "34", "35", "36", "37", "38");
    if constexpr (N == 128) WGMMA_A(128, "64", "65", "66", "67", "68", "69", "70");
}

#endif
