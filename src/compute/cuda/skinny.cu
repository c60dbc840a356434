/* skinny - products of up to 32 rows (a batch's decode steps) with bf16 weights. A thread block takes groups of rows of
 * weights, all of x with each: tiles of k of both come to shared memory several ahead of their use. A warp has 16 rows
 * of weights (with SwiGLU 8 of gate and the same 8 of up) and some of x; one chain per output, k ascending
 * (ref/wgmma.h). What depends on the sums is done as they are written. x is bf16 already, and nobody writes it. */
#include "compute/cuda/early.cuh"
#include "compute/cuda/few_sums.cuh"
#include "compute/cuda/tensor.cuh"

#define KT ASH_CUDA_SKINNY_K
#define STAGES ASH_CUDA_SKINNY_STAGES
#define STEP 16                     /* k of one product */
#define PITCH ASH_CUDA_SKINNY_PITCH /* bytes from row to row: rows in different banks */
#define CHUNKS (KT / 8)             /* of 16 bytes, in a row of a tile */
#define WARP_ROWS 16                /* of weights */

/* A thread block: WN warps share the rows of weights and WM those of x, M_BLOCKS times 16 each. */
template <int WN, int WM, int M_BLOCKS> struct shape {
    static constexpr int N = WN * WARP_ROWS, M = WM * M_BLOCKS * 16, THREADS = WN * WM * WARP;
    static constexpr int TILE_BYTES = (N + M) * PITCH;
    static constexpr int LINES = THREADS / CHUNKS; /* that all threads copy at once */
    static constexpr int W_LOADS = N / LINES, X_LOADS = (M + LINES - 1) / LINES;

    static_assert(N % LINES == 0, "every thread copies as many rows of weights");
};

/* Row r of a group, k 0. Past the last row it is the last: nobody reads the sums. */
static __device__ inline const uint16_t *row_at(const struct ash_cuda_few &op, const struct rows_of_w &rows, int r)
{
    const struct ash_cuda_few_out &out = op.outs[op.swiglu ? r % WARP_ROWS / 8 : rows.out];
    size_t n = rows.n + (op.swiglu ? r / WARP_ROWS * 8 + r % 8 : r);

    return out.w + (n < out.N ? n : out.N - 1) * out.stride;
}

static __device__ inline void copy_chunk(unsigned to, const uint16_t *from, int bytes)
{
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes));
}

/* What a thread copies next: its chunk of some rows of a tile. */
template <typename S> struct loader {
    const uint16_t *w[S::W_LOADS]; /* its rows of weights, at its chunk of k 0 */
    const uint16_t *x;             /* its first row of x, likewise */
    unsigned group, k, at;         /* what comes next; where in shared memory the next tile is */
    unsigned base, slot;

    __device__ inline void find(const struct ash_cuda_few &op)
    {
        struct rows_of_w rows;

        if (group >= op.groups) return;
        rows = find_rows(op, group, S::N);
#pragma unroll
        for (int i = 0; i < S::W_LOADS; i++)
            w[i] = row_at(op, rows, threadIdx.x / CHUNKS + i * S::LINES) + threadIdx.x % CHUNKS * 8;
    }

    __device__ inline void begin(const struct ash_cuda_few &op, unsigned shared_at)
    {
        unsigned line = threadIdx.x / CHUNKS;

        group = blockIdx.x;
        k = slot = 0;
        base = shared_at + line * PITCH + threadIdx.x % CHUNKS * 16;
        at = base;
        x = (const uint16_t *)op.x + (line < op.M ? line : op.M - 1) * op.x_stride + threadIdx.x % CHUNKS * 8;
        find(op);
    }

    /* Bytes of this thread's chunks: 0 after the last k, where zeros are written. */
    __device__ inline int chunk_bytes(const struct ash_cuda_few &op) const
    {
        return k + threadIdx.x % CHUNKS * 8 < op.K ? 16 : 0;
    }

    __device__ inline void copy_w(const struct ash_cuda_few &op)
    {
        int bytes = chunk_bytes(op);

        if (group >= op.groups) return;
#pragma unroll
        for (int i = 0; i < S::W_LOADS; i++)
            copy_chunk(at + i * S::LINES * PITCH, bytes != 0 ? w[i] + k : w[i], bytes);
    }

    __device__ inline void copy_x(const struct ash_cuda_few &op)
    {
        int bytes = chunk_bytes(op);

        if (group >= op.groups) return;
#pragma unroll
        for (int i = 0; i < S::X_LOADS; i++) {
            unsigned line = threadIdx.x / CHUNKS + i * S::LINES;

            /* rows that are not there stay as they are: nobody reads their sums */
            if (line < op.M)
                copy_chunk(at + (S::N + i * S::LINES) * PITCH, x + (bytes != 0 ? i * S::LINES * op.x_stride + k : 0),
                           bytes);
        }
    }

    /* On to the next tile. */
    __device__ inline void end(const struct ash_cuda_few &op)
    {
        slot = slot + 1 == STAGES ? 0 : slot + 1;
        at = base + slot * S::TILE_BYTES;
        k += KT;
        if (k < op.K) return;
        k = 0;
        group += gridDim.x;
        find(op);
    }
};

/* ---- sums -------------------------------------------------------------------------------------------------------- */

/* A step of both operands. */
template <int M_BLOCKS> struct operands {
    uint32_t w[4], x[M_BLOCKS][4];
};

