/* Rotary positions in plain C: pairs of a head's elements turn by an angle that the position gives. */
#include "compute/ref/ref_priv.h"

#include <math.h>
#include <string.h>

#define ROPE_MIN_ROWS 8

struct rope {
    struct ash_exec *exec;
    const struct ash_rope_args *args;
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

static void rope_rows(void *ctx, size_t begin, size_t end, int worker)
{
    const struct rope *op = ctx;
    const struct ash_rope_args *args = op->args;
    float *copy = ash_exec_scratch(op->exec, worker, args->dims * sizeof(*copy));

    for (size_t r = begin; r < end; r++) {
        size_t angles = (size_t)args->positions[r] * (args->dims / 2);

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
        for (size_t h = 0; h < args->heads; h++)
            rotate_head(args, row + h * args->head_stride, row + args->out_cols, &args->cos[angles],
                        &args->sin[angles]);
        for (size_t c = 0; c < args->out_cols; c++)
            args->out_bf16[r * args->out_cols + c] = ash_f32_to_bf16(row[c]);
    }
}

static void apply(struct ash_exec *exec, const struct ash_rope_args *args)
{
    struct rope op = {.exec = exec, .args = args};

    ash_workers_run(exec->workers, args->rows, ROPE_MIN_ROWS, args->out_bf16 != NULL ? rounded_rows : rope_rows, &op);
}

const struct ash_rope_ops ash_ref_rope = {.apply = apply};
