/* gemm_bf16 - products of bf16 with tensor cores: sums grow by steps of 16 k, ascending, as ref/wgmma.h says,
 * whatever the tile. Operands lie in memory as lines of k (rows of a, columns of b); tiles of them are copied to
 * shared memory several ahead of their use. Steps of zeros past the last k change no sum. */
#include "compute/cuda/tensor.cuh"

#define TILE_K 64
#define STAGES 4
#define CHUNK 8 /* values of 16 bytes */
#define CHUNKS (TILE_K / CHUNK)

/* A thread block's tile of sums, shared by M_WARPS x N_WARPS warps. */
template <int M_SIZE, int N_SIZE, int M_WARPS, int N_WARPS> struct tile {
    static constexpr int M = M_SIZE, N = N_SIZE, WARPS_N = N_WARPS;
    static constexpr int WARP_M = M_SIZE / M_WARPS, WARP_N = N_SIZE / N_WARPS;
    static constexpr int THREADS = M_WARPS * N_WARPS * WARP;
    static constexpr int LINE_STEP = THREADS / CHUNKS;       /* lines between two chunks of a thread */
    static constexpr int A_BYTES = M_SIZE * TILE_K * 2;      /* of a stage */
    static constexpr int STAGE_BYTES = (M_SIZE + N_SIZE) * TILE_K * 2;
};
using large_tile = tile<128, 256, 2, 4>;
using small_tile = tile<64, 64, 2, 2>; /* for few sums of long chains: more blocks, so more of the GPU is used */

/* ---- shared memory ----------------------------------------------------------------------------------------------- */

/* Where chunk `chunk` of a line is: chunks are permuted so that 8 lines of one chunk are in different banks. */
static __device__ inline unsigned chunk_at(unsigned tile, int line, int chunk)
{
    return tile + (line * CHUNKS + (chunk ^ (line % CHUNKS))) * 16;
}

/* Enqueue the copy of 16 bytes, or zeros where there is nothing. */
static __device__ inline void copy_chunk(unsigned to, const void *from, bool inside)
{
    int bytes = inside ? 16 : 0;

    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes));
}

/* What a thread copies of an operand: its chunk of every LINE_STEP-th line. */
struct source {
    const uint16_t *from; /* k 0 of its first line */
    unsigned lines;       /* bit i: line i is there */
    unsigned stride, k;   /* k that are left from its chunk on */
};

template <int LINES, int LINE_STEP>
static __device__ inline struct source source_of(const struct ash_cuda_lines &lines, size_t line0)
{
    unsigned line = threadIdx.x / CHUNKS, chunk = threadIdx.x % CHUNKS;
    struct source source;

    source.lines = 0;
#pragma unroll
    for (int i = 0; i < LINES / LINE_STEP; i++)
        if (line0 + line + i * LINE_STEP < lines.count) source.lines |= 1u << i;
    source.from = lines.data + (source.lines != 0 ? (line0 + line) * lines.stride : 0) + chunk * CHUNK;
    source.stride = (unsigned)lines.stride;
    source.k = (unsigned)lines.k > chunk * CHUNK ? (unsigned)lines.k - chunk * CHUNK : 0;
    return source;
}

