/* few - products of a few rows (inference) with bf16 weights, at the speed of memory. Weights are the 16-row operand of
 * the tensor cores: a warp owns 16 rows of them, copies tiles of k to shared memory several ahead of their use, and adds
 * them to one chain per output, k ascending (ref/wgmma.h). All rows of x lie in shared memory as bf16: normed, where the
 * op norms, as they are put there. What depends on the sums (bias, SwiGLU, residual) is done as they are written.
 * The first tiles are on their way before the kernel before this one ends (early.cuh): weights do not depend on it. */
#include "compute/cuda/early.cuh"
#include "compute/cuda/few_rows.cuh"
#include "compute/cuda/tensor.cuh"

#define ROWS 16 /* of weights, that a warp multiplies at a time */

/* Tiles of KT k, STAGES of them in a warp's ring, eight bytes of room twice after each row: rows in different banks. */
template <int KT, int STAGES> struct ring {
    static constexpr int CHUNKS = KT / 8, PITCH = KT * 2 + 16;
    static constexpr int TILE_BYTES = ROWS * PITCH, LOADS = ROWS * CHUNKS / WARP, STEP = WARP / CHUNKS;
};

/* 16 rows of weights: whose, and the first. With swiglu 8 of gate and the same 8 of up. */
struct rows_of_w {
    int out;
    size_t n;
};

static __device__ inline struct rows_of_w find_rows(const struct ash_cuda_few &op, unsigned group)
{
    struct rows_of_w rows = {0, 0};

    while (rows.out + 1 < op.out_count && group >= op.outs[rows.out].groups)
        group -= op.outs[rows.out++].groups;
    rows.n = (size_t)group * (op.swiglu ? ROWS / 2 : ROWS);
    return rows;
}

/* Row r of those, k 0. Past the last row it is the last: nobody reads the sums. */
static __device__ inline const uint16_t *row_at(const struct ash_cuda_few &op, const struct rows_of_w &rows, int r)
{
    const struct ash_cuda_few_out &out = op.outs[op.swiglu ? r / (ROWS / 2) : rows.out];
    size_t n = rows.n + (op.swiglu ? r % (ROWS / 2) : r);

    return out.w + (n < out.N ? n : out.N - 1) * out.stride;
}

/* What a warp copies next. */
template <typename R> struct loader {
    const uint16_t *from[R::LOADS]; /* this lane's rows, at its chunk */
    unsigned group, k, slot;

    __device__ inline void find(const struct ash_cuda_few &op)
    {
        int lane = threadIdx.x % WARP;

        if (group >= op.groups) return;
        struct rows_of_w rows = find_rows(op, group);
#pragma unroll
        for (int i = 0; i < R::LOADS; i++)
            from[i] = row_at(op, rows, lane / R::CHUNKS + i * R::STEP) + lane % R::CHUNKS * 8;
    }
};

/* Enqueue a tile; nothing is left to copy after the last group. */
template <int KT, int STAGES, typename R>
static __device__ inline void load_tile(const struct ash_cuda_few &op, struct loader<R> &next, unsigned ring_at)
{
    int lane = threadIdx.x % WARP;
    unsigned to = ring_at + next.slot * R::TILE_BYTES + lane / R::CHUNKS * R::PITCH + lane % R::CHUNKS * 16;
    bool inside = next.k + lane % R::CHUNKS * 8 < op.K;

    if (next.group < op.groups) {
#pragma unroll
        for (int i = 0; i < R::LOADS; i++)
            asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to + i * R::STEP * R::PITCH),
                         "l"(next.from[i] + (inside ? next.k : 0)), "r"(inside ? 16 : 0));
        next.k += KT;
        if (next.k >= op.K) {
            next.k = 0;
            next.group += gridDim.x * op.warps;
            next.find(op);
        }
    }
    next.slot = next.slot + 1 == STAGES ? 0 : next.slot + 1;
    asm volatile("cp.async.commit_group;");
}

/* ---- x ----------------------------------------------------------------------------------------------------------- */

/* All rows of x to `to`, [M, pitch] of bf16 with zeros from K on. */
static __device__ inline void put_x(const struct ash_cuda_few &op, uint16_t *to, unsigned pitch, float *floats)
{
    __shared__ float rstd[ASH_CUDA_FEW_ROWS];
    unsigned fours = (unsigned)op.K / 4, wide = (pitch - 8) / 4;

    if (op.norm != NULL) stage_rows(op, floats, rstd);
#pragma unroll 4
    for (unsigned i = threadIdx.x; i < op.M * wide; i += FEW_THREADS) {
        unsigned m = i / wide, k = i % wide * 4;
        uint2 pair = make_uint2(0, 0);

        if (k < op.K && op.x_is_bf16) {
            pair = *(const uint2 *)((const uint16_t *)op.x + m * op.x_stride + k);
        } else if (k < op.K) {
            float4 x = op.norm != NULL ? ((const float4 *)floats)[m * fours + k / 4] : read_four(op, m, k);

            if (op.norm != NULL) x = normed(op, x, rstd[m], k);
            pair = make_uint2(pack_bf16(x.x, x.y), pack_bf16(x.z, x.w));
        }
        *(uint2 *)(to + m * pitch + k) = pair;
    }
    __syncthreads();
}

/* ---- sums -------------------------------------------------------------------------------------------------------- */

