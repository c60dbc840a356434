/* barrier - named barriers of a thread block, and barriers in shared memory that count arrivals and bytes of copies. A
 * barrier in shared memory is 8 bytes. */
#ifndef ASH_COMPUTE_CUDA_BARRIER_CUH
#define ASH_COMPUTE_CUDA_BARRIER_CUH

#include "compute/cuda/ptx/shared.cuh"
#include "compute/cuda/ptx/target.cuh"

/* Until THREADS threads have come to a named barrier (1 to 15), this one among them. */
template <int THREADS> static __device__ inline void named_sync(int barrier)
{
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "n"(THREADS) : "memory");
}

/* Count as one of them, and do not wait. */
template <int THREADS> static __device__ inline void named_arrive(int barrier)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "n"(THREADS) : "memory");
}

/* A barrier that is passed when `count` arrivals, and all bytes that were announced, have come. */
static __device__ inline void barrier_init(unsigned barrier, unsigned count)
{
    ASYNC_ASM("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

/* Barriers of this thread block are seen by the others' copies and arrivals after the next cluster_sync(). */
static __device__ inline void barriers_show(void)
{
    ASYNC_ASM("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/* Arrive at a barrier of this thread block, after what this thread has read. */
static __device__ inline void barrier_arrive(unsigned barrier)
{
    ASYNC_ASM("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/* Arrive, and announce bytes. */
static __device__ inline void barrier_expect(unsigned barrier, unsigned bytes)
{
    ASYNC_ASM("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

/* Arrive when all copies that this thread has enqueued (cp.async) are done. */
static __device__ inline void barrier_arrive_copied(unsigned barrier)
{
    ASYNC_ASM("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

/* Arrive at the barrier that a thread block of the cluster has at the same place. It orders nothing: those who waited
 * for products have nothing to show. */
static __device__ inline void barrier_arrive_at(unsigned barrier, unsigned rank)
{
    ASYNC_ASM("{\n"
              ".reg .b32 there;\n"
              "mapa.shared::cluster.u32 there, %0, %1;\n"
              "mbarrier.arrive.shared::cluster.b64 _, [there];\n"
              "}" ::"r"(barrier),
              "r"(rank)
              : "memory");
}

/* Until the barrier has been passed as often as `parity` says: 0 for the first time, then 1, then 0. */
static __device__ inline void barrier_wait(unsigned barrier, unsigned parity)
{
    ASYNC_ASM("{\n"
              ".reg .pred passed;\n"
              "again:\n"
              "mbarrier.try_wait.parity.shared::cta.b64 passed, [%0], %1;\n"
              "@!passed bra again;\n"
              "}" ::"r"(barrier),
              "r"(parity)
              : "memory");
}

#endif
