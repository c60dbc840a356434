/* ldst - loads and stores: src/compute/cuda/ptx/ldst.cuh. */
#ifndef ASH_COMPUTE_CUDA_LDST_CUH
#define ASH_COMPUTE_CUDA_LDST_CUH

#include "compute/cuda/ptx/shared.cuh"

static inline void load_four_here(const float *from, float to[4])
{
    memcpy(to, emu_shared_at(emu_now->block, emu_shared_address(from), 16), 16);
}

#endif
