/* gemm_bf16 - products of bf16 with too few sums for gemm_tma.cu, with tensor cores: sums grow by steps of 16 k,
 * ascending, as ref/wgmma.h says, whatever the tile. Operands lie in memory as lines of k (rows of a, columns of b);
 * tiles of them are copied to shared memory several ahead of their use. Steps of zeros past the last k change no
 * sum. */
#include "compute/cuda/gemm/gemm_sums.cuh"
#include "compute/cuda/ptx/copy.cuh"
#include "compute/cuda/ptx/mma.cuh"
#include "compute/cuda/ptx/wgmma.cuh"
#include "compute/cuda/tile/device.cuh"

#define TILE_K 64
#define STAGES 4
#define CHUNK 8 /* values of 16 bytes */
#define CHUNKS (TILE_K / CHUNK)

/* A thread block's tile of sums, 64 rows by N: small, so that few sums of long chains use much of the GPU. */
#define M WGMMA_M
#define N WGMMA_N
#define THREADS (4 * WARP)
#define LINE_STEP (THREADS / CHUNKS) /* lines between two chunks of a thread */
#define A_BYTES (M * TILE_K * 2)     /* of a stage */
#define STAGE_BYTES ((M + N) * TILE_K * 2)

/* ---- shared memory ----------------------------------------------------------------------------------------------- */

/* Where chunk `chunk` of a line is: chunks are permuted so that 8 lines of one chunk are in different banks, as wgmma
 * expects them (its 128-byte swizzle). */
static __device__ inline unsigned chunk_at(unsigned tile, int line, int chunk)
{
    return tile + (line * CHUNKS + (chunk ^ (line % CHUNKS))) * 16;
}

/* What a thread copies of an operand: its chunk of every LINE_STEP-th line. */
struct source {
    const uint16_t *from; /* k 0 of its first line */
    unsigned lines;       /* bit i: line i is there */
    unsigned stride, k;   /* k that are left from its chunk on */
};

