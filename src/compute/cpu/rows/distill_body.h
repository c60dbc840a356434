/* distill_body - the divergence from a teacher of one instruction set. Elements are computed side by side, and their
 * terms added in float64, each to its lane. */
#ifndef ASH_COMPUTE_DISTILL_BODY_H
#define ASH_COMPUTE_DISTILL_BODY_H

#ifndef ASH_COMPUTE_WIDE_H
#error "include wide.h first"
#endif

#define DISTILL_MIN_COUNT 1024

/* A distribution: what all of its columns share. */
struct distill_side {
    float sharpness, max, log_sum;
};

INLINE struct wide distill_shifted(const struct distill_side *side, struct wide x)
{
    return wide_sub(wide_mul(x, wide_set(side->sharpness)), wide_set(side->max));
}

INLINE struct wide distill_log(const struct distill_side *side, struct wide x)
{
    return wide_sub(distill_shifted(side, x), wide_set(side->log_sum));
}

INLINE void distill_add(double *lanes, struct wide terms, size_t count)
{
    float term[ASH_LANES];

    wide_store(term, terms);
    for (size_t l = 0; l < count; l++)
        lanes[l] = lanes[l] + (double)term[l];
}

static double distill_fold(double lanes[ASH_LANES])
{
    for (int half = ASH_LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++)
            lanes[l] = lanes[l] + lanes[l + half];
    return lanes[0];
}

static struct distill_side distill_side_of(const float *x, size_t cols, float sharpness)
{
    struct distill_side side = {.sharpness = sharpness, .max = max_row(x, cols, -INFINITY) * sharpness};
    double lanes[ASH_LANES] = {0};
    size_t i = 0;

    for (; i + ASH_LANES <= cols; i += ASH_LANES)
        distill_add(lanes, wide_exp(distill_shifted(&side, wide_load(x + i))), ASH_LANES);
    if (i < cols) distill_add(lanes, wide_exp(distill_shifted(&side, wide_load_n(x + i, cols - i))), cols - i);
    side.log_sum = ash_logf((float)distill_fold(lanes));
    return side;
}

/* log of x in [1, 2]: whose power of two is 0, or 1 from the square root of 2 on. */
INLINE struct wide distill_log_1_to_2(struct wide x)
{
    static const float poly[] = ASH_LOG_POLY;
    struct wide one = wide_set(1.0f), below = wide_set(ash_f32_from_bits(0x3fb504f2u)), square, y;
    struct wide e = wide_pick_gt(x, below, one, wide_set(0.0f));
    struct wide f = wide_sub(wide_pick_gt(x, below, wide_mul(x, wide_set(0.5f)), x), one);

    square = wide_mul(f, f);
    y = wide_fma(e, wide_set(ASH_LN2_LO), wide_mul(wide_mul(f, square), wide_poly(poly, 9, f)));
    y = wide_fma(wide_set(-0.5f), square, y);
    return wide_fma(e, wide_set(ASH_LN2_HI), wide_add(f, y));
}

/* One row. */
struct distill_row {
    const struct ash_distill_args *args;
    float *x;
    const float *teacher;
    struct distill_side student_side, teacher_side, hard_side;
    float log_rest, log_beta; /* of 1 - beta and beta */
    double student_sum;       /* of p * log(p / m) */
};

/* Columns: logarithms of p, q and m. */
struct distill_columns {
    struct wide p, q, m;
};

INLINE struct distill_columns distill_columns_of(const struct distill_row *row, size_t i, size_t count)
{
    float beta = row->args->beta;
    struct wide a, b, high, low;
    struct distill_columns columns = {.p = distill_log(&row->student_side, wide_load_n(row->x + i, count)),
                                      .q = distill_log(&row->teacher_side, wide_load_n(row->teacher + i, count))};

    if (beta == 0.0f || beta == 1.0f) {
        columns.m = beta == 0.0f ? columns.p : columns.q;
        return columns;
    }
    a = wide_add(columns.p, wide_set(row->log_rest));
    b = wide_add(columns.q, wide_set(row->log_beta));
    high = wide_pick_gt(a, b, a, b);
    low = wide_pick_gt(a, b, b, a);
    columns.m = wide_add(high, distill_log_1_to_2(wide_add(wide_set(1.0f), wide_exp(wide_sub(low, high)))));
    return columns;
}

