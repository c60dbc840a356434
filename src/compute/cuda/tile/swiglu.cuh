/* swiglu - of a bf16 model (ref/act_wgmma.c): gate, up and the gradient of their product are rounded already. */
#ifndef ASH_COMPUTE_CUDA_SWIGLU_CUH
#define ASH_COMPUTE_CUDA_SWIGLU_CUH

#include "base/bf16.h"
#include "compute/cuda/ptx/math.cuh"
#include "compute/mathf.h"

static __device__ inline float sigmoid_bf16(float x)
{
    return 1.0f / (1.0f + ex2_approx(-(x * ASH_LOG2E)));
}

static __device__ inline float swiglu_bf16(float gate, float up)
{
    return (gate * sigmoid_bf16(gate)) * up;
}

/* The same of sums that are not rounded yet. */
static __device__ inline float swiglu_sums(float gate, float up)
{
    return swiglu_bf16(ash_bf16_round(gate), ash_bf16_round(up));
}

/* x: of the gate, y: of up. */
static __device__ inline float2 swiglu_gradients_bf16(float gate, float up, float dout)
{
    float s = sigmoid_bf16(gate);

    return make_float2((dout * up) * (s * fmaf(gate, 1.0f - s, 1.0f)), dout * (gate * s));
}

#endif
