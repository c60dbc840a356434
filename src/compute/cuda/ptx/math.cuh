/* math - arithmetic in one instruction, where the compiler has no name for it or would move it. */
#ifndef ASH_COMPUTE_CUDA_PTX_MATH_CUH
#define ASH_COMPUTE_CUDA_PTX_MATH_CUH

/* 2^x by the special function unit: ash_ex2 of ref/ex2.h, to the bit. */
static __device__ inline float ex2_approx(float x)
{
    float y;

    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* *sum += a b, rounded once, and *sum += a: both stay where they stand among the instructions. */
static __device__ inline void add_product_here(float *sum, float a, float b)
{
    asm volatile("fma.rn.f32 %0, %1, %2, %0;" : "+f"(*sum) : "f"(a), "f"(b));
}

static __device__ inline void add_here(float *sum, float a)
{
    asm volatile("add.rn.f32 %0, %0, %1;" : "+f"(*sum) : "f"(a));
}

#endif
