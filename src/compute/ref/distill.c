/* The divergence of rows of logits from a teacher's in plain C, and in place its gradient. */
#include "compute/ref/ref_priv.h"

#include <math.h>

#include "base/assert.h"
#include "compute/mathf.h"

#define DISTILL_MIN_ROWS 1

/* A distribution: what all of its columns share. */
struct side {
    float sharpness, max, log_sum;
};

static float log_probability(const struct side *side, float x)
{
    return (x * side->sharpness - side->max) - side->log_sum;
}

static double fold(double lanes[ASH_LANES])
{
    for (int half = ASH_LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++)
            lanes[l] = lanes[l] + lanes[l + half];
    return lanes[0];
}

static struct side side_of(const float *x, size_t cols, float sharpness)
{
    struct side side = {.sharpness = sharpness, .max = -INFINITY};
    double lanes[ASH_LANES] = {0};

    for (size_t v = 0; v < cols; v++)
        side.max = x[v] > side.max ? x[v] : side.max;
    side.max = side.max * sharpness;
    for (size_t v = 0; v < cols; v++)
        lanes[v % ASH_LANES] = lanes[v % ASH_LANES] + (double)ash_expf(x[v] * sharpness - side.max);
    side.log_sum = ash_logf((float)fold(lanes));
    return side;
}

/* One row. */
struct row {
    const struct ash_distill_args *args;
    float *x;
    const float *teacher;
    struct side student_side, teacher_side;
    float log_rest, log_beta; /* of 1 - beta and beta */
    double student_sum;       /* of p * log(p / m) */
};

/* A column: logarithms of p, q and m. */
struct column {
    float p, q, m;
};

static struct column column_of(const struct row *row, size_t v)
{
    float beta = row->args->beta, a, b, high, low;
    struct column column = {.p = log_probability(&row->student_side, row->x[v]),
                            .q = log_probability(&row->teacher_side, row->teacher[v])};

    if (beta == 0.0f || beta == 1.0f) {
        column.m = beta == 0.0f ? column.p : column.q;
        return column;
    }
    a = column.p + row->log_rest;
    b = column.q + row->log_beta;
    high = a > b ? a : b;
    low = a > b ? b : a;
    column.m = high + ash_logf(1.0f + ash_expf(low - high));
    return column;
}

static float term(float log_p, float log_m)
{
    float p = ash_expf(log_p);

    return p > 0.0f ? p * (log_p - log_m) : 0.0f;
}

/* The divergence; row gets the sum that its gradient needs. */
static double sum_row(struct row *row)
{
    double student[ASH_LANES] = {0}, teacher[ASH_LANES] = {0}, beta = (double)row->args->beta;

    for (size_t v = 0; v < row->args->cols; v++) {
        struct column column = column_of(row, v);

        student[v % ASH_LANES] = student[v % ASH_LANES] + (double)term(column.p, column.m);
        teacher[v % ASH_LANES] = teacher[v % ASH_LANES] + (double)term(column.q, column.m);
    }
    row->student_sum = fold(student);
    if (beta == 0.0) return fold(teacher);
    return beta == 1.0 ? row->student_sum : beta * fold(teacher) + (1.0 - beta) * row->student_sum;
}

/* Logits become gradients. */
static void grad_row(const struct row *row, const struct side *hard)
{
    const struct ash_distill_args *args = row->args;
    float beta = args->beta, mean = (float)row->student_sum, hard_scale = args->scale * args->target_weight;
    float factor = args->scale * args->sharpness * (beta == 1.0f ? 1.0f : 1.0f - beta);

    for (size_t v = 0; v < args->cols; v++) {
        struct column column = column_of(row, v);
        float p = ash_expf(column.p), x = row->x[v], gradient;

        if (beta == 0.0f)
            gradient = p - ash_expf(column.q);
        else
            gradient = p > 0.0f ? p * ((column.p - column.m) - mean) : 0.0f;
        row->x[v] = gradient * factor;
        if (args->target_weight != 0.0f) row->x[v] = row->x[v] + ash_expf(log_probability(hard, x)) * hard_scale;
    }
}

static void distill_row(const struct ash_distill_args *args, size_t r)
{
    struct row row = {.args = args, .x = args->logits + r * args->cols, .teacher = args->teacher + r * args->cols};
    struct side hard = {0};
    double loss, target = 0.0;

    ash_assert((size_t)args->targets[r] < args->cols);
    row.student_side = side_of(row.x, args->cols, args->sharpness);
    row.teacher_side = side_of(row.teacher, args->cols, args->sharpness);
    row.log_rest = ash_logf(1.0f - args->beta);
    row.log_beta = ash_logf(args->beta);
    if (args->target_weight != 0.0f) {
        hard = side_of(row.x, args->cols, 1.0f);
        target = (double)log_probability(&hard, row.x[args->targets[r]]);
    }
    loss = sum_row(&row);
    args->loss[r] = (float)(loss - (double)args->target_weight * target);
    grad_row(&row, &hard);
    if (args->target_weight != 0.0f)
        row.x[args->targets[r]] = row.x[args->targets[r]] - args->scale * args->target_weight;
}

static void distill_rows(void *ctx, size_t begin, size_t end, int worker)
{
    const struct ash_distill_args *args = ctx;

    (void)worker;
    for (size_t r = begin; r < end; r++) {
        if (args->targets[r] >= 0) {
            distill_row(args, r);
            continue;
        }
        args->loss[r] = 0.0f;
        for (size_t v = 0; v < args->cols; v++)
            args->logits[r * args->cols + v] = 0.0f;
    }
}

void ash_ref_distill(struct ash_exec *exec, const struct ash_distill_args *args)
{
    struct ash_distill_args op = *args;

    ash_assert(args->cols > 0 && args->beta >= 0.0f && args->beta <= 1.0f);
    ash_workers_run(exec->workers, op.rows, DISTILL_MIN_ROWS, distill_rows, &op);
}
