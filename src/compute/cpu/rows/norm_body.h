/* norm_body - RMS and layer norm of one instruction set. The two differ by the mean: RMS norm is layer norm with mean 0
 * and no bias, and a subtraction of 0 changes no bits. */
#ifndef ASH_COMPUTE_NORM_BODY_H
#define ASH_COMPUTE_NORM_BODY_H

#ifndef ASH_COMPUTE_MATRIX_BODY_H
#error "include matrix_body.h first"
#endif

#define NORM_MIN_ROWS 8
#define NORM_COLS 64 /* columns of a unit of the weight gradient */

struct norm_op {
    const struct ash_norm_args *args;
    bool layer;
};

static size_t norm_x(const struct ash_norm_args *args, size_t unit)
{
    return unit / args->groups * args->x_stride + unit % args->groups * args->cols;
}

static size_t norm_y(const struct ash_norm_args *args, size_t unit)
{
    return unit / args->groups * args->y_stride + unit % args->groups * args->cols;
}

static float norm_sum(const float *x, size_t cols)
{
    struct wide sum = wide_set(0.0f);
    float lanes[ASH_LANES];
    size_t c = 0;

    for (; c + ASH_LANES <= cols; c += ASH_LANES)
        sum = wide_add(sum, wide_load(x + c));
    if (c == cols) return wide_fold(sum);
    wide_store(lanes, sum);
    for (; c < cols; c++)
        lanes[c % ASH_LANES] = lanes[c % ASH_LANES] + x[c];
    return ash_lanes_fold(lanes);
}

/* Sum of (x - mean)^2. */
static float norm_squares(const float *x, size_t cols, float mean)
{
    struct wide sum = wide_set(0.0f);
    float lanes[ASH_LANES];
    size_t c = 0;

    for (; c + ASH_LANES <= cols; c += ASH_LANES) {
        struct wide d = wide_sub(wide_load(x + c), wide_set(mean));
        sum = wide_fma(d, d, sum);
    }
    if (c == cols) return wide_fold(sum);
    wide_store(lanes, sum);
    for (; c < cols; c++)
        lanes[c % ASH_LANES] = fmaf(x[c] - mean, x[c] - mean, lanes[c % ASH_LANES]);
    return ash_lanes_fold(lanes);
}

/* One row's statistics, as vectors. */
struct norm_row {
    struct wide mean, rstd;
};

INLINE void norm_step(const float *x, const float *weight, const float *bias, struct norm_row row, float *y,
                      size_t count)
{
    struct wide xhat = wide_mul(wide_sub(wide_load_n(x, count), row.mean), row.rstd), w = wide_load_n(weight, count);

    wide_store_n(y, bias != NULL ? wide_fma(xhat, w, wide_load_n(bias, count)) : wide_mul(xhat, w), count);
}

static void norm_forward_row(const float *x, const float *weight, const float *bias, struct norm_row row, float *y,
                             size_t cols)
{
    size_t c = 0;

    for (; c + ASH_LANES <= cols; c += ASH_LANES)
        norm_step(x + c, weight + c, bias != NULL ? bias + c : NULL, row, y + c, ASH_LANES);
    if (c < cols) norm_step(x + c, weight + c, bias != NULL ? bias + c : NULL, row, y + c, cols - c);
}

/* One row of RMS norm. */
static void rms_row(const float *x, const float *weight, float eps, float *y, size_t cols)
{
    float rstd = 1.0f / sqrtf(norm_squares(x, cols, 0.0f) / (float)cols + eps);

    norm_forward_row(x, weight, NULL, (struct norm_row){wide_set(0.0f), wide_set(rstd)}, y, cols);
}

