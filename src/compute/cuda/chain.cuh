/* chain - sums over rows, one chain per column, rows ascending. A chain is one addition after the other, so what counts
 * is that its operands are there in time. Tiles of rows are on their way to shared memory several ahead: all warps but
 * one copy them. That one normalises and adds a tile up, a thread per column, and reads rows while it adds those
 * before them. */
#ifndef ASH_COMPUTE_CUDA_CHAIN_CUH
#define ASH_COMPUTE_CUDA_CHAIN_CUH

#include "compute/cuda/device.cuh"

#define CHAIN_COLS ASH_CUDA_CHAIN_COLS /* of a block: those of the adding warp */
#define CHAIN_ROWS ASH_CUDA_CHAIN_ROWS
#define CHAIN_STAGES ASH_CUDA_CHAIN_STAGES
#define CHAIN_AHEAD (CHAIN_STAGES - 1) /* one tile is added up, the others are on their way */
#define CHAIN_LOADERS 8                /* warps that copy */
#define CHAIN_THREADS ((CHAIN_LOADERS + 1) * WARP)

/* What a column's sums are made of. x may be NULL: only dy counts. */
struct chain_rows {
    const float *dy, *x;
    const float *mean, *rstd; /* of each row; mean may be NULL */
    size_t rows, cols;
    bool is_wide; /* every row of dy and x, and their number of columns, is at a 16-byte border */
};

/* A tile of rows. A row is read at once, by a warp, and so needs no room between it and the next. */
struct __align__(16) chain_tile
{
    float dy[CHAIN_ROWS][CHAIN_COLS], x[CHAIN_ROWS][CHAIN_COLS];
    float mean[CHAIN_ROWS], rstd[CHAIN_ROWS];
};

static_assert(CHAIN_COLS == WARP, "a thread of the adding warp per column");
static_assert(ASH_CUDA_CHAIN_BYTES == CHAIN_STAGES * sizeof(struct chain_tile), "the host reserves what tiles take");

/* Enqueue the copy of BYTES bytes, or zeros where there is nothing. */
template <int BYTES> static __device__ inline void copy_async(float *to, const float *from, bool inside)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"((unsigned)__cvta_generic_to_shared(to)),
                 "l"(from), "n"(BYTES), "r"(inside ? BYTES : 0));
}

/* A loader's part of the tile that begins with row `first`, EACH columns at a time. at(row, is_x) is where a row
 * begins. */
template <int EACH, typename Offset>
static __device__ inline void copy_columns(const struct chain_rows &of, size_t first, struct chain_tile *tile,
                                           Offset at)
{
    constexpr int PIECES = CHAIN_COLS / EACH; /* of a row */
    int i = (int)threadIdx.x - WARP, c = i % PIECES * EACH;
    size_t column = (size_t)blockIdx.x * CHAIN_COLS + c;

#pragma unroll 4
    for (int r = i / PIECES; r < CHAIN_ROWS; r += CHAIN_LOADERS * WARP / PIECES) {
        bool inside = column < of.cols && first + r < of.rows;

        copy_async<EACH * 4>(&tile->dy[r][c], inside ? of.dy + at(first + r, false) + column : of.dy, inside);
        if (of.x != NULL)
            copy_async<EACH * 4>(&tile->x[r][c], inside ? of.x + at(first + r, true) + column : of.x, inside);
    }
}

template <typename Offset>
static __device__ inline void copy_rows(const struct chain_rows &of, size_t first, struct chain_tile *tile, Offset at)
{
    int i = (int)threadIdx.x - WARP;
    bool inside = first + i < of.rows;

    if (of.is_wide)
        copy_columns<4>(of, first, tile, at);
    else
        copy_columns<1>(of, first, tile, at);
    if (i < CHAIN_ROWS && of.x != NULL) {
        copy_async<4>(&tile->rstd[i], inside ? of.rstd + first + i : of.rstd, inside);
        if (of.mean != NULL) copy_async<4>(&tile->mean[i], inside ? of.mean + first + i : of.mean, inside);
    }
    asm volatile("cp.async.commit_group;");
}

#define CHAIN_BATCH 16 /* rows that are read while as many are added: reading takes about as long */

/* Rows of a column on their way to the adder. */
struct chain_batch {
    float dy[CHAIN_BATCH], x[CHAIN_BATCH], mean[CHAIN_BATCH], rstd[CHAIN_BATCH];
};

