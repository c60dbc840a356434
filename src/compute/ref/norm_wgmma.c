/* Norms as ref-wgmma adds them for bf16 models: rows by blocks of columns, weights' gradients by blocks of rows
 * (compute/blocks.h), and dy rounded as it is read. Norms of other models are the reference's. */
#include "compute/ref/ref_priv.h"

#include <math.h>
#include "base/assert.h"
#include "compute/blocks.h"

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

/* Column c of a row's dy, as it is read. */
static float read_dy(const struct ash_norm_args *args, size_t unit, size_t c)
{
    size_t at = y_offset(args, unit) + c;

    return args->dy_bf16 != NULL ? ash_bf16_to_f32(args->dy_bf16[at]) : ash_bf16_round(args->dy[at]);
}

/* x of a row, normalised; layer norms have a mean. */
static float read_xhat(const struct ash_norm_args *args, size_t unit, size_t c, bool layer)
{
    float x = args->x[x_offset(args, unit) + c];

    return (layer ? x - args->mean[unit] : x) * args->rstd[unit];
}

/* ---- row sums ---------------------------------------------------------------------------------------------------- */

/* The columns of a block of a row, minus mean; zeros after the last. */
static void read_block(const float *x, size_t cols, size_t first, float mean, float block[ASH_SUM_BLOCK])
{
    for (size_t i = 0; i < ASH_SUM_BLOCK; i++)
        block[i] = first + i < cols ? x[first + i] - mean : 0.0f;
}

static float add_products(const float a[ASH_SUM_BLOCK], const float b[ASH_SUM_BLOCK])
{
    float pairs[ASH_SUM_BLOCK / 2];

    for (size_t i = 0; i < ASH_SUM_BLOCK / 2; i++)
        pairs[i] = fmaf(a[2 * i + 1], b[2 * i + 1], a[2 * i] * b[2 * i]);
    return ash_sum_neighbours(pairs, ASH_SUM_BLOCK / 2);
}

/* Block `at` (a number of columns) into its partial sum. */
static void put_block(float lanes[ASH_SUM_LANES], size_t at, float sum)
{
    size_t lane = at / ASH_SUM_BLOCK % ASH_SUM_LANES;

    lanes[lane] = lanes[lane] + sum;
}

static float sum_row(const float *x, size_t cols)
{
    float lanes[ASH_SUM_LANES] = {0}, block[ASH_SUM_BLOCK];

    for (size_t c = 0; c < cols; c += ASH_SUM_BLOCK) {
        read_block(x, cols, c, 0.0f, block);
        put_block(lanes, c, ash_sum_neighbours(block, ASH_SUM_BLOCK));
    }
    return ash_sum_fold(lanes);
}

