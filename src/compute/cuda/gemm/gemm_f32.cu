/* gemm_f32 - large float32 products at speed: one fused multiply-add chain per output element, k ascending. A thread
 * keeps 8 x 8 sums, as four squares of 4 x 4, so that shared memory is read 16 bytes at a time; the next tile is on
 * its way from memory into registers while this one is multiplied. Operands are float32 with one stride of 1; tiles
 * at the edges are read element by element. */
#include "compute/cuda/tile/device.cuh"

#define TILE 128 /* rows and columns of c */
#define TILE_K 16
#define LINE (TILE + 4) /* of shared memory */
#define THREADS 256
#define LOADS (TILE * TILE_K / 4 / THREADS) /* of 16 bytes, by each thread, for one operand */

/* One operand: element (line, k), a line being a row of a or a column of b. */
struct operand {
    const float *data;
    size_t line_stride, k_stride, line0, lines, K;
    bool wide; /* 16-byte loads are aligned */
};

static __device__ inline float read_at(const struct operand &op, size_t line, size_t k)
{
    return line < op.lines && k < op.K ? op.data[line * op.line_stride + k * op.k_stride] : 0.0f;
}

/* Where load i of this thread reads: 4 k of a line, or 4 lines of a k. */
template <bool K_ADJACENT> static __device__ inline void place(int i, int *line, int *k)
{
    int at = threadIdx.x + i * THREADS;

    *line = K_ADJACENT ? at / (TILE_K / 4) : at % (TILE / 4) * 4;
    *k = K_ADJACENT ? at % (TILE_K / 4) * 4 : at / (TILE / 4);
}

template <bool K_ADJACENT> static __device__ inline void fetch(const struct operand &op, size_t k0, float4 regs[LOADS])
{
    bool inside = op.wide && op.line0 + TILE <= op.lines && k0 + TILE_K <= op.K;

#pragma unroll
    for (int i = 0; i < LOADS; i++) {
        int line, k;

        place<K_ADJACENT>(i, &line, &k);
        if (inside) {
            regs[i] = *(const float4 *)(op.data + (op.line0 + line) * op.line_stride + (k0 + k) * op.k_stride);
        } else {
            size_t l = op.line0 + line, at = k0 + k;

            regs[i].x = read_at(op, l, at);
            regs[i].y = K_ADJACENT ? read_at(op, l, at + 1) : read_at(op, l + 1, at);
            regs[i].z = K_ADJACENT ? read_at(op, l, at + 2) : read_at(op, l + 2, at);
            regs[i].w = K_ADJACENT ? read_at(op, l, at + 3) : read_at(op, l + 3, at);
        }
    }
}

template <bool K_ADJACENT> static __device__ inline void keep(const float4 regs[LOADS], float tile[TILE_K][LINE])
{
#pragma unroll
    for (int i = 0; i < LOADS; i++) {
        int line, k;

        place<K_ADJACENT>(i, &line, &k);
        if (K_ADJACENT) {
            tile[k][line] = regs[i].x;
            tile[k + 1][line] = regs[i].y;
            tile[k + 2][line] = regs[i].z;
            tile[k + 3][line] = regs[i].w;
        } else {
            *(float4 *)&tile[k][line] = regs[i];
        }
    }
}

/* Row (or column) i of the 8 that a thread has, which is thread t of its side: two runs of 4. */
static __device__ inline int own(int t, int i)
{
    return i / 4 * (TILE / 2) + t * 4 + i % 4;
}

static __device__ inline void multiply(const float a[TILE_K][LINE], const float b[TILE_K][LINE], int k, int tm, int tn,
                                       float sum[8][8])
{
    float x[8], y[8];

    *(float4 *)&x[0] = *(const float4 *)&a[k][own(tm, 0)];
    *(float4 *)&x[4] = *(const float4 *)&a[k][own(tm, 4)];
    *(float4 *)&y[0] = *(const float4 *)&b[k][own(tn, 0)];
    *(float4 *)&y[4] = *(const float4 *)&b[k][own(tn, 4)];
#pragma unroll
    for (int i = 0; i < 8; i++)
#pragma unroll
        for (int j = 0; j < 8; j++)
            sum[i][j] = fmaf(x[i], y[j], sum[i][j]);
}