/* Factors of CHAIN_BATCH rows, four at a time. */
static __device__ inline void read_factors(const float *from, float *to)
{
#pragma unroll
    for (int i = 0; i < CHAIN_BATCH; i += 4) {
        float4 four = *(const float4 *)(from + i);

        to[i] = four.x;
        to[i + 1] = four.y;
        to[i + 2] = four.z;
        to[i + 3] = four.w;
    }
}

template <bool HAS_X, bool HAS_MEAN>
static __device__ inline void read_batch(const struct chain_tile *tile, int first, struct chain_batch *batch)
{
#pragma unroll
    for (int i = 0; i < CHAIN_BATCH; i++) {
        batch->dy[i] = tile->dy[first + i][threadIdx.x];
        if (HAS_X) batch->x[i] = tile->x[first + i][threadIdx.x];
    }
    if (HAS_X) read_factors(tile->rstd + first, batch->rstd);
    if (HAS_X && HAS_MEAN) read_factors(tile->mean + first, batch->mean);
}

/* Of the batch's rows, `count` are real. */
template <bool HAS_X, bool HAS_MEAN>
static __device__ inline void add_batch(const struct chain_batch &batch, int count, float *weight, float *bias)
{
#pragma unroll
    for (int i = 0; i < CHAIN_BATCH; i++) {
        if (i >= count) return;
        if (HAS_X)
            *weight = fmaf(batch.dy[i], (HAS_MEAN ? batch.x[i] - batch.mean[i] : batch.x[i]) * batch.rstd[i], *weight);
        if (!HAS_X || HAS_MEAN) *bias = *bias + batch.dy[i];
    }
}

/* weight += dy * xhat and bias += dy over the rows of a tile, of which count are real. */
template <bool HAS_X, bool HAS_MEAN>
static __device__ inline void add_rows(const struct chain_tile *tile, int count, float *weight, float *bias)
{
    struct chain_batch batches[2];

    if (count < CHAIN_ROWS) {
#pragma unroll 1
        for (int first = 0; first < count; first += CHAIN_BATCH) {
            read_batch<HAS_X, HAS_MEAN>(tile, first, &batches[0]);
            add_batch<HAS_X, HAS_MEAN>(batches[0], count - first, weight, bias);
        }
        return;
    }
    read_batch<HAS_X, HAS_MEAN>(tile, 0, &batches[0]);
#pragma unroll
    for (int b = 0; b < CHAIN_ROWS / CHAIN_BATCH; b++) {
        if (b + 1 < CHAIN_ROWS / CHAIN_BATCH)
            read_batch<HAS_X, HAS_MEAN>(tile, (b + 1) * CHAIN_BATCH, &batches[(b + 1) % 2]);
        add_batch<HAS_X, HAS_MEAN>(batches[b % 2], CHAIN_BATCH, weight, bias);
    }
}

/* dweight and dbias continue from what they hold; either may be NULL. */
template <bool HAS_X, bool HAS_MEAN, typename Offset>
static __device__ inline void column_chains(const struct chain_rows &of, float *dweight, float *dbias, Offset at)
{
    extern __shared__ __align__(16) unsigned char shared[];
    struct chain_tile *tiles = (struct chain_tile *)shared;
    size_t c = (size_t)blockIdx.x * CHAIN_COLS + threadIdx.x % CHAIN_COLS,
           count = (of.rows + CHAIN_ROWS - 1) / CHAIN_ROWS;
    bool is_loader = threadIdx.x >= WARP, real = c < of.cols;
    float weight = real && dweight != NULL ? dweight[c] : 0.0f, bias = real && dbias != NULL ? dbias[c] : 0.0f;

    for (int s = 0; is_loader && s < CHAIN_AHEAD; s++)
        copy_rows(of, (size_t)s * CHAIN_ROWS, &tiles[s], at);
    for (size_t t = 0; t < count; t++) {
        size_t ahead = t + CHAIN_AHEAD, left = of.rows - t * CHAIN_ROWS;

        if (is_loader) asm volatile("cp.async.wait_group %0;" ::"n"(CHAIN_AHEAD - 1) : "memory");
        __syncthreads(); /* tile t is there, and the one before it is added up */
        if (is_loader)
            copy_rows(of, ahead * CHAIN_ROWS, &tiles[ahead % CHAIN_STAGES], at);
        else
            add_rows<HAS_X, HAS_MEAN>(&tiles[t % CHAIN_STAGES], left < CHAIN_ROWS ? (int)left : CHAIN_ROWS, &weight,
                                      &bias);
    }
    if (!real || is_loader) return;
    if (dweight != NULL) dweight[c] = weight;
    if (dbias != NULL) dbias[c] = bias;
}

#endif
