/* batch - products of up to 256 rows (a batch's decode steps) with bf16 weights, at the speed of memory or of the
 * tensor cores. A thread block takes rows of weights and a tile of 64, 128 or 256 rows of x: as many of both as give
 * every multiprocessor the same work. One chain per output, k ascending (ref/wgmma.h); what depends on the sums is done
 * as they are written.
 *
 * One thread copies (TMA): tiles of k of both operands come to a ring in shared memory. The thread blocks of a cluster
 * have the same rows of x, and each copies a part of them to all. Warpgroups have 64 rows of x each and multiply. */
#include "compute/cuda/gemm/few_sums.cuh"
#include "compute/cuda/ptx/barrier.cuh"
#include "compute/cuda/ptx/cluster.cuh"
#include "compute/cuda/ptx/launch.cuh"
#include "compute/cuda/ptx/mma.cuh"
#include "compute/cuda/ptx/tma.cuh"
#include "compute/cuda/ptx/wgmma.cuh"
#include "compute/cuda/tile/blocks.cuh"

#define CLUSTER ASH_CUDA_BATCH_CLUSTER
#define LINE_K ASH_CUDA_BATCH_LINE_K /* k of the lines that wgmma reads: a tile has one or two after another */
#define LINE (LINE_K * 2)            /* bytes */

/* A thread block: M rows of x, N of weights. */
template <int M_ROWS, int N_ROWS> struct shape {
    static constexpr int M = M_ROWS, N = N_ROWS, WARPS = M / 16; /* WARPS: that multiply */
    static constexpr int KT = ASH_CUDA_BATCH_K(M, N), LINES_OF_K = KT / LINE_K;
    static constexpr int TILE_BYTES = ASH_CUDA_BATCH_TILE_BYTES(M, N), STAGES = ASH_CUDA_BATCH_STAGES(M, N);
    static constexpr int X_BYTES = M * KT * 2, W_BYTES = N * KT * 2;
};

/* ---- x ----------------------------------------------------------------------------------------------------------- */

#define ROWS_THREADS 256

/* Eight values of a row as they are multiplied. */
static __device__ inline uint4 read_chunk(const struct ash_cuda_batch_x &op, const float *row, float rstd, size_t k)
{
    float x[8];

    *(float4 *)x = *(const float4 *)(row + k);
    *(float4 *)(x + 4) = *(const float4 *)(row + k + 4);
#pragma unroll
    for (int i = 0; i < 8; i++)
        if (op.norm != NULL) x[i] = (x[i] * rstd) * op.norm[k + i];
    return make_uint4(pack_bf16(x[0], x[1]), pack_bf16(x[2], x[3]), pack_bf16(x[4], x[5]), pack_bf16(x[6], x[7]));
}

/* The norm's factor of the row in shared memory. */
static __device__ inline float find_rstd(const struct ash_cuda_batch_x &op, const float *row, float *shared)
{
    if (threadIdx.x < WARP) {
        float squares = sum_squares(row, (unsigned)op.K);

        if (threadIdx.x == 0) *shared = 1.0f / sqrtf(squares / (float)op.K + op.norm_eps);
    }
    __syncthreads();
    return *shared;
}

/* Rows of float32, perhaps normed, become bf16: a thread block per row. */
extern "C" __global__ void __launch_bounds__(ROWS_THREADS)
    batch_rows(const __grid_constant__ struct ash_cuda_batch_x op)
{
    DYNAMIC_SHARED(float, staged, 16);
    __shared__ float shared;
    const float *row = op.x + blockIdx.x * op.x_stride;
    float rstd = 0.0f;

    early_begin();
    early_wait();
    if (op.norm != NULL) {
        for (size_t c = threadIdx.x * 4; c < op.K; c += ROWS_THREADS * 4)
            *(float4 *)(staged + c) = *(const float4 *)(row + c);
        __syncthreads();
        row = staged;
        rstd = find_rstd(op, row, &shared);
    }
    for (size_t k = threadIdx.x * 8; k < op.K; k += ROWS_THREADS * 8)
        *(uint4 *)(op.out + blockIdx.x * op.K + k) = read_chunk(op, row, rstd, k);
}

/* ---- copies ------------------------------------------------------------------------------------------------------ */

/* Barriers of each slot for a tile: it is there; all thread blocks of the cluster have multiplied it. */
template <typename S> struct barriers {
    uint64_t full[S::STAGES], empty[S::STAGES];
};

/* A slot, and how often all slots were used before. */
template <typename S> struct place {
    unsigned slot, turn;

    __device__ inline void next(void)
    {
        slot = slot + 1 == S::STAGES ? 0 : slot + 1;
        if (slot == 0) turn++;
    }
};

/* A thread block's work of a round: a group of rows of weights and a tile of rows of x. The thread blocks of a cluster
 * have neighbouring groups and the same tile; neighbouring clusters have the same groups and other tiles. */
struct work {
    unsigned group, tile; /* group: none where it is not below the number of groups */
};