template <bool A_K_ADJACENT, bool B_K_ADJACENT>
static __device__ inline void gemm_tile(const struct ash_gemm_args &args)
{
    __shared__ __align__(16) float a[2][TILE_K][LINE], b[2][TILE_K][LINE];
    size_t m0 = (size_t)blockIdx.y * TILE, n0 = (size_t)blockIdx.x * TILE;
    struct operand left = {(const float *)args.a.data, args.a.row_stride, args.a.col_stride, m0, args.M, args.K, false};
    struct operand right = {
        (const float *)args.b.data, args.b.col_stride, args.b.row_stride, n0, args.N, args.K, false};
    /* A warp has 4 x 8 threads of the 16 x 16, so that its reads of shared memory overlap. */
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    int tm = warp / 2 * 4 + lane / 8, tn = warp % 2 * 8 + lane % 8, now = 0;
    float4 next_a[LOADS], next_b[LOADS];
    float sum[8][8];

    left.wide = (A_K_ADJACENT ? left.line_stride : left.k_stride) % 4 == 0 && (uintptr_t)left.data % 16 == 0;
    right.wide = (B_K_ADJACENT ? right.line_stride : right.k_stride) % 4 == 0 && (uintptr_t)right.data % 16 == 0;
#pragma unroll
    for (int i = 0; i < 8; i++)
#pragma unroll
        for (int j = 0; j < 8; j++) {
            size_t m = m0 + own(tm, i), n = n0 + own(tn, j);

            sum[i][j] = args.accumulate && m < args.M && n < args.N ? args.c[m * args.c_stride + n] : 0.0f;
        }
    fetch<A_K_ADJACENT>(left, 0, next_a);
    fetch<B_K_ADJACENT>(right, 0, next_b);
    for (size_t k0 = 0; k0 < args.K; k0 += TILE_K, now ^= 1) {
        keep<A_K_ADJACENT>(next_a, a[now]);
        keep<B_K_ADJACENT>(next_b, b[now]);
        __syncthreads();
        if (k0 + TILE_K < args.K) {
            fetch<A_K_ADJACENT>(left, k0 + TILE_K, next_a);
            fetch<B_K_ADJACENT>(right, k0 + TILE_K, next_b);
        }
        if (k0 + TILE_K <= args.K) {
#pragma unroll
            for (int k = 0; k < TILE_K; k++)
                multiply(a[now], b[now], k, tm, tn, sum);
        } else { /* no products with what is past the last k: 0 * infinity is no 0 */
            for (int k = 0; k < (int)(args.K - k0); k++)
                multiply(a[now], b[now], k, tm, tn, sum);
        }
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
#pragma unroll
        for (int j = 0; j < 8; j++) {
            size_t m = m0 + own(tm, i), n = n0 + own(tn, j);

            if (m >= args.M || n >= args.N) continue;
            args.c[m * args.c_stride + n] = args.bias != NULL ? sum[i][j] + args.bias[n] : sum[i][j];
        }
}

#define GEMM(NAME, A_K_ADJACENT, B_K_ADJACENT)                                                                         \
    extern "C" __global__ void __launch_bounds__(THREADS, 1) NAME(const __grid_constant__ struct ash_gemm_args args)   \
    {                                                                                                                  \
        gemm_tile<A_K_ADJACENT, B_K_ADJACENT>(args);                                                                   \
    }

GEMM(gemm_f32_nn, true, false)
GEMM(gemm_f32_nt, true, true)
GEMM(gemm_f32_tn, false, false)
GEMM(gemm_f32_tt, false, true)
