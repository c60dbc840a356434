/* shared - shared memory of an emulated thread block: src/compute/cuda/ptx/shared.cuh. */
#ifndef ASH_COMPUTE_CUDA_SHARED_CUH
#define ASH_COMPUTE_CUDA_SHARED_CUH

#include "emulate/cuda.h"

#define DYNAMIC_SHARED(type, name, border) type *name = (type *)emu_dynamic_shared(border)

static inline unsigned shared_address(const void *at)
{
    return emu_shared_address(at);
}

#endif
