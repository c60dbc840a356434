/* norm_body - RMS and layer norm of one instruction set. Include after vmath.h.
 * The two differ by the mean: RMS norm is layer norm with mean 0 and no bias, and a subtraction of 0 changes no bits.
 */
#ifndef ASH_COMPUTE_NORM_BODY_H
#define ASH_COMPUTE_NORM_BODY_H

#define NORM_MIN_ROWS 8
#define NORM_COLS 64 /* columns of a unit of the weight gradient */

struct norm {
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
    struct lanes lanes;
    float part[ASH_LANES];
    size_t c = 0;

    lanes_zero(&lanes);
    for (; c + ASH_LANES <= cols; c += ASH_LANES) {
        UNROLL
        for (size_t v = 0; v < LANE_VECS; v++)
            lanes.part[v] = vf_add(lanes.part[v], vf_load(x + c + v * VF_WIDTH));
    }
    lanes_spill(&lanes, part);
    for (; c < cols; c++)
        part[c % ASH_LANES] = part[c % ASH_LANES] + x[c];
    return ash_lanes_fold(part);
}

/* Sum of (x - mean)^2. */
static float norm_squares(const float *x, size_t cols, float mean)
{
    struct lanes lanes;
    float part[ASH_LANES];
    vf middle = vf_set(mean);
    size_t c = 0;

    lanes_zero(&lanes);
    for (; c + ASH_LANES <= cols; c += ASH_LANES) {
        UNROLL
        for (size_t v = 0; v < LANE_VECS; v++) {
            vf d = vf_sub(vf_load(x + c + v * VF_WIDTH), middle);
            lanes.part[v] = vf_fma(d, d, lanes.part[v]);
        }
    }
    lanes_spill(&lanes, part);
    for (; c < cols; c++)
        part[c % ASH_LANES] = fmaf(x[c] - mean, x[c] - mean, part[c % ASH_LANES]);
    return ash_lanes_fold(part);
}

static void norm_forward_rows(void *ctx, size_t begin, size_t end, int worker)
{
    const struct norm *op = ctx;
    const struct ash_norm_args *args = op->args;

    (void)worker;
    for (size_t unit = begin; unit < end; unit++) {
        const float *x = args->x + norm_x(args, unit), *bias = op->layer ? args->bias : NULL;
        float *y = args->y + norm_y(args, unit);
        float mean = op->layer ? norm_sum(x, args->cols) / (float)args->cols : 0.0f;
        float rstd = 1.0f / sqrtf(norm_squares(x, args->cols, mean) / (float)args->cols + args->eps);
        vf middle = vf_set(mean), factor = vf_set(rstd);

        for (size_t c = 0; c < args->cols; c += VF_WIDTH) {
            size_t left = args->cols - c;
            vf xhat = vf_mul(vf_sub(vf_load_n(x + c, left), middle), factor),
               weight = vf_load_n(args->weight + c, left);

            vf_store_n(y + c, bias != NULL ? vf_fma(xhat, weight, vf_load_n(bias + c, left)) : vf_mul(xhat, weight),
                       left);
        }
        if (args->rstd != NULL) args->rstd[unit] = rstd;
        if (op->layer && args->mean != NULL) args->mean[unit] = mean;
    }
}

/* VF_WIDTH columns of the gradients of weight and bias, over all rows. */
static void norm_backward_cols(const struct norm *op, size_t c, size_t left)
{
    const struct ash_norm_args *args = op->args;
    vf dweight = args->dweight != NULL ? vf_load_n(args->dweight + c, left) : vf_set(0.0f);
    vf dbias = op->layer && args->dbias != NULL ? vf_load_n(args->dbias + c, left) : vf_set(0.0f);

    for (size_t unit = 0; unit < args->rows * args->groups; unit++) {
        vf x = vf_load_n(args->x + norm_x(args, unit) + c, left),
           dy = vf_load_n(args->dy + norm_y(args, unit) + c, left);
        vf mean = vf_set(op->layer ? args->mean[unit] : 0.0f);

        dweight = vf_fma(dy, vf_mul(vf_sub(x, mean), vf_set(args->rstd[unit])), dweight);
        dbias = vf_add(dbias, dy);
    }
    if (args->dweight != NULL) vf_store_n(args->dweight + c, dweight, left);
    if (op->layer && args->dbias != NULL) vf_store_n(args->dbias + c, dbias, left);
}

static void norm_backward_weight(void *ctx, size_t begin, size_t end, int worker)
{
    const struct norm *op = ctx;
    size_t last = end * NORM_COLS < op->args->cols ? end * NORM_COLS : op->args->cols;

    (void)worker;
    for (size_t c = begin * NORM_COLS; c < last; c += VF_WIDTH)
        norm_backward_cols(op, c, last - c);
}