static __device__ inline struct work find_work(const struct ash_cuda_batch &op, unsigned round)
{
    unsigned cluster = (blockIdx.x + round * gridDim.x) / CLUSTER;

    return {cluster / op.row_tiles * CLUSTER + blockIdx.x % CLUSTER, cluster % op.row_tiles};
}

/* What is copied next: tile t of k of a round. */
struct next_tile {
    unsigned round, t;

    __device__ inline void next(unsigned tiles)
    {
        t = t + 1 == tiles ? 0 : t + 1;
        if (t == 0) round++;
    }
};

/* Announce a tile, and begin to copy its weights. */
template <typename S>
static __device__ inline void copy_w(const struct ash_cuda_batch &op, const struct next_tile &next, unsigned to,
                                     unsigned full)
{
    struct work work = find_work(op, next.round);
    bool has_rows = work.group < op.few.groups;
    struct rows_of_w rows;

    barrier_expect(full, S::X_BYTES + (has_rows ? S::W_BYTES : 0));
    if (!has_rows) return;
    rows = find_rows(op.few, work.group, S::N);
#pragma unroll
    for (int line = 0; line < S::LINES_OF_K; line++) {
        unsigned at = to + S::X_BYTES + line * S::N * LINE;
        int k = (int)next.t * S::KT + line * LINE_K;

        tma_load_2d(at, &op.w[rows.out], k, (int)rows.n, full);
        if (op.few.swiglu) tma_load_2d(at + S::N / 2 * LINE, &op.w[1], k, (int)rows.n, full);
    }
}

/* Begin to copy this thread block's part of the rows of x to all of the cluster. */
template <typename S>
static __device__ inline void copy_x(const struct ash_cuda_batch &op, const struct next_tile &next, unsigned to,
                                     unsigned full)
{
    constexpr int PART = S::M / CLUSTER;
    int part = (int)cluster_rank() * PART, row = (int)find_work(op, next.round).tile * S::M + part;

#pragma unroll
    for (int line = 0; line < S::LINES_OF_K; line++)
        tma_load_2d_to_all(to + (line * S::M + part) * LINE, &op.x, (int)next.t * S::KT + line * LINE_K, row, full,
                           (1 << CLUSTER) - 1);
}

/* All tiles of all rounds, by one thread. Weights do not depend on the kernel before this one: the first are on their
 * way before it ends. */
template <typename S>
static __device__ inline void copy_tiles(const struct ash_cuda_batch &op, unsigned base, struct barriers<S> *barriers,
                                         unsigned tiles, unsigned rounds)
{
    unsigned count = tiles * rounds, ahead = count < S::STAGES ? count : S::STAGES;
    struct next_tile next = {}, next_x = {};
    place<S> to = {};

    for (unsigned i = 0; i < ahead; i++, next.next(tiles))
        copy_w<S>(op, next, base + i * S::TILE_BYTES, shared_address(&barriers->full[i]));
    early_wait();
    for (unsigned i = 0; i < ahead; i++, next_x.next(tiles), to.next())
        copy_x<S>(op, next_x, base + i * S::TILE_BYTES, shared_address(&barriers->full[i]));
    for (unsigned i = ahead; i < count; i++, next.next(tiles), to.next()) {
        unsigned full = shared_address(&barriers->full[to.slot]), at = base + to.slot * S::TILE_BYTES;

        barrier_wait(shared_address(&barriers->empty[to.slot]), (to.turn - 1) % 2);
        copy_w<S>(op, next, at, full);
        copy_x<S>(op, next, at, full);
    }
}

/* ---- sums -------------------------------------------------------------------------------------------------------- */

/* An operand some lines or k further on. */
static __device__ inline uint64_t operand_after(uint64_t operand, unsigned bytes)
{
    return operand + (bytes >> 4);
}

/* Begin the products of 64 rows of x with N of weights, 16 k: at most 128 at once. */
template <int N> static __device__ inline void begin_step(float (*sum)[4], uint64_t x, uint64_t w)
{
    constexpr int NOW = N > 128 ? N / 2 : N;

    wgmma<NOW, 0, 0>(sum, x, w, 1);
    if constexpr (N > NOW) begin_step<N - NOW>(sum + NOW / 8, x, operand_after(w, NOW * LINE));
}

/* Begin those of a tile: x and w are its first lines. */
template <typename S> static __device__ inline void begin_tile(uint64_t x, uint64_t w, float (*sum)[4])
{
    wgmma_fence();
#pragma unroll
    for (int line = 0; line < S::LINES_OF_K; line++)
#pragma unroll
        for (int k = 0; k < LINE_K; k += 16)
            begin_step<S::N>(sum, operand_after(x, line * S::M * LINE + k * 2),
                             operand_after(w, line * S::N * LINE + k * 2));
    wgmma_commit();
}

/* A thread has two rows of x, 8 apart, each with two neighbouring rows of each 8 of weights. With SwiGLU the second
 * half of them are of up. */
