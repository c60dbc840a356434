/* gemm_mma - products of bf16 on GPUs without wgmma: mma.sync, and copies that each thread enqueues itself. It takes
 * all shapes, as gemm_bf16.cu does. Sums grow by steps of 16 k, ascending, as this GPU's tensor cores add them. */
#include "compute/cuda/ptx/copy.cuh"
#include "compute/cuda/ptx/mma.cuh"
#include "compute/cuda/tile/device.cuh"

#define TILE ASH_CUDA_GEMM_MMA_TILE /* rows and columns of sums of a thread block */
#define TILE_K 32
#define STAGES 3
#define CHUNK 8 /* values of 16 bytes */
#define CHUNKS (TILE_K / CHUNK)
#define OPERAND_BYTES (TILE * TILE_K * 2)
#define PART (TILE / 2) /* of a warp: rows and columns */

/* Where chunk `chunk` of a line is: eight lines of one chunk are in different banks. */
static __device__ inline unsigned chunk_at(unsigned tile, int line, int chunk)
{
    return tile + (line * CHUNKS + (chunk ^ line / 2 % CHUNKS)) * 16;
}

/* Enqueue TILE lines from line0 on, TILE_K of k from k0 on; zeros past the last ones. */
static __device__ inline void copy_tile(const struct ash_cuda_lines &lines, size_t line0, size_t k0, unsigned tile)
{
#pragma unroll
    for (int i = threadIdx.x; i < TILE * CHUNKS; i += ASH_CUDA_GEMM_MMA_THREADS) {
        int line = i / CHUNKS, chunk = i % CHUNKS;
        bool inside = line0 + line < lines.count && k0 + chunk * CHUNK < lines.k;
        const uint16_t *from = lines.data + (inside ? (line0 + line) * lines.stride + k0 + chunk * CHUNK : 0);

        copy_16(chunk_at(tile, line, chunk), from, inside ? 16 : 0);
    }
}

/* Add TILE_K of k to a warp's sums: PART lines of a from row on, PART of b from column on. */
static __device__ inline void add_tile(unsigned a, unsigned b, int row, int column, float sum[2][4][4])
{
    int lane = threadIdx.x % WARP;

#pragma unroll
    for (int k = 0; k < TILE_K / CHUNK; k += 2) {
        uint32_t rows[2][4], columns[2][4];

#pragma unroll
        for (int i = 0; i < 2; i++) {
            load_matrices(chunk_at(a, row + i * 16 + lane % 16, k + lane / 16), rows[i]);
            load_matrices(chunk_at(b, column + i * 16 + lane % 8 + lane / 16 * 8, k + lane / 8 % 2), columns[i]);
        }
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                mma(sum[i][j], rows[i], columns[j / 2] + j % 2 * 2);
    }
}

/* Is there a sum for row m, column n? */
static __device__ inline bool is_inside(const struct ash_cuda_gemm_bf16 &args, size_t m, size_t n)
{
    return m < args.a.count && n < args.b.count;
}

static __device__ inline void put_sum(const struct ash_cuda_gemm_bf16 &args, size_t m, size_t n, float sum)
{
    if (args.bias != NULL) sum = sum + args.bias[n];
    if (args.add != NULL) sum = args.add[m * args.add_stride + n] + sum;
    if (args.c_bf16 != NULL)
        args.c_bf16[m * args.c_stride + n] = ash_f32_to_bf16(sum);
    else
        args.c[m * args.c_stride + n] = sum;
}

/* visit(m, n, &sum) for each sum of the thread that is there. */
template <typename Visit>
static __device__ inline void each_sum(const struct ash_cuda_gemm_bf16 &args, size_t m0, size_t n0, float sum[2][4][4],
                                       Visit visit)
{
    int lane = threadIdx.x % WARP;

#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                size_t m = m0 + i * 16 + lane / 4 + e / 2 * 8, n = n0 + j * 8 + lane % 4 * 2 + e % 2;

                if (is_inside(args, m, n)) visit(m, n, &sum[i][j][e]);
            }
}

extern "C" __global__ void __launch_bounds__(ASH_CUDA_GEMM_MMA_THREADS)
    gemm_mma(const __grid_constant__ struct ash_cuda_gemm_bf16 args)
{
    DYNAMIC_SHARED(unsigned char, shared, 128);
    size_t across = (args.b.count + TILE - 1) / TILE, m0 = blockIdx.x / across * TILE, n0 = blockIdx.x % across * TILE;
    unsigned base = shared_address(shared), tiles = (unsigned)((args.a.k + TILE_K - 1) / TILE_K);
    int row = threadIdx.x / WARP / 2 * PART, column = threadIdx.x / WARP % 2 * PART;
    float sum[2][4][4] = {};

    for (int s = 0; s < STAGES - 1; s++) {
        copy_tile(args.a, m0, (size_t)s * TILE_K, base + s * 2 * OPERAND_BYTES);
        copy_tile(args.b, n0, (size_t)s * TILE_K, base + s * 2 * OPERAND_BYTES + OPERAND_BYTES);
        copy_commit();
    }
    if (args.accumulate)
        each_sum(args, m0 + row, n0 + column, sum,
                 [&](size_t m, size_t n, float *value) { *value = args.c[m * args.c_stride + n]; });
    for (unsigned t = 0; t < tiles; t++) {
        unsigned now = base + t % STAGES * 2 * OPERAND_BYTES,
                 next = base + (t + STAGES - 1) % STAGES * 2 * OPERAND_BYTES;

        copy_wait<STAGES - 2>();
        __syncthreads(); /* all copies of this tile are here, and all have read the one that is overwritten */
        copy_tile(args.a, m0, (size_t)(t + STAGES - 1) * TILE_K, next);
        copy_tile(args.b, n0, (size_t)(t + STAGES - 1) * TILE_K, next + OPERAND_BYTES);
        copy_commit();
        add_tile(now, now + OPERAND_BYTES, row, column, sum);
    }
    each_sum(args, m0 + row, n0 + column, sum, [&](size_t m, size_t n, float *value) { put_sum(args, m, n, *value); });
}
