/* Cross-entropy and entropy in plain C: of rows of logits, whole or sharded, and in place their gradient. */
#include "compute/ref/ref_priv.h"

#include <string.h>

#include "compute/lanes.h"
#include "compute/mathf.h"

#define LOSS_MIN_ROWS 1

/* The target's column among this part's, or NULL. */
static float *target_of(const struct ash_loss_part *part, size_t r)
{
    size_t column = (size_t)part->targets[r] - part->first; /* of another part: beyond this one's */

    return column < part->cols ? &part->logits[r * part->cols + column] : NULL;
}

/* What all columns of a row share. */
struct row {
    float sharpness, max; /* max: of the sharpened logits */
    float sum, log_sum, entropy;
};

static float exponential(const struct row *row, float x)
{
    return ash_expf(x * row->sharpness - row->max);
}

/* Largest logit so far, and the target's. */
static void find_top(const struct ash_loss_part *part, size_t r, float top[2])
{
    const float *x = &part->logits[r * part->cols];

    for (size_t v = 0; v < part->cols; v++)
        top[0] = x[v] > top[0] ? x[v] : top[0];
    if (target_of(part, r) != NULL) top[1] = *target_of(part, r);
}

/* lanes and moments (may be NULL) += those of the part's columns. */
static void add_sums(const struct ash_loss_part *part, size_t r, const struct row *row, float *lanes, float *moments)
{
    const float *x = &part->logits[r * part->cols];

    for (size_t v = 0; v < part->cols; v++) {
        float e = exponential(row, x[v]);

        lanes[v % ASH_LANES] = lanes[v % ASH_LANES] + e;
        if (moments != NULL)
            moments[v % ASH_LANES] =
                moments[v % ASH_LANES] + (e > 0.0f ? e * (x[v] * row->sharpness - row->max) : 0.0f);
    }
}

/* Loss and entropy of a row from its sums; row gets what its gradient needs. */
static void finish_row(const struct ash_loss_part *part, size_t r, struct row *row, float *lanes, float *moments,
                       float target)
{
    row->sum = ash_lanes_fold(lanes);
    row->log_sum = ash_logf(row->sum);
    part->loss[r] = row->log_sum - (target * row->sharpness - row->max);
    if (part->entropy == NULL) return;
    row->entropy = row->log_sum - ash_lanes_fold(moments) / row->sum;
    part->entropy[r] = row->entropy;
}

/* Logits become gradients; has_exponentials: they are exponentials by now. */
static void grad_row(const struct ash_loss_part *part, size_t r, const struct row *row, bool has_exponentials)
{
    float *x = &part->logits[r * part->cols], *target = target_of(part, r);
    float scale = ash_loss_scale(part, r) * row->sharpness, factor = scale / row->sum;
    float entropy_factor = part->entropy_scales != NULL ? part->entropy_scales[r] * row->sharpness / row->sum : 0.0f;

    for (size_t v = 0; v < part->cols; v++) {
        float e = has_exponentials ? x[v] : exponential(row, x[v]), gradient = e * factor;

        if (part->entropy_scales != NULL && e > 0.0f)
            gradient =
                gradient - (e * entropy_factor) * (((x[v] * row->sharpness - row->max) - row->log_sum) + row->entropy);
        x[v] = gradient;
    }
    if (target != NULL) *target = *target - scale;
}

static void round_row(const struct ash_loss_part *part, size_t r)
{
    for (size_t v = 0; v < part->cols; v++)
        part->grad_bf16[r * part->grad_stride + v] = ash_f32_to_bf16(part->logits[r * part->cols + v]);
}

static void skip_row(const struct ash_loss_part *part, size_t r)
{
    part->loss[r] = 0.0f;
    if (part->entropy != NULL) part->entropy[r] = 0.0f;
    for (size_t v = 0; v < part->cols && ash_loss_has_gradient(part); v++)
        part->logits[r * part->cols + v] = 0.0f;
}

