/* few_quant - products of a few rows with packed quantised weights (packed.h), at the speed of memory. x is quantised
 * into shared memory. A warp owns panels of 8 rows of weights and streams their units through a ring in shared memory:
 * four lanes have a row, each a quarter of a unit's k. Dot products are exact integers, so lanes add them up in any
 * order; then groups join in one chain, ascending, as compute/ops.h says. Kernels of a step overlap as in few.cu. */
#include "compute/cuda/ptx/barrier.cuh"
#include "compute/cuda/ptx/copy.cuh"
#include "compute/cuda/ptx/launch.cuh"
#include "compute/cuda/quant/few_quant_x.cuh"
#include "compute/cuda/quant/packed.h"
#include "compute/cuda/tile/ahead.cuh"
#include "compute/cuda/tile/swiglu.cuh"

#define LANE (threadIdx.x % WARP)
#define ROW (LANE / 4) /* of the panel */
#define PART (LANE % 4)
#define STAGE_UNITS ASH_CUDA_FEW_QUANT_UNITS /* 4, all of them at once with one row of x */
#define EVERY_LANE 0xffffffffu

/* ---- weights ----------------------------------------------------------------------------------------------------- */

/* A group: a panel of one of the products; with SwiGLU one of gate and the same one of up. */
struct panel {
    int out;
    unsigned index;
};

static __device__ inline struct panel find_panel(const struct ash_cuda_few_quant &op, unsigned group)
{
    struct panel panel = {0, group};

    while (panel.out + 1 < op.out_count && !op.swiglu && panel.index >= op.outs[panel.out].groups)
        panel.index -= op.outs[panel.out++].groups;
    return panel;
}

/* A warp's stages on their way: full is a barrier for each. */
struct ring {
    unsigned at, full, stage_bytes;
};

/* What comes next: units of a panel. `half` says which one of a pair with SwiGLU. */
struct source {
    const uint8_t *from;
    unsigned group, half, units, stage;
};

static __device__ inline void find_units(const struct ash_cuda_few_quant &op, struct source &next)
{
    if (next.group >= op.groups) return;
    struct panel panel = find_panel(op, next.group);

    next.from = op.outs[panel.out + next.half].w + (size_t)panel.index * op.panel_bytes;
    next.units = op.units;
}

static __device__ inline void copy_stage(const struct ash_cuda_few_quant &op, const struct ring &ring,
                                         struct source &next, unsigned unit_bytes)
{
    unsigned units = next.units < STAGE_UNITS ? next.units : STAGE_UNITS, bytes = units * unit_bytes;

    if (next.group >= op.groups) return;
    if (LANE == 0) {
        barrier_expect(ring.full + next.stage * 8, bytes);
        copy_bulk(ring.at + next.stage * ring.stage_bytes, next.from, bytes, ring.full + next.stage * 8);
    }
    next.stage = next.stage + 1 == op.stages ? 0 : next.stage + 1;
    next.from += bytes;
    next.units -= units;
    if (next.units > 0) return;
    next.half = op.swiglu ? next.half ^ 1 : 0;
    if (next.half == 0) next.group += gridDim.x * op.warps;
    if (next.group >= op.groups)
        fetch_ahead(op.ahead, threadIdx.x / WARP * gridDim.x + blockIdx.x, op.warps * gridDim.x);
    find_units(op, next);
}

/* ---- dot products ------------------------------------------------------------------------------------------------ */

/* 16 elements of w as words, and the same of x. */
static __device__ inline int dot_16(const uint32_t w[4], const int8_t *x)
{
    uint4 q = *(const uint4 *)x;

    return __dp4a((int)w[3], (int)q.w,
                  __dp4a((int)w[2], (int)q.z, __dp4a((int)w[1], (int)q.y, __dp4a((int)w[0], (int)q.x, 0))));
}

/* Four halves of blocks: what a lane has of a unit. */
struct words {
    uint32_t w[4][4];
};

static __device__ inline void read_words(const unsigned char *at, uint32_t w[4])
{
    uint4 four = *(const uint4 *)at;

    w[0] = four.x, w[1] = four.y, w[2] = four.z, w[3] = four.w;
}

