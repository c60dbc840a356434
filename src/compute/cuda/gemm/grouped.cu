/* Products of rows that are sorted by group with their group's matrix. The grid is for the most tiles there can be;
 * a thread block finds its group from the offsets, and returns where there is no such tile. Sums are the chains of
 * gemm.cu and gemm_bf16.cu. */
#include "compute/cuda/ptx/mma.cuh"
#include "compute/cuda/tile/device.cuh"

#define TILE ASH_CUDA_GROUPED_TILE /* rows, and columns */
#define THREADS ASH_CUDA_GROUPED_THREADS
#define DEPTH 32          /* k in shared memory at a time */
#define PITCH (DEPTH + 8) /* values of a line there: no two of a warp's are in one bank */

/* The rows of a tile, and its group. */
struct tile {
    size_t group, first, count;
};

/* Tile number blockIdx.x. count 0: there are fewer. */
static __device__ struct tile find_tile(const struct ash_cuda_grouped_args *op)
{
    __shared__ struct tile found;
    __shared__ unsigned before[THREADS];
    size_t each = (op->groups + THREADS - 1) / THREADS, own = threadIdx.x * each, end = own + each;
    unsigned count = 0;

    end = end < op->groups ? end : op->groups;
    for (size_t g = own; g < end; g++)
        count += (unsigned)(op->starts[g + 1] - op->starts[g] + TILE - 1) / TILE;
    before[threadIdx.x] = count;
    if (threadIdx.x == 0) found = (struct tile){0, 0, 0};
    __syncthreads();
    count = 0;
    for (unsigned t = 0; t < threadIdx.x; t++)
        count += before[t];
    for (size_t g = own; g < end; g++) {
        unsigned rows = (unsigned)(op->starts[g + 1] - op->starts[g]), tiles = (rows + TILE - 1) / TILE;

        if (blockIdx.x >= count && blockIdx.x < count + tiles) {
            unsigned skipped = (blockIdx.x - count) * TILE;

            found.group = g;
            found.first = (size_t)op->starts[g] + skipped;
            found.count = rows - skipped < TILE ? rows - skipped : TILE;
        }
        count += tiles;
    }
    __syncthreads();
    return found;
}

