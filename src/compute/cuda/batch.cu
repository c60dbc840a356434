/* batch - products of 33 to 128 rows (a batch's decode steps) with bf16 weights, as skinny.cu makes those of fewer:
 * weights stream by, all of x with them. Here four warps multiply 64 rows of x at once (wgmma), by as many rows of
 * weights as give every multiprocessor the same work. One chain per output, k ascending (ref/wgmma.h); what depends on
 * the sums is done as they are written. x is bf16 already, and nobody writes it. */
#include "compute/cuda/few_tiles.cuh"
#include "compute/cuda/wgmma.cuh"

#define HALF_K 64 /* k of the lines that wgmma reads: a tile has two of them after another */
#define HALVES (KT / HALF_K)
#define LINE (HALF_K * 2) /* bytes */
#define HALF_CHUNKS (HALF_K / 8)

/* A thread block: GROUPS times four warps, with 64 rows of x each; N_ROWS of weights. */
template <int GROUPS, int N_ROWS> struct shape {
    static constexpr int M = GROUPS * WGMMA_M, N = N_ROWS, THREADS = GROUPS * 4 * WARP;
    static constexpr int TILE_BYTES = ASH_CUDA_BATCH_TILE_BYTES(M, N), STAGES = ASH_CUDA_BATCH_STAGES(M, N);
    static constexpr int LINE_BYTES = LINE;

    /* Chunks are permuted so that 8 lines of one chunk are in different banks: wgmma's 128-byte swizzle. */
    static __device__ inline unsigned chunk_at(unsigned line, unsigned chunk, unsigned lines)
    {
        return (chunk / HALF_CHUNKS * lines + line) * LINE + (chunk % HALF_CHUNKS ^ line % 8) * 16;
    }

    static __device__ inline unsigned x_at(unsigned line, unsigned chunk)
    {
        return chunk_at(line, chunk, M);
    }

    static __device__ inline unsigned w_at(unsigned line, unsigned chunk)
    {
        return M * KT * 2 + chunk_at(line, chunk, N);
    }
};

/* Begin the products of 64 rows of x with N of weights from `w` on, 16 k: the widest instructions that N is made of. */
template <int N> static __device__ inline void begin_step(float (*sum)[4], uint64_t x, unsigned w)
{
    if constexpr (N >= 64) {
        wgmma_64(sum, x, wgmma_operand(w));
        begin_step<N - 64>(sum + 8, x, w + 64 * LINE);
    } else if constexpr (N >= 32) {
        wgmma_32(sum, x, wgmma_operand(w));
        begin_step<N - 32>(sum + 4, x, w + 32 * LINE);
    } else if constexpr (N >= 16) {
        wgmma_16(sum, x, wgmma_operand(w));
        begin_step<N - 16>(sum + 2, x, w + 16 * LINE);
    }
}

/* Begin those of a tile. */
template <typename S> static __device__ inline void begin_tile(unsigned tile, float (*sum)[4])
{
    unsigned x = tile + threadIdx.x / 128 * WGMMA_M * LINE, w = tile + S::M * KT * 2;

    wgmma_fence();
#pragma unroll
    for (int half = 0; half < HALVES; half++)
#pragma unroll
        for (int k = 0; k < HALF_K; k += 16)
            begin_step<S::N>(sum, wgmma_operand(x + half * S::M * LINE + k * 2), w + half * S::N * LINE + k * 2);
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

template <int GROUPS, int N> static __device__ inline void multiply_batch(const struct ash_cuda_few &op)
{
    using S = struct shape<GROUPS, N>;
    extern __shared__ __align__(128) unsigned char shared[];
    unsigned base = ((unsigned)__cvta_generic_to_shared(shared) + WGMMA_BORDER - 1) / WGMMA_BORDER * WGMMA_BORDER;
    unsigned slot = 0, tiles = ((unsigned)op.K + KT - 1) / KT;
    struct loader<S> next;

    next.fill(op, base);
#pragma unroll 1
    for (unsigned group = blockIdx.x; group < op.groups; group += gridDim.x) {
        float sum[N / 8][4] = {};

#pragma unroll 1
        for (unsigned t = 0; t < tiles; t++) {
            wait_tile<S>();
            wgmma_see_shared();
            wgmma_wait();    /* for the products of the tile before, which the next copy overwrites */
            __syncthreads(); /* the others' copies and products, too */
            begin_tile<S>(base + slot * S::TILE_BYTES, sum);
            next.copy_next(op);
            slot = slot + 1 == S::STAGES ? 0 : slot + 1;
        }
        wgmma_wait();
        put_sums<N / 8>(op, find_rows(op, group, N), sum);
    }
}

/* batch_M_N: rows of x and of weights of a thread block. */
#define BATCH(M_ROWS, N_ROWS)                                                                                          \
    extern "C" __global__ void __launch_bounds__(M_ROWS * 2, 1)                                                        \
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