/* Bits above nibbles, for half `half` of block b: word i of it. */
template <int DTYPE> static __device__ inline uint32_t high_bits(const uint32_t *high, int b, int half, int i)
{
    if (DTYPE == ASH_Q5_K) return (high[b] >> (half * 4 + i) & 0x01010101u) << 4;
    if (DTYPE == ASH_Q6_K) return (high[b * 2 + half] >> i * 2 & 0x03030303u) << 4;
    return 0;
}

template <int DTYPE> static __device__ inline void read_quants(const unsigned char *unit, struct words &to)
{
    constexpr struct ash_cuda_unit U = ash_cuda_unit_of(DTYPE);
    const unsigned char *high_at = unit + ASH_CUDA_UNIT_LANES * U.quants + LANE * U.high;
    uint32_t high[4] = {};

    if (U.quants == 64) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            read_words(unit + (i * ASH_CUDA_UNIT_LANES + LANE) * 16, to.w[i]);
        return;
    }
    if (U.high == 16) read_words(high_at, high);
    if (U.high == 8) high[0] = ((const uint2 *)high_at)->x, high[1] = ((const uint2 *)high_at)->y;
#pragma unroll
    for (int b = 0; b < 2; b++) {
        uint32_t nibbles[4];

        read_words(unit + (b * ASH_CUDA_UNIT_LANES + LANE) * 16, nibbles);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            to.w[b * 2][i] = (nibbles[i] & 0x0f0f0f0fu) | high_bits<DTYPE>(high, b, 0, i);
            to.w[b * 2 + 1][i] = (nibbles[i] >> 4 & 0x0f0f0f0fu) | high_bits<DTYPE>(high, b, 1, i);
        }
    }
}

/* The four lanes of a row add up what they have. */
static __device__ inline int sum_parts(int part)
{
    part += __shfl_xor_sync(EVERY_LANE, part, 1);
    return part + __shfl_xor_sync(EVERY_LANE, part, 2);
}

static __device__ inline float half_of(uint32_t pair, int which)
{
    return __half2float(__ushort_as_half((unsigned short)(pair >> which * 16)));
}

/* Groups of 32: each lane has two of them, and the row's lanes add all eight to the chain. */
static __device__ inline void add_q8_0(const struct words &w, uint32_t scales, const int8_t *q, const float *d,
                                       float *sum)
{
    float dot[2], scale[2];

#pragma unroll
    for (int b = 0; b < 2; b++) {
        dot[b] = (float)(dot_16(w.w[b * 2], q + b * 2 * 64) + dot_16(w.w[b * 2 + 1], q + (b * 2 + 1) * 64));
        scale[b] = d[PART * 2 + b] * half_of(scales, b);
    }
#pragma unroll
    for (int b = 0; b < ASH_QUANT_GROUP_BLOCKS; b++)
        *sum = fmaf(__shfl_sync(EVERY_LANE, dot[b % 2], ROW * 4 + b / 2),
                    __shfl_sync(EVERY_LANE, scale[b % 2], ROW * 4 + b / 2), *sum);
}

/* What a lane needs to scale a group of 256. */
struct unit_scales {
    uint32_t subs;
    float group, min;
};

template <int DTYPE> static __device__ inline struct unit_scales read_scales(const unsigned char *unit)
{
    constexpr struct ash_cuda_unit U = ash_cuda_unit_of(DTYPE);
    const unsigned char *subs = unit + ASH_CUDA_UNIT_LANES * (U.quants + U.high);
    const unsigned char *row = subs + ASH_CUDA_UNIT_LANES * U.subs + ROW * U.rows;
    struct unit_scales scales = {0, 0.0f, 0.0f};

    if (U.subs == 4) scales.subs = *(const uint32_t *)(subs + LANE * 4);
    if (U.subs == 2) scales.subs = *(const uint16_t *)(subs + LANE * 2);
    if (U.rows == 0) return scales;
    uint32_t pair = *(const uint32_t *)row;

    scales.group = DTYPE == ASH_Q4_0 ? __uint_as_float(pair) : half_of(pair, 0);
    scales.min = -half_of(pair, 1);
    return scales;
}

static __device__ inline int byte_of(uint32_t word, int i)
{
    return (int8_t)(word >> i * 8);
}

