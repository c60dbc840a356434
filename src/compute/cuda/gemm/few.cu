/* few - products of a few rows (inference) with bf16 weights, at the speed of memory. Weights are the 16-row operand of
 * the tensor cores: a warp owns 16 rows of them and adds them to one chain per output, k ascending (ref/wgmma.h).
 * Another warp copies its tiles to a ring in shared memory (cp.async: 16 bulk copies of a row each, which one thread
 * issues after the other, took 1 us a tile). All rows of x lie there as bf16: normed, if the op norms.
 * Bias, SwiGLU and residual are applied as sums are written.
 *
 * Kernels of a step overlap: a thread block takes half of a multiprocessor, so that one of the next kernel has the
 * other half, and its ring is full when this one ends. About 95 KB are on their way then, which memory needs 3 us for:
 * as long as the end of a kernel, what it wrote becoming visible, and x take. */
#include "compute/cuda/gemm/few_sums.cuh"
#include "compute/cuda/gemm/few_x.cuh"
#include "compute/cuda/ptx/barrier.cuh"
#include "compute/cuda/ptx/copy.cuh"
#include "compute/cuda/ptx/launch.cuh"
#include "compute/cuda/ptx/mma.cuh"

#define ROWS 16 /* of weights, that a warp multiplies at a time */
#define STEP 16 /* k of one product */
#define TILE_K ASH_CUDA_FEW_TILE_K
#define PITCH (TILE_K * 2 + 16) /* bytes from row to row: rows in different banks */
#define TILE_BYTES ASH_CUDA_FEW_TILE_BYTES
#define X_TILE_BYTES ASH_CUDA_FEW_X_TILE_BYTES
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

/* Tiles of a warp, each with a barrier that the lanes' copies pass, and one that its last reader passes. */
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

/* The next tile to copy: lane r knows where row r is. */
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
    unsigned to = ring.tiles + from.at.stage * TILE_BYTES + LANE * 16, k = from.k + LANE * 8;

    barrier_wait(ring.empty + from.at.stage * 8, from.at.parity ^ 1);
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        const uint16_t *row = (const uint16_t *)__shfl_sync(EVERY_LANE, (unsigned long long)from.row, r);

        if (k < op.K) copy_16_ahead(to + r * PITCH, row + k);
    }
    barrier_arrive_copied(ring.full + from.at.stage * 8);
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

/* Where a warp finds the rows of x for a tile of weights: all of them lie in shared memory, or (TILED) tiles of them
 * come along through a ring that all warps of the thread block read. */
struct x_source {
    struct ring ring; /* TILED */
    unsigned row;     /* where this lane's row for load_matrices is, in all of x or in the first tile */
};

template <bool TILED>
static __device__ inline unsigned wait_x(const struct x_source &x, const struct cursor &at, unsigned k)
{
    if (!TILED) return x.row + k * 2;
    barrier_wait(x.ring.full + at.stage * 8, at.parity);
    return x.row + at.stage * X_TILE_BYTES;
}

/* All lanes have read a tile. */
static __device__ inline void free_tile(const struct ring &ring, const struct cursor &at)
{
    __syncwarp();
    if (LANE == 0) barrier_arrive(ring.empty + at.stage * 8);
}

/* Rounds of groups that the first warp of this thread block has: the others have as many, or one fewer. */
static __device__ inline unsigned rounds_of(const struct ash_cuda_few &op)
{
    unsigned each = gridDim.x * op.warps;

    return (op.groups - blockIdx.x + each - 1) / each;
}

/* A group's sums. */
template <bool TILED>
static __device__ inline void multiply_group(const struct ash_cuda_few &op, const struct ring &ring,
                                             const struct x_source &x, unsigned group, struct cursor &at,
                                             struct cursor &x_at)
{
    struct rows_of_w rows = find_rows(op, group, ROWS);
    unsigned w = ring.tiles + LANE % ROWS * PITCH + LANE / ROWS * 16;
    float sum[4] = {}, residual[4] = {};

    read_residuals(op, rows, residual);
#pragma unroll 1
    for (unsigned k = 0; k < op.K; k += TILE_K) {
        struct operands tile = {w + at.stage * TILE_BYTES, wait_x<TILED>(x, x_at, k)};

        barrier_wait(ring.full + at.stage * 8, at.parity);
        if (op.K - k >= TILE_K)
            add_tile(tile, sum);
        else
            add_steps(tile, ((unsigned)op.K - k) / STEP, sum);
        free_tile(ring, at);
        at.next(ring.stages);
        if (!TILED) continue;
        free_tile(x.ring, x_at);
        x_at.next(x.ring.stages);
    }
    put_sums(op, rows, sum, residual);
}

