/* RMS and layer norm in plain C, forward and backward. Row sums use the lanes rule; weight gradients walk rows in
 * order. */
#include "compute/ref/ref_priv.h"

#include <math.h>
#include "compute/lanes.h"

#define NORM_MIN_ROWS 8
#define NORM_MIN_COLS 16

/* Where row (r, g) of unit r * groups + g starts in x and in y. */
static size_t x_offset(const struct ash_norm_args *args, size_t unit)
{
    return unit / args->groups * args->x_stride + unit % args->groups * args->cols;
}

static size_t y_offset(const struct ash_norm_args *args, size_t unit)
{
    return unit / args->groups * args->y_stride + unit % args->groups * args->cols;
}

/* The rounded copy of dx, where it is wanted. */
static void put_rounded(const struct ash_norm_args *args, size_t unit, size_t c, float dx)
{
    if (args->dx_bf16 != NULL) args->dx_bf16[unit * args->cols + c] = ash_f32_to_bf16(dx);
}

static float sum_row(const float *x, size_t cols)
{
    float lanes[ASH_LANES] = {0};

    for (size_t c = 0; c < cols; c++)
        lanes[c % ASH_LANES] = lanes[c % ASH_LANES] + x[c];
    return ash_lanes_fold(lanes);
}

/* Sum of (x - mean)^2. */
static float sum_squares(const float *x, size_t cols, float mean)
{
    float lanes[ASH_LANES] = {0};

    for (size_t c = 0; c < cols; c++)
        lanes[c % ASH_LANES] = fmaf(x[c] - mean, x[c] - mean, lanes[c % ASH_LANES]);
    return ash_lanes_fold(lanes);
}

/* ---- RMS norm ---------------------------------------------------------------------------------------------------- */

static void rms_forward_rows(void *ctx, size_t begin, size_t end, int worker)
{
    const struct ash_norm_args *args = ctx;

    (void)worker;
    for (size_t unit = begin; unit < end; unit++) {
        const float *x = &args->x[x_offset(args, unit)];
        float rstd = 1.0f / sqrtf(sum_squares(x, args->cols, 0.0f) / (float)args->cols + args->eps);

        for (size_t c = 0; c < args->cols; c++)
            ash_ref_put(args->y, args->y_bf16, y_offset(args, unit) + c, (x[c] * rstd) * args->weight[c]);
        if (args->rstd != NULL) args->rstd[unit] = rstd;
    }
}

static void rms_forward(struct ash_exec *exec, const struct ash_norm_args *args)
{
    ash_workers_run(exec->workers, args->rows * args->groups, NORM_MIN_ROWS, rms_forward_rows, (void *)args);
}

/* dweight[c] += dy * xhat. A unit is a column. */
static void rms_backward_weight(void *ctx, size_t begin, size_t end, int worker)
{
    const struct ash_norm_args *args = ctx;

    (void)worker;
    for (size_t c = begin; c < end; c++)
        for (size_t unit = 0; unit < args->rows * args->groups; unit++) {
            float xhat = args->x[x_offset(args, unit) + c] * args->rstd[unit];
            args->dweight[c] = fmaf(args->dy[y_offset(args, unit) + c], xhat, args->dweight[c]);
        }
}

/* dx = rstd * (g - xhat * mean(g * xhat)), g = dy * weight. */
static void rms_backward_rows(void *ctx, size_t begin, size_t end, int worker)
{
    const struct ash_norm_args *args = ctx;

    (void)worker;
    for (size_t unit = begin; unit < end; unit++) {
        const float *x = &args->x[x_offset(args, unit)], *dy = &args->dy[y_offset(args, unit)];
        float *dx = &args->dx[x_offset(args, unit)];
        float lanes[ASH_LANES] = {0}, rstd = args->rstd[unit], mean;

        for (size_t c = 0; c < args->cols; c++)
            lanes[c % ASH_LANES] = fmaf(dy[c] * args->weight[c], x[c] * rstd, lanes[c % ASH_LANES]);
        mean = ash_lanes_fold(lanes) / (float)args->cols;
        for (size_t c = 0; c < args->cols; c++) {
            float value = fmaf(-(x[c] * rstd), mean, dy[c] * args->weight[c]) * rstd;
            dx[c] = args->dx_add ? dx[c] + value : value;
            put_rounded(args, unit, c, dx[c]);
        }
    }
}

