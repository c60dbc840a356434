/* few - products of a few rows (inference) with bf16 weights, at the speed of memory. Weights are the 16-row operand of
 * the tensor cores: a warp owns 16 rows of them and adds them to one chain per output, k ascending (ref/wgmma.h).
 * Another warp copies its tiles to a ring in shared memory. All rows of x lie there as bf16: normed, if the op norms.
 * Bias, SwiGLU and residual are applied as sums are written.
 *
 * Kernels of a step overlap: a thread block takes half of a multiprocessor, so that one of the next kernel has the other
 * half, and its ring is full when this one ends. About 95 KB are on their way then, which memory needs 3 us for: as long as
 * the end of a kernel, what it wrote becoming visible, and x take. */
#include "compute/cuda/gemm/few_sums.cuh"
#include "compute/cuda/ptx/barrier.cuh"
#include "compute/cuda/ptx/copy.cuh"
#include "compute/cuda/ptx/launch.cuh"
#include "compute/cuda/ptx/mma.cuh"
#include "compute/cuda/tile/blocks.cuh"

#define ROWS 16 /* of weights, that a warp multiplies at a time */
#define STEP 16 /* k of one product */
#define TILE_K ASH_CUDA_FEW_TILE_K
#define PITCH (TILE_K * 2 + 16) /* bytes from row to row: rows in different banks */
#define TILE_BYTES ASH_CUDA_FEW_TILE_BYTES
#define THREADS ASH_CUDA_FEW_THREADS
#define LANE (threadIdx.x % WARP)

/* Row r of a group, k 0. Past the last row it is the last: its sums are not written. */
static __device__ inline const uint16_t *row_at(const struct ash_cuda_few &op, const struct rows_of_w &rows, int r)
{
    const struct ash_cuda_few_out &out = op.outs[op.swiglu ? r / (ROWS / 2) : rows.out];
    size_t n = rows.n + (op.swiglu ? r % (ROWS / 2) : r);

    return out.w + (n < out.N ? n : out.N - 1) * out.stride;
}

/* ---- weights ----------------------------------------------------------------------------------------------------- */

/* Tiles of a warp, each with a barrier that its bytes pass, and one that its last reader passes. */
struct ring {
    unsigned tiles, full, empty; /* addresses in shared memory */
    unsigned stages;
};

/* A place in a ring. */
struct cursor {
    unsigned stage, parity;

    __device__ inline void next(unsigned stages)
    {
        stage = stage + 1 == stages ? 0 : stage + 1;
        parity ^= stage == 0 ? 1 : 0;
    }
};

/* The next tile to copy: lane r copies row r. */
struct source {
    const uint16_t *row;
    unsigned group, k;
    struct cursor at;
};

static __device__ inline void find_row(const struct ash_cuda_few &op, struct source &from)
{
    if (from.group < op.groups) from.row = row_at(op, find_rows(op, from.group, ROWS), LANE % ROWS);
}

static __device__ inline void copy_tile(const struct ash_cuda_few &op, const struct ring &ring, struct source &from)
{
    unsigned left = (unsigned)op.K - from.k, bytes = (left < TILE_K ? left : TILE_K) * 2;
    unsigned full = ring.full + from.at.stage * 8;

    barrier_wait(ring.empty + from.at.stage * 8, from.at.parity ^ 1);
    if (LANE == 0) barrier_expect(full, ROWS * bytes);
    __syncwarp();
    if (LANE < ROWS) copy_bulk(ring.tiles + from.at.stage * TILE_BYTES + LANE * PITCH, from.row + from.k, bytes, full);
    from.at.next(ring.stages);
    from.k += TILE_K;
    if (from.k < op.K) return;
    from.k = 0;
    from.group += gridDim.x * op.warps;
    find_row(op, from);
}

