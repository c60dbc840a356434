/* math - instructions of the special function unit, as ref/ex2.h describes them. */
#ifndef ASH_COMPUTE_CUDA_PTX_MATH_CUH
#define ASH_COMPUTE_CUDA_PTX_MATH_CUH

/* 2^x: ash_ex2, to the bit. */
static __device__ inline float ex2_approx(float x)
{
    float y;

    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

#endif
