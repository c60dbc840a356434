/* gemm_bf16 - products of bf16 with tensor cores: sums grow by steps of 16 k, ascending, as ref/wgmma.h says, whatever the
 * tile. Operands of any stride and dtype are rounded to bf16 on their way into shared memory, k adjacent in both. */
#include "compute/cuda/device.cuh"

#define TILE_M 128
#define TILE_N 128
#define TILE_K 32
#define ROW_K (TILE_K + 8) /* of shared memory: 16-byte steps that spread over all banks */
#define WARPS_M 2
#define WARPS_N 4
#define WARP_M (TILE_M / WARPS_M)
#define WARP_N (TILE_N / WARPS_N)
#define THREADS (WARPS_M * WARPS_N * WARP)

static __device__ inline uint16_t read_bf16(const struct ash_mat *mat, size_t at)
{
    if (mat->dtype == ASH_BF16) return ((const uint16_t *)mat->data)[at];
    return ash_f32_to_bf16(read_element(mat->data, mat->dtype, at));
}

/* A tile of lines, each TILE_K of k from k0 on: element (line, k) lies at line * line_stride + k * k_stride. */
static __device__ inline void load_tile(const struct ash_mat *mat, size_t line_stride, size_t k_stride, size_t line0,
                                        size_t lines, size_t k0, size_t K, uint16_t *tile)
{
    for (int i = threadIdx.x; i < TILE_M * TILE_K; i += THREADS) {
        int k = k_stride == 1 ? i % TILE_K : i / TILE_M, line = k_stride == 1 ? i / TILE_K : i % TILE_M;
        bool inside = line0 + line < lines && k0 + k < K;

        tile[line * ROW_K + k] = inside ? read_bf16(mat, (line0 + line) * line_stride + (k0 + k) * k_stride) : 0;
    }
}

/* d += a b: 16 x 8 sums, 16 k. */
static __device__ inline void mma(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

extern "C" __global__ void __launch_bounds__(THREADS) gemm_bf16(const __grid_constant__ struct ash_gemm_args args)
{
    __shared__ uint16_t a[TILE_M * ROW_K], b[TILE_N * ROW_K];
    size_t m0 = (size_t)blockIdx.y * TILE_M, n0 = (size_t)blockIdx.x * TILE_N;
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, row = lane / 4, col = lane % 4 * 2;
    int wm = warp / WARPS_N * WARP_M, wn = warp % WARPS_N * WARP_N;
    float sum[WARP_M / 16][WARP_N / 8][4];

    static_assert(TILE_M == TILE_N, "load_tile serves both");
#pragma unroll
    for (int i = 0; i < WARP_M / 16; i++)
#pragma unroll
        for (int j = 0; j < WARP_N / 8; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                size_t m = m0 + wm + i * 16 + row + e / 2 * 8, n = n0 + wn + j * 8 + col + e % 2;

                sum[i][j][e] = args.accumulate && m < args.M && n < args.N ? args.c[m * args.c_stride + n] : 0.0f;
            }
    for (size_t k0 = 0; k0 < args.K; k0 += TILE_K) {
        load_tile(&args.a, args.a.row_stride, args.a.col_stride, m0, args.M, k0, args.K, a);
        load_tile(&args.b, args.b.col_stride, args.b.row_stride, n0, args.N, k0, args.K, b);
        __syncthreads();
        for (int k = 0; k < TILE_K && k0 + k < args.K; k += 16) {
            uint32_t x[WARP_M / 16][4], y[WARP_N / 8][2];

#pragma unroll
            for (int i = 0; i < WARP_M / 16; i++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    x[i][e] = *(const uint32_t *)&a[(wm + i * 16 + row + e % 2 * 8) * ROW_K + k + col + e / 2 * 8];
#pragma unroll
            for (int j = 0; j < WARP_N / 8; j++)
#pragma unroll
                for (int e = 0; e < 2; e++)
                    y[j][e] = *(const uint32_t *)&b[(wn + j * 8 + row) * ROW_K + k + col + e * 8];
#pragma unroll
            for (int i = 0; i < WARP_M / 16; i++)
#pragma unroll
                for (int j = 0; j < WARP_N / 8; j++)
                    mma(sum[i][j], x[i], y[j]);
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < WARP_M / 16; i++)
#pragma unroll
        for (int j = 0; j < WARP_N / 8; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                size_t m = m0 + wm + i * 16 + row + e / 2 * 8, n = n0 + wn + j * 8 + col + e % 2;

                if (m >= args.M || n >= args.N) continue;
                args.c[m * args.c_stride + n] = args.bias != NULL ? sum[i][j][e] + args.bias[n] : sum[i][j][e];
            }
}