/* Fill a ring, before this kernel may read what the one before it writes. */
static __device__ inline void fill_ring(const struct ash_cuda_few &op, const struct ring &ring, struct source &from)
{
    find_row(op, from);
    for (unsigned i = 0; i < ring.stages && from.group < op.groups; i++)
        copy_tile(op, ring, from);
    if (LANE < ROWS && from.group < op.groups && op.ahead > 0) {
        unsigned left = (unsigned)op.K - from.k;

        fetch_to_l2(from.row + from.k, (left < op.ahead ? left : op.ahead) * 2);
    }
}

/* ---- x ----------------------------------------------------------------------------------------------------------- */

#define HELD 4  /* chunks of four values of x that a thread keeps between the two passes of a norm: a row of 4096 */
#define AHEAD 8 /* chunks that it reads before it writes the first */

/* Rows of x in shared memory: [M, pitch] of bf16, and the sums of their blocks of squares. */
struct rows_of_x {
    uint16_t *values;
    float *blocks, *rstd;
    unsigned pitch, fours; /* fours: chunks of a row */
};

/* Chunk i of all rows: its row, and k. */
static __device__ inline uint2 place_of(const struct ash_cuda_few &op, const struct rows_of_x &x, unsigned i)
{
    unsigned m = op.M == 1 ? 0 : i / x.fours;

    return make_uint2(m, (i - m * x.fours) * 4);
}

static __device__ inline float4 read_floats(const struct ash_cuda_few &op, uint2 at)
{
    return *(const float4 *)((const float *)op.x + at.x * op.x_stride + at.y);
}

/* Rows of x as they are. */
static __device__ inline void put_plain(const struct ash_cuda_few &op, const struct rows_of_x &x)
{
    unsigned count = (unsigned)op.M * x.fours;

#pragma unroll 1
    for (unsigned first = threadIdx.x; first < count; first += AHEAD * THREADS) {
        uint2 values[AHEAD];

#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            unsigned i = first + j * THREADS;
            uint2 at = place_of(op, x, i < count ? i : first);

            values[j] = op.x_is_bf16 ? *(const uint2 *)((const uint16_t *)op.x + at.x * op.x_stride + at.y)
                                     : round_four(read_floats(op, at));
        }
#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            unsigned i = first + j * THREADS;
            uint2 at = place_of(op, x, i);

            if (i < count) *(uint2 *)(x.values + at.x * x.pitch + at.y) = values[j];
        }
    }
}

/* The sum of squares of a block, of which four neighbouring threads have four columns each. */
static __device__ inline void put_block(const struct rows_of_x &x, unsigned i, unsigned count, float4 four)
{
    float sum = block_sum(four_dot(four, four));

    if (i < count && i % 4 == 0) x.blocks[i / 4] = sum;
}

static __device__ inline void put_scaled(const struct rows_of_x &x, uint2 at, float4 four, float4 w)
{
    float rstd = x.rstd[at.x];

    *(uint2 *)(x.values + at.x * x.pitch + at.y) = round_four(
        make_float4((four.x * rstd) * w.x, (four.y * rstd) * w.y, (four.z * rstd) * w.z, (four.w * rstd) * w.w));
}

