/* Row arithmetic in plain C: residual sums, scaling, rounding, and the moves of rows to experts and back. */
#include "compute/ref/ref_priv.h"

#include <math.h>
#include <string.h>
#include "compute/drop.h"
#include "compute/lanes.h"

#define ROW_MIN_COUNT 4096
#define ROW_MIN_ROWS 8

struct row {
    const float *a, *b;
    float *out;
    float factor;
    size_t cols, slots;
    const int32_t *index;
    const float *weight;
    bool add;
};

static void add_range(void *ctx, size_t begin, size_t end, int worker)
{
    const struct row *op = ctx;

    (void)worker;
    for (size_t i = begin; i < end; i++)
        op->out[i] = op->a[i] + op->b[i];
}

static void add(struct ash_exec *exec, const float *a, const float *b, size_t count, float *out)
{
    struct row op = {.a = a, .b = b, .out = out};

    ash_workers_run(exec->workers, count, ROW_MIN_COUNT, add_range, &op);
}

static void scale_range(void *ctx, size_t begin, size_t end, int worker)
{
    const struct row *op = ctx;

    (void)worker;
    for (size_t i = begin; i < end; i++)
        op->out[i] = op->out[i] * op->factor;
}

static void scale(struct ash_exec *exec, float *x, float factor, size_t count)
{
    struct row op = {.out = x, .factor = factor};

    ash_workers_run(exec->workers, count, ROW_MIN_COUNT, scale_range, &op);
}

static void scale_row_range(void *ctx, size_t begin, size_t end, int worker)
{
    const struct ash_scale_rows_args *op = ctx;

    (void)worker;
    for (size_t i = begin * op->cols; i < end * op->cols; i++)
        ash_ref_put(op->out, op->out_bf16, i, op->x[i] * op->factors[i / op->cols]);
}

static void scale_rows(struct ash_exec *exec, const struct ash_scale_rows_args *args)
{
    ash_workers_run(exec->workers, args->rows, ROW_MIN_ROWS, scale_row_range, (void *)args);
}

static void round_range(void *ctx, size_t begin, size_t end, int worker)
{
    const struct row *op = ctx;

    (void)worker;
    for (size_t i = begin; i < end; i++)
        op->out[i] = ash_bf16_round(op->a[i]);
}

static void round_bf16(struct ash_exec *exec, const float *x, size_t count, float *out)
{
    struct row op = {.a = x, .out = out};

    ash_workers_run(exec->workers, count, ROW_MIN_COUNT, round_range, &op);
}

static void gather_rows(void *ctx, size_t begin, size_t end, int worker)
{
    const struct row *op = ctx;

    (void)worker;
    for (size_t r = begin; r < end; r++)
        memcpy(&op->out[r * op->cols], &op->a[(size_t)op->index[r] * op->cols], op->cols * sizeof(float));
}

static void gather(struct ash_exec *exec, const float *x, size_t cols, const int32_t *index, size_t rows, float *out)
{
    struct row op = {.a = x, .out = out, .cols = cols, .index = index};

    ash_workers_run(exec->workers, rows, ROW_MIN_ROWS, gather_rows, &op);
}

static void combine_rows(void *ctx, size_t begin, size_t end, int worker)
{
    const struct row *op = ctx;

    (void)worker;
    for (size_t t = begin; t < end; t++)
        for (size_t c = 0; c < op->cols; c++) {
            float acc = op->add ? op->out[t * op->cols + c] : 0.0f;

            for (size_t s = 0; s < op->slots; s++) {
                float y = op->a[(size_t)op->index[t * op->slots + s] * op->cols + c];
                acc = op->weight != NULL ? fmaf(op->weight[t * op->slots + s], y, acc) : acc + y;
            }
            op->out[t * op->cols + c] = acc;
        }
}