static void cross_entropy_rows(void *ctx, size_t begin, size_t end, int worker)
{
    const struct ash_loss_part *part = ctx;

    (void)worker;
    for (size_t r = begin; r < end; r++) {
        float lanes[ASH_LANES] = {0}, moments[ASH_LANES] = {0}, top[2] = {-INFINITY, 0.0f};
        struct row row = {.sharpness = ash_loss_sharpness(part)};

        if (part->targets[r] < 0) {
            skip_row(part, r);
        } else {
            find_top(part, r, top);
            row.max = top[0] * row.sharpness;
            add_sums(part, r, &row, lanes, part->entropy != NULL ? moments : NULL);
            finish_row(part, r, &row, lanes, moments, top[1]);
            if (ash_loss_has_gradient(part)) grad_row(part, r, &row, false);
        }
        if (ash_loss_has_gradient(part) && part->grad_bf16 != NULL) round_row(part, r);
    }
}

static void cross_entropy(struct ash_exec *exec, const struct ash_loss_part *part)
{
    struct ash_loss_part op = *part;

    ash_workers_run(exec->workers, op.rows, LOSS_MIN_ROWS, cross_entropy_rows, &op);
}

/* ---- a sharded vocabulary ---------------------------------------------------------------------------------------- */

static void part_top_rows(void *ctx, size_t begin, size_t end, int worker)
{
    const struct ash_loss_part *part = ctx;

    (void)worker;
    for (size_t r = begin; r < end; r++) {
        float *top = &part->top[2 * r];

        if (part->start) {
            top[0] = -INFINITY;
            top[1] = 0.0f;
        }
        if (part->targets[r] >= 0) find_top(part, r, top);
    }
}

static void part_sum_rows(void *ctx, size_t begin, size_t end, int worker)
{
    const struct ash_loss_part *part = ctx;

    (void)worker;
    for (size_t r = begin; r < end; r++) {
        float *x = &part->logits[r * part->cols], *lanes = &part->lanes[r * ASH_LANES];
        float *moments = part->entropy != NULL ? &part->moments[r * ASH_LANES] : NULL;
        struct row row = {.sharpness = ash_loss_sharpness(part)};

        if (part->start) memset(lanes, 0, ASH_LANES * sizeof(*lanes));
        if (part->start && moments != NULL) memset(moments, 0, ASH_LANES * sizeof(*moments));
        if (part->targets[r] < 0) continue;
        row.max = part->top[2 * r] * row.sharpness;
        add_sums(part, r, &row, lanes, moments);
        for (size_t v = 0; ash_loss_has_gradient(part) && part->entropy_scales == NULL && v < part->cols; v++)
            x[v] = exponential(&row, x[v]);
    }
}

static void part_end_rows(void *ctx, size_t begin, size_t end, int worker)
{
    const struct ash_loss_part *part = ctx;

    (void)worker;
    for (size_t r = begin; r < end; r++) {
        float lanes[ASH_LANES], moments[ASH_LANES];
        struct row row = {.sharpness = ash_loss_sharpness(part)};

        if (part->targets[r] < 0) {
            skip_row(part, r);
            continue;
        }
        memcpy(lanes, &part->lanes[r * ASH_LANES], sizeof(lanes));
        if (part->entropy != NULL) memcpy(moments, &part->moments[r * ASH_LANES], sizeof(moments));
        row.max = part->top[2 * r] * row.sharpness;
        finish_row(part, r, &row, lanes, moments, part->top[2 * r + 1]);
        if (ash_loss_has_gradient(part)) grad_row(part, r, &row, part->entropy_scales == NULL);
    }
}

static void part_top(struct ash_exec *exec, const struct ash_loss_part *part)
{
    struct ash_loss_part op = *part;

    ash_workers_run(exec->workers, op.rows, LOSS_MIN_ROWS, part_top_rows, &op);
}

static void part_sum(struct ash_exec *exec, const struct ash_loss_part *part)
{
    struct ash_loss_part op = *part;

    ash_workers_run(exec->workers, op.rows, LOSS_MIN_ROWS, part_sum_rows, &op);
}

static void part_end(struct ash_exec *exec, const struct ash_loss_part *part)
{
    struct ash_loss_part op = *part;

    ash_workers_run(exec->workers, op.rows, LOSS_MIN_ROWS, part_end_rows, &op);
}

const struct ash_loss_ops ash_ref_loss = {.cross_entropy = cross_entropy,
                                          .part_top = part_top,
                                          .part_sum = part_sum,
                                          .part_end = part_end,
                                          .distill = ash_ref_distill};
