/* copy - copies from memory to shared memory that go on while the thread does other things. A thread's own (cp.async)
 * are enqueued in groups, for which it waits; bulk copies are counted by a barrier in shared memory. */
#ifndef ASH_COMPUTE_CUDA_COPY_CUH
#define ASH_COMPUTE_CUDA_COPY_CUH

#include <stdint.h>
#include "compute/cuda/ptx/shared.cuh"
#include "compute/cuda/ptx/target.cuh"

/* Enqueue the copy of 16 bytes. Addresses are multiples of 16. */
static __device__ inline void copy_16(unsigned to, const void *from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from));
}

/* The same of `bytes` bytes, and zeros up to 16. */
static __device__ inline void copy_16(unsigned to, const void *from, int bytes)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes));
}

/* Both for what is read once, from one end to the other: the L2 cache fetches 128 bytes. */
static __device__ inline void copy_16_ahead(unsigned to, const void *from)
{
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(from));
}

static __device__ inline void copy_16_ahead(unsigned to, const void *from, int bytes)
{
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes));
}

/* The same if `is_on` is not 0: without a branch. */
static __device__ inline void copy_16_ahead_if(int is_on, unsigned to, const void *from, int bytes)
{
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %3, 0;\n"
                 "@p cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2; }" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(is_on));
}

/* Enqueue the copy of 4 bytes. */
static __device__ inline void copy_4(unsigned to, const void *from)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from));
}

/* Enqueue the copy of 8 bytes. */
static __device__ inline void copy_8(unsigned to, const void *from)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(to), "l"(from));
}

/* What was enqueued since the last call is a group. */
static __device__ inline void copy_commit(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Until all but the last LEFT groups of this thread have come. */
template <int LEFT> static __device__ inline void copy_wait(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

/* Enqueue a copy of bytes, which the barrier counts. Addresses and bytes are multiples of 16. */
static __device__ inline void copy_bulk(unsigned to, const void *from, unsigned bytes, unsigned barrier)
{
    ASYNC_ASM("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
              "l"(from), "r"(bytes), "r"(barrier)
              : "memory");
}

/* Enqueue that bytes come to the L2 cache. Address and bytes are multiples of 16. */
static __device__ inline void fetch_to_l2(const void *from, unsigned bytes)
{
    ASYNC_ASM("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}

/* Enqueue a copy of bytes to the same place of the cluster's thread blocks that `blocks` names, bit by bit; each one's
 * barrier counts them. Addresses and bytes are multiples of 16. */
static __device__ inline void copy_to_all(unsigned to, const void *from, unsigned bytes, unsigned barrier,
                                          uint16_t blocks)
{
    ASYNC_ASM("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
              "[%0], [%1], %2, [%3], %4;" ::"r"(to),
              "l"(from), "r"(bytes), "r"(barrier), "h"(blocks)
              : "memory");
}

#endif
