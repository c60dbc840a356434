/* device - what the kernels share: reading elements of any dtype, and row sums in the canonical order of lanes.
 * Compiled with --fmad=false, IEEE division and square roots, and denormals kept: a kernel computes the reference's
 * bits because it makes the same IEEE operations in the same order. */
#ifndef ASH_COMPUTE_CUDA_DEVICE_CUH
#define ASH_COMPUTE_CUDA_DEVICE_CUH

#include <cuda_fp16.h>
#include <stdint.h>
#include "base/bf16.h"
#include "base/dtype.h"
#include "compute/cuda/host/kernel_args.h"
#include "compute/cuda/ptx/shared.cuh"
#include "compute/mathf.h"

#define WARP 32
/* A thread per element, in strides where there are more elements than threads. */
#define EACH(i, count)                                                                                                 \
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < (count); i += (size_t)gridDim.x * blockDim.x)

/* Element index of data (F32, BF16 or F16) as a float. */
static __device__ inline float read_element(const void *data, int dtype, size_t index)
{
    if (dtype == ASH_BF16) return ash_bf16_to_f32(((const uint16_t *)data)[index]);
    if (dtype == ASH_F16) return __half2float(__ushort_as_half(((const uint16_t *)data)[index]));
    return ((const float *)data)[index];
}

/* Half a warp owns a row: thread l of it has the partial sum of lane l. Every thread gets the folded sum. The order is
 * ash_lanes_fold's: l with l + 8, then + 4, + 2, + 1. */
static __device__ inline float fold_lanes(float lane)
{
    for (int half = ASH_LANES / 2; half > 0; half /= 2)
        lane = lane + __shfl_down_sync(0xffffffffu, lane, half, ASH_LANES);
    return __shfl_sync(0xffffffffu, lane, 0, ASH_LANES);
}

/* The largest value over the half warp that owns a row. Comparisons only, so no order; a NaN never wins. */
static __device__ inline float max_lanes(float value)
{
    for (int half = ASH_LANES / 2; half > 0; half /= 2) {
        float other = __shfl_xor_sync(0xffffffffu, value, half, ASH_LANES);

        value = other > value ? other : value;
    }
    return value;
}

#endif
