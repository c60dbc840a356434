/* Cross-entropy as ref-wgmma computes it for bf16 models: relative to the target's logit, by blocks of columns, with
 * the gradient's factor of each row apart (compute/ops_loss.h). Other losses are the reference's. */
#include "compute/ref/ref_priv.h"

#include <math.h>
#include "base/assert.h"
#include "base/math.h"
#include "compute/blocks.h"
#include "compute/mathf.h"
#include "compute/ref/ex2.h"

#define LOSS_MIN_ROWS 1

/* What all columns of a row share. */
struct row {
    const float *x;
    size_t cols, target;
    float scale, offset; /* of exponents */
    float own, rest;     /* the target's exponential, and the sum of the others */
    float above;         /* the target's sharpened logit minus the one that exponentials are relative to */
};

static float exponential(const struct row *row, size_t v)
{
    return ash_ex2(fmaf(row->x[v], row->scale, -row->offset));
}

/* Columns first ... of a block; zeros after the last, and for the target. */
static float sum_block(const struct row *row, size_t first)
{
    float classes[ASH_LOSS_CLASSES] = {0};
    size_t end = ash_min(row->cols, first + ASH_LOSS_BLOCK);

    for (size_t v = first; v < end; v++)
        classes[v % ASH_LOSS_CLASSES] = classes[v % ASH_LOSS_CLASSES] + (v != row->target ? exponential(row, v) : 0.0f);
    return ash_sum_neighbours(classes, ASH_LOSS_CLASSES);
}

static float sum_rest(const struct row *row)
{
    float lanes[ASH_SUM_LANES] = {0};

    for (size_t first = 0; first < row->cols; first += ASH_LOSS_BLOCK) {
        size_t lane = first / ASH_LOSS_BLOCK % ASH_SUM_LANES;

        lanes[lane] = lanes[lane] + sum_block(row, first);
    }
    return ash_sum_fold(lanes);
}

static float find_max(const struct row *row)
{
    float max = -INFINITY;

    for (size_t v = 0; v < row->cols; v++)
        max = row->x[v] > max ? row->x[v] : max;
    return max;
}

static struct row open_row(const struct ash_loss_part *part, size_t r)
{
    float sharpness = ash_loss_sharpness(part);
    struct row row = {&part->logits[r * part->cols], part->cols, (size_t)part->targets[r],
                      .scale = sharpness * ASH_LOG2E, .own = 1.0f};

    ash_assert(row.target < row.cols);
    row.offset = row.x[row.target] * row.scale;
    row.rest = sum_rest(&row);
    if (row.rest <= ASH_LOSS_REST_MAX) return row;
    float max = find_max(&row);
    row.offset = max * row.scale;
    row.rest = sum_rest(&row);
    row.own = exponential(&row, row.target);
    row.above = row.x[row.target] * sharpness - max * sharpness;
    return row;
}

/* Column v of a row's gradient gets a value. */
static void put(const struct ash_loss_part *part, size_t r, size_t v, float value)
{
    uint16_t rounded = ash_f32_to_bf16(value);

    if (part->grad_bf16 != NULL)
        part->grad_bf16[r * part->grad_stride + v] = rounded;
    else
        part->logits[r * part->cols + v] = ash_bf16_to_f32(rounded);
}

static void put_gradient(const struct ash_loss_part *part, size_t r, const struct row *row)
{
    for (size_t v = 0; v < part->cols; v++)
        put(part, r, v, v == row->target ? -row->rest : exponential(row, v));
    part->factors[r] = ash_loss_scale(part, r) * ash_loss_sharpness(part) / (row->own + row->rest);
}

static void skip_row(const struct ash_loss_part *part, size_t r)
{
    part->loss[r] = 0.0f;
    if (!ash_loss_has_gradient(part)) return;
    for (size_t v = 0; v < part->cols; v++)
        put(part, r, v, 0.0f);
    part->factors[r] = 0.0f;
}

static void relative_rows(void *ctx, size_t begin, size_t end, int worker)
{
    const struct ash_loss_part *part = ctx;

    (void)worker;
    for (size_t r = begin; r < end; r++) {
        if (part->targets[r] < 0) {
            skip_row(part, r);
            continue;
        }
        struct row row = open_row(part, r);
        part->loss[r] = ash_logf(row.own + row.rest) - row.above;
        if (ash_loss_has_gradient(part)) put_gradient(part, r, &row);
    }
}

static void cross_entropy(struct ash_exec *exec, const struct ash_loss_part *part)
{
    struct ash_loss_part op = *part;

    if (!ash_loss_is_relative(part)) {
        ash_ref_loss.cross_entropy(exec, part);
        return;
    }
    ash_assert(!ash_loss_has_gradient(part) || part->factors != NULL);
    ash_workers_run(exec->workers, op.rows, LOSS_MIN_ROWS, relative_rows, &op);
}

static void part_top(struct ash_exec *exec, const struct ash_loss_part *part)
{
    ash_ref_loss.part_top(exec, part);
}

static void part_sum(struct ash_exec *exec, const struct ash_loss_part *part)
{
    ash_ref_loss.part_sum(exec, part);
}

static void part_end(struct ash_exec *exec, const struct ash_loss_part *part)
{
    ash_ref_loss.part_end(exec, part);
}

const struct ash_loss_ops ash_ref_loss_wgmma = {.cross_entropy = cross_entropy,
                                                .part_top = part_top,
                                                .part_sum = part_sum,
                                                .part_end = part_end,
                                                .distill = ash_ref_distill};
