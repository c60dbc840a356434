/* gemm_tma - large products of bf16: sums grow by steps of 16 k, ascending, as ref/wgmma.h says, and may continue older
 * ones. Operands are read where they lie, as lines of k or as columns. A thread block stays on its multiprocessor and
 * walks over tiles of 128 by 256 sums (128 where those were too few): one warp brings tiles of the operands several
 * ahead (TMA), two warpgroups multiply 64 rows each.
 *
 * Two thread blocks are a cluster, whose tiles lie one below the other: each brings half of b's tile to both. Zeros
 * come from outside of the operands, and change no sum. Of several products of one a, tiles follow each other. Of a
 * gate and its up, each tile has the same columns of both, and SwiGLU is written. */
#include "compute/cuda/gemm/gemm_sums.cuh"
#include "compute/cuda/ptx/cluster.cuh"
#include "compute/cuda/ptx/registers.cuh"
#include "compute/cuda/ptx/tma.cuh"
#include "compute/cuda/ptx/wgmma.cuh"
#include "compute/cuda/tile/ring.cuh"

#define M ASH_CUDA_GEMM_TMA_M
#define K ASH_CUDA_GEMM_TMA_K
#define CLUSTER ASH_CUDA_GEMM_TMA_CLUSTER
#define LINE 128                 /* bytes of K values, or of 64 columns */
#define PANEL (64 * LINE)        /* 64 lines */
#define USERS (M / 16 * CLUSTER) /* warps that multiply what is in a stage */
#define BAND 8                   /* rows of tiles that are walked together, so that operands stay in the L2 cache */

static_assert(M / WGMMA_M * 128 + 128 == ASH_CUDA_GEMM_TMA_THREADS, "two warpgroups multiply, a third copies");

/* How operands lie, and columns of a tile. */
template <bool IS_A_COLUMNS, bool IS_B_COLUMNS, int TILE_N, bool IS_GATED> struct form {
    static constexpr bool A_COLUMNS = IS_A_COLUMNS, B_COLUMNS = IS_B_COLUMNS, GATED = IS_GATED;
    static constexpr int N = TILE_N, PART = N / CLUSTER; /* lines of b that a thread block of the cluster brings */
    static constexpr int STAGES = ASH_CUDA_GEMM_TMA_STAGES(N), WIDTH = GATED ? N / 2 : N; /* columns of c */
    static constexpr int A_BYTES = M * LINE, STAGE_BYTES = A_BYTES + N * LINE;
    static_assert(ASH_CUDA_GEMM_TMA_BYTES(N) == STAGES * STAGE_BYTES + WGMMA_BORDER, "the host reserves it");
    using barriers = struct ring_barriers<STAGES>;
    using cursor = struct ring_cursor<STAGES>;
};

/* This thread block's tile in round `tile` of its cluster: of which output, its first row and column. */
struct corner {
    int out;
    unsigned m0, n0;
};

template <typename F>
static __device__ inline struct corner corner_of(const struct ash_cuda_gemm_tma &args, unsigned tile)
{
    unsigned band = tile / (BAND * args.n_tiles), left = tile % (BAND * args.n_tiles);
    unsigned rows = min(BAND, args.m_pairs - band * BAND), n = left / rows;
    int out = (n >= args.first[1]) + (n >= args.first[2]);

    return {out, ((band * BAND + left % rows) * CLUSTER + cluster_rank()) * M, (n - args.first[out]) * F::WIDTH};
}

/* ---- copies ------------------------------------------------------------------------------------------------------ */

/* LINES lines of an operand (rows of a, columns of b) from `line` on, K of k from k0 on: to this thread block, or to
 * all of the cluster. */
template <int LINES, bool COLUMNS, bool TO_ALL>
static __device__ inline void load(unsigned to, const struct ash_cuda_tensor_map *map, unsigned line, unsigned k0,
                                   unsigned full)
{
#pragma unroll
    for (int i = 0; i < (COLUMNS ? LINES / 64 : 1); i++) {
        int x = COLUMNS ? (int)line + i * 64 : (int)k0, y = COLUMNS ? (int)k0 : (int)line;

        if (TO_ALL)
            tma_load_2d_to_all(to + i * PANEL, map, x, y, full, (1 << CLUSTER) - 1);
        else
            tma_load_2d(to + i * PANEL, map, x, y, full);
    }
}

/* One thread of each thread block. */
template <typename F>
static __device__ inline void copy_tiles(const struct ash_cuda_gemm_tma &args, unsigned base,
                                         typename F::barriers *ring)
{
    unsigned rank = cluster_rank();
    typename F::cursor to = {};

    for (unsigned tile = blockIdx.x / CLUSTER; tile < args.m_pairs * args.n_tiles; tile += gridDim.x / CLUSTER) {
        struct corner corner = corner_of<F>(args, tile);
        const struct ash_cuda_tensor_map *b = &args.b[F::GATED ? rank : corner.out];
        unsigned line = corner.n0 + (F::GATED ? 0 : rank * F::PART);

#pragma unroll 1
        for (unsigned k = 0; k < args.k_tiles; k++) {
            unsigned stage = base + to.stage * F::STAGE_BYTES, full = to.full(ring);

            barrier_wait(shared_address(&ring->empty[to.stage]), to.turn ^ 1);
            barrier_expect(full, F::STAGE_BYTES);
            load<M, F::A_COLUMNS, false>(stage, &args.a, corner.m0, k * K, full);
            load<F::PART, F::B_COLUMNS, true>(stage + F::A_BYTES + rank * F::PART * LINE, b, line, k * K, full);
            to.next();
        }
    }
}

