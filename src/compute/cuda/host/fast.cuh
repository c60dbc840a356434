/* fast - what only kernels of runtime.mode=fast use: other bits than the reference's, for fewer instructions. */
#ifndef ASH_COMPUTE_CUDA_FAST_CUH
#define ASH_COMPUTE_CUDA_FAST_CUH

#include "compute/cuda/tile/device.cuh"

/* 2^x in one instruction, with an error of 2 units in the last place; denormals become zeros. */
static __device__ inline float exp2_approx(float x)
{
    float y;

    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

#endif
