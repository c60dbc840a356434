/* rope - rotary positions. A warp owns a head of a row. In place all of it is read before any of it is written. */
#include "compute/cuda/ptx/mma.cuh"
#include "compute/cuda/tile/blocks.cuh"
#include "compute/cuda/tile/device.cuh"

#define PAIRS_MAX (ASH_ATTN_HEAD_MAX / 2 / WARP) /* of a thread */

extern "C" __global__ void rope_apply(struct ash_rope_args args)
{
    size_t unit = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) / WARP, half = args.dims / 2;
    bool from_pairs = args.interleaved_in && !args.inverse, to_pairs = args.interleaved_in && args.inverse;
    float a[PAIRS_MAX], b[PAIRS_MAX], *x;
    const float *cosines, *sines;
    size_t r = unit / args.heads, lane = threadIdx.x % WARP;

    if (r >= args.rows) return;
    x = args.x + r * args.row_stride + unit % args.heads * args.head_stride;
    cosines = args.cos + (size_t)args.positions[r] * half;
    sines = args.sin + (size_t)args.positions[r] * half;
#pragma unroll
    for (int n = 0; n < PAIRS_MAX; n++) {
        size_t i = lane + (size_t)n * WARP;

        if (i >= half) break;
        a[n] = x[from_pairs ? 2 * i : i];
        b[n] = x[from_pairs ? 2 * i + 1 : i + half];
        if (args.round_bf16) a[n] = ash_bf16_round(a[n]), b[n] = ash_bf16_round(b[n]);
    }
    __syncwarp();
#pragma unroll
    for (int n = 0; n < PAIRS_MAX; n++) {
        size_t i = lane + (size_t)n * WARP;
        float cosine, sine;

        if (i >= half) break;
        cosine = cosines[i];
        sine = args.inverse ? -sines[i] : sines[i];
        x[to_pairs ? 2 * i : i] = fmaf(a[n], cosine, -(b[n] * sine));
        x[to_pairs ? 2 * i + 1 : i + half] = fmaf(b[n], cosine, a[n] * sine);
    }
}

/* Rows of out_cols columns rounded to bf16, the heads rotated: a thread block per row. Pairs are halves of a head, of
 * an even number: a thread has two neighbouring pairs. */
static __device__ inline void round_halves(const struct ash_rope_args &args, const float *x, const float *cosines,
                                           const float *sines, uint16_t *out)
{
    unsigned half = (unsigned)args.dims / 2, twos = half / 2, wide = (unsigned)args.head_stride;

    for (unsigned i = threadIdx.x; i < (unsigned)args.heads * twos; i += blockDim.x) {
        unsigned j = i % twos * 2, at = i / twos * wide + j;
        float2 a = *(const float2 *)(x + at), b = *(const float2 *)(x + at + half);
        float2 cosine = *(const float2 *)(cosines + j), sine = *(const float2 *)(sines + j);

        if (args.inverse) sine = make_float2(-sine.x, -sine.y);
        if (args.round_bf16) {
            a = make_float2(ash_bf16_round(a.x), ash_bf16_round(a.y));
            b = make_float2(ash_bf16_round(b.x), ash_bf16_round(b.y));
        }
        *(uint32_t *)(out + at) = pack_bf16(fmaf(a.x, cosine.x, -(b.x * sine.x)), fmaf(a.y, cosine.y, -(b.y * sine.y)));
        *(uint32_t *)(out + at + half) =
            pack_bf16(fmaf(b.x, cosine.x, a.x * sine.x), fmaf(b.y, cosine.y, a.y * sine.y));
    }
}

/* The same of any pairs. */
static __device__ inline void round_pairs(const struct ash_rope_args &args, const float *x, const float *cosines,
                                          const float *sines, uint16_t *out)
{
    unsigned half = (unsigned)args.dims / 2, wide = (unsigned)args.head_stride;
    bool from_pairs = args.interleaved_in && !args.inverse, to_pairs = args.interleaved_in && args.inverse;

    for (unsigned n = threadIdx.x; n < (unsigned)args.heads * half; n += blockDim.x) {
        unsigned i = n % half, at = n / half * wide;
        float a = x[at + (from_pairs ? 2 * i : i)], b = x[at + (from_pairs ? 2 * i + 1 : i + half)];
        float cosine = cosines[i], sine = args.inverse ? -sines[i] : sines[i];

        if (args.round_bf16) a = ash_bf16_round(a), b = ash_bf16_round(b);
        out[at + (to_pairs ? 2 * i : i)] = ash_f32_to_bf16(fmaf(a, cosine, -(b * sine)));
        out[at + (to_pairs ? 2 * i + 1 : i + half)] = ash_f32_to_bf16(fmaf(b, cosine, a * sine));
    }
}

