/* few - products of a few rows (inference) with bf16 weights, at the speed of memory. Weights are the 16-row operand
 * of the tensor cores: a warp owns 16 rows of them, copies tiles of k to shared memory several ahead of their use, and
 * adds them to one chain per output, k ascending (ref/wgmma.h). All rows of x lie in shared memory as bf16: normed,
 * where the op norms. What depends on the sums (bias, SwiGLU, residual) is done as they are written. The first tiles
 * are on their way before the kernel before this one ends (ptx/launch.cuh): weights do not depend on it. */
#include "compute/cuda/gemm/few_rows.cuh"
#include "compute/cuda/gemm/few_sums.cuh"
#include "compute/cuda/ptx/copy.cuh"
#include "compute/cuda/ptx/launch.cuh"
#include "compute/cuda/ptx/mma.cuh"
#include "compute/cuda/tile/ahead.cuh"
#include "compute/cuda/tile/device.cuh"

#define ROWS 16 /* of weights, that a warp multiplies at a time */

/* Tiles of KT k, STAGES of them in a warp's ring, eight bytes of room twice after each row: rows in different banks. */
template <int KT, int STAGES> struct ring {
    static constexpr int CHUNKS = KT / 8, PITCH = KT * 2 + 16;
    static constexpr int TILE_BYTES = ROWS * PITCH, LOADS = ROWS * CHUNKS / WARP, STEP = WARP / CHUNKS;
};

/* Row r of a group, k 0. Past the last row it is the last: nobody reads the sums. */
static __device__ inline const uint16_t *row_at(const struct ash_cuda_few &op, const struct rows_of_w &rows, int r)
{
    const struct ash_cuda_few_out &out = op.outs[op.swiglu ? r / (ROWS / 2) : rows.out];
    size_t n = rows.n + (op.swiglu ? r % (ROWS / 2) : r);

    return out.w + (n < out.N ? n : out.N - 1) * out.stride;
}

/* What a warp copies next: a tile of 16 rows, of which each lane has LOADS chunks of 16 bytes. */
template <int KT, int STAGES> struct loader {
    using R = ring<KT, STAGES>;
    const uint16_t *from[R::LOADS]; /* this lane's rows, at the next tile's chunk */
    unsigned group, k, slot, ring_at, to;
    int bytes; /* of a chunk: 0 after the last k, where zeros are written */
    int is_on; /* is anything left to copy? */

    __device__ inline void find(const struct ash_cuda_few &op)
    {
        int lane = threadIdx.x % WARP;

        is_on = group < op.groups;
        if (!is_on) return;
        struct rows_of_w rows = find_rows(op, group, ROWS);
#pragma unroll
        for (int i = 0; i < R::LOADS; i++)
            from[i] = row_at(op, rows, lane / R::CHUNKS + i * R::STEP) + lane % R::CHUNKS * 8;
    }

    __device__ inline void begin(const struct ash_cuda_few &op, unsigned first, unsigned at)
    {
        group = first;
        ring_at = at;
        k = slot = 0;
        find(op);
        aim(op);
    }

    /* Where the next tile goes, and how much of it there is. */
    __device__ inline void aim(const struct ash_cuda_few &op)
    {
        int lane = threadIdx.x % WARP;

        to = ring_at + slot * R::TILE_BYTES + lane / R::CHUNKS * R::PITCH + lane % R::CHUNKS * 16;
        bytes = k + lane % R::CHUNKS * 8 < op.K ? 16 : 0;
    }

    /* Enqueue chunk i. */
    __device__ inline void copy(const struct ash_cuda_few &op, int i)
    {
        copy_16_ahead_if(is_on, to + i * R::STEP * R::PITCH, bytes != 0 ? from[i] : op.outs[0].w, bytes);
    }

    /* All chunks are enqueued: on to the next tile. */
    __device__ inline void end(const struct ash_cuda_few &op)
    {
        copy_commit();
        slot = slot + 1 == STAGES ? 0 : slot + 1;
        k += KT;
#pragma unroll
        for (int i = 0; i < R::LOADS; i++)
            from[i] += KT;
        if (k >= op.K && is_on) {
            k = 0;
            group += gridDim.x * op.warps;
            find(op);
        }
        aim(op);
    }
};

