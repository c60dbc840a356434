/* Cross-entropy in plain C: the loss of a row of logits and, in place, its gradient. */
#include "compute/ref/ref_priv.h"

#include <string.h>

#include "compute/lanes.h"
#include "compute/mathf.h"

#define LOSS_MIN_ROWS 1

struct loss {
    float *logits;
    size_t vocab;
    const int32_t *targets;
    float scale;
    float *loss;
};

static float cross_entropy_row(const struct loss *op, float *x, int32_t target)
{
    float lanes[ASH_LANES] = {0}, max = -INFINITY, sum, loss;

    for (size_t v = 0; v < op->vocab; v++)
        max = x[v] > max ? x[v] : max;
    for (size_t v = 0; v < op->vocab; v++)
        lanes[v % ASH_LANES] = lanes[v % ASH_LANES] + ash_expf(x[v] - max);
    sum = ash_lanes_fold(lanes);
    loss = ash_logf(sum) - (x[target] - max);
    if (op->scale == 0.0f) return loss;
    for (size_t v = 0; v < op->vocab; v++)
        x[v] = ash_expf(x[v] - max) * (op->scale / sum);
    x[target] = x[target] - op->scale;
    return loss;
}

static void cross_entropy_rows(void *ctx, size_t begin, size_t end, int worker)
{
    const struct loss *op = ctx;

    (void)worker;
    for (size_t r = begin; r < end; r++) {
        float *x = &op->logits[r * op->vocab];

        if (op->targets[r] >= 0) {
            op->loss[r] = cross_entropy_row(op, x, op->targets[r]);
            continue;
        }
        op->loss[r] = 0.0f;
        for (size_t v = 0; v < op->vocab && op->scale != 0.0f; v++)
            x[v] = 0.0f;
    }
}

static void cross_entropy(struct ash_exec *exec, float *logits, size_t rows, size_t vocab, const int32_t *targets,
                          float scale, float *loss)
{
    struct loss op = {.logits = logits, .vocab = vocab, .targets = targets, .scale = scale, .loss = loss};

    ash_workers_run(exec->workers, rows, LOSS_MIN_ROWS, cross_entropy_rows, &op);
}

/* ---- a sharded vocabulary ---------------------------------------------------------------------------------------- */

/* The target's logit among this part's columns, or NULL. */
static float *target_of(const struct ash_loss_part *part, size_t r)
{
    size_t column = (size_t)part->targets[r] - part->first; /* of another part: beyond this one's */

    return column < part->cols ? &part->logits[r * part->cols + column] : NULL;
}

static void part_top_rows(void *ctx, size_t begin, size_t end, int worker)
{
    const struct ash_loss_part *part = ctx;

    (void)worker;
    for (size_t r = begin; r < end; r++) {
        const float *x = &part->logits[r * part->cols];
        float *top = &part->top[2 * r];

        if (part->start) {
            top[0] = -INFINITY;
            top[1] = 0.0f;
        }
        if (part->targets[r] < 0) continue;
        for (size_t v = 0; v < part->cols; v++)
            top[0] = x[v] > top[0] ? x[v] : top[0];
        if (target_of(part, r) != NULL) top[1] = *target_of(part, r);
    }
}

static void part_sum_rows(void *ctx, size_t begin, size_t end, int worker)
{
    const struct ash_loss_part *part = ctx;

    (void)worker;
    for (size_t r = begin; r < end; r++) {
        float *x = &part->logits[r * part->cols], *lanes = &part->lanes[r * ASH_LANES];

        for (size_t l = 0; part->start && l < ASH_LANES; l++)
            lanes[l] = 0.0f;
        for (size_t v = 0; part->targets[r] >= 0 && v < part->cols; v++) {
            float e = ash_expf(x[v] - part->top[2 * r]);

            lanes[v % ASH_LANES] = lanes[v % ASH_LANES] + e;
            if (part->scale != 0.0f) x[v] = e;
        }
    }
}

static void part_end_rows(void *ctx, size_t begin, size_t end, int worker)
{
    const struct ash_loss_part *part = ctx;

    (void)worker;
    for (size_t r = begin; r < end; r++) {
        float *x = &part->logits[r * part->cols], lanes[ASH_LANES], sum;
        bool counts = part->targets[r] >= 0;

        memcpy(lanes, &part->lanes[r * ASH_LANES], sizeof(lanes));
        sum = ash_lanes_fold(lanes);
        part->loss[r] = counts ? ash_logf(sum) - (part->top[2 * r + 1] - part->top[2 * r]) : 0.0f;
        if (part->scale == 0.0f) continue;
        for (size_t v = 0; v < part->cols; v++)
            x[v] = counts ? x[v] * (part->scale / sum) : 0.0f;
        if (counts && target_of(part, r) != NULL) *target_of(part, r) = *target_of(part, r) - part->scale;
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

const struct ash_loss_ops ash_ref_loss = {
    .cross_entropy = cross_entropy, .part_top = part_top, .part_sum = part_sum, .part_end = part_end};
