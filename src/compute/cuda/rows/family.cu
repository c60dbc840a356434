/* family - the ops of some families of models: gates, sinks, caps (compute/ops_family.h). */
#include "compute/cuda/tile/device.cuh"
#include "compute/family_math.h"

extern "C" __global__ void family_gated(struct ash_gated_args args)
{
    EACH(i, args.rows * args.cols) ash_gate_element(&args, i);
}

/* Half a warp for each head of a row. */
extern "C" __global__ void family_sink_forward(struct ash_sink_args args)
{
    size_t unit = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) / ASH_LANES, h = unit % args.heads;
    bool real = unit < args.rows * args.heads;
    float *out = args.out + unit / args.heads * args.stride + h * args.dim, lse = real ? args.lse[unit] : 0.0f;
    float all = ash_sink_lse(lse, args.sinks[h]), share = ash_expf(lse - all);

    for (size_t d = threadIdx.x % ASH_LANES; real && d < args.dim; d += ASH_LANES)
        out[d] = out[d] * share;
    __syncwarp(); /* all have read lse */
    if (real && threadIdx.x % ASH_LANES == 0) args.lse[unit] = all;
}

/* Half a warp for each head, over all rows. */
extern "C" __global__ void family_sink_backward(struct ash_sink_args args)
{
    size_t h = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) / ASH_LANES;
    bool real = h < args.heads;
    float sum = real ? args.dsinks[h] : 0.0f;

    for (size_t row = 0; row < args.rows; row++) {
        const float *dout = args.dout + row * args.stride + h * args.dim,
                    *out = args.out + row * args.stride + h * args.dim;
        float p = real ? ash_expf(args.sinks[h] - args.lse[row * args.heads + h]) : 0.0f, lane = 0.0f;

        for (size_t d = threadIdx.x % ASH_LANES; real && d < args.dim; d += ASH_LANES)
            lane = fmaf(dout[d], out[d], lane);
        sum = fmaf(-p, fold_lanes(lane), sum);
    }
    __syncwarp(); /* all have read the sum so far */
    if (real && threadIdx.x % ASH_LANES == 0) args.dsinks[h] = sum;
}

extern "C" __global__ void family_cap(struct ash_cuda_cap op)
{
    EACH(i, op.count) op.x[i] = op.y == NULL ? ash_cap(op.x[i], op.cap) : op.x[i] * ash_cap_slope(op.y[i], op.cap);
}
