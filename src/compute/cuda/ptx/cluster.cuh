/* cluster - thread blocks that run at the same time on neighbouring multiprocessors and reach each other's shared
 * memory: copies bring the same bytes to all of them (copy.cuh), so memory is read once. */
#ifndef ASH_COMPUTE_CUDA_CLUSTER_CUH
#define ASH_COMPUTE_CUDA_CLUSTER_CUH

#include "compute/cuda/ptx/target.cuh"

/* Of a kernel: n thread blocks in a row are a cluster. */
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define CLUSTER_DIMS(n) __cluster_dims__(n, 1, 1)
#else
#define CLUSTER_DIMS(n)
#endif

static __device__ inline unsigned cluster_rank(void)
{
    unsigned rank = 0;

    ASYNC_VALUE_ASM("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

/* Until all threads of all thread blocks of the cluster are here. */
static __device__ inline void cluster_sync(void)
{
    ASYNC_ASM("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/* A float for the place that a thread block of the cluster has where this one has `at`; there after the next
 * cluster_sync(). */
static __device__ inline void store_at(unsigned at, unsigned rank, float value)
{
    ASYNC_ASM("{\n"
              ".reg .b32 there;\n"
              "mapa.shared::cluster.u32 there, %0, %1;\n"
              "st.shared::cluster.f32 [there], %2;\n"
              "}" ::"r"(at),
              "r"(rank), "f"(value)
              : "memory");
}

#endif