template <typename S>
static __device__ inline void put_sums(const struct ash_cuda_batch &op, const struct work &work,
                                       const float sum[S::N / 8][4])
{
    const struct ash_cuda_few &few = op.few;
    struct rows_of_w rows = find_rows(few, work.group, S::N);
    const struct ash_cuda_few_out &out = few.outs[rows.out];
    unsigned lane = threadIdx.x % WARP, first = work.tile * S::M + threadIdx.x / WARP * 16 + lane / 4;

#pragma unroll
    for (int i = 0; i < S::N / 8; i++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            size_t m = first + e / 2 * 8, n = rows.n + i * 8 + lane % 4 * 2 + e % 2;

            if (m >= few.M || n >= out.N || (few.swiglu && i >= S::N / 16)) continue;
            if (few.swiglu)
                put_gated(few, m, n, sum[i][e], sum[(i + S::N / 16) % (S::N / 8)][e]);
            else
                put_sum(few, out, m, n, sum[i][e]);
        }
}

/* Tell the whole cluster that this warp has multiplied what is in a slot. */
template <typename S> static __device__ inline void say_empty(unsigned slot, struct barriers<S> *barriers)
{
    if (threadIdx.x % WARP < CLUSTER) barrier_arrive_at(shared_address(&barriers->empty[slot]), threadIdx.x % WARP);
}

/* Thread blocks without rows of weights in the last round multiply what is there, so that the others of their cluster
 * get their x. */
template <typename S>
static __device__ inline void multiply(const struct ash_cuda_batch &op, unsigned base, struct barriers<S> *barriers,
                                       unsigned tiles, unsigned rounds)
{
    unsigned own = S::M > WGMMA_M ? __shfl_sync(0xffffffffu, threadIdx.x / 128, 0) * WGMMA_M * LINE : 0;
    uint64_t x = wgmma_operand(base + own), w = wgmma_operand(base + S::X_BYTES);
    place<S> now = {};

#pragma unroll 1
    for (unsigned round = 0; round < rounds; round++) {
        struct work work = find_work(op, round);
        float sum[S::N / 8][4] = {};
        unsigned before = 0;

#pragma unroll 1
        for (unsigned t = 0; t < tiles; t++) {
            unsigned at = now.slot * S::TILE_BYTES;

            barrier_wait(shared_address(&barriers->full[now.slot]), now.turn % 2);
            begin_tile<S>(operand_after(x, at), operand_after(w, at), sum);
            wgmma_wait_for<1>();
            if (t > 0) say_empty<S>(before, barriers);
            before = now.slot;
            now.next();
        }
        wgmma_wait();
        wgmma_take<S::N>(sum);
        say_empty<S>(before, barriers);
        if (work.group < op.few.groups) put_sums<S>(op, work, sum);
    }
}

template <int M, int N> static __device__ inline void multiply_batch(const struct ash_cuda_batch &op)
{
    using S = struct shape<M, N>;
    DYNAMIC_SHARED(unsigned char, shared, WGMMA_BORDER);
    __shared__ struct barriers<S> barriers;
    unsigned base = shared_address(shared), tiles = ((unsigned)op.few.K + S::KT - 1) / S::KT;
    unsigned units = (op.few.groups + CLUSTER - 1) / CLUSTER * CLUSTER * op.row_tiles;
    unsigned rounds = (units + gridDim.x - 1) / gridDim.x;

    early_begin();
    if (threadIdx.x == 0) {
        for (int s = 0; s < S::STAGES; s++) {
            barrier_init(shared_address(&barriers.full[s]), 1);
            barrier_init(shared_address(&barriers.empty[s]), CLUSTER * S::WARPS);
        }
        barriers_show();
    }
    cluster_sync();
    if (threadIdx.x / WARP < S::WARPS) {
        early_wait(); /* before it nothing may be written, nor read that is added to */
        multiply<S>(op, base, &barriers, tiles, rounds);
    } else if (threadIdx.x % WARP == 0) {
        copy_tiles<S>(op, base, &barriers, tiles, rounds);
    } else {
        early_wait();
    }
    __syncwarp();
    cluster_sync(); /* nobody ends while others copy to it or arrive there */
}

/* batch_M_N: rows of x and of weights of a thread block. */
#define BATCH(M_ROWS, N_ROWS)                                                                                          \
    extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(M_ROWS * 2 + WARP, 1)                 \
        batch_##M_ROWS##_##N_ROWS(const __grid_constant__ struct ash_cuda_batch op)                                    \
    {                                                                                                                  \
        multiply_batch<M_ROWS, N_ROWS>(op);                                                                            \
    }

BATCH(64, 32)
BATCH(64, 48)
BATCH(64, 64)
BATCH(64, 112)
BATCH(64, 224)
BATCH(128, 32)
BATCH(128, 48)
BATCH(128, 64)
BATCH(128, 96)
BATCH(128, 112)
BATCH(128, 224)
BATCH(256, 32)
BATCH(256, 48)
BATCH(256, 64)
BATCH(256, 112)
BATCH(256, 128)
