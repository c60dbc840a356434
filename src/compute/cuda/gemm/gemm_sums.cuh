/* gemm_sums - the sums that a warpgroup's products leave in its registers, 64 rows of c by N columns: what they start
 * from, and how they are written. */
#ifndef ASH_COMPUTE_CUDA_GEMM_SUMS_CUH
#define ASH_COMPUTE_CUDA_GEMM_SUMS_CUH

#include "compute/cuda/ptx/mma.cuh"
#include "compute/cuda/tile/device.cuh"
#include "compute/cuda/tile/swiglu.cuh"

/* A thread's place: its thread block's first row and column of c, and its number among those that multiply. */
struct sums_at {
    unsigned m0, n0, thread;
};

/* The sums of a thread in one of its two rows (half): where they are in c and in what is added, how many of the row's
 * columns there are from there on, and of which it has two of every 8. */
struct sums_row {
    size_t at, add_at;
    int left; /* 0: the row is not there */
};

static __device__ inline struct sums_row row_of_sums(const struct ash_cuda_gemm_bf16 &args, struct sums_at at, int half)
{
    unsigned lane = at.thread % WARP;
    size_t m = at.m0 + at.thread / WARP * 16 + lane / 4 + half * 8, n = at.n0 + lane % 4 * 2;
    struct sums_row row = {m * args.c_stride + n, m * args.add_stride + n,
                           m < args.a.count && n < args.b.count ? (int)(args.b.count - n) : 0};

    return row;
}

/* Can two columns be read or written at once? */
static __device__ inline bool has_pairs(const struct ash_cuda_gemm_bf16 &args)
{
    bool is_even = args.c_bf16 != NULL ? (uintptr_t)args.c_bf16 % 4 == 0 : (uintptr_t)args.c % 8 == 0;

    return args.c_stride % 2 == 0 && is_even;
}

/* What sums start from. */
template <int N>
static __device__ inline void read_sums(const struct ash_cuda_gemm_bf16 &args, struct sums_at at, float (*sum)[4])
{
    bool is_wide = has_pairs(args);

#pragma unroll
    for (int half = 0; half < 2; half++) {
        struct sums_row row = row_of_sums(args, at, half);

        if (!args.accumulate) row.left = 0;
#pragma unroll
        for (int i = 0; i < N / 8; i++) {
            float2 pair = {};

            if (is_wide && i * 8 + 1 < row.left)
                pair = *(const float2 *)(args.c + row.at + i * 8);
            else if (i * 8 < row.left)
                pair = make_float2(args.c[row.at + i * 8], i * 8 + 1 < row.left ? args.c[row.at + i * 8 + 1] : 0.0f);
            sum[i][half * 2] = pair.x;
            sum[i][half * 2 + 1] = pair.y;
        }
    }
}

/* Two sums for places `at` and at + 1 of c, of which `left` are there. */
static __device__ inline void put_pair(const struct ash_cuda_gemm_bf16 &args, size_t at, int left, bool is_wide,
                                       float low, float high)
{
    bool is_bf16 = args.c_bf16 != NULL;

    if (left > 1 && is_wide) {
        if (is_bf16)
            *(uint32_t *)(args.c_bf16 + at) = pack_bf16(low, high);
        else
            *(float2 *)(args.c + at) = make_float2(low, high);
        return;
    }
    if (left > 0 && is_bf16) args.c_bf16[at] = ash_f32_to_bf16(low);
    if (left > 1 && is_bf16) args.c_bf16[at + 1] = ash_f32_to_bf16(high);
    if (left > 0 && !is_bf16) args.c[at] = low;
    if (left > 1 && !is_bf16) args.c[at + 1] = high;
}

template <int N>
static __device__ inline void write_sums(const struct ash_cuda_gemm_bf16 &args, struct sums_at at,
                                         const float (*sum)[4])
{
    const float *bias = args.bias != NULL ? args.bias + at.n0 + at.thread % 4 * 2 : NULL;
    bool is_wide = has_pairs(args);

#pragma unroll
    for (int half = 0; half < 2; half++) {
        struct sums_row row = row_of_sums(args, at, half);
        const float *add = args.add != NULL ? args.add + row.add_at : NULL;

#pragma unroll
        for (int i = 0; i < N / 8; i++) {
            float low = sum[i][half * 2], high = sum[i][half * 2 + 1];

            if (bias != NULL && i * 8 < row.left) low = low + bias[i * 8];
            if (bias != NULL && i * 8 + 1 < row.left) high = high + bias[i * 8 + 1];
            if (add != NULL && i * 8 < row.left) low = add[i * 8] + low;
            if (add != NULL && i * 8 + 1 < row.left) high = add[i * 8 + 1] + high;
            put_pair(args, row.at + i * 8, row.left - i * 8, is_wide, low, high);
        }
    }
}

/* The same of SwiGLU: sums of WIDTH columns of gate, then of as many of up, which has up_bias. */
template <int WIDTH>
static __device__ inline void write_gated(const struct ash_cuda_gemm_bf16 &gate, const float *up_bias,
                                          struct sums_at at, const float (*sum)[4])
{
    unsigned first = at.n0 + at.thread % 4 * 2;
    bool is_wide = has_pairs(gate);

#pragma unroll
    for (int half = 0; half < 2; half++) {
        struct sums_row row = row_of_sums(gate, at, half);

#pragma unroll
        for (int i = 0; i < WIDTH / 8; i++) {
            float out[2];

#pragma unroll
            for (int e = 0; e < 2; e++) {
                float low = sum[i][half * 2 + e], high = sum[i + WIDTH / 8][half * 2 + e];

                if (gate.bias != NULL && i * 8 + e < row.left) low = low + gate.bias[first + i * 8 + e];
                if (up_bias != NULL && i * 8 + e < row.left) high = high + up_bias[first + i * 8 + e];
                out[e] = swiglu_sums(low, high);
            }
            put_pair(gate, row.at + i * 8, row.left - i * 8, is_wide, out[0], out[1]);
        }
    }
}

#endif
