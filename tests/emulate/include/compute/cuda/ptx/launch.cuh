/* launch - kernels run one after the other here: src/compute/cuda/ptx/launch.cuh. */
#ifndef ASH_COMPUTE_CUDA_LAUNCH_CUH
#define ASH_COMPUTE_CUDA_LAUNCH_CUH

#include "emulate/cuda.h"

static inline void early_begin(void)
{
    emu_maybe_yield();
}

static inline void early_wait(void)
{
    emu_maybe_yield();
}

#endif