template <int LINES> static __device__ inline struct source source_of(const struct ash_cuda_lines &lines, size_t line0)
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
template <int LINES> static __device__ inline void copy_tile(const struct source &source, unsigned k0, unsigned tile)
{
    int line = threadIdx.x / CHUNKS, chunk = threadIdx.x % CHUNKS;

#pragma unroll
    for (int i = 0; i < LINES / LINE_STEP; i++) {
        bool inside = (source.lines >> i & 1) != 0 && k0 < source.k;
        const uint16_t *from = source.from + (inside ? (size_t)(i * LINE_STEP) * source.stride + k0 : 0);

        copy_16(chunk_at(tile, line + i * LINE_STEP, chunk), from, inside ? 16 : 0);
    }
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

/* Add TILE_K of k to the sums: 64 lines of a, 128 of b. The products are only begun. */
static __device__ inline void begin_products(unsigned a, unsigned b, float (*sum)[4])
{
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < TILE_K; k += 16)
        wgmma<N, 0, 0>(sum, wgmma_operand(a + k * 2), wgmma_operand(b + k * 2), 1);
    wgmma_commit();
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    gemm_bf16(const __grid_constant__ struct ash_cuda_gemm_bf16 args)
{
    DYNAMIC_SHARED(unsigned char, shared, 128);
    unsigned base = (shared_address(shared) + WGMMA_BORDER - 1) / WGMMA_BORDER * WGMMA_BORDER;
    struct sums_at at = {blockIdx.y * M, blockIdx.x * N, threadIdx.x};
    unsigned tiles = ((unsigned)args.a.k + TILE_K - 1) / TILE_K;
    struct source from_a = source_of<M>(args.a, at.m0), from_b = source_of<N>(args.b, at.n0);
    float sum[N / 8][4];

#pragma unroll
    for (int s = 0; s < STAGES - 1; s++) {
        copy_tile<M>(from_a, s * TILE_K, base + s * STAGE_BYTES);
        copy_tile<N>(from_b, s * TILE_K, base + s * STAGE_BYTES + A_BYTES);
        copy_commit();
    }
    read_sums<N>(args, at, sum);
    for (unsigned t = 0; t < tiles; t++) {
        unsigned now = base + t % STAGES * STAGE_BYTES, next = base + (t + STAGES - 1) % STAGES * STAGE_BYTES;

        copy_wait<STAGES - 2>();
        wgmma_see_shared();
        wgmma_wait();    /* for the products of the tile before, which the next copy overwrites */
        __syncthreads(); /* the others' copies and products, too */
        begin_products(now, now + A_BYTES, sum);
        copy_tile<M>(from_a, (t + STAGES - 1) * TILE_K, next);
        copy_tile<N>(from_b, (t + STAGES - 1) * TILE_K, next + A_BYTES);
        copy_commit();
    }
    wgmma_wait();
    write_sums<N>(args, at, sum);
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

#define PAIRS (BLOCK / 2) /* of k */

/* The same where lines are adjacent in float32, four of them at 16-byte borders: a thread reads four lines of two k,
 * and writes eight k of a line. A thread block moves 64 x 64 values. */
extern "C" __global__ void __launch_bounds__(256) transpose_lines(const __grid_constant__ struct ash_cuda_to_lines op)
{
    __shared__ uint32_t tile[BLOCK][PAIRS + 1];
    size_t line0 = (size_t)blockIdx.x * BLOCK, k0 = (size_t)blockIdx.y * BLOCK;
    int four = threadIdx.x % (BLOCK / 4) * 4, chunk = threadIdx.x % (BLOCK / CHUNK);
    const float *from = (const float *)op.data + line0 + four;
    float4 rows[2][2]; /* all are on their way before the first is used */

#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            size_t k = k0 + (threadIdx.x / (BLOCK / 4) + i * (PAIRS / 2)) * 2 + e;

            rows[i][e] = k < op.k && line0 + four < op.count ? *(const float4 *)(from + k * op.k_stride)
                                                             : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int pair = threadIdx.x / (BLOCK / 4) + i * (PAIRS / 2);

        tile[four][pair] = pack_bf16(rows[i][0].x, rows[i][1].x);
        tile[four + 1][pair] = pack_bf16(rows[i][0].y, rows[i][1].y);
        tile[four + 2][pair] = pack_bf16(rows[i][0].z, rows[i][1].z);
        tile[four + 3][pair] = pack_bf16(rows[i][0].w, rows[i][1].w);
    }
    __syncthreads();
#pragma unroll
    for (int line = threadIdx.x / (BLOCK / CHUNK); line < BLOCK; line += 256 / (BLOCK / CHUNK)) {
        const uint32_t *words = &tile[line][chunk * CHUNK / 2];

        if (line0 + line < op.count && k0 + chunk * CHUNK < op.stride) /* the stride is a multiple of CHUNK */
            *(uint4 *)(op.out + (line0 + line) * op.stride + k0 + chunk * CHUNK) =
                make_uint4(words[0], words[1], words[2], words[3]);
    }
}

/* Of words, not values: a NaN equals itself, and 0 is not -0. A word counts with its place; the sum has no order. */
extern "C" __global__ void __launch_bounds__(256) checksum(struct ash_cuda_checksum op)
{
    unsigned long long sum = 0;

    EACH(i, op.rows * op.cols)
    {
        size_t at = i / op.cols * op.stride + i % op.cols;
        uint32_t word = op.x_bf16 != NULL ? op.x_bf16[at] : ash_f32_bits(op.x[at]);
        uint64_t h = (word ^ i << 32 ^ i) * 0x9e3779b97f4a7c15ull;

        h = (h ^ h >> 32) * 0xbf58476d1ce4e5b9ull;
        sum += h ^ h >> 29;
    }
    for (int half = WARP / 2; half > 0; half /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, half);
    if (threadIdx.x % WARP == 0) atomicAdd((unsigned long long *)op.sum, sum);
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
