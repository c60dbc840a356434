/* few_quant - products of a few rows with quantised weights (Q8_0, q8w, Q4_0), streamed as few.cu does. x is quantised
 * into shared memory. A warp owns 8 rows of weights and copies tiles of 16 blocks ahead: half a warp has a row, a lane
 * a block. Its dot product is an exact integer; then a lane per output adds what the tile's groups give, ascending, as
 * compute/ops.h says. */
#include "compute/cuda/tile/swiglu.cuh"
#include "compute/cuda/gemm/few_rows.cuh"
#include "compute/cuda/ptx/copy.cuh"
#include "compute/cuda/ptx/launch.cuh"
#include "compute/cuda/quant/quant_scales.cuh"
#include "compute/cuda/tile/device.cuh"

#define ROWS 8    /* of weights, that a warp has at a time */
#define BLOCKS 16 /* of 32 k, of a tile */
#define ROWS_X ASH_CUDA_FEW_QUANT_ROWS
#define LANE (threadIdx.x % WARP)

/* How a type lies in memory: bytes of a block; of a row of a tile in shared memory, so that two of them are in
 * different banks where that can be; blocks of a group. */
template <int DTYPE> struct kind {
    static constexpr bool IS_Q4 = DTYPE == ASH_Q4_0;
    static constexpr int BYTES = IS_Q4 ? 18 : 34, ROW_BYTES = BLOCKS * BYTES, CHUNKS = ROW_BYTES / 16;
    static constexpr int PITCH = IS_Q4 ? ROW_BYTES : ROW_BYTES + 32, TILE_BYTES = ROWS * PITCH;
    static constexpr int GROUP = DTYPE == ASH_Q8_0 ? 1 : ASH_QUANT_GROUP_BLOCKS;
    static constexpr int WORDS = IS_Q4 ? 4 : 8; /* of a block's quants */
};

/* What a tile's groups add to each output of a row of x: a product of quants, and the scale of it. Of a warp. */
struct parts {
    float2 part[ROWS][BLOCKS];
};

/* Shared memory: x as quants, its scales, sums of its blocks. */
struct quants {
    int8_t *q; /* [M, K] */
    float *d;  /* [M, groups] */
    int *sums; /* [M, K / 32], of Q4_0's */
};

/* ---- weights ----------------------------------------------------------------------------------------------------- */

/* Row r of a group of 8: gate's and up's in halves with swiglu. Past the last row it is the last. */
static __device__ inline const uint8_t *row_at(const struct ash_cuda_few_quant &op, unsigned group, int r)
{
    int which = 0;

    while (which + 1 < op.out_count && !op.swiglu && group >= op.outs[which].groups)
        group -= op.outs[which++].groups;
    if (op.swiglu) which = r / (ROWS / 2);
    size_t n = (size_t)group * (op.swiglu ? ROWS / 2 : ROWS) + (op.swiglu ? r % (ROWS / 2) : r);
    const struct ash_cuda_few_quant_out &out = op.outs[which];

    return out.w + (n < out.N ? n : out.N - 1) * op.row_bytes;
}

struct tile_loader {
    const uint8_t *row; /* lane r has that of row r */
    unsigned group, tile, slot;
};

template <typename T, int STAGES>
static __device__ inline void load_tile(const struct ash_cuda_few_quant &op, struct tile_loader &next, unsigned ring_at)
{
    unsigned to = ring_at + next.slot * T::TILE_BYTES + LANE * 16,
             left = (unsigned)op.row_bytes - next.tile * T::ROW_BYTES;

    if (next.group < op.groups) {
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const uint8_t *from = (const uint8_t *)__shfl_sync(0xffffffffu, (unsigned long long)next.row, r) +
                                  (size_t)next.tile * T::ROW_BYTES + LANE * 16;

#pragma unroll
            for (int first = 0; first < T::CHUNKS; first += WARP)
                if (first + LANE < T::CHUNKS && (first + LANE) * 16 < left)
                    copy_16_ahead(to + r * T::PITCH + first * 16, from + first * 16);
        }
        if (++next.tile == op.tiles) {
            next.tile = 0;
            next.group += gridDim.x * op.warps;
            if (next.group < op.groups) next.row = row_at(op, next.group, LANE % ROWS);
        }
    }
    next.slot = next.slot + 1 == STAGES ? 0 : next.slot + 1;
    copy_commit();
}

/* ---- x ----------------------------------------------------------------------------------------------------------- */