static void norm_forward_rows(void *ctx, size_t begin, size_t end, int worker)
{
    const struct norm_op *op = ctx;
    const struct ash_norm_args *args = op->args;

    (void)worker;
    for (size_t unit = begin; unit < end; unit++) {
        const float *x = args->x + norm_x(args, unit);
        float mean = op->layer ? norm_sum(x, args->cols) / (float)args->cols : 0.0f;
        float rstd = 1.0f / sqrtf(norm_squares(x, args->cols, mean) / (float)args->cols + args->eps);

        norm_forward_row(x, args->weight, op->layer ? args->bias : NULL,
                         (struct norm_row){wide_set(mean), wide_set(rstd)}, args->y + norm_y(args, unit), args->cols);
        if (args->rstd != NULL) args->rstd[unit] = rstd;
        if (op->layer && args->mean != NULL) args->mean[unit] = mean;
    }
}

/* What one row adds to the gradients of weight and bias of count columns; NULL skips one. */
INLINE void norm_weight_step(const float *x, const float *dy, struct norm_row row, float *dweight, float *dbias,
                             size_t count)
{
    struct wide g = wide_load_n(dy, count), xhat;

    if (dweight != NULL) {
        xhat = wide_mul(wide_sub(wide_load_n(x, count), row.mean), row.rstd);
        wide_store_n(dweight, wide_fma(g, xhat, wide_load_n(dweight, count)), count);
    }
    if (dbias != NULL) wide_store_n(dbias, wide_add(wide_load_n(dbias, count), g), count);
}

/* Rows are the outer loop, so that memory is read in order; the sums of a unit's columns stay in L1. */
static void norm_backward_weight(void *ctx, size_t begin, size_t end, int worker)
{
    const struct norm_op *op = ctx;
    const struct ash_norm_args args = *op->args;
    size_t first = begin * NORM_COLS, last = ash_min(end * NORM_COLS, args.cols);
    float *dweight = args.dweight, *dbias = op->layer ? args.dbias : NULL;

    (void)worker;
    for (size_t unit = 0; unit < args.rows * args.groups; unit++) {
        const float *x = args.x + norm_x(&args, unit), *dy = args.dy + norm_y(&args, unit);
        struct norm_row row = {wide_set(op->layer ? args.mean[unit] : 0.0f), wide_set(args.rstd[unit])};
        size_t c = first;

        for (; c + ASH_LANES <= last; c += ASH_LANES)
            norm_weight_step(x + c, dy + c, row, dweight != NULL ? dweight + c : NULL, dbias != NULL ? dbias + c : NULL,
                             ASH_LANES);
        if (c < last)
            norm_weight_step(x + c, dy + c, row, dweight != NULL ? dweight + c : NULL, dbias != NULL ? dbias + c : NULL,
                             last - c);
    }
}

/* Row sums of g = dy * weight and of g * xhat. */
static void norm_backward_sums(const struct ash_norm_args *args, const float *x, const float *dy, float mean,
                               float rstd, float *sum_out, float *dot_out)
{
    struct wide sums = wide_set(0.0f), dots = wide_set(0.0f);
    float sum[ASH_LANES], dot[ASH_LANES];
    size_t c = 0;

    for (; c + ASH_LANES <= args->cols; c += ASH_LANES) {
        struct wide g = wide_mul(wide_load(dy + c), wide_load(args->weight + c));

        sums = wide_add(sums, g);
        dots = wide_fma(g, wide_mul(wide_sub(wide_load(x + c), wide_set(mean)), wide_set(rstd)), dots);
    }
    wide_store(sum, sums);
    wide_store(dot, dots);
    for (; c < args->cols; c++) {
        float g = dy[c] * args->weight[c];

        sum[c % ASH_LANES] = sum[c % ASH_LANES] + g;
        dot[c % ASH_LANES] = fmaf(g, (x[c] - mean) * rstd, dot[c % ASH_LANES]);
    }
    *sum_out = ash_lanes_fold(sum);
    *dot_out = ash_lanes_fold(dot);
}

/* What backward knows about a row: its statistics, and the means of g and of g * xhat. */
struct norm_back_row {
    struct wide mean, rstd, mean_g, mean_dot;
};

