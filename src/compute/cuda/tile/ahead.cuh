/* ahead - the first lines of the next product's weights come to the L2 cache while this product ends (host/ahead.h). A
 * kernel calls it where its last copies are on their way: memory is asked for these lines when it would be idle. */
#ifndef ASH_COMPUTE_CUDA_AHEAD_CUH
#define ASH_COMPUTE_CUDA_AHEAD_CUH

#include "compute/cuda/ptx/copy.cuh"
#include "compute/cuda/tile/device.cuh"

/* A warp's share of the lines: it is number `warp` of `warps` in the grid. */
static __device__ inline void fetch_ahead(const struct ash_cuda_ahead &ahead, unsigned warp, unsigned warps)
{
    if (ahead.bytes == 0) return;
#pragma unroll 1
    for (int i = 0; i < ASH_PROJECT_OUTS_MAX; i++)
#pragma unroll 1
        for (unsigned line = warp * WARP + threadIdx.x % WARP; line < ahead.parts[i].count; line += warps * WARP)
            fetch_to_l2(ahead.parts[i].data + line * ahead.parts[i].stride, ahead.bytes);
}

#endif
