/* tma - the copy engine that moves boxes of a matrix in memory: a tensor map says how the matrix lies, made by the host
 * (ash_cuda_map_rows). One thread begins a copy; a barrier in shared memory counts its bytes. What lies outside of the
 * matrix becomes zeros, and counts. */
#ifndef ASH_COMPUTE_CUDA_TMA_CUH
#define ASH_COMPUTE_CUDA_TMA_CUH

#include <stdint.h>
#include "infra/device/tensor_map.h"
#include "compute/cuda/ptx/target.cuh"

/* Have the map itself in the cache. */
static __device__ inline void tma_prefetch(const struct ash_cuda_tensor_map *map)
{
    ASYNC_ASM("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/* Enqueue the copy of the box at column x, row y. */
static __device__ inline void tma_load_2d(unsigned to, const struct ash_cuda_tensor_map *map, int x, int y,
                                          unsigned barrier)
{
    ASYNC_ASM("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], "
              "[%4];" ::"r"(to),
              "l"(map), "r"(x), "r"(y), "r"(barrier)
              : "memory");
}

/* The same to the same place of the cluster's thread blocks that `blocks` names, bit by bit; each one's barrier counts
 * the bytes. */
static __device__ inline void tma_load_2d_to_all(unsigned to, const struct ash_cuda_tensor_map *map, int x, int y,
                                                 unsigned barrier, uint16_t blocks)
{
    ASYNC_ASM("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
              "[%1, {%2, %3}], [%4], %5;" ::"r"(to),
              "l"(map), "r"(x), "r"(y), "r"(barrier), "h"(blocks)
              : "memory");
}

/* The same of matrices one after the other: of matrix z. */
static __device__ inline void tma_load_3d(unsigned to, const struct ash_cuda_tensor_map *map, int x, int y, int z,
                                          unsigned barrier)
{
    ASYNC_ASM("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], "
              "[%5];" ::"r"(to),
              "l"(map), "r"(x), "r"(y), "r"(z), "r"(barrier)
              : "memory");
}

#endif