/* A group of 256 to the chain, and its minimum. sums: of each 16 quants of x. */
template <int DTYPE>
static __device__ inline void add_group(const struct words &w, const struct unit_scales &scales, const int8_t *q,
                                        float d, const int *sums, float *sum)
{
    constexpr int OFFSET = DTYPE == ASH_Q4_0 ? 8 : DTYPE == ASH_Q6_K ? 32 : 0;
    constexpr bool HAS_MIN = DTYPE == ASH_Q4_K || DTYPE == ASH_Q5_K;
    int dot = 0, low = 0;

#pragma unroll
    for (int i = 0; i < 4; i++) {
        int part = dot_16(w.w[i], q + i * 64);

        if (OFFSET > 0) part -= OFFSET * sums[i];
        dot += DTYPE == ASH_Q8_W ? part : part * byte_of(scales.subs, DTYPE == ASH_Q6_K ? i : i / 2);
        if (HAS_MIN) low += sums[i] * byte_of(scales.subs, 2 + i / 2);
    }
    *sum = fmaf((float)sum_parts(dot), d * scales.group, *sum);
    if (HAS_MIN) *sum = fmaf((float)sum_parts(low), d * scales.min, *sum);
}

/* A unit of a panel to the sums with all rows of x; past the last one it is the last. */
template <int DTYPE, int ROWS_X>
static __device__ inline void add_unit(const struct ash_cuda_few_quant &op, const struct quants &x,
                                       const unsigned char *unit, unsigned u, float sum[ROWS_X])
{
    constexpr int GROUPS = DTYPE == ASH_Q8_0 ? ASH_QUANT_GROUP_BLOCKS : 1;
    struct unit_scales scales = read_scales<DTYPE>(unit);
    struct words w;

    read_quants<DTYPE>(unit, w);
#pragma unroll
    for (int m = 0; m < ROWS_X; m++) {
        unsigned at = (ROWS_X == 1 ? 0 : m < op.M ? m : (unsigned)op.M - 1) * op.units + u;
        const int8_t *q = x.q + at * ASH_CUDA_UNIT_K + PART * 16;

        if (DTYPE == ASH_Q8_0) {
            add_q8_0(w, scales.subs, q, x.d + at * GROUPS, sum + m);
            continue;
        }
        uint4 four = *(const uint4 *)(x.sums + at * (ASH_CUDA_UNIT_K / 16) + PART * 4);
        const int sums[4] = {(int)four.x, (int)four.y, (int)four.z, (int)four.w};

        add_group<DTYPE>(w, scales, q, x.d[at], sums, sum + m);
    }
}

/* ---- outputs ----------------------------------------------------------------------------------------------------- */

/* Every lane of a row has all its sums: lane PART writes those of rows PART, PART + 4, ... of x. */
template <int ROWS_X>
static __device__ inline void put_sums(const struct ash_cuda_few_quant &op, const struct panel &panel,
                                       const float sum[ROWS_X], const float gate[ROWS_X])
{
    const struct ash_cuda_few_quant_out &out = op.outs[panel.out];
    size_t n = (size_t)panel.index * ASH_CUDA_PANEL_ROWS + ROW;

    if (n >= out.N) return;
#pragma unroll
    for (int m = 0; m < ROWS_X; m++) {
        float *y = out.y + m * out.y_stride + n, value = op.swiglu ? gate[m] : sum[m];

        if (m % 4 != PART || m >= op.M) continue;
        if (out.bias != NULL) value = value + out.bias[n];
        if (op.swiglu) {
            float up = op.outs[1].bias != NULL ? sum[m] + op.outs[1].bias[n] : sum[m];

            value = op.round_bf16 ? swiglu_sums(value, up) : (value * ash_sigmoidf(value)) * up;
        }
        *y = op.residual ? *y + value : value;
    }
}

/* The units of a stage, to sums with all rows of x. */
template <int DTYPE, int ROWS_X>
static __device__ inline void add_stage(const struct ash_cuda_few_quant &op, const struct quants &x,
                                        const unsigned char *at, unsigned first, float sum[ROWS_X])
{
    constexpr unsigned UNIT_BYTES = ash_cuda_unit_bytes(DTYPE);

    if (op.units - first >= STAGE_UNITS) {
#pragma unroll(ROWS_X == 1 ? 4 : 1)
        for (unsigned u = 0; u < STAGE_UNITS; u++)
            add_unit<DTYPE, ROWS_X>(op, x, at + u * UNIT_BYTES, first + u, sum);
        return;
    }
#pragma unroll 1
    for (unsigned u = 0; first + u < op.units; u++)
        add_unit<DTYPE, ROWS_X>(op, x, at + u * UNIT_BYTES, first + u, sum);
}

