/* wgmma - Hopper's asynchronous products of bf16: four warps multiply 64 lines of a by 128 lines of b, both in shared
 * memory, 16 k at a time. Sums grow as with mma.sync: ref/wgmma.h. */
#ifndef ASH_COMPUTE_CUDA_WGMMA_CUH
#define ASH_COMPUTE_CUDA_WGMMA_CUH

#include <stdint.h>

#define WGMMA_M 64
#define WGMMA_N 128
#define WGMMA_BORDER 1024 /* where tiles of lines begin: 8 lines of 128 bytes, whose chunks of 16 bytes are permuted */

/* An operand in shared memory, as the instruction wants to be told: its address, 1024 bytes from 8 lines to the next 8,
 * chunks permuted within 128 bytes. */
static __device__ inline uint64_t wgmma_operand(unsigned at)
{
    return (uint64_t)((at & 0x3ffff) >> 4) | (uint64_t)1 << 16 | (uint64_t)(WGMMA_BORDER >> 4) << 32 |
           (uint64_t)1 << 62;
}

/* Before the first product that uses registers which ordinary instructions have written. */
static __device__ inline void wgmma_fence(void)
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

static __device__ inline void wgmma_commit(void)
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Until all products that were begun are done. */
static __device__ inline void wgmma_wait(void)
{
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}

/* Until all but the group that was begun last are done. */
static __device__ inline void wgmma_wait_older(void)
{
    asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
}

/* What this thread wrote to shared memory is seen by products that begin after a barrier. */
static __device__ inline void wgmma_see_shared(void)
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* Begin d += a b: of each 8 columns a thread has two, in its row and in the one 8 below. */
static __device__ inline void wgmma(float d[16][4], uint64_t a, uint64_t b)
{
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, %64, %65, 1, 1, 1, 0, 0;\n"
        : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]), "+f"(d[1][1]), "+f"(d[1][2]),
          "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]), "+f"(d[3][0]), "+f"(d[3][1]),
          "+f"(d[3][2]), "+f"(d[3][3]), "+f"(d[4][0]), "+f"(d[4][1]), "+f"(d[4][2]), "+f"(d[4][3]), "+f"(d[5][0]),
          "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3]), "+f"(d[6][0]), "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]),
          "+f"(d[7][0]), "+f"(d[7][1]), "+f"(d[7][2]), "+f"(d[7][3]), "+f"(d[8][0]), "+f"(d[8][1]), "+f"(d[8][2]),
          "+f"(d[8][3]), "+f"(d[9][0]), "+f"(d[9][1]), "+f"(d[9][2]), "+f"(d[9][3]), "+f"(d[10][0]), "+f"(d[10][1]),
          "+f"(d[10][2]), "+f"(d[10][3]), "+f"(d[11][0]), "+f"(d[11][1]), "+f"(d[11][2]), "+f"(d[11][3]),
          "+f"(d[12][0]), "+f"(d[12][1]), "+f"(d[12][2]), "+f"(d[12][3]), "+f"(d[13][0]), "+f"(d[13][1]),
          "+f"(d[13][2]), "+f"(d[13][3]), "+f"(d[14][0]), "+f"(d[14][1]), "+f"(d[14][2]), "+f"(d[14][3]),
          "+f"(d[15][0]), "+f"(d[15][1]), "+f"(d[15][2]), "+f"(d[15][3])
        : "l"(a), "l"(b));
}

/* The same with fewer lines of b: N of them, and N / 8 times four sums. */
#define WGMMA_SUMS(d, i) "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])

static __device__ inline void wgmma_16(float (*d)[4], uint64_t a, uint64_t b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7}, "
                 "%8, %9, 1, 1, 1, 0, 0;"
                 : WGMMA_SUMS(d, 0), WGMMA_SUMS(d, 1)
                 : "l"(a), "l"(b));
}

static __device__ inline void wgmma_32(float (*d)[4], uint64_t a, uint64_t b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, "
                 "%8, %9, %10, %11, %12, %13, %14, %15}, %16, %17, 1, 1, 1, 0, 0;"
                 : WGMMA_SUMS(d, 0), WGMMA_SUMS(d, 1), WGMMA_SUMS(d, 2), WGMMA_SUMS(d, 3)
                 : "l"(a), "l"(b));
}

static __device__ inline void wgmma_64(float (*d)[4], uint64_t a, uint64_t b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, "
                 "%8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "
                 "%24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, 1, 1, 1, 0, 0;"
                 : WGMMA_SUMS(d, 0), WGMMA_SUMS(d, 1), WGMMA_SUMS(d, 2), WGMMA_SUMS(d, 3), WGMMA_SUMS(d, 4),
                   WGMMA_SUMS(d, 5), WGMMA_SUMS(d, 6), WGMMA_SUMS(d, 7)
                 : "l"(a), "l"(b));
}

#endif
