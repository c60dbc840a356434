/* mma - the tensor cores' instructions for bf16, as ref/wgmma.h describes what they compute, and how matrices come
 * to them from shared memory. */
#ifndef ASH_COMPUTE_CUDA_MMA_CUH
#define ASH_COMPUTE_CUDA_MMA_CUH

#include <stdint.h>

/* Four 8 x 8 matrices of bf16, of which each thread gets two values each. `at` is an address in shared memory. */
static __device__ inline void load_matrices(unsigned at, uint32_t out[4])
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(at));
}

/* The same, each matrix transposed. */
static __device__ inline void load_transposed(unsigned at, uint32_t out[4])
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(at));
}

/* d += a b: 16 x 8 sums, 16 k. */
static __device__ inline void mma(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Two floats as bf16, to nearest even; low comes first in memory. */
static __device__ inline uint32_t pack_bf16(float low, float high)
{
    uint32_t out;

    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
    return out;
}

#endif