/* All groups of a warp. One that has none left in the last round still lets tiles of x pass. */
template <bool TILED>
static __device__ inline void multiply(const struct ash_cuda_few &op, const struct ring &ring, const struct x_source &x,
                                       unsigned group)
{
    unsigned rounds = rounds_of(op);
    struct cursor at = {0, 0}, x_at = {0, 0};

#pragma unroll 1
    for (unsigned r = 0; r < rounds; r++, group += gridDim.x * op.warps) {
        if (group < op.groups) {
            multiply_group<TILED>(op, ring, x, group, at, x_at);
            continue;
        }
#pragma unroll 1
        for (unsigned k = 0; TILED && k < op.K; k += TILE_K) {
            wait_x<TILED>(x, x_at, k);
            free_tile(x.ring, x_at);
            x_at.next(x.ring.stages);
        }
    }
}

/* ---- the kernels ------------------------------------------------------------------------------------------------- */

/* Copy tiles of x, all of them in each round. */
static __device__ inline void copy_x(const struct ash_cuda_few &op, const struct ring &ring)
{
    const uint16_t *row = (const uint16_t *)op.x + LANE * 8;
    struct cursor at = {0, 0};

#pragma unroll 1
    for (unsigned r = rounds_of(op); r > 0; r--)
#pragma unroll 1
        for (unsigned k = 0; k < op.K; k += TILE_K) {
            barrier_wait(ring.empty + at.stage * 8, at.parity ^ 1);
#pragma unroll
            for (int m = 0; m < ASH_CUDA_FEW_ROWS; m++)
                if (m < op.M && k + LANE * 8 < op.K)
                    copy_16(ring.tiles + at.stage * X_TILE_BYTES + m * PITCH + LANE * 16, row + m * op.x_stride + k);
            barrier_arrive_copied(ring.full + at.stage * 8);
            at.next(ring.stages);
        }
}

/* Barriers of all rings, of which `passes` warps empty each stage. */
static __device__ inline void init_barriers(const struct ring &first, unsigned count, unsigned passes)
{
    if (threadIdx.x < count) barrier_init(first.full + threadIdx.x * 8, WARP);
    if (threadIdx.x < count) barrier_init(first.empty + threadIdx.x * 8, passes);
}

/* Warps 0 to WARPS - 1 multiply, the others copy for them. All of them lay out x; or (TILED) the last warp copies tiles
 * of it, and WARPS - 1 multiply at most. */
template <bool TILED> static __device__ inline void multiply_few(const struct ash_cuda_few &op)
{
    DYNAMIC_SHARED(unsigned char, shared, 128);
    __shared__ uint64_t full[2 * ASH_CUDA_FEW_TILES_MAX], empty[2 * ASH_CUDA_FEW_TILES_MAX];
    __shared__ float rstd[ASH_CUDA_FEW_ROWS];
    unsigned warp = threadIdx.x / WARP % ASH_CUDA_FEW_WARPS, tiles = op.warps * op.stages;
    unsigned m = LANE % 8 < op.M ? LANE % 8 : (unsigned)op.M - 1, group = warp * gridDim.x + blockIdx.x;
    bool copies = threadIdx.x >= THREADS / 2, is_busy = warp < op.warps;
    struct ring all = {shared_address(shared), shared_address(full), shared_address(empty), op.stages};
    struct ring mine = {all.tiles + warp * op.stages * TILE_BYTES, all.full + warp * op.stages * 8,
                        all.empty + warp * op.stages * 8, op.stages};
    struct ring of_x = {all.tiles + tiles * TILE_BYTES, all.full + tiles * 8, all.empty + tiles * 8, op.stages};
    struct rows_of_x rows = {(uint16_t *)(shared + tiles * TILE_BYTES), NULL, rstd, (unsigned)op.K + 8,
                             (unsigned)op.K / 4};
    struct x_source x = {of_x, of_x.tiles + m * (TILED ? PITCH : rows.pitch * 2) + LANE / 8 * 16};
    struct source from = {NULL, group, 0, {0, 0}};

    early_begin();
    rows.blocks = (float *)(rows.values + op.M * rows.pitch);
    init_barriers(all, tiles, 1);
    if (TILED) init_barriers(of_x, op.stages, op.warps);
    barriers_show();
    __syncthreads();
    if (copies && is_busy) fill_ring(op, mine, from);
    if (TILED)
        early_wait();
    else
        put_x<THREADS>(op, rows);
    __syncthreads();
    if (TILED && copies && warp == ASH_CUDA_FEW_WARPS - 1) copy_x(op, of_x);
    if (!is_busy) return;
    if (!copies) multiply<TILED>(op, mine, x, group);
    while (copies && from.group < op.groups)
        copy_tile(op, mine, from);
}

#define FEW(name, TILED)                                                                                               \
    extern "C" __global__ void __launch_bounds__(THREADS, 2) name(const __grid_constant__ struct ash_cuda_few op)      \
    {                                                                                                                  \
        multiply_few<TILED>(op);                                                                                       \
    }

FEW(few, false)
FEW(few_tiled, true)