/* Quantise all rows of x: a thread has 8 values, and those of a group find their largest together. */
template <int DTYPE>
static __device__ inline void put_quants(const struct ash_cuda_few_quant &op, const struct quants &to, float *floats)
{
    constexpr int SIZE = kind<DTYPE>::GROUP * ASH_QUANT_BLOCK, LANES = SIZE / 8;
    unsigned eights = (unsigned)op.K / 8, groups = (unsigned)(op.K / SIZE);

    for (unsigned i = threadIdx.x; i < op.M * eights; i += FEW_THREADS) { /* whole warps: eights is a multiple of 32 */
        unsigned m = i / eights, k = i % eights * 8;
        uint32_t top = 0, words[2] = {0, 0};
        float x[8], d, inverse;
        int sum = 0;
        bool lost;

#pragma unroll
        for (int half = 0; half < 2; half++) {
            float4 four =
                op.norm != NULL ? *(const float4 *)(floats + m * op.K + k + half * 4) : read_four(op, m, k + half * 4);

            x[half * 4] = four.x, x[half * 4 + 1] = four.y, x[half * 4 + 2] = four.z, x[half * 4 + 3] = four.w;
        }
#pragma unroll
        for (int e = 0; e < 8; e++)
            top = max(top, ash_f32_bits(x[e]) & ~ASH_F32_SIGN_BIT);
#pragma unroll
        for (int step = LANES / 2; step > 0; step /= 2)
            top = max(top, __shfl_xor_sync(0xffffffffu, top, step));
        d = ash_f32_from_bits(top) / 127.0f;
        inverse = 1.0f / d;
        lost = top >= ASH_F32_INFINITY_BITS || isinf(inverse);
#pragma unroll
        for (int e = 0; e < 8; e++) {
            int q = lost ? 0 : round_quant(x[e] * inverse);

            words[e / 4] |= (uint32_t)(q & 255) << e % 4 * 8;
            sum += q;
        }
        *(uint2 *)(to.q + m * op.K + k) = make_uint2(words[0], words[1]);
        if (k % SIZE == 0) to.d[m * groups + k / SIZE] = !lost ? d : top >= ASH_F32_INFINITY_BITS ? NAN : 0.0f;
        if (!kind<DTYPE>::IS_Q4) continue;
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        if (k % ASH_QUANT_BLOCK == 0) to.sums[(m * op.K + k) / ASH_QUANT_BLOCK] = sum;
    }
    __syncthreads();
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

/* A block of w from shared memory, where it begins at an even address: its scale, and its quants as words. */
template <typename T> static __device__ inline float read_block(const unsigned char *block, uint32_t words[T::WORDS])
{
    bool is_odd = ((uintptr_t)block & 2) != 0;
    const uint32_t *from = (const uint32_t *)((uintptr_t)block & ~(uintptr_t)3);
    uint32_t last = from[0];
    float scale = __half2float(__ushort_as_half((unsigned short)(is_odd ? last >> 16 : last)));

#pragma unroll
    for (int i = 0; i < T::WORDS; i++) {
        uint32_t now = from[i + 1];

        words[i] = __funnelshift_rc(last, now, is_odd ? 32 : 16);
        last = now;
    }
    return scale;
}

template <typename T>
static __device__ inline int dot_words(const uint32_t w[T::WORDS], const int8_t *x, const int *sum_x)
{
    uint4 low = *(const uint4 *)x, high = *(const uint4 *)(x + 16);
    const uint32_t q[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    int dot = T::IS_Q4 ? -8 * *sum_x : 0;

#pragma unroll
    for (int i = 0; i < 8; i++)
        dot = __dp4a((int)(T::IS_Q4 ? w[i % 4] >> i / 4 * 4 & 0x0f0f0f0fu : w[i % T::WORDS]), (int)q[i], dot);
    return dot;
}

/* The parts of a tile: 16 blocks of 8 rows, of which `real` are there. */
template <int DTYPE>
static __device__ inline void find_parts(const struct ash_cuda_few_quant &op, const unsigned char *tile, unsigned t,
                                         unsigned real, const struct quants &x, struct parts *parts)
{
    using T = kind<DTYPE>;
    unsigned b = LANE % BLOCKS, block = t * BLOCKS + b, group = block / T::GROUP;
    bool is_real = b < real;

#pragma unroll
    for (int pair = 0; pair < ROWS / 2; pair++) {
        int row = pair * 2 + LANE / BLOCKS;
        uint32_t words[T::WORDS];
        float scale = 0.0f;
        struct scales scales;

        if (is_real) scale = read_block<T>(tile + row * T::PITCH + b * T::BYTES, words);
        scales = find_scales(scale, is_real, DTYPE, T::GROUP);
#pragma unroll
        for (int m = 0; m < ROWS_X; m++) {
            int dot = 0;

            if (m >= op.M) break;
            if (is_real)
                dot = dot_words<T>(words, x.q + m * op.K + block * ASH_QUANT_BLOCK,
                                   x.sums + m * (op.K / ASH_QUANT_BLOCK) + block);
            if (T::GROUP > 1) {
                dot *= scales.sub;
#pragma unroll
                for (int step = T::GROUP / 2; step > 0; step /= 2)
                    dot += __shfl_xor_sync(0xffffffffu, dot, step);
            }
            if (is_real && b % T::GROUP == 0)
                parts[m].part[row][b / T::GROUP] =
                    make_float2((float)dot, x.d[m * (op.K / ASH_QUANT_BLOCK / T::GROUP) + group] * scales.group);
        }
    }
}

/* ---- outputs ----------------------------------------------------------------------------------------------------- */

/* Lane r + 8 m has the sum of row r of a group with row m of x. */
static __device__ inline void put_sums(const struct ash_cuda_few_quant &op, unsigned group, float sum)
{
    unsigned r = LANE % ROWS, m = LANE / ROWS;
    float up = __shfl_down_sync(0xffffffffu, sum, ROWS / 2);
    int which = 0;

    while (which + 1 < op.out_count && !op.swiglu && group >= op.outs[which].groups)
        group -= op.outs[which++].groups;
    const struct ash_cuda_few_quant_out &out = op.outs[which];
    size_t n = (size_t)group * (op.swiglu ? ROWS / 2 : ROWS) + r;

    if (m >= op.M || n >= out.N || (op.swiglu && r >= ROWS / 2)) return;
    float *y = out.y + m * out.y_stride + n;

    if (out.bias != NULL) sum = sum + out.bias[n];
    if (op.swiglu) {
        if (op.outs[1].bias != NULL) up = up + op.outs[1].bias[n];
        *y = op.round_bf16 ? swiglu_sums(sum, up) : (sum * ash_sigmoidf(sum)) * up;
    } else {
        *y = op.residual ? *y + sum : sum;
    }
}

template <int DTYPE, int STAGES> static __device__ inline void multiply_quant(const struct ash_cuda_few_quant &op)
{
    using T = kind<DTYPE>;
    DYNAMIC_SHARED(unsigned char, shared, 128);
    unsigned warp = threadIdx.x / WARP, slot = 0, blocks = (unsigned)op.K / ASH_QUANT_BLOCK;
    unsigned char *ring = shared + warp * STAGES * T::TILE_BYTES, *at = shared + op.warps * STAGES * T::TILE_BYTES;
    unsigned ring_at = shared_address(ring);
    struct parts *parts = (struct parts *)at + warp * op.M;
    struct quants x;
    struct tile_loader next = {NULL, warp * gridDim.x + blockIdx.x, 0, 0};

    early_begin();
    at += op.warps * op.M * sizeof(struct parts);
    x.q = (int8_t *)at;
    x.d = (float *)(at + op.M * op.K);
    x.sums = (int *)(x.d + op.M * (blocks / T::GROUP));
    if (warp < op.warps) {
        if (next.group < op.groups) next.row = row_at(op, next.group, LANE % ROWS);
#pragma unroll 1
        for (int s = 0; s < STAGES - 1; s++)
            load_tile<T, STAGES>(op, next, ring_at);
    }
    norm_rows(op, (float *)(at + op.x_bytes));
    put_quants<DTYPE>(op, x, (float *)(at + op.x_bytes));
    if (warp >= op.warps) return;
#pragma unroll 1
    for (unsigned group = warp * gridDim.x + blockIdx.x; group < op.groups; group += gridDim.x * op.warps) {
        float sum = 0.0f;

#pragma unroll 1
        for (unsigned t = 0; t < op.tiles; t++) {
            unsigned real = blocks - t * BLOCKS < BLOCKS ? blocks - t * BLOCKS : BLOCKS;

            copy_wait<STAGES - 2>();
            __syncwarp(); /* the other lanes' copies; they have read the tile and the parts that are overwritten next */
            load_tile<T, STAGES>(op, next, ring_at);
            find_parts<DTYPE>(op, ring + slot * T::TILE_BYTES, t, real, x, parts);
            __syncwarp();
            if (LANE / ROWS < op.M)
#pragma unroll 8
                for (unsigned g = 0; g < real / T::GROUP; g++) {
                    float2 part = parts[LANE / ROWS].part[LANE % ROWS][g];

                    sum = fmaf(part.x, part.y, sum);
                }
            slot = slot + 1 == STAGES ? 0 : slot + 1;
        }
        put_sums(op, group, sum);
    }
}

#define FEW_QUANT(name, DTYPE, STAGES)                                                                                 \
    static_assert(kind<DTYPE>::PITCH == ASH_CUDA_FEW_QUANT_PITCH(DTYPE) &&                                             \
                      sizeof(struct parts) == ASH_CUDA_FEW_QUANT_PARTS_BYTES,                                          \
                  "the host's sizes");                                                                                 \
    extern "C" __global__ void __launch_bounds__(FEW_THREADS, 1)                                                       \
        name(const __grid_constant__ struct ash_cuda_few_quant op)                                                     \
    {                                                                                                                  \
        multiply_quant<DTYPE, STAGES>(op);                                                                             \
    }

FEW_QUANT(few_q8_0_4, ASH_Q8_0, 4)
FEW_QUANT(few_q8_0_8, ASH_Q8_0, 3)
FEW_QUANT(few_q8_w_4, ASH_Q8_W, 4)
FEW_QUANT(few_q8_w_8, ASH_Q8_W, 3)
FEW_QUANT(few_q4_0_4, ASH_Q4_0, 7)
FEW_QUANT(few_q4_0_8, ASH_Q4_0, 4)