/* ---- sums -------------------------------------------------------------------------------------------------------- */

/* Begin the products of a stage: a is this warpgroup's 64 rows. */
template <typename F> static __device__ inline void begin_products(unsigned a, unsigned b, float (*sum)[4])
{
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < K; k += 16) {
        uint64_t rows = F::A_COLUMNS ? wgmma_operand_across(a + k * LINE, PANEL) : wgmma_operand(a + k * 2);
        uint64_t columns = F::B_COLUMNS ? wgmma_operand_across(b + k * LINE, PANEL) : wgmma_operand(b + k * 2);

        wgmma<F::N, F::A_COLUMNS, F::B_COLUMNS>(sum, rows, columns, 1);
    }
    wgmma_commit();
}

template <typename F>
static __device__ inline void begin_stage(unsigned base, unsigned own, typename F::barriers *ring,
                                          const typename F::cursor &from, float (*sum)[4])
{
    unsigned stage = base + from.stage * F::STAGE_BYTES;

    from.wait_full(ring);
    begin_products<F>(stage + own, stage + F::A_BYTES, sum);
}

/* Tell the whole cluster that this warp has multiplied what is in a stage. */
template <typename F> static __device__ inline void say_empty(typename F::barriers *ring, int stage)
{
    if (threadIdx.x % WARP < CLUSTER) barrier_arrive_at(shared_address(&ring->empty[stage]), threadIdx.x % WARP);
}

template <typename F>
static __device__ inline void multiply_tiles(const struct ash_cuda_gemm_tma &args, unsigned base,
                                             typename F::barriers *ring)
{
    unsigned thread = threadIdx.x - 128, own = __shfl_sync(0xffffffffu, thread / 128, 0) * PANEL;
    typename F::cursor from = {};

    for (unsigned tile = blockIdx.x / CLUSTER; tile < args.m_pairs * args.n_tiles; tile += gridDim.x / CLUSTER) {
        struct corner corner = corner_of<F>(args, tile);
        struct sums_at at = {corner.m0, corner.n0, thread};
        float sum[F::N / 8][4];

        read_sums<F::N>(args.outs[corner.out], at, sum);
        wgmma_take<F::N>(sum);
        begin_stage<F>(base, own, ring, from, sum);
#pragma unroll 1
        for (unsigned k = 1; k < args.k_tiles; k++) {
            from.next();
            begin_stage<F>(base, own, ring, from, sum);
            wgmma_wait_for<1>();
            say_empty<F>(ring, (from.stage + F::STAGES - 1) % F::STAGES);
        }
        wgmma_wait();
        wgmma_take<F::N>(sum);
        say_empty<F>(ring, from.stage);
        from.next();
        if constexpr (F::GATED)
            write_gated<F::WIDTH>(args.outs[0], args.outs[1].bias, at, sum);
        else
            write_sums<F::N>(args.outs[corner.out], at, sum);
    }
}

template <typename F> static __device__ inline void multiply(const struct ash_cuda_gemm_tma &args)
{
    DYNAMIC_SHARED(unsigned char, shared, 128);
    __shared__ typename F::barriers ring;
    unsigned base = (shared_address(shared) + WGMMA_BORDER - 1) / WGMMA_BORDER * WGMMA_BORDER;

    if (threadIdx.x == 0) {
        ring_init(&ring, 1, USERS);
        barriers_show();
    }
    cluster_sync();
    if (threadIdx.x < 128) {
        registers_give<40>();
        if (threadIdx.x == 0) copy_tiles<F>(args, base, &ring);
    } else {
        registers_take<232>();
        multiply_tiles<F>(args, base, &ring);
    }
    __syncwarp();
    cluster_sync(); /* until then the other one's copies and arrivals come here */
}

#define GEMM_TMA(name, ...)                                                                                            \
    extern "C" __global__ void CLUSTER_DIMS(CLUSTER) __launch_bounds__(ASH_CUDA_GEMM_TMA_THREADS, 1)                   \
        name(const __grid_constant__ struct ash_cuda_gemm_tma args)                                                    \
    {                                                                                                                  \
        multiply<form<__VA_ARGS__>>(args);                                                                             \
    }
GEMM_TMA(gemm_tma_rows_rows, false, false, 256, false)
GEMM_TMA(gemm_tma_rows_columns, false, true, 256, false)
GEMM_TMA(gemm_tma_columns_columns, true, true, 256, false)
GEMM_TMA(gemm_tma_rows_rows_128, false, false, 128, false)
GEMM_TMA(gemm_tma_rows_columns_128, false, true, 128, false)
GEMM_TMA(gemm_tma_columns_columns_128, true, true, 128, false)
GEMM_TMA(gemm_tma_gated, false, false, 256, true)
