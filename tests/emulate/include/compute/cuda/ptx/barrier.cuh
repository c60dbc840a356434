/* barrier - named barriers and barriers in shared memory: src/compute/cuda/ptx/barrier.cuh. */
#ifndef ASH_COMPUTE_CUDA_BARRIER_CUH
#define ASH_COMPUTE_CUDA_BARRIER_CUH

#include "compute/cuda/ptx/shared.cuh"

template <int THREADS> static inline void named_sync(int barrier)
{
    emu_named_barrier("named_sync", barrier, THREADS, true);
}

template <int THREADS> static inline void named_arrive(int barrier)
{
    emu_named_barrier("named_arrive", barrier, THREADS, false);
}

static inline void barrier_init(unsigned barrier, unsigned count)
{
    emu_barrier_init(barrier, count);
}

static inline void barriers_show(void)
{
    emu_maybe_yield();
}

static inline void barrier_arrive(unsigned barrier)
{
    emu_barrier_arrive(emu_now->block, barrier, 1);
    emu_maybe_yield();
}

static inline void barrier_expect(unsigned barrier, unsigned bytes)
{
    emu_barrier_bytes(emu_now->block, barrier, bytes);
    emu_barrier_arrive(emu_now->block, barrier, 1);
    emu_maybe_yield();
}

static inline void barrier_arrive_copied(unsigned barrier)
{
    emu_copy_arrive(barrier);
}

static inline void barrier_arrive_at(unsigned barrier, unsigned rank)
{
    emu_barrier_arrive(emu_cluster_block(rank), barrier, 1);
    emu_maybe_yield();
}

static inline void barrier_wait(unsigned barrier, unsigned parity)
{
    emu_barrier_wait(barrier, parity);
}

#endif