/* Enqueue a tile of LINES lines: TILE_K of k from k0 on. */
template <int LINES, int LINE_STEP>
static __device__ inline void copy_tile(const struct source &source, unsigned k0, unsigned tile)
{
    int line = threadIdx.x / CHUNKS, chunk = threadIdx.x % CHUNKS;

#pragma unroll
    for (int i = 0; i < LINES / LINE_STEP; i++) {
        bool inside = (source.lines >> i & 1) != 0 && k0 < source.k;
        const uint16_t *from = source.from + (inside ? (size_t)(i * LINE_STEP) * source.stride + k0 : 0);

        copy_chunk(chunk_at(tile, line + i * LINE_STEP, chunk), from, inside);
    }
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

/* 16 k of a warp's tile. */
template <int WARP_M, int WARP_N>
static __device__ inline void step(unsigned a, unsigned b, int wm, int wn, int k, float sum[WARP_M / 16][WARP_N / 8][4])
{
    int lane = threadIdx.x % WARP, chunk = k / CHUNK;
    uint32_t x[WARP_M / 16][4], y[WARP_N / 16][4];

#pragma unroll
    for (int i = 0; i < WARP_M / 16; i++)
        load_matrices(chunk_at(a, wm + i * 16 + lane % 16, chunk + lane / 16), x[i]);
#pragma unroll
    for (int j = 0; j < WARP_N / 16; j++) /* two blocks of 8 columns: each has its first and its last 8 k */
        load_matrices(chunk_at(b, wn + j * 16 + lane / 16 * 8 + lane % 8, chunk + lane / 8 % 2), y[j]);
#pragma unroll
    for (int i = 0; i < WARP_M / 16; i++)
#pragma unroll
        for (int j = 0; j < WARP_N / 8; j++)
            mma(sum[i][j], x[i], &y[j / 2][j % 2 * 2]);
}

template <typename T> static __device__ inline void multiply(const struct ash_cuda_gemm_bf16 &args)
{
    extern __shared__ __align__(128) unsigned char shared[];
    unsigned base = (unsigned)__cvta_generic_to_shared(shared);
    unsigned m0 = blockIdx.y * T::M, n0 = blockIdx.x * T::N;
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, row = lane / 4, col = lane % 4 * 2;
    int wm = warp / T::WARPS_N * T::WARP_M, wn = warp % T::WARPS_N * T::WARP_N;
    unsigned tiles = ((unsigned)args.a.k + TILE_K - 1) / TILE_K;
    struct source from_a = source_of<T::M, T::LINE_STEP>(args.a, m0), from_b = source_of<T::N, T::LINE_STEP>(args.b, n0);
    float sum[T::WARP_M / 16][T::WARP_N / 8][4];

#pragma unroll
    for (int s = 0; s < STAGES - 1; s++) {
        copy_tile<T::M, T::LINE_STEP>(from_a, s * TILE_K, base + s * T::STAGE_BYTES);
        copy_tile<T::N, T::LINE_STEP>(from_b, s * TILE_K, base + s * T::STAGE_BYTES + T::A_BYTES);
        asm volatile("cp.async.commit_group;");
    }
#pragma unroll
    for (int i = 0; i < T::WARP_M / 16; i++)
#pragma unroll
        for (int j = 0; j < T::WARP_N / 8; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                unsigned m = m0 + wm + i * 16 + row + e / 2 * 8, n = n0 + wn + j * 8 + col + e % 2;
                bool inside = m < args.a.count && n < args.b.count;

                sum[i][j][e] = args.accumulate && inside ? args.c[m * args.c_stride + n] : 0.0f;
            }
    for (unsigned t = 0; t < tiles; t++) {
        int now = (int)(t % STAGES), next = (int)((t + STAGES - 1) % STAGES);
        unsigned a = base + now * T::STAGE_BYTES, b = a + T::A_BYTES;

        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2));
        __syncthreads();
        copy_tile<T::M, T::LINE_STEP>(from_a, (t + STAGES - 1) * TILE_K, base + next * T::STAGE_BYTES);
        copy_tile<T::N, T::LINE_STEP>(from_b, (t + STAGES - 1) * TILE_K, base + next * T::STAGE_BYTES + T::A_BYTES);
        asm volatile("cp.async.commit_group;");
#pragma unroll 2
        for (int k = 0; k < TILE_K; k += 16)
            step<T::WARP_M, T::WARP_N>(a, b, wm, wn, k, sum);
    }
#pragma unroll
    for (int i = 0; i < T::WARP_M / 16; i++)
#pragma unroll
        for (int j = 0; j < T::WARP_N / 8; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                unsigned m = m0 + wm + i * 16 + row + e / 2 * 8, n = n0 + wn + j * 8 + col + e % 2;

                if (m >= args.a.count || n >= args.b.count) continue;
                args.c[m * args.c_stride + n] = args.bias != NULL ? sum[i][j][e] + args.bias[n] : sum[i][j][e];
            }
}

extern "C" __global__ void __launch_bounds__(large_tile::THREADS, 1)
    gemm_bf16(const __grid_constant__ struct ash_cuda_gemm_bf16 args)
{
    multiply<large_tile>(args);
}