static void combine(struct ash_exec *exec, const struct ash_slots_args *args)
{
    struct row op = {.a = args->y,
                     .out = args->out,
                     .cols = args->cols,
                     .slots = args->slots,
                     .index = args->where,
                     .weight = args->weight,
                     .add = args->add};

    ash_workers_run(exec->workers, args->rows, ROW_MIN_ROWS, combine_rows, &op);
}

static void slot_dot_rows(void *ctx, size_t begin, size_t end, int worker)
{
    const struct row *op = ctx;

    (void)worker;
    for (size_t unit = begin; unit < end; unit++) {
        const float *x = &op->a[unit / op->slots * op->cols];
        const float *y = &op->b[(size_t)op->index[unit] * op->cols];
        float lanes[ASH_LANES] = {0};

        for (size_t c = 0; c < op->cols; c++)
            lanes[c % ASH_LANES] = fmaf(x[c], y[c], lanes[c % ASH_LANES]);
        op->out[unit] = ash_lanes_fold(lanes);
    }
}

static void slot_dot(struct ash_exec *exec, const struct ash_slots_args *args)
{
    struct row op = {
        .a = args->x, .b = args->y, .out = args->out, .cols = args->cols, .slots = args->slots, .index = args->where};

    ash_workers_run(exec->workers, args->rows * args->slots, ROW_MIN_ROWS, slot_dot_rows, &op);
}

/* Loops of a fixed length, which compilers turn into vectors; then the rest. */
static void round_row(uint16_t *restrict dst, const float *restrict src, size_t count)
{
    size_t at = 0;

    for (; at + ASH_LANES <= count; at += ASH_LANES)
        for (size_t c = 0; c < ASH_LANES; c++)
            dst[at + c] = ash_f32_to_bf16(src[at + c]);
    for (; at < count; at++)
        dst[at] = ash_f32_to_bf16(src[at]);
}

static void copy_rows(void *ctx, size_t begin, size_t end, int worker)
{
    const struct ash_copy_args *args = ctx;

    (void)worker;
    for (size_t r = begin; r < end; r++) {
        for (size_t b = 0; b < args->blocks; b++) {
            const float *src = args->src + r * args->src_row + b * args->src_block;
            size_t to = r * args->dst_row + b * args->dst_block;

            if (args->dst_dtype == ASH_BF16) {
                round_row((uint16_t *)args->dst + to, src, args->cols);
                continue;
            }
            for (size_t c = 0; c < args->cols; c++) {
                if (args->add)
                    ((float *)args->dst)[to + c] += src[c];
                else
                    ((float *)args->dst)[to + c] = src[c];
            }
        }
    }
}

void ash_ref_copy(struct ash_exec *exec, const struct ash_copy_args *args)
{
    ash_workers_run(exec->workers, args->rows, ROW_MIN_ROWS, copy_rows, (void *)args);
}

static void drop_rows(void *ctx, size_t begin, size_t end, int worker)
{
    const struct ash_drop_args *args = ctx;
    size_t first = args->first_col / ASH_DROP_DRAWS, last = (args->first_col + args->cols - 1) / ASH_DROP_DRAWS;

    (void)worker;
    for (size_t r = begin; r < end; r++) {
        for (size_t group = first, c = 0; group <= last; group++) {
            uint64_t draw = ash_drop_draw(args, r, group);

            for (; c < args->cols && (args->first_col + c) / ASH_DROP_DRAWS == group; c++)
                ash_drop_put(args, r, c, draw);
        }
    }
}

void ash_ref_drop(struct ash_exec *exec, const struct ash_drop_args *args)
{
    if (args->cols == 0) return;
    ash_workers_run(exec->workers, args->rows, ROW_MIN_ROWS, drop_rows, (void *)args);
}

const struct ash_row_ops ash_ref_row = {
    .copy = ash_ref_copy,
    .add = add,
    .scale = scale,
    .scale_rows = scale_rows,
    .round_bf16 = round_bf16,
    .gather = gather,
    .combine = combine,
    .slot_dot = slot_dot,
    .drop = ash_ref_drop,
};
