/* chain - sums over rows, one chain per column, rows ascending. A chain is one addition after the other, so what counts
 * is that its operands are there in time: all threads of a block but one warp copy tiles of rows to shared memory,
 * several ahead, and that warp, a thread per column, adds them up (its upper half does the same again). */
#ifndef ASH_COMPUTE_CUDA_CHAIN_CUH
#define ASH_COMPUTE_CUDA_CHAIN_CUH

#include "compute/cuda/device.cuh"

#define CHAIN_COLS ASH_CUDA_CHAIN_COLS /* of a block: few, so that many multiprocessors read */
#define CHAIN_ROWS ASH_CUDA_CHAIN_ROWS
#define CHAIN_STAGES ASH_CUDA_CHAIN_STAGES
#define CHAIN_LOADERS 8 /* warps that copy */
#define CHAIN_THREADS ((CHAIN_LOADERS + 1) * WARP)

/* What a column's sums are made of. x may be NULL: only dy counts. */
struct chain_rows {
    const float *dy, *x;
    const float *mean, *rstd; /* of each row; mean may be NULL */
    size_t rows, cols;
    bool is_wide; /* every row of dy and x, and their number of columns, is at a 16-byte border */
};

/* A tile of rows in shared memory. */
struct chain_tile {
    float dy[CHAIN_ROWS][CHAIN_COLS], x[CHAIN_ROWS][CHAIN_COLS];
    float mean[CHAIN_ROWS], rstd[CHAIN_ROWS];
};

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
    if (i >= CHAIN_ROWS || of.x == NULL) return;
    copy_async<4>(&tile->rstd[i], inside ? of.rstd + first + i : of.rstd, inside);
    if (of.mean != NULL) copy_async<4>(&tile->mean[i], inside ? of.mean + first + i : of.mean, inside);
}

/* weight += dy * xhat and bias += dy over the rows of a tile, xhat = (x - mean) * rstd. */
template <bool HAS_X, bool HAS_MEAN>
static __device__ inline void add_rows(const struct chain_tile *tile, int count, float *weight, float *bias)
{
    int lane = threadIdx.x % CHAIN_COLS;

#pragma unroll 16
    for (int r = 0; r < count; r++) {
        float dy = tile->dy[r][lane];

        if (HAS_X) {
            float x = tile->x[r][lane];

            *weight = fmaf(dy, (HAS_MEAN ? x - tile->mean[r] : x) * tile->rstd[r], *weight);
        }
        if (!HAS_X || HAS_MEAN) *bias = *bias + dy;
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

    for (int s = 0; is_loader && s < CHAIN_STAGES - 1; s++) {
        copy_rows(of, (size_t)s * CHAIN_ROWS, &tiles[s], at);
        asm volatile("cp.async.commit_group;");
    }
    for (size_t t = 0; t < count; t++) {
        size_t ahead = t + CHAIN_STAGES - 1, left = of.rows - t * CHAIN_ROWS;

        if (is_loader) asm volatile("cp.async.wait_group %0;" ::"n"(CHAIN_STAGES - 2));
        __syncthreads(); /* tile t is there, and nobody reads the one before it any more */
        if (is_loader) {
            copy_rows(of, ahead * CHAIN_ROWS, &tiles[ahead % CHAIN_STAGES], at);
            asm volatile("cp.async.commit_group;");
        } else {
            add_rows<HAS_X, HAS_MEAN>(&tiles[t % CHAIN_STAGES], left < CHAIN_ROWS ? (int)left : CHAIN_ROWS, &weight,
                                      &bias);
        }
    }
    if (!real || threadIdx.x >= CHAIN_COLS) return;
    if (dweight != NULL) dweight[c] = weight;
    if (dbias != NULL) dbias[c] = bias;
}

#endif
