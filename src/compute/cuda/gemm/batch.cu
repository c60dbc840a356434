/* batch - products of up to 128 rows (a batch's decode steps) with bf16 weights: weights stream by, all of x with them.
 * Four warps multiply 64 rows of x at once (wgmma), by as many rows of weights as give every multiprocessor the same
 * work. One chain per output, k ascending (ref/wgmma.h); what depends on
 * the sums is done as they are written.
 *
 * Warps have one job each: four copy weights, one copies x, all others multiply. Barriers in shared memory say which
 * tiles are there, and which are used up.
 *
 * Every thread block needs all of x. So batch_image lays x out in memory as tiles lie in shared memory, each thread
 * block of a cluster copies a part of a tile to all of them, and x is read once per cluster. */
#include "compute/cuda/gemm/batch_tiles.cuh"
#include "compute/cuda/ptx/barrier.cuh"
#include "compute/cuda/ptx/cluster.cuh"
#include "compute/cuda/ptx/launch.cuh"
#include "compute/cuda/ptx/mma.cuh"
#include "compute/cuda/ptx/wgmma.cuh"
#include "compute/cuda/tile/ahead.cuh"
#include "compute/cuda/tile/blocks.cuh"

#define CLUSTER ASH_CUDA_BATCH_CLUSTER
#define LINE_K ASH_CUDA_BATCH_LINE_K /* k of the lines that wgmma reads: a tile has one or two after another */
#define LINE (LINE_K * 2)            /* bytes */
#define LINE_CHUNKS (LINE_K / 8)

/* A thread block: GROUPS times four warps that multiply, 64 rows of x each by N_ROWS of weights; then those that copy
 * weights, and the one that copies x. */
template <int GROUPS, int N_ROWS> struct shape {
    static constexpr int M = GROUPS * WGMMA_M, N = N_ROWS, WARPS = GROUPS * 4, THREADS = 4 * WARP; /* THREADS: copy w */
    static constexpr int KT = ASH_CUDA_BATCH_K(M), LINES_OF_K = KT / LINE_K;
    static constexpr int TILE_BYTES = ASH_CUDA_BATCH_TILE_BYTES(M, N), STAGES = ASH_CUDA_BATCH_STAGES(M, N);
    static constexpr int X_BYTES = M * KT * 2, LINE_BYTES = LINE;

    /* Chunks are permuted so that 8 lines of one chunk are in different banks: wgmma's 128-byte swizzle. */
    static __device__ inline unsigned w_at(unsigned line, unsigned chunk)
    {
        return X_BYTES + (chunk / LINE_CHUNKS * N + line) * LINE + (chunk % LINE_CHUNKS ^ line % 8) * 16;
    }
};

/* ---- x ----------------------------------------------------------------------------------------------------------- */

#define IMAGE_THREADS 256

