/* gemm_tma - large products of bf16: sums grow by steps of 16 k, ascending, as ref/wgmma.h says, and may continue older
 * ones. Operands are read where they lie, as lines of k or as columns. A thread block stays on its multiprocessor and
 * walks over tiles of 128 by 256 sums: one warp brings tiles of the operands several ahead (TMA), two warpgroups
 * multiply 64 rows each.
 *
 * Two thread blocks are a cluster, whose tiles lie one below the other: each brings half of b's tile to both. Zeros
 * come from outside of the operands, and change no sum. */
#include "compute/cuda/gemm/gemm_sums.cuh"
#include "compute/cuda/ptx/cluster.cuh"
#include "compute/cuda/ptx/registers.cuh"
#include "compute/cuda/ptx/tma.cuh"
#include "compute/cuda/ptx/wgmma.cuh"
#include "compute/cuda/tile/ring.cuh"

#define M ASH_CUDA_GEMM_TMA_M
#define N ASH_CUDA_GEMM_TMA_N
#define K ASH_CUDA_GEMM_TMA_K
#define STAGES ASH_CUDA_GEMM_TMA_STAGES
#define CLUSTER ASH_CUDA_GEMM_TMA_CLUSTER
#define LINE 128             /* bytes of K values, or of 64 columns */
#define PANEL (64 * LINE)    /* 64 lines */
#define A_BYTES (M * LINE)   /* of a stage */
#define HALF_B (N / 2 * LINE) /* what a thread block of the cluster brings */
#define STAGE_BYTES (A_BYTES + 2 * HALF_B)
#define USERS (M / 16 * CLUSTER) /* warps that multiply what is in a stage */
#define BAND 8                   /* rows of tiles that are walked together, so that operands stay in the L2 cache */

static_assert(ASH_CUDA_GEMM_TMA_BYTES == STAGES * STAGE_BYTES + WGMMA_BORDER, "the host reserves it");
static_assert(M / WGMMA_M * 128 + 128 == ASH_CUDA_GEMM_TMA_THREADS, "two warpgroups multiply, a third copies");

/* First row and column of this thread block's tile in round `tile` of its cluster. */
struct corner {
    unsigned m0, n0;
};

static __device__ inline struct corner corner_of(const struct ash_cuda_gemm_tma &args, unsigned tile)
{
    unsigned band = tile / (BAND * args.n_tiles), left = tile % (BAND * args.n_tiles);
    unsigned rows = min(BAND, args.m_pairs - band * BAND);

    return {((band * BAND + left % rows) * CLUSTER + cluster_rank()) * M, left / rows * N};
}

/* ---- copies ------------------------------------------------------------------------------------------------------ */

/* M lines of an operand (rows of a, columns of b) from `line` on, K of k from k0 on: to this thread block, or to all. */
template <bool COLUMNS, bool TO_ALL>
static __device__ inline void load(unsigned to, const struct ash_cuda_tensor_map *map, unsigned line, unsigned k0,
                                   unsigned full)
{
    static_assert(M == N / 2, "both operands come in boxes of M lines");
#pragma unroll
    for (int i = 0; i < (COLUMNS ? M / 64 : 1); i++) {
        int x = COLUMNS ? (int)line + i * 64 : (int)k0, y = COLUMNS ? (int)k0 : (int)line;

        if (TO_ALL)
            tma_load_2d_to_all(to + i * PANEL, map, x, y, full, (1 << CLUSTER) - 1);
        else
            tma_load_2d(to + i * PANEL, map, x, y, full);
    }
}

/* One thread of each thread block. */
template <bool A_COLUMNS, bool B_COLUMNS>
static __device__ inline void copy_tiles(const struct ash_cuda_gemm_tma &args, unsigned base,
                                         struct ring_barriers<STAGES> *ring)
{
    unsigned rank = cluster_rank();
    struct ring_cursor<STAGES> to = {};

    for (unsigned tile = blockIdx.x / CLUSTER; tile < args.m_pairs * args.n_tiles; tile += gridDim.x / CLUSTER) {
        struct corner corner = corner_of(args, tile);

#pragma unroll 1
        for (unsigned k = 0; k < args.k_tiles; k++) {
            unsigned stage = base + to.stage * STAGE_BYTES, full = to.full(ring);

            barrier_wait(shared_address(&ring->empty[to.stage]), to.turn ^ 1);
            barrier_expect(full, STAGE_BYTES);
            load<A_COLUMNS, false>(stage, &args.a, corner.m0, k * K, full);
            load<B_COLUMNS, true>(stage + A_BYTES + rank * HALF_B, &args.b, corner.n0 + rank * (N / 2), k * K, full);
            to.next();
        }
    }
}

