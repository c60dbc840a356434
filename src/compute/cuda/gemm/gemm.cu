/* gemm - float32 products: one fused multiply-add chain per output element, k ascending, whatever the tile. Operands of
 * any stride and dtype pass through shared memory; a thread keeps a square of sums in registers. */
#include "compute/cuda/tile/chain.cuh"

#define TILE_K 16

static __device__ inline float read_mat(const struct ash_mat *mat, size_t row, size_t col, bool round)
{
    float value = read_element(mat->data, mat->dtype, row * mat->row_stride + col * mat->col_stride);

    return round ? ash_bf16_round(value) : value;
}

/* Threads x threads of them own M_EACH x N_EACH sums each. */
template <int THREADS_M, int THREADS_N, int M_EACH, int N_EACH>
static __device__ inline void gemm_tile(const struct ash_gemm_args &args)
{
    constexpr int TILE_M = THREADS_M * M_EACH, TILE_N = THREADS_N * N_EACH, THREADS = THREADS_M * THREADS_N;
    __shared__ float a[TILE_K][TILE_M + 1], b[TILE_K][TILE_N + 1];
    int thread = threadIdx.x, tm = thread / THREADS_N, tn = thread % THREADS_N;
    size_t m0 = (size_t)blockIdx.y * TILE_M, n0 = (size_t)blockIdx.x * TILE_N;
    float sum[M_EACH][N_EACH];

    for (int i = 0; i < M_EACH; i++)
        for (int j = 0; j < N_EACH; j++) {
            size_t m = m0 + tm + i * THREADS_M, n = n0 + tn + j * THREADS_N;
            bool inside = m < args.M && n < args.N;

            sum[i][j] = args.accumulate && inside ? args.c[m * args.c_stride + n] : 0.0f;
        }
    for (size_t k0 = 0; k0 < args.K; k0 += TILE_K) {
        int depth = args.K - k0 < TILE_K ? (int)(args.K - k0) : TILE_K;

        /* Neighbouring threads read neighbouring elements, whichever way the operand lies. */
        for (int i = thread; i < TILE_M * TILE_K; i += THREADS) {
            int k = args.a.col_stride == 1 ? i % TILE_K : i / TILE_M,
                m = args.a.col_stride == 1 ? i / TILE_K : i % TILE_M;

            a[k][m] = k < depth && m0 + m < args.M ? read_mat(&args.a, m0 + m, k0 + k, args.round_bf16) : 0.0f;
        }
        for (int i = thread; i < TILE_N * TILE_K; i += THREADS) {
            int k = args.b.row_stride == 1 ? i % TILE_K : i / TILE_N,
                n = args.b.row_stride == 1 ? i / TILE_K : i % TILE_N;

            b[k][n] = k < depth && n0 + n < args.N ? read_mat(&args.b, k0 + k, n0 + n, args.round_bf16) : 0.0f;
        }
        __syncthreads();
        if (depth == TILE_K) {
#pragma unroll
            for (int k = 0; k < TILE_K; k++) {
                float x[M_EACH], y[N_EACH];

#pragma unroll
                for (int i = 0; i < M_EACH; i++)
                    x[i] = a[k][tm + i * THREADS_M];
#pragma unroll
                for (int j = 0; j < N_EACH; j++)
                    y[j] = b[k][tn + j * THREADS_N];
#pragma unroll
                for (int i = 0; i < M_EACH; i++)
#pragma unroll
                    for (int j = 0; j < N_EACH; j++)
                        sum[i][j] = fmaf(x[i], y[j], sum[i][j]);
            }
        } else {
            for (int k = 0; k < depth; k++)
#pragma unroll
                for (int i = 0; i < M_EACH; i++)
#pragma unroll
                    for (int j = 0; j < N_EACH; j++)
                        sum[i][j] = fmaf(a[k][tm + i * THREADS_M], b[k][tn + j * THREADS_N], sum[i][j]);
        }
        __syncthreads();
    }
    for (int i = 0; i < M_EACH; i++)
        for (int j = 0; j < N_EACH; j++) {
            size_t m = m0 + tm + i * THREADS_M, n = n0 + tn + j * THREADS_N;

            if (m >= args.M || n >= args.N) continue;
            args.c[m * args.c_stride + n] = args.bias != NULL ? sum[i][j] + args.bias[n] : sum[i][j];
        }
}

extern "C" __global__ void __launch_bounds__(256) gemm_large(const __grid_constant__ struct ash_gemm_args args)
{
    gemm_tile<16, 16, 8, 8>(args);
}

extern "C" __global__ void __launch_bounds__(128) gemm_small(const __grid_constant__ struct ash_gemm_args args)
{
    gemm_tile<4, 32, 2, 2>(args);
}

/* sum[c] += x[r, c], rows ascending. */
extern "C" __global__ void __launch_bounds__(CHAIN_THREADS, 1) column_sum(struct ash_cuda_rows op)
{
    struct chain_rows rows = {
        op.a, NULL, NULL, NULL, op.rows, op.cols, op.cols % 4 == 0 && op.count % 4 == 0 && (uintptr_t)op.a % 16 == 0};

    column_chains<false, false>(rows, NULL, op.out, [&](size_t r, bool is_x) { return r * op.count; });
}
