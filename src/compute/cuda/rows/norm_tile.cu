/* norm_tile - RMS norm of rows whose columns are a multiple of 16, at 16-byte borders: a thread block copies a few rows
 * to shared memory, so that they are read once. Four threads add a row up, each four of the lanes of the canonical
 * order; then all threads compute its elements. */
#include "compute/cuda/ptx/copy.cuh"
#include "compute/cuda/ptx/mma.cuh"
#include "compute/cuda/tile/device.cuh"

#define THREADS 256
#define QUAD 4 /* threads that add up a row */

/* Rows in shared memory have ASH_CUDA_NORM_PAD floats after them, so that two rows are in different banks. */
static __device__ inline unsigned pitch_of(const struct ash_norm_args &args)
{
    return (unsigned)args.cols + ASH_CUDA_NORM_PAD;
}

static __device__ inline size_t offset_of(const struct ash_norm_args &args, size_t stride, size_t unit)
{
    if (args.groups == 1) return unit * stride;
    return unit / args.groups * stride + unit % args.groups * args.cols;
}

/* The rows of this thread block. */
struct rows {
    size_t first;
    unsigned count, fours; /* fours: of 4 columns, in a row */
};

static __device__ inline struct rows own_rows(const struct ash_cuda_norm &op)
{
    size_t units = op.args.rows * op.args.groups, first = (size_t)blockIdx.x * op.tile_rows;
    struct rows rows = {first, (unsigned)(units - first < op.tile_rows ? units - first : op.tile_rows),
                        (unsigned)op.args.cols / 4};

    return rows;
}

/* Enqueue the copy of the rows at `from`. */
static __device__ inline void copy_rows(const struct ash_norm_args &args, const struct rows &rows, const float *from,
                                        size_t stride, float *to)
{
    for (unsigned i = threadIdx.x; i < rows.count * rows.fours; i += THREADS) {
        unsigned r = i / rows.fours, c = i % rows.fours * 4;
        unsigned place = shared_address(to + r * pitch_of(args) + c);

        copy_16(place, from + offset_of(args, stride, rows.first + r) + c);
    }
}

static __device__ inline void wait_copies(void)
{
    copy_commit();
    copy_wait<0>();
    __syncthreads();
}

/* The sum over a row's lanes, of which each of four threads has four: l with l + 8, then + 4, + 2, + 1. */
static __device__ inline float fold_quad(const float lanes[4])
{
    float sum[4];

#pragma unroll
    for (int e = 0; e < 4; e++) {
        sum[e] = lanes[e] + __shfl_xor_sync(0xffffffffu, lanes[e], 2);
        sum[e] = sum[e] + __shfl_xor_sync(0xffffffffu, sum[e], 1);
    }
    return (sum[0] + sum[2]) + (sum[1] + sum[3]);
}

static __device__ inline void put4(float *plain, uint16_t *rounded, size_t at, float4 value)
{
    if (rounded != NULL)
        *(uint2 *)(rounded + at) = make_uint2(pack_bf16(value.x, value.y), pack_bf16(value.z, value.w));
    if (plain != NULL) *(float4 *)(plain + at) = value;
}