/* Element k of row n of a group's matrix. */
static __device__ inline float weight_at(const struct ash_cuda_grouped_args *op, const void *w, size_t n, size_t k)
{
    return read_element(w, op->dtype, k * op->k_stride + n * op->n_stride);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    grouped_f32(const __grid_constant__ struct ash_cuda_grouped_args op)
{
    __shared__ float x[DEPTH][TILE + 1], w[DEPTH][TILE + 1];
    struct tile tile = find_tile(&op);
    const void *matrix = op.w[tile.group];
    size_t n0 = (size_t)blockIdx.y * TILE;
    unsigned tm = threadIdx.x / 16 * 8, tn = threadIdx.x % 16; /* 8 rows, and every 16th column */
    float sum[8][4] = {};

    if (tile.count == 0) return;
    if (op.accumulate) {
#pragma unroll
        for (int i = 0; i < 8; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                if (tm + i < tile.count && n0 + tn + 16 * j < op.N)
                    sum[i][j] = op.y[(tile.first + tm + i) * op.y_stride + n0 + tn + 16 * j];
    }
    for (size_t k0 = 0; k0 < op.K; k0 += DEPTH) {
        unsigned depth = op.K - k0 < DEPTH ? (unsigned)(op.K - k0) : DEPTH;

        for (unsigned i = threadIdx.x; i < TILE * DEPTH; i += THREADS) {
            unsigned line = i / DEPTH, k = i % DEPTH;

            x[k][line] = k < depth && line < tile.count ? op.x[(tile.first + line) * op.x_stride + k0 + k] : 0.0f;
            w[k][line] = k < depth && n0 + line < op.N ? weight_at(&op, matrix, n0 + line, k0 + k) : 0.0f;
        }
        __syncthreads();
        for (unsigned k = 0; k < depth; k++)
#pragma unroll
            for (int i = 0; i < 8; i++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    sum[i][j] = fmaf(x[k][tm + i], w[k][tn + 16 * j], sum[i][j]);
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
            if (tm + i < tile.count && n0 + tn + 16 * j < op.N)
                op.y[(tile.first + tm + i) * op.y_stride + n0 + tn + 16 * j] = sum[i][j];
}

/* A warp has 16 rows and all columns of the tile. */
extern "C" __global__ void __launch_bounds__(THREADS)
    grouped_bf16(const __grid_constant__ struct ash_cuda_grouped_args op)
{
    __shared__ __align__(16) uint16_t x[TILE][PITCH], w[TILE][PITCH];
    struct tile tile = find_tile(&op);
    const void *matrix = op.w[tile.group];
    size_t n0 = (size_t)blockIdx.y * TILE;
    unsigned warp = threadIdx.x / WARP, g = threadIdx.x % WARP / 4, t = threadIdx.x % 4 * 2, row = 16 * warp + g;
    float sum[TILE / 8][4] = {};

    if (tile.count == 0) return;
    if (op.accumulate) {
#pragma unroll
        for (int n = 0; n < TILE / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                unsigned r = row + i / 2 * 8;
                size_t col = n0 + 8 * n + t + i % 2;

                if (r < tile.count && col < op.N) sum[n][i] = op.y[(tile.first + r) * op.y_stride + col];
            }
    }
    for (size_t k0 = 0; k0 < op.K; k0 += DEPTH) {
        for (unsigned i = threadIdx.x; i < TILE * DEPTH; i += THREADS) {
            unsigned line = i / DEPTH, k = i % DEPTH;
            bool is_k = k0 + k < op.K;

            x[line][k] =
                is_k && line < tile.count ? ash_f32_to_bf16(op.x[(tile.first + line) * op.x_stride + k0 + k]) : 0;
            w[line][k] = is_k && n0 + line < op.N ? ash_f32_to_bf16(weight_at(&op, matrix, n0 + line, k0 + k)) : 0;
        }
        __syncthreads();
        for (unsigned k = 0; k < DEPTH && k0 + k < op.K; k += 16) {
            uint32_t a[4] = {*(const uint32_t *)&x[row][k + t], *(const uint32_t *)&x[row + 8][k + t],
                             *(const uint32_t *)&x[row][k + t + 8], *(const uint32_t *)&x[row + 8][k + t + 8]};

#pragma unroll
            for (int n = 0; n < TILE / 8; n++) {
                uint32_t b[2] = {*(const uint32_t *)&w[8 * n + g][k + t], *(const uint32_t *)&w[8 * n + g][k + t + 8]};

                mma(sum[n], a, b);
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int n = 0; n < TILE / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            unsigned r = row + i / 2 * 8;
            size_t col = n0 + 8 * n + t + i % 2;

            if (r < tile.count && col < op.N) op.y[(tile.first + r) * op.y_stride + col] = sum[n][i];
        }
}

/* Group blockIdx.z: its rows are the k of a product, one chain, ascending. */
extern "C" __global__ void __launch_bounds__(THREADS)
    grouped_grad(const __grid_constant__ struct ash_cuda_grouped_grad_args op)
{
    __shared__ float dy[DEPTH][TILE + 1], x[DEPTH][TILE + 1];
    size_t first = (size_t)op.starts[blockIdx.z], rows = (size_t)op.starts[blockIdx.z + 1] - first;
    size_t m0 = (size_t)blockIdx.y * TILE, n0 = (size_t)blockIdx.x * TILE;
    unsigned tm = threadIdx.x / 16 * 8, tn = threadIdx.x % 16; /* 8 rows of dw, and every 16th column */
    float *dw = op.dw[blockIdx.z], sum[8][4] = {};

    if (rows == 0 && op.accumulate) return;
    if (op.accumulate) {
#pragma unroll
        for (int i = 0; i < 8; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                if (m0 + tm + i < op.M && n0 + tn + 16 * j < op.N)
                    sum[i][j] = dw[(m0 + tm + i) * op.N + n0 + tn + 16 * j];
    }
    for (size_t k0 = 0; k0 < rows; k0 += DEPTH) {
        unsigned depth = rows - k0 < DEPTH ? (unsigned)(rows - k0) : DEPTH;

        for (unsigned i = threadIdx.x; i < TILE * depth; i += THREADS) {
            unsigned k = i / TILE, line = i % TILE;
            size_t row = first + k0 + k;
            float a = m0 + line < op.M ? op.dy[row * op.dy_stride + m0 + line] : 0.0f;
            float b = n0 + line < op.N ? op.x[row * op.x_stride + n0 + line] : 0.0f;

            dy[k][line] = op.round_bf16 ? ash_bf16_to_f32(ash_f32_to_bf16(a)) : a;
            x[k][line] = op.round_bf16 ? ash_bf16_to_f32(ash_f32_to_bf16(b)) : b;
        }
        __syncthreads();
        for (unsigned k = 0; k < depth; k++)
#pragma unroll
            for (int i = 0; i < 8; i++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    sum[i][j] = fmaf(dy[k][tm + i], x[k][tn + 16 * j], sum[i][j]);
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
            if (m0 + tm + i < op.M && n0 + tn + 16 * j < op.N) dw[(m0 + tm + i) * op.N + n0 + tn + 16 * j] = sum[i][j];
}