extern "C" __global__ void __launch_bounds__(small_tile::THREADS, 3)
    gemm_bf16_few(const __grid_constant__ struct ash_cuda_gemm_bf16 args)
{
    multiply<small_tile>(args);
}

/* ---- operands as lines of k -------------------------------------------------------------------------------------- */

#define BLOCK 64

static __device__ inline uint16_t read_bf16(const struct ash_cuda_to_lines &op, size_t at)
{
    if (op.dtype == ASH_BF16) return ((const uint16_t *)op.data)[at];
    return ash_f32_to_bf16(read_element(op.data, op.dtype, at));
}

/* Round an operand to bf16 and lay it out as lines of k, zeros up to the stride. A thread block moves 64 x 64 values,
 * through shared memory where lines are adjacent in the operand. */
extern "C" __global__ void __launch_bounds__(256) to_bf16_lines(const __grid_constant__ struct ash_cuda_to_lines op)
{
    __shared__ uint16_t tile[BLOCK][BLOCK + 2];
    size_t line0 = (size_t)blockIdx.y * BLOCK, k0 = (size_t)blockIdx.x * BLOCK;
    int fast = threadIdx.x % BLOCK, slow = threadIdx.x / BLOCK, pair = threadIdx.x % (BLOCK / 2) * 2;

#pragma unroll 8
    for (int i = slow; i < BLOCK; i += 256 / BLOCK) {
        int line = op.k_stride == 1 ? i : fast, k = op.k_stride == 1 ? fast : i;
        bool inside = line0 + line < op.count && k0 + k < op.k;

        tile[line][k] = inside ? read_bf16(op, (line0 + line) * op.line_stride + (k0 + k) * op.k_stride) : 0;
    }
    __syncthreads();
#pragma unroll 8
    for (int line = threadIdx.x / (BLOCK / 2); line < BLOCK; line += 256 / (BLOCK / 2))
        if (line0 + line < op.count && k0 + pair < op.stride) /* the stride is even */
            *(uint32_t *)(op.out + (line0 + line) * op.stride + k0 + pair) =
                tile[line][pair] | (uint32_t)tile[line][pair + 1] << 16;
}

/* The same where k is adjacent in float32 already: a thread rounds 8 values. */
extern "C" __global__ void __launch_bounds__(256) round_lines(const __grid_constant__ struct ash_cuda_to_lines op)
{
    size_t chunks = op.stride / CHUNK;

    EACH(i, op.count * chunks)
    {
        const float4 *from = (const float4 *)((const float *)op.data + i / chunks * op.line_stride) + i % chunks * 2;
        float4 low = from[0], high = from[1];
        float x[CHUNK] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
        uint32_t words[CHUNK / 2];

#pragma unroll
        for (int w = 0; w < CHUNK / 2; w++)
            words[w] = ash_f32_to_bf16(x[2 * w]) | (uint32_t)ash_f32_to_bf16(x[2 * w + 1]) << 16;
        *(uint4 *)(op.out + i / chunks * op.stride + i % chunks * CHUNK) =
            make_uint4(words[0], words[1], words[2], words[3]);
    }
}

/* Words, not values: a NaN equals itself, and 0 is not -0. */
extern "C" __global__ void __launch_bounds__(256) count_differing(struct ash_cuda_compare op)
{
    unsigned long long count = 0;

    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < op.rows * op.cols;
         i += (size_t)gridDim.x * blockDim.x)
        count += ash_f32_bits(op.a[i / op.cols * op.stride + i % op.cols]) != ash_f32_bits(op.b[i]);
    if (count > 0) atomicAdd((unsigned long long *)op.count, count);
}

/* Signs, ten exponents around 1 and all fractions: values whose sums tell every order of adding from every other. */
extern "C" __global__ void __launch_bounds__(256) draw_bf16(struct ash_cuda_draw op)
{
    EACH(i, op.count)
    {
        uint32_t h = (uint32_t)i * 2654435761u ^ op.seed;

        h = (h ^ h >> 16) * 0x85ebca6bu;
        h = (h ^ h >> 13) * 0xc2b2ae35u;
        h ^= h >> 16;
        op.out[i] = (uint16_t)((h >> 31) << 15 | (118 + (h >> 8) % 10) << 7 | (h & 127));
    }
}