extern "C" __global__ void __launch_bounds__(128) rope_round(const __grid_constant__ struct ash_rope_args args)
{
    size_t r = blockIdx.x, angles = (size_t)args.positions[r] * (args.dims / 2);
    unsigned wide = (unsigned)args.head_stride, dims = (unsigned)args.dims, heads = (unsigned)args.heads;
    const float *x = args.x + r * args.row_stride;
    uint16_t *out = args.out_bf16 + r * args.out_cols;
    bool is_even = !args.interleaved_in && dims % 4 == 0 && wide % 2 == 0 && args.row_stride % 2 == 0 &&
                   args.out_cols % 2 == 0 &&
                   ((uintptr_t)args.x | (uintptr_t)args.cos | (uintptr_t)args.sin | (uintptr_t)args.out_bf16) % 8 == 0;

    if (is_even)
        round_halves(args, x, args.cos + angles, args.sin + angles, out);
    else
        round_pairs(args, x, args.cos + angles, args.sin + angles, out);
    for (unsigned n = threadIdx.x; dims < wide && n < heads * (wide - dims); n += blockDim.x) {
        unsigned at = n / (wide - dims) * wide + dims + n % (wide - dims);

        out[at] = ash_f32_to_bf16(x[at]);
    }
    for (unsigned c = heads * wide + threadIdx.x * 2; is_even && c < (unsigned)args.out_cols; c += blockDim.x * 2)
        *(uint32_t *)(out + c) = pack_bf16(x[c], x[c + 1]);
    for (unsigned c = heads * wide + threadIdx.x; !is_even && c < (unsigned)args.out_cols; c += blockDim.x)
        out[c] = ash_f32_to_bf16(x[c]);
}

/* ---- rows of bf16, in place -------------------------------------------------------------------------------------- */

static __device__ inline float2 rotate(float a, float b, float cosine, float sine)
{
    return make_float2(fmaf(a, cosine, -(b * sine)), fmaf(b, cosine, a * sine));
}

/* Two neighbouring pairs: x of the first halves, y of the second. */
static __device__ inline uint2 rotate_two(uint32_t a, uint32_t b, float cosine0, float sine0, float cosine1,
                                          float sine1)
{
    float2 low = rotate(low_bf16(a), low_bf16(b), cosine0, sine0);
    float2 high = rotate(high_bf16(a), high_bf16(b), cosine1, sine1);

    return make_uint2(pack_bf16(low.x, high.x), pack_bf16(low.y, high.y));
}

/* Pairs are halves of a head, of eights; rows, tables and heads are at 16-byte borders: a thread has eight pairs. */
extern "C" __global__ void rope_eight(const __grid_constant__ struct ash_rope_args args)
{
    unsigned half = (unsigned)args.dims / 2, eights = half / 8, each = (unsigned)args.heads * eights;

    EACH(i, args.rows * each)
    {
        size_t r = i <= UINT32_MAX ? (uint32_t)i / each : i / each;
        unsigned in_row = (unsigned)(i - r * each), h = in_row / eights, d = in_row % eights * 8;
        uint16_t *x = args.x_bf16 + r * args.row_stride + h * args.head_stride + d;
        size_t angles = (size_t)args.positions[r] * half + d;
        const float4 *cosines = (const float4 *)(args.cos + angles), *sines = (const float4 *)(args.sin + angles);
        uint4 a = *(const uint4 *)x, b = *(const uint4 *)(x + half);
        float4 c0 = cosines[0], c1 = cosines[1], s0 = sines[0], s1 = sines[1];
        uint2 p = rotate_two(a.x, b.x, c0.x, s0.x, c0.y, s0.y), q = rotate_two(a.y, b.y, c0.z, s0.z, c0.w, s0.w),
              s = rotate_two(a.z, b.z, c1.x, s1.x, c1.y, s1.y), t = rotate_two(a.w, b.w, c1.z, s1.z, c1.w, s1.w);

        *(uint4 *)x = make_uint4(p.x, q.x, s.x, t.x);
        *(uint4 *)(x + half) = make_uint4(p.y, q.y, s.y, t.y);
    }
}

/* Any heads: a warp has one. */
extern "C" __global__ void rope_bf16_any(const __grid_constant__ struct ash_rope_args args)
{
    size_t unit = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) / WARP, half = args.dims / 2;
    size_t lane = threadIdx.x % WARP;
    bool from_pairs = args.interleaved_in && !args.inverse, to_pairs = args.interleaved_in && args.inverse;
    size_t r = unit / args.heads;
    float2 pairs[PAIRS_MAX];

    if (r >= args.rows) return;
    uint16_t *x = args.x_bf16 + r * args.row_stride + unit % args.heads * args.head_stride;
#pragma unroll
    for (int n = 0; n < PAIRS_MAX; n++) {
        size_t i = lane + (size_t)n * WARP, angle = (size_t)args.positions[r] * half + i;

        if (i >= half) break;
        pairs[n] =
            rotate(ash_bf16_to_f32(x[from_pairs ? 2 * i : i]), ash_bf16_to_f32(x[from_pairs ? 2 * i + 1 : i + half]),
                   args.cos[angle], args.inverse ? -args.sin[angle] : args.sin[angle]);
    }
    __syncwarp();
#pragma unroll
    for (int n = 0; n < PAIRS_MAX; n++) {
        size_t i = lane + (size_t)n * WARP;

        if (i >= half) break;
        x[to_pairs ? 2 * i : i] = ash_f32_to_bf16(pairs[n].x);
        x[to_pairs ? 2 * i + 1 : i + half] = ash_f32_to_bf16(pairs[n].y);
    }
}
