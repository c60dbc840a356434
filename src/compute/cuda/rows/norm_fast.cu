/* norm_fast - gradients of norms' weights and biases for runtime.mode=fast: blocks of rows have a sum each, and these
 * are added up in a fixed order. The exact ones are one chain over all rows (norm.cu). */
#include "compute/cuda/tile/device.cuh"

#define QUAD 4                                      /* columns of a thread */
#define COLS ASH_CUDA_NORM_PART_COLS                /* of a thread block: a warp reads a line of them */
#define WALKERS (ASH_CUDA_NORM_PART_THREADS / WARP) /* warps, each of which has every WALKERS-th row */

static_assert(COLS == WARP * QUAD, "a warp has the columns of a block");

/* Where a row's columns begin. */
static __device__ inline size_t place_of(const struct ash_norm_args &args, size_t stride, size_t unit)
{
    if (args.groups == 1) return unit * stride;
    return unit / args.groups * stride + unit % args.groups * args.cols;
}

/* Four columns; zeros from `left` on. */
static __device__ inline float4 read_quad(const float *from, bool is_wide, long long left)
{
    if (is_wide && left >= QUAD) return *(const float4 *)from;
    return make_float4(left > 0 ? from[0] : 0.0f, left > 1 ? from[1] : 0.0f, left > 2 ? from[2] : 0.0f,
                       left > 3 ? from[3] : 0.0f);
}

static __device__ inline void add_products(float4 dy, float4 x, float mean, float rstd, float4 *sum)
{
    sum->x = fmaf(dy.x, (x.x - mean) * rstd, sum->x);
    sum->y = fmaf(dy.y, (x.y - mean) * rstd, sum->y);
    sum->z = fmaf(dy.z, (x.z - mean) * rstd, sum->z);
    sum->w = fmaf(dy.w, (x.w - mean) * rstd, sum->w);
}

/* The walkers' sums, in their order, to a row of parts. */
static __device__ inline void put_part(const float4 &sum, float *row, size_t first, size_t cols)
{
    __shared__ float sums[WALKERS][COLS];

    __syncthreads();
    *(float4 *)&sums[threadIdx.x / WARP][threadIdx.x % WARP * QUAD] = sum;
    __syncthreads();
    if (threadIdx.x < COLS && first + threadIdx.x < cols) {
        float total = 0.0f;

#pragma unroll
        for (int w = 0; w < WALKERS; w++)
            total = total + sums[w][threadIdx.x];
        row[first + threadIdx.x] = total;
    }
}

/* A thread block has COLS columns (x) of a share of the rows (y). */
template <bool HAS_MEAN> static __device__ inline void sum_rows(const struct ash_cuda_norm_parts &op)
{
    const struct ash_norm_args &args = op.args;
    size_t units = args.rows * args.groups, first = (size_t)blockIdx.x * COLS, c = first + threadIdx.x % WARP * QUAD;
    size_t begin = units * blockIdx.y / gridDim.y, end = units * (blockIdx.y + 1) / gridDim.y;
    long long left = (long long)args.cols - (long long)c;
    bool is_wide = args.cols % QUAD == 0 && args.x_stride % QUAD == 0 && args.y_stride % QUAD == 0 &&
                   ((uintptr_t)args.x | (uintptr_t)args.dy) % 16 == 0;
    float4 weight = make_float4(0.0f, 0.0f, 0.0f, 0.0f), bias = weight;

#pragma unroll 4
    for (size_t unit = begin + threadIdx.x / WARP; unit < end; unit += WALKERS) {
        float4 x = read_quad(args.x + place_of(args, args.x_stride, unit) + c, is_wide, left);
        float4 dy = read_quad(args.dy + place_of(args, args.y_stride, unit) + c, is_wide, left);

        add_products(dy, x, HAS_MEAN ? args.mean[unit] : 0.0f, args.rstd[unit], &weight);
        if (HAS_MEAN) bias = make_float4(bias.x + dy.x, bias.y + dy.y, bias.z + dy.z, bias.w + dy.w);
    }
    put_part(weight, op.parts + blockIdx.y * args.cols, first, args.cols);
    if (HAS_MEAN) put_part(bias, op.parts + (gridDim.y + blockIdx.y) * args.cols, first, args.cols);
}

extern "C" __global__ void __launch_bounds__(ASH_CUDA_NORM_PART_THREADS)
    rms_weight_parts(const __grid_constant__ struct ash_cuda_norm_parts op)
{
    sum_rows<false>(op);
}

extern "C" __global__ void __launch_bounds__(ASH_CUDA_NORM_PART_THREADS)
    layer_weight_parts(const __grid_constant__ struct ash_cuda_norm_parts op)
{
    sum_rows<true>(op);
}

/* Add the parts to the gradient of the weight (blockIdx.y 0) or of the bias (1): a thread block has WARP columns, and
 * each of its warps every WALKERS-th part. */
extern "C" __global__ void __launch_bounds__(ASH_CUDA_NORM_PART_THREADS)
    norm_join_parts(const __grid_constant__ struct ash_cuda_norm_parts op)
{
    __shared__ float sums[WALKERS][WARP];
    size_t cols = op.args.cols, c = (size_t)blockIdx.x * WARP + threadIdx.x % WARP;
    const float *parts = op.parts + blockIdx.y * op.part_count * cols;
    float *to = blockIdx.y == 0 ? op.args.dweight : op.args.dbias, sum = 0.0f;

    if (to == NULL) return;
#pragma unroll 8
    for (size_t p = threadIdx.x / WARP; p < op.part_count; p += WALKERS)
        sum = sum + (c < cols ? parts[p * cols + c] : 0.0f);
    sums[threadIdx.x / WARP][threadIdx.x % WARP] = sum;
    __syncthreads();
    if (threadIdx.x >= WARP || c >= cols) return;
    sum = to[c];
#pragma unroll
    for (int w = 0; w < WALKERS; w++)
        sum = sum + sums[w][threadIdx.x];
    to[c] = sum;
}