template <int DTYPE, int ROWS_X>
static __device__ inline void multiply(const struct ash_cuda_few_quant &op, const struct quants &x,
                                       const struct ring &ring, const unsigned char *stages, struct source next)
{
    unsigned stage = 0, parity = 0, units = op.swiglu ? 2 * op.units : op.units;

#pragma unroll 1
    for (unsigned group = threadIdx.x / WARP * gridDim.x + blockIdx.x; group < op.groups;
         group += gridDim.x * op.warps) {
        float sum[ROWS_X] = {}, gate[ROWS_X] = {};

#pragma unroll 1
        for (unsigned done = 0, first = 0; done < units; done += first == 0 ? op.units : 0) {
            barrier_wait(ring.full + stage * 8, parity);
            add_stage<DTYPE, ROWS_X>(op, x, stages + stage * ring.stage_bytes, first, sum);
            __syncwarp(); /* all lanes have read the stage */
            copy_stage(op, ring, next, ash_cuda_unit_bytes(DTYPE));
            stage = stage + 1 == op.stages ? 0 : stage + 1;
            parity ^= stage == 0 ? 1 : 0;
            first = op.units - first > STAGE_UNITS ? first + STAGE_UNITS : 0;
            if (first > 0 || done > 0 || !op.swiglu) continue;
#pragma unroll
            for (int m = 0; m < ROWS_X; m++)
                gate[m] = sum[m], sum[m] = 0.0f;
        }
        put_sums<ROWS_X>(op, find_panel(op, group), sum, gate);
    }
}

template <int DTYPE, int ROWS_X> static __device__ inline void multiply_quant(const struct ash_cuda_few_quant &op)
{
    constexpr unsigned UNIT_BYTES = ash_cuda_unit_bytes(DTYPE);
    DYNAMIC_SHARED(unsigned char, shared, 128);
    __shared__ uint64_t full[ASH_CUDA_FEW_QUANT_STAGES_MAX];
    unsigned warp = threadIdx.x / WARP, stages = op.warps * op.stages;
    struct ring ring = {0, 0, STAGE_UNITS * UNIT_BYTES};
    unsigned char *mine = shared + warp * op.stages * ring.stage_bytes, *at = shared + stages * ring.stage_bytes;
    struct quants x = quants_at(op, at);
    struct source next = {NULL, warp * gridDim.x + blockIdx.x, 0, 0, 0};
    struct chunks norm;

    early_begin();
    if (threadIdx.x < stages) barrier_init(shared_address(full + threadIdx.x), 1);
    barriers_show();
    __syncthreads();
    if (warp < op.warps) {
        ring.at = shared_address(mine);
        ring.full = shared_address(full + warp * op.stages);
        find_units(op, next);
#pragma unroll 1
        for (unsigned s = 0; s < op.stages; s++)
            copy_stage(op, ring, next, UNIT_BYTES);
    }
    read_weights(op, &norm);
    early_wait();
    if (op.norm != NULL) norm_x(op, norm, x, (float *)(at + op.x_bytes));
    put_quants<DTYPE>(op, x, (const float *)(at + op.x_bytes));
    if (warp < op.warps) multiply<DTYPE, ROWS_X>(op, x, ring, mine, next);
}

#define FEW_QUANT_ROWS(name, DTYPE, ROWS_X)                                                                            \
    extern "C" __global__ void __launch_bounds__(FEW_THREADS, 2)                                                       \
        name##_##ROWS_X(const __grid_constant__ struct ash_cuda_few_quant op)                                          \
    {                                                                                                                  \
        multiply_quant<DTYPE, ROWS_X>(op);                                                                             \
    }
#define FEW_QUANT(name, DTYPE)                                                                                         \
    FEW_QUANT_ROWS(name, DTYPE, 1)                                                                                     \
    FEW_QUANT_ROWS(name, DTYPE, 4)                                                                                     \
    FEW_QUANT_ROWS(name, DTYPE, 8)

FEW_QUANT(few_q8_0, ASH_Q8_0)
FEW_QUANT(few_q8_w, ASH_Q8_W)
FEW_QUANT(few_q4_0, ASH_Q4_0)
FEW_QUANT(few_q4_k, ASH_Q4_K)
FEW_QUANT(few_q5_k, ASH_Q5_K)
FEW_QUANT(few_q6_k, ASH_Q6_K)
