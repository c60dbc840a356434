/* fast - the GPU without the reference's bits: runtime.mode=fast. */
#ifndef ASH_COMPUTE_CUDA_FAST_H
#define ASH_COMPUTE_CUDA_FAST_H

#include "compute/cuda/host/backend_priv.h"

/* What runs in the place of a kernel in fast mode: another one, or itself. */
enum ash_cuda_kernel_id ash_cuda_fast_kernel(enum ash_cuda_kernel_id exact);

#endif
