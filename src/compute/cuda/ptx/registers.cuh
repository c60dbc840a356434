/* registers - a thread block's warps have different work: those that copy give registers to those that multiply. All
 * four warps of a warpgroup call, at the beginning of their work. N is a multiple of 8. */
#ifndef ASH_COMPUTE_CUDA_REGISTERS_CUH
#define ASH_COMPUTE_CUDA_REGISTERS_CUH

#include "compute/cuda/ptx/target.cuh"

/* Keep N registers a thread. */
template <int N> static __device__ inline void registers_give(void)
{
    WGMMA_ASM("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

/* Get N registers a thread, as soon as they are there. */
template <int N> static __device__ inline void registers_take(void)
{
    WGMMA_ASM("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

#endif
