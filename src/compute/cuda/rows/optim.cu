/* optim - AdamW (torch's formula and order), and sums of squares that have no order. */
#include "compute/cuda/tile/device.cuh"

extern "C" __global__ void adamw(struct ash_cuda_adamw op)
{
    const struct ash_adamw_args &args = op.args;

    EACH(i, args.count)
    {
        float grad = args.grad[i] * args.grad_scale;
        float m = fmaf(op.grow1, grad - args.m[i], args.m[i]);
        float v = fmaf(op.grow2 * grad, grad, args.beta2 * args.v[i]);
        float denom = sqrtf(v) / op.root2 + args.eps;
        float param = fmaf(-op.step, m / denom, args.param[i] * op.decay);

        args.m_out[i] = m;
        args.v_out[i] = v;
        args.param_out[i] = param;
        if (args.param_bf16 != NULL) args.param_bf16[i] = ash_f32_to_bf16(param);
    }
}

/* The bits of |x| order like |x|, and a NaN's are above all others. */
extern "C" __global__ void __launch_bounds__(256) squares_max(struct ash_cuda_squares op)
{
    __shared__ uint32_t all;
    uint32_t max = 0;

    if (threadIdx.x == 0) all = 0;
    __syncthreads();
    EACH(i, op.count)
    {
        uint32_t bits = ash_f32_bits(op.x[i]) & ~ASH_F32_SIGN_BIT;

        max = bits > max ? bits : max;
    }
    max = __reduce_max_sync(0xffffffffu, max);
    if (threadIdx.x % WARP == 0) atomicMax(&all, max);
    __syncthreads();
    if (threadIdx.x == 0) atomicMax(op.max, all);
}

/* compute/squares.h: integers add up without rounding, so the order is free. */
extern "C" __global__ void __launch_bounds__(256) squares_sum(struct ash_cuda_squares op)
{
    __shared__ unsigned long long all[2];
    unsigned long long high = 0, low = 0;

    if (threadIdx.x < 2) all[threadIdx.x] = 0;
    __syncthreads();
    EACH(i, op.count)
    {
        double y = (double)op.x[i] * op.scale;
        uint64_t units = (uint64_t)(int64_t)(y * y * 0x1p62);

        high += units >> 32;
        low += units & 0xffffffff;
    }
    for (int half = WARP / 2; half > 0; half /= 2) {
        high += __shfl_down_sync(0xffffffffu, high, half);
        low += __shfl_down_sync(0xffffffffu, low, half);
    }
    if (threadIdx.x % WARP == 0) {
        atomicAdd(&all[0], high);
        atomicAdd(&all[1], low);
    }
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd((unsigned long long *)&op.sum->high, all[0]);
    if (threadIdx.x == 1) atomicAdd((unsigned long long *)&op.sum->low, all[1]);
}