/* ---- sums -------------------------------------------------------------------------------------------------------- */

/* Begin the products of a stage: a is this warpgroup's 64 rows. */
template <bool A_COLUMNS, bool B_COLUMNS>
static __device__ inline void begin_products(unsigned a, unsigned b, float (*sum)[4])
{
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < K; k += 16) {
        uint64_t rows = A_COLUMNS ? wgmma_operand_across(a + k * LINE, PANEL) : wgmma_operand(a + k * 2);
        uint64_t columns = B_COLUMNS ? wgmma_operand_across(b + k * LINE, PANEL) : wgmma_operand(b + k * 2);

        wgmma<N, A_COLUMNS, B_COLUMNS>(sum, rows, columns, 1);
    }
    wgmma_commit();
}

/* Tell the whole cluster that this warp has multiplied what is in a stage. */
static __device__ inline void say_empty(struct ring_barriers<STAGES> *ring, int stage)
{
    if (threadIdx.x % WARP < CLUSTER) barrier_arrive_at(shared_address(&ring->empty[stage]), threadIdx.x % WARP);
}

template <bool A_COLUMNS, bool B_COLUMNS>
static __device__ inline void multiply_tiles(const struct ash_cuda_gemm_tma &args, unsigned base,
                                             struct ring_barriers<STAGES> *ring)
{
    unsigned thread = threadIdx.x - 128, own = __shfl_sync(0xffffffffu, thread / 128, 0) * PANEL;
    struct ring_cursor<STAGES> from = {};

    for (unsigned tile = blockIdx.x / CLUSTER; tile < args.m_pairs * args.n_tiles; tile += gridDim.x / CLUSTER) {
        struct corner corner = corner_of(args, tile);
        struct sums_at at = {corner.m0, corner.n0, thread};
        float sum[N / 8][4];
        int before = 0;

        read_sums<N>(args.op, at, sum);
#pragma unroll 1
        for (unsigned k = 0; k < args.k_tiles; k++) {
            unsigned stage = base + from.stage * STAGE_BYTES;

            from.wait_full(ring);
            begin_products<A_COLUMNS, B_COLUMNS>(stage + own, stage + A_BYTES, sum);
            wgmma_wait_for<1>();
            if (k > 0) say_empty(ring, before);
            before = from.stage;
            from.next();
        }
        wgmma_wait();
        wgmma_take<N>(sum);
        say_empty(ring, before);
        write_sums<N>(args.op, at, sum);
    }
}

template <bool A_COLUMNS, bool B_COLUMNS> static __device__ inline void multiply(const struct ash_cuda_gemm_tma &args)
{
    DYNAMIC_SHARED(unsigned char, shared, 128);
    __shared__ struct ring_barriers<STAGES> ring;
    unsigned base = (shared_address(shared) + WGMMA_BORDER - 1) / WGMMA_BORDER * WGMMA_BORDER;

    if (threadIdx.x == 0) {
        ring_init(&ring, 1, USERS);
        barriers_show();
    }
    cluster_sync();
    if (threadIdx.x < 128) {
        registers_give<40>();
        if (threadIdx.x == 0) copy_tiles<A_COLUMNS, B_COLUMNS>(args, base, &ring);
    } else {
        registers_take<232>();
        multiply_tiles<A_COLUMNS, B_COLUMNS>(args, base, &ring);
    }
    __syncwarp();
    cluster_sync(); /* until then the other one's copies and arrivals come here */
}

#define GEMM_TMA(name, A_COLUMNS, B_COLUMNS)                                                                           \
    extern "C" __global__ void CLUSTER_DIMS(CLUSTER) __launch_bounds__(ASH_CUDA_GEMM_TMA_THREADS, 1)                   \
        name(const __grid_constant__ struct ash_cuda_gemm_tma args)                                                    \
    {                                                                                                                  \
        multiply<A_COLUMNS, B_COLUMNS>(args);                                                                          \
    }
GEMM_TMA(gemm_tma_rows_rows, false, false)
GEMM_TMA(gemm_tma_rows_columns, false, true)
GEMM_TMA(gemm_tma_columns_rows, true, false)
GEMM_TMA(gemm_tma_columns_columns, true, true)
