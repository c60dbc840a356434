/* rows - row arithmetic: sums, scaling, rounding, and the moves of rows to experts and back. A thread owns an
 * element. */
#include "compute/cuda/tile/blocks.cuh"
#include "compute/cuda/tile/device.cuh"
#include "compute/drop.h"

extern "C" __global__ void row_add(struct ash_cuda_rows op)
{
    EACH(i, op.count)
    op.out[i] = op.a[i] + op.b[i];
}

extern "C" __global__ void row_scale(struct ash_cuda_rows op)
{
    EACH(i, op.count)
    op.out[i] = op.out[i] * op.factor;
}

/* a: x, b: a factor of each row; four columns at a time (count: of them) where rows are at 16-byte borders (add), else
 * one. */
extern "C" __global__ void row_scale_rows(struct ash_cuda_rows op)
{
    EACH(i, op.count)
    {
        float factor = op.b[i <= UINT32_MAX ? (uint32_t)i / (uint32_t)op.cols : i / op.cols];

        if (op.add) {
            float4 x = ((const float4 *)op.a)[i];

            x = make_float4(x.x * factor, x.y * factor, x.z * factor, x.w * factor);
            if (op.out_bf16 != NULL)
                ((uint2 *)op.out_bf16)[i] = round_four(x);
            else
                ((float4 *)op.out)[i] = x;
        } else if (op.out_bf16 != NULL) {
            op.out_bf16[i] = ash_f32_to_bf16(op.a[i] * factor);
        } else {
            op.out[i] = op.a[i] * factor;
        }
    }
}

extern "C" __global__ void row_round(struct ash_cuda_rows op)
{
    EACH(i, op.count)
    op.out[i] = ash_bf16_round(op.a[i]);
}

extern "C" __global__ void row_gather(struct ash_cuda_rows op)
{
    EACH(i, op.rows * op.cols)
    op.out[i] = op.a[(size_t)op.index[i / op.cols] * op.cols + i % op.cols];
}

extern "C" __global__ void row_combine(struct ash_cuda_rows op)
{
    EACH(i, op.rows * op.cols)
    {
        size_t t = i / op.cols, c = i % op.cols;
        float acc = op.add ? op.out[i] : 0.0f;

        for (size_t s = 0; s < op.slots; s++) {
            float y = op.a[(size_t)op.index[t * op.slots + s] * op.cols + c];

            acc = op.weight != NULL ? fmaf(op.weight[t * op.slots + s], y, acc) : acc + y;
        }
        op.out[i] = acc;
    }
}

/* Half a warp per pair (t, s). */
extern "C" __global__ void row_slot_dot(struct ash_cuda_rows op)
{
    size_t unit = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) / ASH_LANES, units = op.rows * op.slots;
    int l = threadIdx.x % ASH_LANES;
    float lane = 0.0f, sum;

    if (unit < units) {
        const float *x = op.a + unit / op.slots * op.cols, *y = op.b + (size_t)op.index[unit] * op.cols;

        for (size_t c = l; c < op.cols; c += ASH_LANES)
            lane = fmaf(x[c], y[c], lane);
    }
    sum = fold_lanes(lane);
    if (unit < units && l == 0) op.out[unit] = sum;
}

/* Where blocks are summed up (add with a dst_block of 0) a thread walks them in order; else every block has threads. */
extern "C" __global__ void row_copy(struct ash_copy_args args)
{
    size_t apart = args.add && args.dst_block == 0 ? 1 : args.blocks, walked = args.blocks / apart;

    EACH(i, args.rows * apart * args.cols)
    {
        size_t c = i % args.cols, first = i / args.cols % apart, r = i / args.cols / apart;

        for (size_t n = 0; n < walked; n++) {
            size_t b = first + n;
            float value = args.src[r * args.src_row + b * args.src_block + c];
            size_t to = r * args.dst_row + b * args.dst_block + c;

            if (args.dst_dtype == ASH_BF16)
                ((uint16_t *)args.dst)[to] = ash_f32_to_bf16(value);
            else if (args.add)
                ((float *)args.dst)[to] += value;
            else
                ((float *)args.dst)[to] = value;
        }
    }
}

/* A thread owns the columns of one draw. */
extern "C" __global__ void row_drop(struct ash_drop_args args)
{
    size_t first = args.first_col / ASH_DROP_DRAWS, skipped = args.first_col % ASH_DROP_DRAWS,
           groups = (skipped + args.cols + ASH_DROP_DRAWS - 1) / ASH_DROP_DRAWS;

    EACH(i, args.rows * groups)
    {
        size_t r = i / groups, group = i % groups;
        uint64_t draw = ash_drop_draw(&args, r, first + group);

        for (size_t j = group == 0 ? skipped : 0; j < ASH_DROP_DRAWS; j++)
            if (group * ASH_DROP_DRAWS + j < skipped + args.cols)
                ash_drop_put(&args, r, group * ASH_DROP_DRAWS + j - skipped, draw);
    }
}
