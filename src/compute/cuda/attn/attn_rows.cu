/* attn_rows - what is done to rows before bf16 attention reads them: float32 heads, and keys and values out of their
 * pages, become rows of bf16; and sums of query rows for the backward pass. */
#include "compute/blocks.h"
#include "compute/cuda/attn/attn.cuh"
#include "compute/cuda/ptx/mma.cuh"
#include "compute/cuda/tile/device.cuh"

/* A page of one kv head's keys and values as bf16 rows: tile.first counts a document's pages, tile.count its keys. Keys
 * are columns in a page, so they pass through shared memory. */
extern "C" __global__ void __launch_bounds__(256) attn_unpage(const __grid_constant__ struct ash_cuda_attn args)
{
    __shared__ uint16_t keys[ASH_ATTN_BLOCK][ASH_CUDA_ATTN_COPIED_MAX + 2];
    struct ash_cuda_attn_tile tile = args.tiles[blockIdx.x];
    struct ash_cuda_attn_seq seq = args.seqs[tile.seq];
    size_t g = blockIdx.y, first = (size_t)tile.first * ASH_ATTN_BLOCK;
    size_t to = g * args.kv_head + (seq.kv_first + first) * args.kv_row;
    int dim = (int)args.dim_k, pairs = dim / 2;

    for (int i = threadIdx.x; i < dim * ASH_ATTN_BLOCK; i += blockDim.x) {
        int d = i / ASH_ATTN_BLOCK, j = i % ASH_ATTN_BLOCK;

        if (j < (int)tile.count) keys[j][d] = ash_f32_to_bf16(read_key(args, seq, first + j, g, d));
    }
    __syncthreads();
    for (int i = threadIdx.x; i < (int)tile.count * pairs; i += blockDim.x) {
        int j = i / pairs, d = i % pairs * 2;
        size_t at = to + j * args.kv_row + d;

        *(uint32_t *)(args.k_copy + at) = keys[j][d] | (uint32_t)keys[j][d + 1] << 16;
        *(uint32_t *)(args.v_copy + at) =
            pack_bf16(read_value(args, seq, first + j, g, d), read_value(args, seq, first + j, g, d + 1));
    }
}

/* Float32 heads as bf16 copies, [heads, rows, dim]: blockIdx.y counts the heads of q, k and v in turn. */
extern "C" __global__ void __launch_bounds__(256) attn_copy(const __grid_constant__ struct ash_cuda_attn args)
{
    struct ash_cuda_attn_tile tile = args.tiles[blockIdx.x];
    struct ash_cuda_attn_seq seq = args.seqs[tile.seq];
    size_t y = blockIdx.y, head = y, row = seq.q_row + tile.first, dim = args.dim_k;
    size_t stride = args.q_stride;
    const float *from = args.q + row * stride;
    uint16_t *to = args.copies;

    if (y >= args.heads) {
        bool is_key = y < args.heads + args.kv_heads;

        head = is_key ? y - args.heads : y - args.heads - args.kv_heads;
        stride = is_key ? args.k_stride : args.v_stride;
        from = (const float *)(is_key ? seq.k : seq.v) + tile.first * stride;
        to = args.copies + (args.heads + (is_key ? 0 : args.kv_heads)) * args.rows * dim;
    }
    from += head * dim;
    to += (head * args.rows + row) * dim;
    for (int i = threadIdx.x; i < tile.count * (int)dim / 2; i += blockDim.x) {
        int r = i * 2 / (int)dim, d = i * 2 % (int)dim;

        *(uint32_t *)(to + i * 2) = pack_bf16(from[r * stride + d], from[r * stride + d + 1]);
    }
}