/* Add a tile: KT k of 16 rows of weights to the sums with NB times 8 rows of x. */
template <int KT, int NB, typename R>
static __device__ inline void add_tile(unsigned tile, unsigned x_at, unsigned x_row_bytes, unsigned M, float sum[NB][4])
{
    int lane = threadIdx.x % WARP;
    unsigned w_at = tile + lane % 16 * R::PITCH + lane / 16 * 16;

#pragma unroll
    for (int k = 0; k < KT; k += 32) {
        uint32_t x[NB][4], w[4];

#pragma unroll
        for (int b = 0; b < NB; b++) {
            unsigned m = b * 8 + lane % 8;

            load_matrices(x_at + (m < M ? m : M - 1) * x_row_bytes + lane / 8 * 16 + k * 2, x[b]);
        }
#pragma unroll
        for (int half = 0; half < 2; half++) {
            load_matrices(w_at + (k + half * 16) * 2, w);
#pragma unroll
            for (int b = 0; b < NB; b++)
                mma(sum[b], w, x[b] + half * 2);
        }
    }
}

static __device__ inline void put_sum(const struct ash_cuda_few &op, const struct ash_cuda_few_out &out, size_t m,
                                      size_t n, float sum)
{
    float *y = out.y + m * out.y_stride + n;

    if (out.bias != NULL) sum = sum + out.bias[n];
    *y = op.residual ? *y + sum : sum;
}

/* A thread has of each 8 rows of x two, with its row of weights and the one 8 below. */
template <int NB>
static __device__ inline void put_sums(const struct ash_cuda_few &op, const struct rows_of_w &rows,
                                       const float sum[NB][4])
{
    const struct ash_cuda_few_out &out = op.outs[rows.out], &up = op.outs[1];
    size_t n = rows.n + threadIdx.x % WARP / 4;

#pragma unroll
    for (int b = 0; b < NB; b++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            size_t m = b * 8 + threadIdx.x % 4 * 2 + e;

            if (m >= op.M || n >= out.N) continue;
            if (op.swiglu) {
                float gate = out.bias != NULL ? sum[b][e] + out.bias[n] : sum[b][e];

                out.y[m * out.y_stride + n] =
                    (gate * ash_sigmoidf(gate)) * (up.bias != NULL ? sum[b][e + 2] + up.bias[n] : sum[b][e + 2]);
                continue;
            }
            put_sum(op, out, m, n, sum[b][e]);
            if (n + 8 < out.N) put_sum(op, out, m, n + 8, sum[b][e + 2]);
        }
}

template <int KT, int STAGES, int NB> static __device__ inline void multiply_few(const struct ash_cuda_few &op)
{
    using R = ring<KT, STAGES>;
    extern __shared__ __align__(128) unsigned char shared[];
    unsigned warp = threadIdx.x / WARP, tiles = ((unsigned)op.K + KT - 1) / KT, pitch = tiles * KT + 8, slot = 0;
    unsigned ring_at = (unsigned)__cvta_generic_to_shared(shared) + warp * STAGES * R::TILE_BYTES;
    uint16_t *x = (uint16_t *)(shared + op.warps * STAGES * R::TILE_BYTES);
    unsigned x_at = (unsigned)__cvta_generic_to_shared(x);
    bool is_worker = warp < op.warps;
    struct loader<R> next;

    early_begin();
    next.group = warp * gridDim.x + blockIdx.x;
    next.k = next.slot = 0;
    if (is_worker) {
        next.find(op);
#pragma unroll 1
        for (int s = 0; s < STAGES - 1; s++)
            load_tile<KT, STAGES>(op, next, ring_at);
    }
    prefetch_norm(op);
    early_wait();
    put_x(op, x, pitch, (float *)(x + op.M * pitch));
    if (!is_worker) return;
#pragma unroll 1
    for (unsigned group = warp * gridDim.x + blockIdx.x; group < op.groups; group += gridDim.x * op.warps) {
        float sum[NB][4] = {};

#pragma unroll 1
        for (unsigned t = 0; t < tiles; t++) {
            asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
            __syncwarp(); /* the other lanes' copies; and they have read the tile before, which the next overwrites */
            load_tile<KT, STAGES>(op, next, ring_at);
            add_tile<KT, NB, R>(ring_at + slot * R::TILE_BYTES, x_at + t * KT * 2, pitch * 2, (unsigned)op.M, sum);
            slot = slot + 1 == STAGES ? 0 : slot + 1;
        }
        put_sums<NB>(op, find_rows(op, group), sum);
    }
}

#define FEW(name, KT, STAGES, NB)                                                                                      \
    static_assert(ring<KT, STAGES>::TILE_BYTES * STAGES == ASH_CUDA_FEW_RING_BYTES(KT, STAGES), "the host's sizes");   \
    extern "C" __global__ void __launch_bounds__(FEW_THREADS, 1) name(const __grid_constant__ struct ash_cuda_few op)  \
    {                                                                                                                  \
        multiply_few<KT, STAGES, NB>(op);                                                                              \
    }

FEW(few_2_8, 128, 8, 1)
FEW(few_2_16, 128, 8, 2)
FEW(few_4_8, 128, 5, 1)
FEW(few_4_16, 128, 5, 2)
FEW(few_8_8, 64, 5, 1)
FEW(few_8_16, 64, 5, 2)
