/* skinny - products of up to 32 rows (a batch's decode steps) with bf16 weights. A thread block takes groups of rows of
 * weights, all of x with each: tiles of k of both come to shared memory several ahead of their use. A warp has 16 rows
 * of weights (with SwiGLU 8 of gate and the same 8 of up) and some of x; one chain per output, k ascending
 * (ref/wgmma.h). What depends on the sums is done as they are written. x is bf16 already, and nobody writes it. */
#include "compute/cuda/gemm/few_tiles.cuh"
#include "compute/cuda/ptx/launch.cuh"
#include "compute/cuda/ptx/mma.cuh"
#include "compute/cuda/tile/device.cuh"

#define STEP 16                     /* k of one product */
#define PITCH ASH_CUDA_SKINNY_PITCH /* bytes from row to row: rows in different banks */
#define WARP_ROWS PAIR_ROWS         /* of weights */

/* A thread block: WN warps share the rows of weights and WM those of x, M_BLOCKS times 16 each. */
template <int WN, int WM, int M_BLOCKS> struct shape {
    static constexpr int N = WN * WARP_ROWS, M = WM * M_BLOCKS * 16, THREADS = WN * WM * WARP;
    static constexpr int KT = ASH_CUDA_SKINNY_K, STAGES = ASH_CUDA_SKINNY_STAGES;
    static constexpr int LINE_BYTES = PITCH, TILE_BYTES = (N + M) * PITCH;

    static __device__ inline unsigned w_at(unsigned line, unsigned chunk)
    {
        return line * PITCH + chunk * 16;
    }

    static __device__ inline unsigned x_at(unsigned line, unsigned chunk)
    {
        return (N + line) * PITCH + chunk * 16;
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
    for (int s = 0; s < ASH_CUDA_SKINNY_K / STEP; s++) {
        const struct operands<M_BLOCKS> &now = ready[s % 2];

        if (s + 1 < ASH_CUDA_SKINNY_K / STEP)
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
    DYNAMIC_SHARED(unsigned char, shared, 128);
    unsigned shared_at = shared_address(shared), slot = 0, tiles = ((unsigned)op.K + S::KT - 1) / S::KT;
    unsigned warp_n = threadIdx.x / WARP / WM, warp_m = threadIdx.x / WARP % WM;
    unsigned w_at = shared_at + warp_n * WARP_ROWS * PITCH, x_at = shared_at + (S::N + warp_m * M_BLOCKS * 16) * PITCH;
    struct loader<S> next, late; /* weights do not depend on the kernel before this one; x comes after it */

    early_begin();
    next.begin(op, shared_at, threadIdx.x);
    late = next;
#pragma unroll 1
    for (int s = 0; s < S::STAGES - 1; s++) {
        next.copy_w(op);
        next.end(op);
    }
    early_wait();
#pragma unroll 1
    for (int s = 0; s < S::STAGES - 1; s++) {
        late.copy_x(op);
        late.end(op);
        copy_commit();
    }
#pragma unroll 1
    for (unsigned group = blockIdx.x; group < op.groups; group += gridDim.x) {
        float sum[M_BLOCKS][2][4] = {};

#pragma unroll 1
        for (unsigned t = 0; t < tiles; t++) {
            wait_tile<S>();
            __syncthreads(); /* the others' copies; and they have read the tile before, which the next overwrites */
            next.copy_w(op);
            next.copy_x(op);
            next.end(op);
            copy_commit();
            add_tile<M_BLOCKS>(w_at + slot * S::TILE_BYTES, x_at + slot * S::TILE_BYTES, sum);
            slot = slot + 1 == S::STAGES ? 0 : slot + 1;
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
