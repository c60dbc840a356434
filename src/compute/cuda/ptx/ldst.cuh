/* ldst - loads and stores that stay where they stand among the instructions. */
#ifndef ASH_COMPUTE_CUDA_LDST_CUH
#define ASH_COMPUTE_CUDA_LDST_CUH

#include "compute/cuda/ptx/shared.cuh"

/* Four floats of shared memory, at a border of 16 bytes. */
static __device__ inline void load_four_here(const float *from, float to[4])
{
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3])
                 : "r"(shared_address(from)));
}

#endif
