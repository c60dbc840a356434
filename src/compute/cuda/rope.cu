/* rope - rotary positions, in place. A warp owns a head of a row: all of it is read before any of it is written. */
#include "compute/cuda/device.cuh"

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