/* Rows of x normed. Whole warps walk together, as blocks are added by four threads. */
static __device__ inline void put_normed(const struct ash_cuda_few &op, const struct rows_of_x &x)
{
    unsigned count = (unsigned)op.M * x.fours, warp = threadIdx.x / WARP, blocks = x.fours / 4;
    float4 zeros = make_float4(0.0f, 0.0f, 0.0f, 0.0f), four[HELD], w[HELD];

#pragma unroll
    for (int j = 0; j < HELD; j++) {
        unsigned i = threadIdx.x + j * THREADS;

        w[j] = i < count ? *(const float4 *)(op.norm + place_of(op, x, i).y) : zeros;
    }
    early_wait();
#pragma unroll
    for (int j = 0; j < HELD; j++) {
        unsigned i = threadIdx.x + j * THREADS;

        four[j] = i < count ? read_floats(op, place_of(op, x, i)) : zeros;
    }
#pragma unroll
    for (int j = 0; j < HELD; j++)
        put_block(x, threadIdx.x + j * THREADS, count, four[j]);
#pragma unroll 4
    for (unsigned first = HELD * THREADS; first < count; first += THREADS) {
        unsigned i = first + threadIdx.x;

        put_block(x, i, count, i < count ? read_floats(op, place_of(op, x, i)) : zeros);
    }
    __syncthreads();
    for (unsigned m = warp; m < op.M; m += THREADS / WARP) {
        float squares = sum_blocks(x.blocks + m * blocks, blocks);

        if (LANE == 0) x.rstd[m] = 1.0f / sqrtf(squares / (float)op.K + op.norm_eps);
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < HELD; j++) {
        unsigned i = threadIdx.x + j * THREADS;

        if (i < count) put_scaled(x, place_of(op, x, i), four[j], w[j]);
    }
#pragma unroll 4
    for (unsigned i = HELD * THREADS + threadIdx.x; i < count; i += THREADS) {
        uint2 at = place_of(op, x, i);

        put_scaled(x, at, read_floats(op, at), *(const float4 *)(op.norm + at.y));
    }
}

/* ---- sums -------------------------------------------------------------------------------------------------------- */

/* Where this lane's part of both operands is at the first k of a tile: one call of load_matrices reads 16 k of the rows
 * of weights, or 32 k of the rows of x. */
struct operands {
    unsigned w, x;
};

/* Add a whole tile to the sums. Operands are read two steps before their use: the chain of sums is all that waits. */
static __device__ inline void add_tile(struct operands at, float sum[4])
{
    uint32_t x[2][4], w[3][4];

    load_matrices(at.x, x[0]);
    load_matrices(at.w, w[0]);
    load_matrices(at.w + STEP * 2, w[1]);
#pragma unroll
    for (int s = 0; s < TILE_K / STEP; s++) {
        if (s + 2 < TILE_K / STEP) load_matrices(at.w + (s + 2) * STEP * 2, w[(s + 2) % 3]);
        if (s % 2 == 0 && s + 2 < TILE_K / STEP) load_matrices(at.x + (s + 2) * STEP * 2, x[(s / 2 + 1) % 2]);
        mma(sum, w[s % 3], x[s / 2 % 2] + s % 2 * 2);
    }
}

/* The same of the last steps of k. */
static __device__ inline void add_steps(struct operands at, unsigned steps, float sum[4])
{
#pragma unroll 1
    for (unsigned s = 0; s < steps; s++) {
        uint32_t x[4], w[4];

        load_matrices(at.x + s * STEP * 2, x);
        load_matrices(at.w + s * STEP * 2, w);
        mma(sum, w, x);
    }
}

/* A thread has two of 8 rows of x, with its row of weights and the one 8 below: f(e, m, n) for the first of these. */
template <typename F>
static __device__ inline void each_sum(const struct ash_cuda_few &op, const struct rows_of_w &rows, F f)
{
    size_t n = rows.n + LANE / 4;

#pragma unroll
    for (int e = 0; e < 2; e++) {
        size_t m = LANE % 4 * 2 + e;

        if (m < op.M && n < op.outs[rows.out].N) f(e, m, n);
    }
}

/* What the outputs of a group have before the product: read while weights come. */
static __device__ inline void read_residuals(const struct ash_cuda_few &op, const struct rows_of_w &rows,
                                             float residual[4])
{
    const struct ash_cuda_few_out &out = op.outs[rows.out];

    if (!op.residual) return;
    each_sum(op, rows, [&](int e, size_t m, size_t n) {
        residual[e] = read_residual(op, out, m, n);
        if (n + 8 < out.N) residual[e + 2] = read_residual(op, out, m, n + 8);
    });
}