/* The weight's gradient comes first: dx may overwrite dy. */
static void rms_backward(struct ash_exec *exec, const struct ash_norm_args *args)
{
    if (args->dweight != NULL)
        ash_workers_run(exec->workers, args->cols, NORM_MIN_COLS, rms_backward_weight, (void *)args);
    ash_workers_run(exec->workers, args->rows * args->groups, NORM_MIN_ROWS, rms_backward_rows, (void *)args);
}

/* ---- layer norm -------------------------------------------------------------------------------------------------- */

static void layer_forward_rows(void *ctx, size_t begin, size_t end, int worker)
{
    const struct ash_norm_args *args = ctx;

    (void)worker;
    for (size_t unit = begin; unit < end; unit++) {
        const float *x = &args->x[x_offset(args, unit)];
        float mean = sum_row(x, args->cols) / (float)args->cols;
        float rstd = 1.0f / sqrtf(sum_squares(x, args->cols, mean) / (float)args->cols + args->eps);

        for (size_t c = 0; c < args->cols; c++) {
            float xhat = (x[c] - mean) * rstd;
            float y = args->bias != NULL ? fmaf(xhat, args->weight[c], args->bias[c]) : xhat * args->weight[c];

            ash_ref_put(args->y, args->y_bf16, y_offset(args, unit) + c, y);
        }
        if (args->rstd != NULL) args->rstd[unit] = rstd;
        if (args->mean != NULL) args->mean[unit] = mean;
    }
}

static void layer_forward(struct ash_exec *exec, const struct ash_norm_args *args)
{
    ash_workers_run(exec->workers, args->rows * args->groups, NORM_MIN_ROWS, layer_forward_rows, (void *)args);
}

static void layer_backward_weight(void *ctx, size_t begin, size_t end, int worker)
{
    const struct ash_norm_args *args = ctx;

    (void)worker;
    for (size_t c = begin; c < end; c++)
        for (size_t unit = 0; unit < args->rows * args->groups; unit++) {
            float xhat = (args->x[x_offset(args, unit) + c] - args->mean[unit]) * args->rstd[unit];
            float dy = args->dy[y_offset(args, unit) + c];

            if (args->dweight != NULL) args->dweight[c] = fmaf(dy, xhat, args->dweight[c]);
            if (args->dbias != NULL) args->dbias[c] = args->dbias[c] + dy;
        }
}

/* dx = rstd * (g - mean(g) - xhat * mean(g * xhat)), g = dy * weight. */
static void layer_backward_rows(void *ctx, size_t begin, size_t end, int worker)
{
    const struct ash_norm_args *args = ctx;

    (void)worker;
    for (size_t unit = begin; unit < end; unit++) {
        const float *x = &args->x[x_offset(args, unit)], *dy = &args->dy[y_offset(args, unit)];
        float *dx = &args->dx[x_offset(args, unit)];
        float sums[ASH_LANES] = {0}, dots[ASH_LANES] = {0}, mean = args->mean[unit], rstd = args->rstd[unit];
        float mean_g, mean_dot;

        for (size_t c = 0; c < args->cols; c++) {
            float g = dy[c] * args->weight[c];
            sums[c % ASH_LANES] = sums[c % ASH_LANES] + g;
            dots[c % ASH_LANES] = fmaf(g, (x[c] - mean) * rstd, dots[c % ASH_LANES]);
        }
        mean_g = ash_lanes_fold(sums) / (float)args->cols;
        mean_dot = ash_lanes_fold(dots) / (float)args->cols;
        for (size_t c = 0; c < args->cols; c++) {
            float value = fmaf(-((x[c] - mean) * rstd), mean_dot, dy[c] * args->weight[c] - mean_g) * rstd;
            dx[c] = args->dx_add ? dx[c] + value : value;
            put_rounded(args, unit, c, dx[c]);
        }
    }
}

static void layer_backward(struct ash_exec *exec, const struct ash_norm_args *args)
{
    if (args->dweight != NULL || args->dbias != NULL)
        ash_workers_run(exec->workers, args->cols, NORM_MIN_COLS, layer_backward_weight, (void *)args);
    ash_workers_run(exec->workers, args->rows * args->groups, NORM_MIN_ROWS, layer_backward_rows, (void *)args);
}

const struct ash_norm_ops ash_ref_norm = {
    .rms_forward = rms_forward,
    .rms_backward = rms_backward,
    .layer_forward = layer_forward,
    .layer_backward = layer_backward,
};