/* 16 values from column `first` of a head on as bf16 values: from rows of bf16, or rounded. Zeros past dim. */
static __device__ inline void read_sixteen(const float *plain, const uint16_t *rounded, int first, int dim, float x[16])
{
#pragma unroll
    for (int i = 0; i < 16; i++)
        x[i] = first + i >= dim  ? 0.0f
               : rounded != NULL ? ash_bf16_to_f32(rounded[first + i])
                                 : ash_bf16_round(plain[first + i]);
}

/* The same where all 16 are there, at borders of 16 bytes. */
static __device__ inline void read_sixteen_wide(const float *plain, const uint16_t *rounded, int first, float x[16])
{
    if (rounded != NULL) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            uint4 two[1] = {*(const uint4 *)(rounded + first + i * 8)};
            const uint32_t pairs[4] = {two->x, two->y, two->z, two->w};

#pragma unroll
            for (int n = 0; n < 4; n++) {
                x[i * 8 + n * 2] = ash_bf16_to_f32((uint16_t)pairs[n]);
                x[i * 8 + n * 2 + 1] = ash_bf16_to_f32((uint16_t)(pairs[n] >> 16));
            }
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float4 four = *(const float4 *)(plain + first + i * 4);

        x[i * 4] = ash_bf16_round(four.x);
        x[i * 4 + 1] = ash_bf16_round(four.y);
        x[i * 4 + 2] = ash_bf16_round(four.z);
        x[i * 4 + 3] = ash_bf16_round(four.w);
    }
}

/* What the backward pass asks of a query row of a head, and its dout as bf16 unless it is that already: stats_lanes
 * threads, 16 columns each, add as compute/blocks.h says. */
extern "C" __global__ void __launch_bounds__(256) attn_stats(const __grid_constant__ struct ash_cuda_attn args)
{
    size_t thread = (size_t)blockIdx.x * blockDim.x + threadIdx.x, unit = thread / args.stats_lanes;
    bool is_real = unit < args.rows * args.heads;
    size_t row = is_real ? unit / args.heads : 0, h = is_real ? unit % args.heads : 0;
    size_t at = row * args.out_stride + h * args.dim_v;
    int first = (int)(thread % args.stats_lanes) * 16, dim = (int)args.dim_v;
    float dout[16], out[16], pairs[8], sum;

    if (args.is_stats_wide) {
        read_sixteen_wide(args.dout + at, args.dout_bf16 != NULL ? args.dout_bf16 + at : NULL, first, dout);
        read_sixteen_wide(args.out + at, args.out_bf16 != NULL ? args.out_bf16 + at : NULL, first, out);
    } else {
        read_sixteen(args.dout + at, args.dout_bf16 != NULL ? args.dout_bf16 + at : NULL, first, dim, dout);
        read_sixteen(args.out + at, args.out_bf16 != NULL ? args.out_bf16 + at : NULL, first, dim, out);
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
        pairs[i] = fmaf(dout[2 * i + 1], out[2 * i + 1], dout[2 * i] * out[2 * i]);
    sum = ash_sum_neighbours(pairs, 8) + 0.0f; /* lanes that are not there are zeros */
    for (int half = (int)args.stats_lanes / 2; half > 0; half /= 2)
        sum = sum + __shfl_down_sync(0xffffffffu, sum, half, args.stats_lanes);
    if (!is_real) return;
    if (first == 0) {
        struct ash_cuda_attn_stats stats = {args.lse[row * args.heads + h] * ASH_LOG2E, sum};

        args.stats[h * args.rows + row] = stats;
    }
    if (args.dout_copy == NULL) return;
#pragma unroll
    for (int i = 0; i < 2; i++)
        *(uint4 *)(args.dout_copy + (row * args.heads + h) * dim + first + i * 8) =
            make_uint4(pack_bf16(dout[i * 8], dout[i * 8 + 1]), pack_bf16(dout[i * 8 + 2], dout[i * 8 + 3]),
                       pack_bf16(dout[i * 8 + 4], dout[i * 8 + 5]), pack_bf16(dout[i * 8 + 6], dout[i * 8 + 7]));
}