static __device__ inline void put_sums(const struct ash_cuda_few &op, const struct rows_of_w &rows, const float sum[4],
                                       const float residual[4])
{
    const struct ash_cuda_few_out &out = op.outs[rows.out];

    each_sum(op, rows, [&](int e, size_t m, size_t n) {
        if (op.swiglu) {
            put_gated(op, m, n, sum[e], sum[e + 2]);
            return;
        }
        put_sum(op, out, m, n, sum[e], residual[e]);
        if (n + 8 < out.N) put_sum(op, out, m, n + 8, sum[e + 2], residual[e + 2]);
    });
}

/* All groups of a warp. */
static __device__ inline void multiply(const struct ash_cuda_few &op, const struct ring &ring, unsigned group,
                                       const struct rows_of_x &rows_of_x)
{
    unsigned m = LANE % 8 < op.M ? LANE % 8 : (unsigned)op.M - 1;
    unsigned w = ring.tiles + LANE % ROWS * PITCH + LANE / ROWS * 16;
    unsigned x = shared_address(rows_of_x.values) + m * rows_of_x.pitch * 2 + LANE / 8 * 16;
    struct cursor at = {0, 0};

#pragma unroll 1
    for (; group < op.groups; group += gridDim.x * op.warps) {
        struct rows_of_w rows = find_rows(op, group, ROWS);
        float sum[4] = {}, residual[4] = {};

        read_residuals(op, rows, residual);
#pragma unroll 1
        for (unsigned k = 0; k < op.K; k += TILE_K) {
            struct operands tile = {w + at.stage * TILE_BYTES, x + k * 2};

            barrier_wait(ring.full + at.stage * 8, at.parity);
            if (op.K - k >= TILE_K)
                add_tile(tile, sum);
            else
                add_steps(tile, ((unsigned)op.K - k) / STEP, sum);
            __syncwarp(); /* all lanes have read the tile */
            if (LANE == 0) barrier_arrive(ring.empty + at.stage * 8);
            at.next(ring.stages);
        }
        put_sums(op, rows, sum, residual);
    }
}

/* Warps 0 to WARPS - 1 multiply, the others copy for them; all of them lay out x. */
extern "C" __global__ void __launch_bounds__(THREADS, 2) few(const __grid_constant__ struct ash_cuda_few op)
{
    DYNAMIC_SHARED(unsigned char, shared, 128);
    __shared__ uint64_t barriers[2][ASH_CUDA_FEW_TILES_MAX];
    __shared__ float rstd[ASH_CUDA_FEW_ROWS];
    unsigned warp = threadIdx.x / WARP % ASH_CUDA_FEW_WARPS, tiles = op.warps * op.stages;
    bool copies = threadIdx.x >= THREADS / 2, is_busy = warp < op.warps;
    struct ring ring = {shared_address(shared) + warp * op.stages * TILE_BYTES,
                        shared_address(barriers[0] + warp * op.stages), shared_address(barriers[1] + warp * op.stages),
                        op.stages};
    struct source from = {NULL, warp * gridDim.x + blockIdx.x, 0, {0, 0}};
    struct rows_of_x x = {(uint16_t *)(shared + tiles * TILE_BYTES), NULL, rstd, (unsigned)op.K + 8,
                          (unsigned)op.K / 4};

    early_begin();
    x.blocks = (float *)(x.values + op.M * x.pitch);
    if (threadIdx.x < 2 * tiles) barrier_init(shared_address(barriers[threadIdx.x / tiles] + threadIdx.x % tiles), 1);
    barriers_show();
    __syncthreads();
    if (copies && is_busy) fill_ring(op, ring, from);
    if (op.norm != NULL) {
        put_normed(op, x);
    } else {
        early_wait();
        put_plain(op, x);
    }
    __syncthreads();
    if (!is_busy) return;
    if (!copies) multiply(op, ring, from.group, x);
    while (copies && from.group < op.groups)
        copy_tile(op, ring, from);
}
