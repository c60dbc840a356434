/* chain - sums over rows, one chain per column, rows ascending. A chain is one addition after the other, so what counts
 * is that its operands are there in time: the threads of a block bring a tile of rows to shared memory while one warp,
 * a thread per column, adds up the tile before it. */
#ifndef ASH_COMPUTE_CUDA_CHAIN_CUH
#define ASH_COMPUTE_CUDA_CHAIN_CUH

#include "compute/cuda/device.cuh"

#define CHAIN_COLS 32 /* of a block: a warp adds them up */
#define CHAIN_ROWS 64
#define CHAIN_LOADERS 8 /* warps that bring the next tile */
#define CHAIN_THREADS ((CHAIN_LOADERS + 1) * WARP)
#define CHAIN_EACH (CHAIN_ROWS / CHAIN_LOADERS) /* rows of a tile that a warp brings */

/* What a row contributes to a column: weight += dy * xhat, bias += dy. */
struct chain_term {
    float dy, xhat;
};

/* source(row, column) gives a chain_term. dweight and dbias may be NULL. */
template <typename Source>
static __device__ inline void column_chains(size_t rows, size_t cols, float *dweight, float *dbias, Source source)
{
    __shared__ struct chain_term tiles[2][CHAIN_ROWS][CHAIN_COLS];
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    size_t c = (size_t)blockIdx.x * CHAIN_COLS + lane;
    bool real = c < cols;
    float weight = real && dweight != NULL ? dweight[c] : 0.0f, bias = real && dbias != NULL ? dbias[c] : 0.0f;

    for (size_t first = 0; first < rows + CHAIN_ROWS; first += CHAIN_ROWS) {
        int now = (int)(first / CHAIN_ROWS % 2);

        if (warp > 0) {
            struct chain_term terms[CHAIN_EACH]; /* all loads are on their way before the first store */

#pragma unroll
            for (int i = 0; i < CHAIN_EACH; i++) {
                size_t r = first + warp - 1 + i * CHAIN_LOADERS;

                terms[i] = real && r < rows ? source(r, c) : (struct chain_term){0.0f, 0.0f};
            }
#pragma unroll
            for (int i = 0; i < CHAIN_EACH; i++)
                tiles[now][warp - 1 + i * CHAIN_LOADERS][lane] = terms[i];
        } else if (first > 0) {
            int count = (int)(rows - (first - CHAIN_ROWS) < CHAIN_ROWS ? rows - (first - CHAIN_ROWS) : CHAIN_ROWS);

#pragma unroll 16
            for (int r = 0; r < count; r++) {
                struct chain_term term = tiles[1 - now][r][lane];

                weight = fmaf(term.dy, term.xhat, weight);
                bias = bias + term.dy;
            }
        }
        __syncthreads();
    }
    if (!real || warp != 0) return;
    if (dweight != NULL) dweight[c] = weight;
    if (dbias != NULL) dbias[c] = bias;
}

#endif
