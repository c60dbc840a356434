/* ring - places in shared memory that take turns: some warps fill them (copies count at the place's barrier `full`),
 * others use them and say so (`empty`). */
#ifndef ASH_COMPUTE_CUDA_RING_CUH
#define ASH_COMPUTE_CUDA_RING_CUH

#include "compute/cuda/ptx/barrier.cuh"

template <int STAGES> struct ring_barriers {
    unsigned long long full[STAGES], empty[STAGES];
};

/* One thread. users: arrivals that make a place empty; fillers: that make it full, next to the bytes of copies. */
template <int STAGES>
static __device__ inline void ring_init(struct ring_barriers<STAGES> *ring, unsigned fillers, unsigned users)
{
#pragma unroll
    for (int i = 0; i < STAGES; i++) {
        barrier_init(shared_address(&ring->full[i]), fillers);
        barrier_init(shared_address(&ring->empty[i]), users);
    }
}

/* Where a warp is in a ring: a place, and how often it was there, modulo 2. Those who fill and those who use walk in
 * the same order, each with a cursor of its own. */
template <int STAGES> struct ring_cursor {
    int stage;
    unsigned turn;

    __device__ void next(void)
    {
        stage = stage + 1 < STAGES ? stage + 1 : 0;
        turn ^= stage == 0;
    }

    __device__ unsigned full(struct ring_barriers<STAGES> *ring) const
    {
        return shared_address(&ring->full[stage]);
    }

    __device__ void wait_full(struct ring_barriers<STAGES> *ring) const
    {
        barrier_wait(shared_address(&ring->full[stage]), turn);
    }

    /* Until those who use it have left the place. The first turn waits for nobody. A whole warp: once a lane continues,
     * the place may be filled and left again, and a lane that still waited would wait for the turn after that. */
    __device__ void wait_empty(struct ring_barriers<STAGES> *ring) const
    {
        barrier_wait(shared_address(&ring->empty[stage]), turn ^ 1);
        __syncwarp();
    }

    /* One lane of each warp that uses it, after all of the warp's reads. */
    __device__ void leave(struct ring_barriers<STAGES> *ring) const
    {
        if (threadIdx.x % 32 == 0) barrier_arrive(shared_address(&ring->empty[stage]));
    }

    /* The same of the place before this one. */
    __device__ void leave_before(struct ring_barriers<STAGES> *ring) const
    {
        int before = (stage + STAGES - 1) % STAGES;

        if (threadIdx.x % 32 == 0) barrier_arrive(shared_address(&ring->empty[before]));
    }
};

#endif