/* Eight values of a row as they are multiplied. */
static __device__ inline uint4 read_chunk(const struct ash_cuda_batch_x &op, const float *row, float rstd, size_t k)
{
    float x[8];

    if (op.x_bf16 != NULL) return *(const uint4 *)(op.x_bf16 + blockIdx.x * op.x_stride + k);
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

/* A thread block per row; zeros after the last k. */
extern "C" __global__ void __launch_bounds__(IMAGE_THREADS)
    batch_image(const __grid_constant__ struct ash_cuda_batch_x op)
{
    DYNAMIC_SHARED(float, staged, 16);
    __shared__ float shared;
    size_t r = blockIdx.x, chunks = op.tiles * op.tile_k / 8;
    const float *row = op.x + r * op.x_stride;
    float rstd = 0.0f;

    early_begin();
    early_wait();
    if (op.norm != NULL) {
        for (size_t c = threadIdx.x * 4; c < op.K; c += IMAGE_THREADS * 4)
            *(float4 *)(staged + c) = *(const float4 *)(row + c);
        __syncthreads();
        row = staged;
        rstd = find_rstd(op, row, &shared);
    }
    for (size_t i = threadIdx.x; i < chunks; i += IMAGE_THREADS) {
        size_t line = i / LINE_CHUNKS * op.rows + r; /* lines of all rows follow each other */
        uint4 chunk = i * 8 < op.K ? read_chunk(op, row, rstd, i * 8) : make_uint4(0, 0, 0, 0);

        *(uint4 *)(op.out + line * LINE_K + (i % LINE_CHUNKS ^ r % 8) * 8) = chunk;
    }
}

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

/* Until what was in a slot is used up. */
template <typename S>
static __device__ inline void wait_empty(const struct place<S> &place, struct barriers<S> *barriers)
{
    if (place.turn > 0) barrier_wait(shared_address(&barriers->empty[place.slot]), (place.turn - 1) % 2);
}

/* Weights of every tile, then the first ones of the next product. */
template <typename S>
static __device__ inline void copy_weights(const struct ash_cuda_few &op, unsigned base, struct barriers<S> *barriers,
                                           unsigned count)
{
    struct loader<S> next;
    place<S> to = {};

    next.begin(op, base, threadIdx.x - S::WARPS * WARP);
#pragma unroll 1
    for (unsigned i = 0; i < count; i++, to.next()) {
        wait_empty<S>(to, barriers);
        next.copy_w(op);
        barrier_arrive_copied(shared_address(&barriers->full[to.slot]));
        next.end(op);
    }
    fetch_ahead(op.ahead, blockIdx.x * (S::THREADS / WARP) + threadIdx.x / WARP - S::WARPS,
                gridDim.x * (S::THREADS / WARP));
}

/* This thread block's part of each tile of x goes to all of the cluster. */
template <typename S>
static __device__ inline void copy_x(const struct ash_cuda_few &op, unsigned base, struct barriers<S> *barriers,
                                     unsigned tiles, unsigned count)
{
    constexpr unsigned PART = S::X_BYTES / CLUSTER;
    unsigned at = cluster_rank() * PART;
    place<S> to = {};

    if (threadIdx.x % WARP != 0) return;
    for (unsigned i = 0; i < count; i++, to.next()) {
        unsigned full = shared_address(&barriers->full[to.slot]);

        wait_empty<S>(to, barriers);
        barrier_expect(full, S::X_BYTES);
        copy_to_all(base + to.slot * S::TILE_BYTES + at, (const char *)op.x + (size_t)(i % tiles) * S::X_BYTES + at,
                    PART, full, (1 << CLUSTER) - 1);
    }
}

/* ---- sums -------------------------------------------------------------------------------------------------------- */

/* An operand some lines or k further on. */
static __device__ inline uint64_t operand_after(uint64_t operand, unsigned bytes)
{
    return operand + (bytes >> 4);
}

/* Begin the products of 64 rows of x with N of weights, 16 k: the widest instructions that N is made of. */
template <int N> static __device__ inline void begin_step(float (*sum)[4], uint64_t x, uint64_t w)
{
    if constexpr (N >= 64) {
        wgmma<64, 0, 0>(sum, x, w, 1);
        begin_step<N - 64>(sum + 8, x, operand_after(w, 64 * LINE));
    } else if constexpr (N >= 32) {
        wgmma<32, 0, 0>(sum, x, w, 1);
        begin_step<N - 32>(sum + 4, x, operand_after(w, 32 * LINE));
    } else if constexpr (N >= 16) {
        wgmma<16, 0, 0>(sum, x, w, 1);
        begin_step<N - 16>(sum + 2, x, operand_after(w, 16 * LINE));
    }
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

/* A thread has two rows of x, 8 apart, each with two neighbouring rows of each 8 of weights. */
template <int TILES>
static __device__ inline void put_sums(const struct ash_cuda_few &op, const struct rows_of_w &rows,
                                       const float sum[TILES][4])
{
    const struct ash_cuda_few_out &out = op.outs[rows.out];
    unsigned lane = threadIdx.x % WARP, first = threadIdx.x / WARP * 16 + lane / 4;

#pragma unroll
    for (int i = 0; i < TILES; i += 2)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            size_t m = first + e / 2 * 8, n = rows.n + i * (op.swiglu ? 4 : 8) + lane % 4 * 2 + e % 2;

            if (m >= op.M) continue;
            if (op.swiglu) {
                if (n < out.N) put_gated(op, m, n, sum[i][e], sum[i + 1][e]);
                continue;
            }
            if (n < out.N) put_sum(op, out, m, n, sum[i][e]);
            if (n + 8 < out.N) put_sum(op, out, m, n + 8, sum[i + 1][e]);
        }
}

/* Tell the whole cluster that this warp has multiplied what is in a slot. */
template <typename S> static __device__ inline void say_empty(unsigned slot, struct barriers<S> *barriers)
{
    if (threadIdx.x % WARP < CLUSTER) barrier_arrive_at(shared_address(&barriers->empty[slot]), threadIdx.x % WARP);
}

/* Thread blocks without a group in the last round multiply what is there, so that the others of their cluster get their
 * x. */
template <typename S>
static __device__ inline void multiply(const struct ash_cuda_few &op, unsigned base, struct barriers<S> *barriers,
                                       unsigned tiles, unsigned rounds)
{
    unsigned own = S::M > WGMMA_M ? __shfl_sync(0xffffffffu, threadIdx.x / 128, 0) * WGMMA_M * LINE : 0;
    uint64_t x = wgmma_operand(base + own), w = wgmma_operand(base + S::X_BYTES);
    place<S> now = {};

#pragma unroll 1
    for (unsigned round = 0; round < rounds; round++) {
        unsigned group = blockIdx.x + round * gridDim.x, before = 0;
        float sum[S::N / 8][4] = {};

#pragma unroll 1
        for (unsigned t = 0; t < tiles; t++) {
            unsigned at = now.slot * S::TILE_BYTES;

            barrier_wait(shared_address(&barriers->full[now.slot]), now.turn % 2);
            wgmma_see_shared();
            begin_tile<S>(operand_after(x, at), operand_after(w, at), sum);
            wgmma_wait_for<1>();
            if (t > 0) say_empty<S>(before, barriers);
            before = now.slot;
            now.next();
        }
        wgmma_wait();
        say_empty<S>(before, barriers);
        if (group < op.groups) put_sums<S::N / 8>(op, find_rows(op, group, S::N), sum);
    }
}

template <int GROUPS, int N> static __device__ inline void multiply_batch(const struct ash_cuda_few &op)
{
    using S = struct shape<GROUPS, N>;
    DYNAMIC_SHARED(unsigned char, shared, 128);
    __shared__ struct barriers<S> barriers;
    unsigned base = (shared_address(shared) + WGMMA_BORDER - 1) / WGMMA_BORDER * WGMMA_BORDER;
    unsigned tiles = ((unsigned)op.K + S::KT - 1) / S::KT, rounds = (op.groups + gridDim.x - 1) / gridDim.x;
    unsigned warp = threadIdx.x / WARP;

    if (threadIdx.x == 0) {
        for (int s = 0; s < S::STAGES; s++) {
            barrier_init(shared_address(&barriers.full[s]), S::THREADS + 1);
            barrier_init(shared_address(&barriers.empty[s]), CLUSTER * S::WARPS);
        }
        barriers_show();
    }
    cluster_sync();
    early_begin();
    /* Weights do not depend on the kernel before this one; x does, and what outputs are added to. */
    if (warp < S::WARPS) {
        early_wait();
        multiply<S>(op, base, &barriers, tiles, rounds);
    } else if (warp < S::WARPS + 4) {
        copy_weights<S>(op, base, &barriers, tiles * rounds);
        early_wait();
    } else {
        early_wait();
        copy_x<S>(op, base, &barriers, tiles, tiles * rounds);
    }
    __syncwarp();
    cluster_sync(); /* nobody ends while others copy to it or arrive there */
}

/* batch_M_N: rows of x and of weights of a thread block. */
#define BATCH(M_ROWS, N_ROWS)                                                                                          \
    extern "C" __global__ void CLUSTER_DIMS(CLUSTER) __launch_bounds__(M_ROWS * 2 + 5 * WARP, 1)                       \
        batch_##M_ROWS##_##N_ROWS(const __grid_constant__ struct ash_cuda_few op)                                      \
    {                                                                                                                  \
        multiply_batch<M_ROWS / WGMMA_M, N_ROWS>(op);                                                                  \
    }

BATCH(64, 32)
BATCH(64, 48)
BATCH(64, 64)
BATCH(64, 112)
BATCH(64, 128)
BATCH(128, 32)
BATCH(128, 48)
BATCH(128, 64)
BATCH(128, 112)
BATCH(128, 128)