/* Sum of (x - mean)^2. */
static float sum_squares(const float *x, size_t cols, float mean)
{
    float lanes[ASH_SUM_LANES] = {0}, block[ASH_SUM_BLOCK];

    for (size_t c = 0; c < cols; c += ASH_SUM_BLOCK) {
        read_block(x, cols, c, mean, block);
        put_block(lanes, c, add_products(block, block));
    }
    return ash_sum_fold(lanes);
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

struct norm {
    const struct ash_norm_args *args;
    bool layer;
};

static void forward_rows(void *ctx, size_t begin, size_t end, int worker)
{
    const struct norm *op = ctx;
    const struct ash_norm_args *args = op->args;

    (void)worker;
    for (size_t unit = begin; unit < end; unit++) {
        const float *x = &args->x[x_offset(args, unit)];
        float mean = op->layer ? sum_row(x, args->cols) / (float)args->cols : 0.0f;
        float rstd = 1.0f / sqrtf(sum_squares(x, args->cols, mean) / (float)args->cols + args->eps);

        for (size_t c = 0; c < args->cols; c++) {
            float xhat = (x[c] - mean) * rstd;
            float y =
                op->layer && args->bias != NULL ? fmaf(xhat, args->weight[c], args->bias[c]) : xhat * args->weight[c];

            ash_ref_put(args->y, args->y_bf16, y_offset(args, unit) + c, y);
        }
        if (args->rstd != NULL) args->rstd[unit] = rstd;
        if (op->layer && args->mean != NULL) args->mean[unit] = mean;
    }
}

static void forward(struct ash_exec *exec, const struct ash_norm_args *args, bool layer)
{
    struct norm op = {args, layer};

    ash_workers_run(exec->workers, args->rows * args->groups, NORM_MIN_ROWS, forward_rows, &op);
}

/* ---- backward ---------------------------------------------------------------------------------------------------- */

/* dweight and dbias of a column: a sum for each block of rows, added to what is there. */
static void backward_cols(void *ctx, size_t begin, size_t end, int worker)
{
    const struct norm *op = ctx;
    const struct ash_norm_args *args = op->args;
    struct ash_seq_rows rows = ash_norm_seq_rows(args);

    (void)worker;
    for (size_t c = begin; c < end; c++)
        for (size_t b = 0; b < ash_row_blocks(&rows); b++) {
            struct ash_row_block block = ash_row_block(&rows, b);
            float weight = 0.0f, bias = 0.0f;

            for (size_t unit = block.first * args->groups; unit < (block.first + block.count) * args->groups; unit++) {
                float dy = read_dy(args, unit, c);

                weight = fmaf(dy, read_xhat(args, unit, c, op->layer), weight);
                bias = bias + dy;
            }
            if (args->dweight != NULL) args->dweight[c] = args->dweight[c] + weight;
            if (args->dbias != NULL) args->dbias[c] = args->dbias[c] + bias;
        }
}

/* Means over a row of g = dy * weight (layer norms alone), and of g * xhat. */
static void row_means(const struct norm *op, size_t unit, float *mean_g, float *mean_dot)
{
    const struct ash_norm_args *args = op->args;
    float sums[ASH_SUM_LANES] = {0}, dots[ASH_SUM_LANES] = {0}, g[ASH_SUM_BLOCK], xhat[ASH_SUM_BLOCK];

    for (size_t first = 0; first < args->cols; first += ASH_SUM_BLOCK) {
        for (size_t i = 0; i < ASH_SUM_BLOCK; i++) {
            bool is_there = first + i < args->cols;

            g[i] = is_there ? read_dy(args, unit, first + i) * args->weight[first + i] : 0.0f;
            xhat[i] = is_there ? read_xhat(args, unit, first + i, op->layer) : 0.0f;
        }
        put_block(dots, first, add_products(g, xhat));
        put_block(sums, first, ash_sum_neighbours(g, ASH_SUM_BLOCK));
    }
    *mean_dot = ash_sum_fold(dots) / (float)args->cols;
    *mean_g = op->layer ? ash_sum_fold(sums) / (float)args->cols : 0.0f;
}

/* dx = rstd * (g - mean(g) - xhat * mean(g * xhat)); RMS norms have no mean(g). dx may be dy. */
static void backward_rows(void *ctx, size_t begin, size_t end, int worker)
{
    const struct norm *op = ctx;
    const struct ash_norm_args *args = op->args;

    (void)worker;
    for (size_t unit = begin; unit < end; unit++) {
        float *dx = &args->dx[x_offset(args, unit)], mean_g, mean_dot;

        row_means(op, unit, &mean_g, &mean_dot);
        for (size_t c = 0; c < args->cols; c++) {
            float g = read_dy(args, unit, c) * args->weight[c], xhat = read_xhat(args, unit, c, op->layer);
            float value = fmaf(-xhat, mean_dot, op->layer ? g - mean_g : g) * args->rstd[unit];

            dx[c] = args->dx_add ? dx[c] + value : value;
            if (args->dx_bf16 != NULL) args->dx_bf16[unit * args->cols + c] = ash_f32_to_bf16(dx[c]);
        }
    }
}

/* Weights come first: dx may overwrite dy. */
static void backward(struct ash_exec *exec, const struct ash_norm_args *args, bool layer)
{
    struct norm op = {args, layer};

    ash_assert(args->seq_first % ASH_K_GROUP == 0);
    if (args->rows == 0) return;
    if (args->dweight != NULL || args->dbias != NULL)
        ash_workers_run(exec->workers, args->cols, NORM_MIN_COLS, backward_cols, &op);
    ash_workers_run(exec->workers, args->rows * args->groups, NORM_MIN_ROWS, backward_rows, &op);
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static void rms_forward(struct ash_exec *exec, const struct ash_norm_args *args)
{
    if (args->round_bf16)
        forward(exec, args, false);
    else
        ash_ref_norm.rms_forward(exec, args);
}

static void rms_backward(struct ash_exec *exec, const struct ash_norm_args *args)
{
    if (args->round_bf16)
        backward(exec, args, false);
    else
        ash_ref_norm.rms_backward(exec, args);
}

static void layer_forward(struct ash_exec *exec, const struct ash_norm_args *args)
{
    if (args->round_bf16)
        forward(exec, args, true);
    else
        ash_ref_norm.layer_forward(exec, args);
}

static void layer_backward(struct ash_exec *exec, const struct ash_norm_args *args)
{
    if (args->round_bf16)
        backward(exec, args, true);
    else
        ash_ref_norm.layer_backward(exec, args);
}

const struct ash_norm_ops ash_ref_norm_wgmma = {.rms_forward = rms_forward,
                                                .rms_backward = rms_backward,
                                                .layer_forward = layer_forward,
                                                .layer_backward = layer_backward};

/* ---- biases ------------------------------------------------------------------------------------------------------ */

static void column_sum_cols(void *ctx, size_t begin, size_t end, int worker)
{
    const struct ash_column_sum_args *args = ctx;
    struct ash_seq_rows rows = {args->rows, args->seq_rows, 0};

    (void)worker;
    for (size_t c = begin; c < end; c++)
        for (size_t b = 0; b < ash_row_blocks(&rows); b++) {
            struct ash_row_block block = ash_row_block(&rows, b);
            float sum = 0.0f;

            for (size_t r = block.first; r < block.first + block.count; r++)
                sum = sum + args->x[r * args->stride + c];
            args->sum[c] = args->sum[c] + sum;
        }
}

void ash_ref_column_sum_blocks(struct ash_exec *exec, const struct ash_column_sum_args *args)
{
    if (args->seq_rows == 0)
        ash_ref_column_sum(exec, args);
    else
        ash_workers_run(exec->workers, args->cols, NORM_MIN_COLS, column_sum_cols, (void *)args);
}
