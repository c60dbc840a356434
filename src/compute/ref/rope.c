/* Rotary positions in plain C: pairs of a head's elements turn by an angle that the position gives. */
#include "compute/ref/ref_priv.h"

#include <math.h>
#include <string.h>

#define ROPE_MIN_ROWS 8

struct rope {
    struct ash_exec *exec;
    const struct ash_rope_args *args;
    bool rounds_in; /* what is rotated is rounded to bf16 as it is read */
};

/* Pair i of a head moves from (in0, in1) to (out0, out1): halves, or neighbours where the pairs are interleaved. */
static void rotate_head(const struct ash_rope_args *args, float *x, float *copy, const float *cosines,
                        const float *sines)
{
    size_t half = args->dims / 2;
    bool from_pairs = args->interleaved_in && !args->inverse, to_pairs = args->interleaved_in && args->inverse;

    memcpy(copy, x, args->dims * sizeof(*x));
    for (size_t i = 0; i < half; i++) {
        float a = copy[from_pairs ? 2 * i : i], b = copy[from_pairs ? 2 * i + 1 : i + half];
        float cosine = cosines[i], sine = args->inverse ? -sines[i] : sines[i];

        x[to_pairs ? 2 * i : i] = fmaf(a, cosine, -(b * sine));
        x[to_pairs ? 2 * i + 1 : i + half] = fmaf(b, cosine, a * sine);
    }
}

static void round_heads(const struct rope *op, float *row)
{
    const struct ash_rope_args *args = op->args;

    for (size_t h = 0; op->rounds_in && h < args->heads; h++)
        for (size_t d = 0; d < args->dims; d++)
            row[h * args->head_stride + d] = ash_bf16_round(row[h * args->head_stride + d]);
}

static void rope_rows(void *ctx, size_t begin, size_t end, int worker)
{
    const struct rope *op = ctx;
    const struct ash_rope_args *args = op->args;
    float *copy = ash_exec_scratch(op->exec, worker, args->dims * sizeof(*copy));

    for (size_t r = begin; r < end; r++) {
        size_t angles = (size_t)args->positions[r] * (args->dims / 2);

        round_heads(op, &args->x[r * args->row_stride]);
        for (size_t h = 0; h < args->heads; h++)
            rotate_head(args, &args->x[r * args->row_stride + h * args->head_stride], copy, &args->cos[angles],
                        &args->sin[angles]);
    }
}

/* The same into a row of bf16, out of a copy: the heads, rotated, and what follows them. */
static void rounded_rows(void *ctx, size_t begin, size_t end, int worker)
{
    const struct rope *op = ctx;
    const struct ash_rope_args *args = op->args;
    float *row = ash_exec_scratch(op->exec, worker, (args->out_cols + args->dims) * sizeof(*row));

    for (size_t r = begin; r < end; r++) {
        size_t angles = (size_t)args->positions[r] * (args->dims / 2);

        memcpy(row, &args->x[r * args->row_stride], args->out_cols * sizeof(*row));
        round_heads(op, row);
        for (size_t h = 0; h < args->heads; h++)
            rotate_head(args, row + h * args->head_stride, row + args->out_cols, &args->cos[angles],
                        &args->sin[angles]);
        for (size_t c = 0; c < args->out_cols; c++)
            args->out_bf16[r * args->out_cols + c] = ash_f32_to_bf16(row[c]);
    }
}

/* In place in rows of bf16: the heads. */
static void bf16_rows(void *ctx, size_t begin, size_t end, int worker)
{
    const struct rope *op = ctx;
    const struct ash_rope_args *args = op->args;
    float *head = ash_exec_scratch(op->exec, worker, 2 * args->dims * sizeof(*head));

    for (size_t r = begin; r < end; r++)
        for (size_t h = 0; h < args->heads; h++) {
            uint16_t *x = &args->x_bf16[r * args->row_stride + h * args->head_stride];
            size_t angles = (size_t)args->positions[r] * (args->dims / 2);

            for (size_t d = 0; d < args->dims; d++)
                head[d] = ash_bf16_to_f32(x[d]);
            rotate_head(args, head, head + args->dims, &args->cos[angles], &args->sin[angles]);
            for (size_t d = 0; d < args->dims; d++)
                x[d] = ash_f32_to_bf16(head[d]);
        }
}

static void run(struct ash_exec *exec, const struct ash_rope_args *args, bool rounds_in)
{
    struct rope op = {exec, args, rounds_in};
    ash_range_fn rows = args->x_bf16 != NULL ? bf16_rows : args->out_bf16 != NULL ? rounded_rows : rope_rows;

    ash_workers_run(exec->workers, args->rows, ROPE_MIN_ROWS, rows, &op);
}

static void apply(struct ash_exec *exec, const struct ash_rope_args *args)
{
    run(exec, args, false);
}

static void apply_wgmma(struct ash_exec *exec, const struct ash_rope_args *args)
{
    run(exec, args, args->round_bf16);
}

const struct ash_rope_ops ash_ref_rope = {.apply = apply};
const struct ash_rope_ops ash_ref_rope_wgmma = {.apply = apply_wgmma};