/* w_at and x_at: this warp's first row of each, at the step's k. */
template <int M_BLOCKS>
static __device__ inline void read_operands(unsigned w_at, unsigned x_at, struct operands<M_BLOCKS> *to)
{
    unsigned lane = threadIdx.x % WARP;

    load_matrices(w_at + (lane % 8 + lane / 16 * 8) * PITCH + lane / 8 % 2 * 16, to->w);
#pragma unroll
    for (int b = 0; b < M_BLOCKS; b++)
        load_matrices(x_at + (b * 16 + lane % 16) * PITCH + lane / 16 * 16, to->x[b]);
}

/* Add a tile to a warp's sums: of each 16 rows of x, and each 8 of weights. */
template <int M_BLOCKS> static __device__ inline void add_tile(unsigned w_at, unsigned x_at, float sum[M_BLOCKS][2][4])
{
    struct operands<M_BLOCKS> ready[2]; /* what is multiplied, and what is read meanwhile */

    read_operands<M_BLOCKS>(w_at, x_at, &ready[0]);
#pragma unroll
    for (int s = 0; s < KT / STEP; s++) {
        const struct operands<M_BLOCKS> &now = ready[s % 2];

        if (s + 1 < KT / STEP)
            read_operands<M_BLOCKS>(w_at + (s + 1) * STEP * 2, x_at + (s + 1) * STEP * 2, &ready[(s + 1) % 2]);
#pragma unroll
        for (int b = 0; b < M_BLOCKS; b++)
#pragma unroll
            for (int half = 0; half < 2; half++)
                mma(sum[b][half], now.x[b], now.w + half * 2);
    }
}

/* A thread has of each 16 rows of x two, 8 apart, each with two neighbouring rows of each 8 of weights. */
template <int M_BLOCKS>
static __device__ inline void put_sums(const struct ash_cuda_few &op, const struct rows_of_w &rows, unsigned warp_n,
                                       unsigned warp_m, const float sum[M_BLOCKS][2][4])
{
    const struct ash_cuda_few_out &out = op.outs[rows.out];
    unsigned lane = threadIdx.x % WARP;

#pragma unroll
    for (int b = 0; b < M_BLOCKS; b++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            size_t m = (warp_m * M_BLOCKS + b) * 16 + lane / 4 + e / 2 * 8;
            size_t n = rows.n + warp_n * (op.swiglu ? 8 : WARP_ROWS) + lane % 4 * 2 + e % 2;

            if (m >= op.M) continue;
            if (op.swiglu) {
                if (n < out.N) put_gated(op, m, n, sum[b][0][e], sum[b][1][e]);
                continue;
            }
            if (n < out.N) put_sum(op, out, m, n, sum[b][0][e]);
            if (n + 8 < out.N) put_sum(op, out, m, n + 8, sum[b][1][e]);
        }
}

template <int WN, int WM, int M_BLOCKS> static __device__ inline void multiply_skinny(const struct ash_cuda_few &op)
{
    using S = struct shape<WN, WM, M_BLOCKS>;
    extern __shared__ __align__(128) unsigned char shared[];
    unsigned shared_at = (unsigned)__cvta_generic_to_shared(shared), slot = 0, tiles = ((unsigned)op.K + KT - 1) / KT;
    unsigned warp_n = threadIdx.x / WARP / WM, warp_m = threadIdx.x / WARP % WM;
    unsigned w_at = shared_at + warp_n * WARP_ROWS * PITCH, x_at = shared_at + (S::N + warp_m * M_BLOCKS * 16) * PITCH;
    struct loader<S> next, late; /* weights do not depend on the kernel before this one; x comes after it */

    early_begin();
    next.begin(op, shared_at);
    late = next;
#pragma unroll 1
    for (int s = 0; s < STAGES - 1; s++) {
        next.copy_w(op);
        next.end(op);
    }
    early_wait();
#pragma unroll 1
    for (int s = 0; s < STAGES - 1; s++) {
        late.copy_x(op);
        late.end(op);
        asm volatile("cp.async.commit_group;");
    }
#pragma unroll 1
    for (unsigned group = blockIdx.x; group < op.groups; group += gridDim.x) {
        float sum[M_BLOCKS][2][4] = {};

#pragma unroll 1
        for (unsigned t = 0; t < tiles; t++) {
            asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
            __syncthreads(); /* the others' copies; and they have read the tile before, which the next overwrites */
            next.copy_w(op);
            next.copy_x(op);
            next.end(op);
            asm volatile("cp.async.commit_group;");
            add_tile<M_BLOCKS>(w_at + slot * S::TILE_BYTES, x_at + slot * S::TILE_BYTES, sum);
            slot = slot + 1 == STAGES ? 0 : slot + 1;
        }
        put_sums<M_BLOCKS>(op, find_rows(op, group, S::N), warp_n, warp_m, sum);
    }
}

/* skinny_M_N: rows of x and of weights of a thread block. */
#define SKINNY(M_ROWS, N_ROWS, WN, WM, M_BLOCKS)                                                                       \
    static_assert(shape<WN, WM, M_BLOCKS>::M == M_ROWS && shape<WN, WM, M_BLOCKS>::N == N_ROWS, "as its name says");   \
    extern "C" __global__ void __launch_bounds__(WN *WM *WARP, 1)                                                      \
        skinny_##M_ROWS##_##N_ROWS(const __grid_constant__ struct ash_cuda_few op)                                     \
    {                                                                                                                  \
        multiply_skinny<WN, WM, M_BLOCKS>(op);                                                                         \
    }

SKINNY(16, 32, 2, 1, 1)
SKINNY(16, 64, 4, 1, 1)
SKINNY(32, 32, 2, 2, 1)
SKINNY(32, 64, 4, 2, 1)
