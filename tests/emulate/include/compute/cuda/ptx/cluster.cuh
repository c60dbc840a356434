/* cluster - thread blocks that reach each other's shared memory: src/compute/cuda/ptx/cluster.cuh. */
#ifndef ASH_COMPUTE_CUDA_CLUSTER_CUH
#define ASH_COMPUTE_CUDA_CLUSTER_CUH

#include "emulate/cuda.h"

#define CLUSTER_DIMS(n) __cluster_dims__(n, 1, 1)

static inline unsigned cluster_rank(void)
{
    return emu_now->block->rank;
}

static inline void cluster_sync(void)
{
    emu_cluster_arrive();
    emu_cluster_wait();
}

static inline void store_at(unsigned at, unsigned rank, float value)
{
    memcpy(emu_shared_at(emu_cluster_block(rank), at, sizeof(value)), &value, sizeof(value));
    emu_maybe_yield();
}

#endif
