/* norm - RMS and layer norm. Half a warp owns a row and adds it up in the canonical order; weight gradients walk
 * rows in order, a thread per column (chain.cuh). */
#include "compute/cuda/tile/chain.cuh"

/* A division costs more than all else here; most norms have one group. */
static __device__ inline size_t x_offset(const struct ash_norm_args &args, size_t unit)
{
    if (args.groups == 1) return unit * args.x_stride;
    return unit / args.groups * args.x_stride + unit % args.groups * args.cols;
}

static __device__ inline size_t y_offset(const struct ash_norm_args &args, size_t unit)
{
    if (args.groups == 1) return unit * args.y_stride;
    return unit / args.groups * args.y_stride + unit % args.groups * args.cols;
}

/* The row of this half warp. Those past the end do row 0 again, and write nothing: all threads take part in
 * shuffles. */
struct row {
    size_t unit;
    int l;
    bool real;
};

static __device__ inline struct row own_row(const struct ash_norm_args &args)
{
    struct row row;

    row.unit = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) / ASH_LANES;
    row.l = threadIdx.x % ASH_LANES;
    row.real = row.unit < args.rows * args.groups;
    if (!row.real) row.unit = 0;
    return row;
}

static __device__ inline void put(const struct ash_norm_args &args, size_t at, float y)
{
    if (args.y_bf16 != NULL)
        args.y_bf16[at] = ash_f32_to_bf16(y);
    else
        args.y[at] = y;
}

static __device__ inline float sum_squares(const float *x, size_t cols, float mean, int l)
{
    float lane = 0.0f;

    for (size_t c = l; c < cols; c += ASH_LANES)
        lane = fmaf(x[c] - mean, x[c] - mean, lane);
    return fold_lanes(lane);
}

extern "C" __global__ void rms_forward(struct ash_norm_args args)
{
    struct row row = own_row(args);
    const float *x = args.x + x_offset(args, row.unit);
    size_t at = y_offset(args, row.unit);
    float rstd = 1.0f / sqrtf(sum_squares(x, args.cols, 0.0f, row.l) / (float)args.cols + args.eps);

    if (!row.real) return;
    for (size_t c = row.l; c < args.cols; c += ASH_LANES)
        put(args, at + c, (x[c] * rstd) * args.weight[c]);
    if (args.rstd != NULL && row.l == 0) args.rstd[row.unit] = rstd;
}

/* What the gradients of weight and bias are summed from. */
static __device__ inline struct chain_rows chain_of(const struct ash_norm_args &args)
{
    bool is_wide = args.cols % 4 == 0 && args.x_stride % 4 == 0 && args.y_stride % 4 == 0 &&
                   ((uintptr_t)args.x | (uintptr_t)args.dy) % 16 == 0;
    struct chain_rows rows = {args.dy, args.x, args.mean, args.rstd, args.rows * args.groups, args.cols, is_wide};

    return rows;
}

extern "C" __global__ void __launch_bounds__(CHAIN_THREADS, 1) rms_backward_weight(struct ash_norm_args args)
{
    struct chain_rows rows = chain_of(args);

    rows.mean = NULL;
    column_chains<true, false>(rows, args.dweight, NULL, [&](size_t unit, bool is_x) {
        return is_x ? x_offset(args, unit) : y_offset(args, unit);
    });
}

#define AHEAD 8 /* columns of a thread that are read before the first is written: dx may be dy */

/* dx of a row, from value(x, dy * weight) of each column. */
template <typename Value>
static __device__ inline void put_gradients(const struct ash_norm_args &args, const float *x, const float *dy,
                                            const struct row &row, Value value)
{
    float *dx = args.dx + x_offset(args, row.unit);
    uint16_t *rounded = args.dx_bf16 != NULL ? args.dx_bf16 + row.unit * args.cols : NULL;
    int l = row.l;

    for (size_t first = l; first < args.cols; first += AHEAD * ASH_LANES) {
        float out[AHEAD], old[AHEAD];

#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            size_t c = first + i * ASH_LANES;

            if (c >= args.cols) continue;
            out[i] = value(x[c], dy[c] * args.weight[c]);
            old[i] = args.dx_add ? dx[c] : 0.0f;
        }
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            size_t c = first + i * ASH_LANES;

            if (c >= args.cols) continue;
            out[i] = args.dx_add ? old[i] + out[i] : out[i];
            dx[c] = out[i];
            if (rounded != NULL) rounded[c] = ash_f32_to_bf16(out[i]);
        }
    }
}

extern "C" __global__ void rms_backward(struct ash_norm_args args)
{
    struct row row = own_row(args);
    const float *x = args.x + x_offset(args, row.unit), *dy = args.dy + y_offset(args, row.unit);
    float rstd = args.rstd[row.unit], lane = 0.0f, mean;

    for (size_t c = row.l; c < args.cols; c += ASH_LANES)
        lane = fmaf(dy[c] * args.weight[c], x[c] * rstd, lane);
    mean = fold_lanes(lane) / (float)args.cols;
    if (!row.real) return;
    put_gradients(args, x, dy, row, [&](float x_c, float g) { return fmaf(-(x_c * rstd), mean, g) * rstd; });
}

extern "C" __global__ void layer_forward(struct ash_norm_args args)
{
    struct row row = own_row(args);
    const float *x = args.x + x_offset(args, row.unit);
    size_t at = y_offset(args, row.unit);
    float lane = 0.0f, mean, rstd;

    for (size_t c = row.l; c < args.cols; c += ASH_LANES)
        lane = lane + x[c];
    mean = fold_lanes(lane) / (float)args.cols;
    rstd = 1.0f / sqrtf(sum_squares(x, args.cols, mean, row.l) / (float)args.cols + args.eps);
    if (!row.real) return;
    for (size_t c = row.l; c < args.cols; c += ASH_LANES) {
        float xhat = (x[c] - mean) * rstd;

        put(args, at + c, args.bias != NULL ? fmaf(xhat, args.weight[c], args.bias[c]) : xhat * args.weight[c]);
    }
    if (row.l != 0) return;
    if (args.rstd != NULL) args.rstd[row.unit] = rstd;
    if (args.mean != NULL) args.mean[row.unit] = mean;
}

extern "C" __global__ void __launch_bounds__(CHAIN_THREADS, 1) layer_backward_weight(struct ash_norm_args args)
{
    column_chains<true, true>(chain_of(args), args.dweight, args.dbias, [&](size_t unit, bool is_x) {
        return is_x ? x_offset(args, unit) : y_offset(args, unit);
    });
}

extern "C" __global__ void layer_backward(struct ash_norm_args args)
{
    struct row row = own_row(args);
    const float *x = args.x + x_offset(args, row.unit), *dy = args.dy + y_offset(args, row.unit);
    float mean = args.mean[row.unit], rstd = args.rstd[row.unit], sum = 0.0f, dot = 0.0f, mean_g, mean_dot;

    for (size_t c = row.l; c < args.cols; c += ASH_LANES) {
        float g = dy[c] * args.weight[c];

        sum = sum + g;
        dot = fmaf(g, (x[c] - mean) * rstd, dot);
    }
    mean_g = fold_lanes(sum) / (float)args.cols;
    mean_dot = fold_lanes(dot) / (float)args.cols;
    if (!row.real) return;
    put_gradients(args, x, dy, row,
                  [&](float x_c, float g) { return fmaf(-((x_c - mean) * rstd), mean_dot, g - mean_g) * rstd; });
}