extern "C" __global__ void __launch_bounds__(THREADS) rms_forward_tile(const __grid_constant__ struct ash_cuda_norm op)
{
    DYNAMIC_SHARED(float, shared, 16);
    __shared__ float scales[THREADS / QUAD];
    const struct ash_norm_args &args = op.args;
    struct rows rows = own_rows(op);
    unsigned r = threadIdx.x / QUAD, quad = threadIdx.x % QUAD;

    copy_rows(args, rows, args.x, args.x_stride, shared);
    wait_copies();
    if (threadIdx.x / WARP * (WARP / QUAD) < rows.count) { /* whole warps: threads past the end do row 0 again */
        const float4 *x = (const float4 *)(shared + (r < rows.count ? r : 0) * pitch_of(args)) + quad;
        float lanes[4] = {0.0f, 0.0f, 0.0f, 0.0f}, rstd;

#pragma unroll 4
        for (unsigned i = 0; i < rows.fours; i += QUAD) {
            float4 v = x[i];

            lanes[0] = fmaf(v.x, v.x, lanes[0]);
            lanes[1] = fmaf(v.y, v.y, lanes[1]);
            lanes[2] = fmaf(v.z, v.z, lanes[2]);
            lanes[3] = fmaf(v.w, v.w, lanes[3]);
        }
        rstd = 1.0f / sqrtf(fold_quad(lanes) / (float)args.cols + args.eps);
        if (quad == 0 && r < rows.count) {
            scales[r] = rstd;
            if (args.rstd != NULL) args.rstd[rows.first + r] = rstd;
        }
    }
    __syncthreads();
    for (unsigned i = threadIdx.x; i < rows.count * rows.fours; i += THREADS) {
        unsigned row = i / rows.fours, c = i % rows.fours * 4;
        float4 v = *(const float4 *)(shared + row * pitch_of(args) + c), w = *(const float4 *)(args.weight + c);
        float rstd = scales[row];

        v = make_float4((v.x * rstd) * w.x, (v.y * rstd) * w.y, (v.z * rstd) * w.z, (v.w * rstd) * w.w);
        put4(args.y_bf16 == NULL ? args.y : NULL, args.y_bf16, offset_of(args, args.y_stride, rows.first + row) + c, v);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) rms_backward_tile(const __grid_constant__ struct ash_cuda_norm op)
{
    DYNAMIC_SHARED(float, shared, 16);
    __shared__ float scales[THREADS / QUAD], means[THREADS / QUAD];
    const struct ash_norm_args &args = op.args;
    struct rows rows = own_rows(op);
    unsigned r = threadIdx.x / QUAD, quad = threadIdx.x % QUAD, pitch = pitch_of(args);
    float *shared_dy = shared + op.tile_rows * pitch, *old = shared_dy + op.tile_rows * pitch;

    copy_rows(args, rows, args.x, args.x_stride, shared);
    copy_rows(args, rows, args.dy, args.y_stride, shared_dy);
    if (args.dx_add) copy_rows(args, rows, args.dx, args.x_stride, old);
    wait_copies();
    if (threadIdx.x / WARP * (WARP / QUAD) < rows.count) {
        unsigned row = r < rows.count ? r : 0;
        const float4 *x = (const float4 *)(shared + row * pitch) + quad,
                     *dy = (const float4 *)(shared_dy + row * pitch) + quad,
                     *weight = (const float4 *)args.weight + quad;
        float lanes[4] = {0.0f, 0.0f, 0.0f, 0.0f}, rstd = args.rstd[rows.first + row], mean;

#pragma unroll 4
        for (unsigned i = 0; i < rows.fours; i += QUAD) {
            float4 v = x[i], g = dy[i], w = weight[i];

            lanes[0] = fmaf(g.x * w.x, v.x * rstd, lanes[0]);
            lanes[1] = fmaf(g.y * w.y, v.y * rstd, lanes[1]);
            lanes[2] = fmaf(g.z * w.z, v.z * rstd, lanes[2]);
            lanes[3] = fmaf(g.w * w.w, v.w * rstd, lanes[3]);
        }
        mean = fold_quad(lanes) / (float)args.cols;
        if (quad == 0 && r < rows.count) {
            scales[r] = rstd;
            means[r] = mean;
        }
    }
    __syncthreads();
    for (unsigned i = threadIdx.x; i < rows.count * rows.fours; i += THREADS) {
        unsigned row = i / rows.fours, c = i % rows.fours * 4;
        float4 v = *(const float4 *)(shared + row * pitch + c), g = *(const float4 *)(shared_dy + row * pitch + c),
               w = *(const float4 *)(args.weight + c), out;
        size_t at = offset_of(args, args.x_stride, rows.first + row) + c;
        float rstd = scales[row], mean = means[row];

        out.x = fmaf(-(v.x * rstd), mean, g.x * w.x) * rstd;
        out.y = fmaf(-(v.y * rstd), mean, g.y * w.y) * rstd;
        out.z = fmaf(-(v.z * rstd), mean, g.z * w.z) * rstd;
        out.w = fmaf(-(v.w * rstd), mean, g.w * w.w) * rstd;
        if (args.dx_add) {
            float4 sum = *(const float4 *)(old + row * pitch + c);

            out = make_float4(sum.x + out.x, sum.y + out.y, sum.z + out.z, sum.w + out.w);
        }
        put4(args.dx, NULL, at, out);
        put4(NULL, args.dx_bf16, (rows.first + row) * args.cols + c, out);
    }
}