/* ---- x ----------------------------------------------------------------------------------------------------------- */

#define AHEAD 16 /* chunks of x that a thread reads before it writes the first */

/* Four values of x as they are multiplied. */
static __device__ inline uint2 read_x(const struct ash_cuda_few &op, unsigned m, unsigned k)
{
    float4 x;

    if (op.x_is_bf16) return *(const uint2 *)((const uint16_t *)op.x + m * op.x_stride + k);
    x = read_four(op, m, k);
    return round_four(x);
}

/* All rows of x to `to`, [M, pitch] of bf16 with zeros from K on. */
static __device__ inline void put_x(const struct ash_cuda_few &op, uint16_t *to, unsigned pitch)
{
    unsigned wide = (pitch - 8) / 4, count = (unsigned)op.M * wide;

#pragma unroll 1
    for (unsigned first = threadIdx.x; first < count; first += AHEAD * FEW_THREADS) {
        uint2 x[AHEAD];

#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            unsigned i = first + j * FEW_THREADS, m = op.M == 1 ? 0 : i / wide, k = (i - m * wide) * 4;

            x[j] = i < count && k < op.K ? read_x(op, m, k) : make_uint2(0, 0);
        }
#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            unsigned i = first + j * FEW_THREADS, m = op.M == 1 ? 0 : i / wide, k = (i - m * wide) * 4;

            if (i < count) *(uint2 *)(to + m * pitch + k) = x[j];
        }
    }
}

/* The same of rows that are normed first. sums: room for those of their blocks. */
static __device__ inline void put_normed(const struct ash_cuda_few &op, const struct chunks &weights, uint16_t *to,
                                         unsigned pitch, float *sums)
{
    unsigned left = (pitch - 8 - (unsigned)op.K) / 4;

    for (unsigned i = threadIdx.x; i < op.M * left; i += FEW_THREADS)
        *(uint2 *)(to + i / left * pitch + op.K + i % left * 4) = make_uint2(0, 0);
    norm_blocks(op, weights, sums,
                [&](unsigned m, unsigned k, float4 x) { *(uint2 *)(to + m * pitch + k) = round_four(x); });
}

/* ---- sums -------------------------------------------------------------------------------------------------------- */

/* The rows of x as the right operand, 32 k of them from address `at` on. */
template <int NB> static __device__ inline void load_x(unsigned at, unsigned x_row_bytes, unsigned M, uint32_t x[NB][4])
{
    int lane = threadIdx.x % WARP;

#pragma unroll
    for (int b = 0; b < NB; b++) {
        unsigned m = b * 8 + lane % 8;

        load_matrices(at + (m < M ? m : M - 1) * x_row_bytes + lane / 8 * 16, x[b]);
    }
}

/* Add a tile: KT k of 16 rows of weights to the sums with NB times 8 rows of x. What a step needs is read before the
 * step before it, and the copies of a later tile are enqueued between them: the chain of sums is all that waits. */
template <int KT, int NB, typename L>
static __device__ inline void add_tile(const struct ash_cuda_few &op, unsigned tile, unsigned x_at,
                                       unsigned x_row_bytes, L &next, float sum[NB][4])
{
    int lane = threadIdx.x % WARP;
    unsigned w_at = tile + lane % 16 * L::R::PITCH + lane / 16 * 16;
    uint32_t x[2][NB][4], w[2][4];

    static_assert(L::R::LOADS == KT / 16, "one copy after each step");
    load_x<NB>(x_at, x_row_bytes, (unsigned)op.M, x[0]);
    load_matrices(w_at, w[0]);
#pragma unroll
    for (int s = 0; s < KT / 16; s++) {
        if (s + 1 < KT / 16) load_matrices(w_at + (s + 1) * 32, w[(s + 1) % 2]);
        if (s % 2 == 0 && s + 2 < KT / 16)
            load_x<NB>(x_at + (s + 2) * 32, x_row_bytes, (unsigned)op.M, x[(s / 2 + 1) % 2]);
#pragma unroll
        for (int b = 0; b < NB; b++)
            mma(sum[b], w[s % 2], x[s / 2 % 2][b] + s % 2 * 2);
        next.copy(op, s);
    }
    next.end(op);
}

