/* launch - a kernel that begins while the one before it on the queue still runs (programmatic dependent launch).
 * What it does before early_wait() may depend on nothing that the queue computes. All threads of such a kernel call
 * both, so that it ends after the one before it has. */
#ifndef ASH_COMPUTE_CUDA_LAUNCH_CUH
#define ASH_COMPUTE_CUDA_LAUNCH_CUH

#include "compute/cuda/ptx/target.cuh"

/* The next kernel may begin when all thread blocks have called this. */
static __device__ inline void early_begin(void)
{
    LAUNCH_ASM("griddepcontrol.launch_dependents;" ::: "memory");
}

/* Until all kernels before this one are done and what they wrote is here. */
static __device__ inline void early_wait(void)
{
    LAUNCH_ASM("griddepcontrol.wait;" ::: "memory");
}

#endif
