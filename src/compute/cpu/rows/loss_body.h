/* loss_body - cross-entropy and entropy of one instruction set. */
#ifndef ASH_COMPUTE_LOSS_BODY_H
#define ASH_COMPUTE_LOSS_BODY_H

#ifndef ASH_COMPUTE_WIDE_H
#error "include wide.h first"
#endif

#define LOSS_MIN_COUNT 1024

/* The target's logit among this part's columns, or NULL. */
static float *target_of(const struct ash_loss_part *part, size_t r)
{
    size_t column = (size_t)part->targets[r] - part->first; /* of another part: beyond this one's */

    return column < part->cols ? part->logits + r * part->cols + column : NULL;
}

/* What all columns of a row share. */
struct loss_row {
    float sharpness, max; /* max: of the sharpened logits */
    float sum, log_sum, entropy;
};

/* A row whose logits are taken as they are, and whose entropy is not wanted: most are. */
static bool is_plain(const struct ash_loss_part *part)
{
    return ash_loss_sharpness(part) == 1.0f && part->entropy == NULL;
}

/* lanes and moments (may be NULL) += those of x; out (may be NULL, or x): the exponentials. */
INLINE void sharp_lanes(const struct loss_row *row, const float *x, size_t count, float *lanes, float *moments,
                        float *out)
{
    struct wide sum = wide_load(lanes), moment = wide_set(0.0f), zero = wide_set(0.0f);
    size_t i = 0;

    if (moments != NULL) moment = wide_load(moments);
    for (; i + ASH_LANES <= count; i += ASH_LANES) {
        struct wide d = wide_sub(wide_mul(wide_load(x + i), wide_set(row->sharpness)), wide_set(row->max));
        struct wide e = wide_exp(d);

        sum = wide_add(sum, e);
        if (moments != NULL) moment = wide_add(moment, wide_pick_gt(e, zero, wide_mul(e, d), zero));
        if (out != NULL) wide_store(out + i, e);
    }
    wide_store(lanes, sum);
    if (moments != NULL) wide_store(moments, moment);
    for (; i < count; i++) {
        float d = x[i] * row->sharpness - row->max, e = ash_expf(d);

        lanes[i % ASH_LANES] = lanes[i % ASH_LANES] + e;
        if (moments != NULL) moments[i % ASH_LANES] = moments[i % ASH_LANES] + (e > 0.0f ? e * d : 0.0f);
        if (out != NULL) out[i] = e;
    }
}

/* Loss and entropy of a row from its sums; row gets what its gradient needs. */
INLINE void finish_row(const struct ash_loss_part *part, size_t r, struct loss_row *row, const float *lanes,
                       const float *moments, float target)
{
    row->sum = wide_fold(wide_load(lanes));
    row->log_sum = ash_logf(row->sum);
    part->loss[r] = row->log_sum - (target * row->sharpness - row->max);
    if (part->entropy == NULL) return;
    row->entropy = row->log_sum - wide_fold(wide_load(moments)) / row->sum;
    part->entropy[r] = row->entropy;
}

/* Logits become gradients, with that of the entropy. */
INLINE void entropy_grads(const struct loss_row *row, float *x, size_t count, float factor, float entropy_factor)
{
    struct wide zero = wide_set(0.0f);
    size_t i = 0;

    for (; i + ASH_LANES <= count; i += ASH_LANES) {
        struct wide d = wide_sub(wide_mul(wide_load(x + i), wide_set(row->sharpness)), wide_set(row->max));
        struct wide e = wide_exp(d), gradient = wide_mul(e, wide_set(factor));
        struct wide inner = wide_add(wide_sub(d, wide_set(row->log_sum)), wide_set(row->entropy));
        struct wide less = wide_sub(gradient, wide_mul(wide_mul(e, wide_set(entropy_factor)), inner));

        wide_store(x + i, wide_pick_gt(e, zero, less, gradient));
    }
    for (; i < count; i++) {
        float d = x[i] * row->sharpness - row->max, e = ash_expf(d), gradient = e * factor;

        x[i] = e > 0.0f ? gradient - (e * entropy_factor) * ((d - row->log_sum) + row->entropy) : gradient;
    }
}

/* Logits, exponentials by now unless the entropy has a scale, become gradients. */
static void grad_row(const struct ash_loss_part *part, size_t r, const struct loss_row *row)
{
    float *x = part->logits + r * part->cols, scale = ash_loss_scale(part, r) * row->sharpness;
    float factor = scale / row->sum;

    if (part->entropy_scales == NULL)
        scale_row(x, part->cols, factor);
    else
        entropy_grads(row, x, part->cols, factor, part->entropy_scales[r] * row->sharpness / row->sum);
    if (target_of(part, r) != NULL) *target_of(part, r) = *target_of(part, r) - scale;
}

static void skip_row(const struct ash_loss_part *part, size_t r)
{
    part->loss[r] = 0.0f;
    if (part->entropy != NULL) part->entropy[r] = 0.0f;
    if (ash_loss_has_gradient(part)) memset(part->logits + r * part->cols, 0, part->cols * sizeof(float));
}

/* lanes += the sums of a row's part; moments too where an entropy is wanted. Logits become exponentials where a
 * gradient needs those. */