/* A thread has of each 8 rows of x two, with its row of weights and the one 8 below. */
template <int NB>
static __device__ inline void put_sums(const struct ash_cuda_few &op, const struct rows_of_w &rows,
                                       const float sum[NB][4])
{
    const struct ash_cuda_few_out &out = op.outs[rows.out];
    size_t n = rows.n + threadIdx.x % WARP / 4;

#pragma unroll
    for (int b = 0; b < NB; b++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            size_t m = b * 8 + threadIdx.x % 4 * 2 + e;

            if (m >= op.M || n >= out.N) continue;
            if (op.swiglu) {
                put_gated(op, m, n, sum[b][e], sum[b][e + 2]);
                continue;
            }
            put_sum(op, out, m, n, sum[b][e]);
            if (n + 8 < out.N) put_sum(op, out, m, n + 8, sum[b][e + 2]);
        }
}

/* Fill all but one stage of this warp's ring, while the kernel before still runs. */
template <int KT, int STAGES>
static __device__ inline void begin_ring(const struct ash_cuda_few &op, unsigned group, unsigned ring_at,
                                         struct loader<KT, STAGES> *next)
{
    next->begin(op, group, ring_at);
#pragma unroll 1
    for (int s = 0; s < STAGES - 1; s++) {
#pragma unroll
        for (int i = 0; i < ring<KT, STAGES>::LOADS; i++)
            next->copy(op, i);
        next->end(op);
    }
}

template <int KT, int STAGES, int NB> static __device__ inline void multiply_few(const struct ash_cuda_few &op)
{
    using R = ring<KT, STAGES>;
    DYNAMIC_SHARED(unsigned char, shared, 128);
    unsigned warp = threadIdx.x / WARP, tiles = ((unsigned)op.K + KT - 1) / KT, pitch = tiles * KT + 8, slot = 0;
    unsigned ring_at = shared_address(shared) + warp * STAGES * R::TILE_BYTES;
    uint16_t *x = (uint16_t *)(shared + op.warps * STAGES * R::TILE_BYTES);
    unsigned x_at = shared_address(x);
    struct loader<KT, STAGES> next;
    struct chunks norm;
    bool is_ending = false;

    early_begin();
    if (warp < op.warps) begin_ring<KT, STAGES>(op, warp * gridDim.x + blockIdx.x, ring_at, &next);
    read_weights(op, &norm);
    early_wait();
    if (op.norm != NULL)
        put_normed(op, norm, x, pitch, (float *)(x + op.M * pitch));
    else
        put_x(op, x, pitch);
    __syncthreads();
    if (warp >= op.warps) return;
#pragma unroll 1
    for (unsigned group = warp * gridDim.x + blockIdx.x; group < op.groups; group += gridDim.x * op.warps) {
        float sum[NB][4] = {};

#pragma unroll 1
        for (unsigned t = 0; t < tiles; t++) {
            copy_wait<STAGES - 2>();
            __syncwarp(); /* the other lanes' copies; and they have read the tile before, which the next overwrites */
            add_tile<KT, NB>(op, ring_at + slot * R::TILE_BYTES, x_at + t * KT * 2, pitch * 2, next, sum);
            slot = slot + 1 == STAGES ? 0 : slot + 1;
            if (next.is_on || is_ending) continue;
            is_ending = true;
            fetch_ahead(op.ahead, warp * gridDim.x + blockIdx.x, op.warps * gridDim.x);
        }
        put_sums<NB>(op, find_rows(op, group, ROWS), sum);
    }
}

#define FEW(name, KT, STAGES, NB)                                                                                      \
    static_assert(ring<KT, STAGES>::TILE_BYTES * STAGES == ASH_CUDA_FEW_RING_BYTES(KT, STAGES), "the host's sizes");   \
    extern "C" __global__ void __launch_bounds__(FEW_THREADS, 1) name(const __grid_constant__ struct ash_cuda_few op)  \
    {                                                                                                                  \
        multiply_few<KT, STAGES, NB>(op);                                                                              \
    }

FEW(few_2_8, 256, 9, 1)
FEW(few_2_16, 256, 9, 2)
FEW(few_4_8, 128, 9, 1)
FEW(few_4_16, 128, 9, 2)
FEW(few_8_8, 64, 8, 1)
FEW(few_8_16, 64, 8, 2)