INLINE struct wide distill_term(struct wide log_p, struct wide log_m)
{
    struct wide p = wide_exp(log_p), zero = wide_set(0.0f);

    return wide_pick_gt(p, zero, wide_mul(p, wide_sub(log_p, log_m)), zero);
}

INLINE void distill_sum_step(const struct distill_row *row, size_t i, size_t count, double *student, double *teacher)
{
    struct distill_columns columns = distill_columns_of(row, i, count);

    distill_add(student, distill_term(columns.p, columns.m), count);
    distill_add(teacher, distill_term(columns.q, columns.m), count);
}

/* The divergence; row gets the sum that its gradient needs. */
static double distill_sum_row(struct distill_row *row)
{
    double student[ASH_LANES] = {0}, teacher[ASH_LANES] = {0}, beta = (double)row->args->beta;
    size_t i = 0, cols = row->args->cols;

    for (; i + ASH_LANES <= cols; i += ASH_LANES)
        distill_sum_step(row, i, ASH_LANES, student, teacher);
    if (i < cols) distill_sum_step(row, i, cols - i, student, teacher);
    row->student_sum = distill_fold(student);
    if (beta == 0.0) return distill_fold(teacher);
    return beta == 1.0 ? row->student_sum : beta * distill_fold(teacher) + (1.0 - beta) * row->student_sum;
}

/* Logits become gradients. */
INLINE void distill_grad_step(const struct distill_row *row, size_t i, size_t count)
{
    const struct ash_distill_args *args = row->args;
    struct distill_columns columns = distill_columns_of(row, i, count);
    struct wide p = wide_exp(columns.p), zero = wide_set(0.0f), gradient, hard;
    float factor = args->scale * args->sharpness * (args->beta == 1.0f ? 1.0f : 1.0f - args->beta);

    if (args->beta == 0.0f)
        gradient = wide_sub(p, wide_exp(columns.q));
    else
        gradient = wide_pick_gt(
            p, zero, wide_mul(p, wide_sub(wide_sub(columns.p, columns.m), wide_set((float)row->student_sum))), zero);
    gradient = wide_mul(gradient, wide_set(factor));
    if (args->target_weight != 0.0f) {
        hard = wide_exp(distill_log(&row->hard_side, wide_load_n(row->x + i, count)));
        gradient = wide_add(gradient, wide_mul(hard, wide_set(args->scale * args->target_weight)));
    }
    wide_store_n(row->x + i, gradient, count);
}

static void distill_one_row(const struct ash_distill_args *args, size_t r)
{
    struct distill_row row = {
        .args = args, .x = args->logits + r * args->cols, .teacher = args->teacher + r * args->cols};
    float *target = args->target_weight != 0.0f ? row.x + args->targets[r] : NULL;
    double at_target = 0.0;
    size_t i = 0;

    row.student_side = distill_side_of(row.x, args->cols, args->sharpness);
    row.teacher_side = distill_side_of(row.teacher, args->cols, args->sharpness);
    row.log_rest = ash_logf(1.0f - args->beta);
    row.log_beta = ash_logf(args->beta);
    if (target != NULL) {
        row.hard_side = distill_side_of(row.x, args->cols, 1.0f);
        at_target = (double)((*target * 1.0f - row.hard_side.max) - row.hard_side.log_sum);
    }
    args->loss[r] = (float)(distill_sum_row(&row) - (double)args->target_weight * at_target);
    for (; i + ASH_LANES <= args->cols; i += ASH_LANES)
        distill_grad_step(&row, i, ASH_LANES);
    if (i < args->cols) distill_grad_step(&row, i, args->cols - i);
    if (target != NULL) *target = *target - args->scale * args->target_weight;
}

static void distill_rows(void *ctx, size_t begin, size_t end, int worker)
{
    const struct ash_distill_args *args = ctx;

    (void)worker;
    for (size_t r = begin; r < end; r++) {
        if (args->targets[r] >= 0) {
            distill_one_row(args, r);
            continue;
        }
        args->loss[r] = 0.0f;
        memset(args->logits + r * args->cols, 0, args->cols * sizeof(float));
    }
}

static void distill(struct ash_exec *exec, const struct ash_distill_args *args)
{
    struct ash_distill_args op = *args;

    ash_assert(args->cols > 0 && args->beta >= 0.0f && args->beta <= 1.0f);
    ash_workers_run(exec->workers, op.rows, DISTILL_MIN_COUNT / op.cols + 1, distill_rows, &op);
}

#endif