INLINE void sum_row(const struct ash_loss_part *part, size_t r, const struct loss_row *row, float *lanes,
                    float *moments)
{
    float *x = part->logits + r * part->cols;
    float *out = ash_loss_has_gradient(part) && part->entropy_scales == NULL ? x : NULL;

    if (!is_plain(part))
        sharp_lanes(row, x, part->cols, lanes, part->entropy != NULL ? moments : NULL, out);
    else if (out != NULL)
        exp_lanes(x, part->cols, row->max, lanes, x);
    else
        exp_lanes(x, part->cols, row->max, lanes, NULL);
}

static void cross_entropy_rows(void *ctx, size_t begin, size_t end, int worker)
{
    const struct ash_loss_part *part = ctx;

    (void)worker;
    for (size_t r = begin; r < end; r++) {
        float lanes[ASH_LANES] = {0}, moments[ASH_LANES] = {0}, at_target;
        struct loss_row row = {.sharpness = ash_loss_sharpness(part)};

        if (part->targets[r] < 0) {
            skip_row(part, r);
            continue;
        }
        at_target = *target_of(part, r);
        row.max = max_row(part->logits + r * part->cols, part->cols, -INFINITY) * row.sharpness;
        sum_row(part, r, &row, lanes, moments);
        finish_row(part, r, &row, lanes, moments, at_target);
        if (ash_loss_has_gradient(part)) grad_row(part, r, &row);
    }
}

static void cross_entropy(struct ash_exec *exec, const struct ash_loss_part *part)
{
    struct ash_loss_part op = *part;

    ash_assert(part->cols > 0 && part->first == 0);
    ash_workers_run(exec->workers, op.rows, LOSS_MIN_COUNT / op.cols + 1, cross_entropy_rows, &op);
}

/* ---- a sharded vocabulary ---------------------------------------------------------------------------------------- */

static void loss_part_top_rows(void *ctx, size_t begin, size_t end, int worker)
{
    const struct ash_loss_part *part = ctx;

    (void)worker;
    for (size_t r = begin; r < end; r++) {
        float *top = part->top + 2 * r;

        if (part->start) {
            top[0] = -INFINITY;
            top[1] = 0.0f;
        }
        if (part->targets[r] < 0) continue;
        top[0] = max_row(part->logits + r * part->cols, part->cols, top[0]);
        if (target_of(part, r) != NULL) top[1] = *target_of(part, r);
    }
}

static void loss_part_sum_rows(void *ctx, size_t begin, size_t end, int worker)
{
    const struct ash_loss_part *part = ctx;

    (void)worker;
    for (size_t r = begin; r < end; r++) {
        float *lanes = part->lanes + r * ASH_LANES;
        float *moments = part->entropy != NULL ? part->moments + r * ASH_LANES : NULL;
        struct loss_row row = {.sharpness = ash_loss_sharpness(part)};

        if (part->start) memset(lanes, 0, ASH_LANES * sizeof(*lanes));
        if (part->start && moments != NULL) memset(moments, 0, ASH_LANES * sizeof(*moments));
        if (part->targets[r] < 0) continue;
        row.max = part->top[2 * r] * row.sharpness;
        sum_row(part, r, &row, lanes, moments);
    }
}

static void loss_part_end_rows(void *ctx, size_t begin, size_t end, int worker)
{
    const struct ash_loss_part *part = ctx;

    (void)worker;
    for (size_t r = begin; r < end; r++) {
        const float *moments = part->entropy != NULL ? part->moments + r * ASH_LANES : NULL;
        struct loss_row row = {.sharpness = ash_loss_sharpness(part)};

        if (part->targets[r] < 0) {
            skip_row(part, r);
            continue;
        }
        row.max = part->top[2 * r] * row.sharpness;
        finish_row(part, r, &row, part->lanes + r * ASH_LANES, moments, part->top[2 * r + 1]);
        if (ash_loss_has_gradient(part)) grad_row(part, r, &row);
    }
}

static void loss_part_top(struct ash_exec *exec, const struct ash_loss_part *part)
{
    struct ash_loss_part op = *part;

    ash_assert(part->first % ASH_LANES == 0);
    ash_workers_run(exec->workers, op.rows, LOSS_MIN_COUNT / (op.cols + 1) + 1, loss_part_top_rows, &op);
}

static void loss_part_sum(struct ash_exec *exec, const struct ash_loss_part *part)
{
    struct ash_loss_part op = *part;

    ash_assert(part->first % ASH_LANES == 0);
    ash_workers_run(exec->workers, op.rows, LOSS_MIN_COUNT / (op.cols + 1) + 1, loss_part_sum_rows, &op);
}

static void loss_part_end(struct ash_exec *exec, const struct ash_loss_part *part)
{
    struct ash_loss_part op = *part;

    ash_assert(part->first % ASH_LANES == 0);
    ash_workers_run(exec->workers, op.rows, LOSS_MIN_COUNT / (op.cols + 1) + 1, loss_part_end_rows, &op);
}

static const struct ash_loss_ops vec_loss = {.cross_entropy = cross_entropy,
                                             .part_top = loss_part_top,
                                             .part_sum = loss_part_sum,
                                             .part_end = loss_part_end,
                                             .distill = distill};

#endif