/* Row sums of g = dy * weight and of g * xhat. */
static void norm_backward_sums(const struct ash_norm_args *args, const float *x, const float *dy, float mean,
                               float rstd, float *sum_out, float *dot_out)
{
    struct lanes sums, dots;
    float sum[ASH_LANES], dot[ASH_LANES];
    vf middle = vf_set(mean), factor = vf_set(rstd);
    size_t c = 0;

    lanes_zero(&sums);
    lanes_zero(&dots);
    for (; c + ASH_LANES <= args->cols; c += ASH_LANES) {
        UNROLL
        for (size_t v = 0; v < LANE_VECS; v++) {
            size_t at = c + v * VF_WIDTH;
            vf g = vf_mul(vf_load(dy + at), vf_load(args->weight + at));

            sums.part[v] = vf_add(sums.part[v], g);
            dots.part[v] = vf_fma(g, vf_mul(vf_sub(vf_load(x + at), middle), factor), dots.part[v]);
        }
    }
    lanes_spill(&sums, sum);
    lanes_spill(&dots, dot);
    for (; c < args->cols; c++) {
        float g = dy[c] * args->weight[c];
        sum[c % ASH_LANES] = sum[c % ASH_LANES] + g;
        dot[c % ASH_LANES] = fmaf(g, (x[c] - mean) * rstd, dot[c % ASH_LANES]);
    }
    *sum_out = ash_lanes_fold(sum);
    *dot_out = ash_lanes_fold(dot);
}

static void norm_backward_rows(void *ctx, size_t begin, size_t end, int worker)
{
    const struct norm *op = ctx;
    const struct ash_norm_args *args = op->args;

    (void)worker;
    for (size_t unit = begin; unit < end; unit++) {
        const float *x = args->x + norm_x(args, unit), *dy = args->dy + norm_y(args, unit);
        float *dx = args->dx + norm_x(args, unit), mean = op->layer ? args->mean[unit] : 0.0f, sum, dot;
        vf middle = vf_set(mean), factor = vf_set(args->rstd[unit]), mean_g, mean_dot;

        norm_backward_sums(args, x, dy, mean, args->rstd[unit], &sum, &dot);
        mean_g = vf_set(op->layer ? sum / (float)args->cols : 0.0f);
        mean_dot = vf_set(dot / (float)args->cols);
        for (size_t c = 0; c < args->cols; c += VF_WIDTH) {
            size_t left = args->cols - c;
            vf xhat = vf_mul(vf_sub(vf_load_n(x + c, left), middle), factor);
            vf g = vf_mul(vf_load_n(dy + c, left), vf_load_n(args->weight + c, left));
            vf value = vf_mul(vf_fma(vf_neg(xhat), mean_dot, vf_sub(g, mean_g)), factor);

            vf_store_n(dx + c, args->dx_add ? vf_add(vf_load_n(dx + c, left), value) : value, left);
        }
    }
}

static void norm_forward(struct ash_exec *exec, const struct ash_norm_args *args, bool layer)
{
    struct norm op = {.args = args, .layer = layer};

    ash_workers_run(exec->workers, args->rows * args->groups, NORM_MIN_ROWS, norm_forward_rows, &op);
}

/* The gradients of weight and bias come first: dx may overwrite dy. */
static void norm_backward(struct ash_exec *exec, const struct ash_norm_args *args, bool layer)
{
    struct norm op = {.args = args, .layer = layer};

    if (args->dweight != NULL || (layer && args->dbias != NULL))
        ash_workers_run(exec->workers, (args->cols + NORM_COLS - 1) / NORM_COLS, 1, norm_backward_weight, &op);
    ash_workers_run(exec->workers, args->rows * args->groups, NORM_MIN_ROWS, norm_backward_rows, &op);
}

static void rms_forward(struct ash_exec *exec, const struct ash_norm_args *args)
{
    norm_forward(exec, args, false);
}

static void rms_backward(struct ash_exec *exec, const struct ash_norm_args *args)
{
    norm_backward(exec, args, false);
}

static void layer_forward(struct ash_exec *exec, const struct ash_norm_args *args)
{
    norm_forward(exec, args, true);
}

static void layer_backward(struct ash_exec *exec, const struct ash_norm_args *args)
{
    norm_backward(exec, args, true);
}

static const struct ash_norm_ops vec_norm = {
    .rms_forward = rms_forward,
    .rms_backward = rms_backward,
    .layer_forward = layer_forward,
    .layer_backward = layer_backward,
};

#endif
