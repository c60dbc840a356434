/* cluster - thread blocks that run at the same time on neighbouring multiprocessors, and bulk copies that bring the
 * same bytes to all of them: memory is read once. A barrier in shared memory counts arrivals, and bytes of copies. */
#ifndef ASH_COMPUTE_CUDA_CLUSTER_CUH
#define ASH_COMPUTE_CUDA_CLUSTER_CUH

#include "compute/cuda/tile/device.cuh"

/* Where something in shared memory is, as instructions want to be told. */
static __device__ inline unsigned shared_address(const void *at)
{
    return (unsigned)__cvta_generic_to_shared(at);
}

static __device__ inline unsigned cluster_rank(void)
{
    unsigned rank;

    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

/* Until all threads of all thread blocks of the cluster are here. */
static __device__ inline void cluster_sync(void)
{
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/* A barrier that is passed when `count` arrivals, and all bytes that were announced, have come. */
static __device__ inline void barrier_init(unsigned barrier, unsigned count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

/* Barriers of this thread block are seen by the others' copies and arrivals after the next cluster_sync(). */
static __device__ inline void barriers_show(void)
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/* Arrive, and announce bytes. */
static __device__ inline void barrier_expect(unsigned barrier, unsigned bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

/* Arrive when all copies that this thread has enqueued (cp.async) are done. */
static __device__ inline void barrier_arrive_copied(unsigned barrier)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

/* Arrive at the barrier that a thread block of the cluster has at the same place. It orders nothing: those who waited
 * for products have nothing to show. */
static __device__ inline void barrier_arrive_at(unsigned barrier, unsigned rank)
{
    asm volatile("{\n"
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
    asm volatile("{\n"
                 ".reg .pred passed;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 passed, [%0], %1;\n"
                 "@!passed bra again;\n"
                 "}" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}

/* Arrive at a barrier of this thread block, after what this thread has read. */
static __device__ inline void barrier_arrive(unsigned barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/* Enqueue a copy of bytes, which the barrier counts. Addresses and bytes are multiples of 16. */
static __device__ inline void copy_bulk(unsigned to, const void *from, unsigned bytes, unsigned barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier)
                 : "memory");
}

/* Enqueue a copy of bytes to the same place of the cluster's thread blocks that `blocks` names, bit by bit; each one's
 * barrier counts them. Addresses and bytes are multiples of 16. */
static __device__ inline void copy_to_all(unsigned to, const void *from, unsigned bytes, unsigned barrier,
                                          uint16_t blocks)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1], %2, [%3], %4;" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier), "h"(blocks)
                 : "memory");
}

#endif
