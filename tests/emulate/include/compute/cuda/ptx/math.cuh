/* math - arithmetic in one instruction: src/compute/cuda/ptx/math.cuh. */
#ifndef ASH_COMPUTE_CUDA_PTX_MATH_CUH
#define ASH_COMPUTE_CUDA_PTX_MATH_CUH

#include "emulate/cuda.h"

static inline float ex2_approx(float x)
{
    return emu_ex2(x);
}

static inline void add_product_here(float *sum, float a, float b)
{
    *sum = fmaf(a, b, *sum);
}

static inline void add_here(float *sum, float a)
{
    *sum = *sum + a;
}

#endif