INLINE void norm_back_step(const float *x, const float *dy, const float *weight, struct norm_back_row row, bool add,
                           float *dx, size_t count)
{
    struct wide xhat = wide_mul(wide_sub(wide_load_n(x, count), row.mean), row.rstd);
    struct wide g = wide_mul(wide_load_n(dy, count), wide_load_n(weight, count));
    struct wide value = wide_mul(wide_fma(wide_neg(xhat), row.mean_dot, wide_sub(g, row.mean_g)), row.rstd);

    wide_store_n(dx, add ? wide_add(wide_load_n(dx, count), value) : value, count);
}

static void norm_backward_rows(void *ctx, size_t begin, size_t end, int worker)
{
    const struct norm_op *op = ctx;
    const struct ash_norm_args args = *op->args;

    (void)worker;
    for (size_t unit = begin; unit < end; unit++) {
        const float *x = args.x + norm_x(&args, unit), *dy = args.dy + norm_y(&args, unit);
        float *dx = args.dx + norm_x(&args, unit), mean = op->layer ? args.mean[unit] : 0.0f, sum, dot;
        struct norm_back_row row = {.mean = wide_set(mean), .rstd = wide_set(args.rstd[unit])};
        size_t c = 0;

        norm_backward_sums(&args, x, dy, mean, args.rstd[unit], &sum, &dot);
        row.mean_g = wide_set(op->layer ? sum / (float)args.cols : 0.0f);
        row.mean_dot = wide_set(dot / (float)args.cols);
        for (; c + ASH_LANES <= args.cols; c += ASH_LANES)
            norm_back_step(x + c, dy + c, args.weight + c, row, args.dx_add, dx + c, ASH_LANES);
        if (c < args.cols) norm_back_step(x + c, dy + c, args.weight + c, row, args.dx_add, dx + c, args.cols - c);
    }
}

/* What callers promise. */
static void norm_check(const struct ash_norm_args *args)
{
    ash_assert(args->groups > 0 && args->cols > 0 && args->weight != NULL);
    ash_assert(args->rows <= 1 || args->x_stride >= args->groups * args->cols);
    ash_assert(args->rows <= 1 || args->y_stride >= args->groups * args->cols);
}

static void norm_forward(struct ash_exec *exec, const struct ash_norm_args *args, bool layer)
{
    struct norm_op op = {.args = args, .layer = layer};

    norm_check(args);
    ash_workers_run(exec->workers, args->rows * args->groups, NORM_MIN_ROWS, norm_forward_rows, &op);
}

/* The gradients of weight and bias come first: dx may overwrite dy. */
static void norm_backward(struct ash_exec *exec, const struct ash_norm_args *args, bool layer)
{
    struct norm_op op = {.args = args, .layer = layer};
    size_t units = ash_div_up(args->cols, NORM_COLS);

    norm_check(args);
    ash_assert(args->rstd != NULL && (!layer || args->mean != NULL) && args->dy != NULL && args->dx != NULL);
    if (args->dweight != NULL || (layer && args->dbias != NULL))
        ash_workers_run(exec->workers, units, column_units(exec, units), norm_backward_weight, &op);
    ash_workers_run(exec->workers, args->rows * args->groups, NORM_MIN_ROWS, norm_backward_rows, &op);
}

static void norm_rms_forward(struct ash_exec *exec, const struct ash_norm_args *args)
{
    norm_forward(exec, args, false);
}

static void norm_rms_backward(struct ash_exec *exec, const struct ash_norm_args *args)
{
    norm_backward(exec, args, false);
}

static void norm_layer_forward(struct ash_exec *exec, const struct ash_norm_args *args)
{
    norm_forward(exec, args, true);
}

static void norm_layer_backward(struct ash_exec *exec, const struct ash_norm_args *args)
{
    norm_backward(exec, args, true);
}

static const struct ash_norm_ops vec_norm = {
    .rms_forward = norm_rms_forward,
    .rms_backward = norm_rms_backward,
    .layer_forward = norm_layer_forward,
    .layer_backward = norm_layer_backward,
};

#endif
