/* Products of e4m3 in plain C, output by output: the rule in compute/ops.h, steps as in fp8.h. */
#include "base/assert.h"
#include "base/math.h"
#include "compute/fp8_scale.h"
#include "compute/gemm_parts.h"
#include "compute/ref/fp8.h"
#include "compute/ref/ref_priv.h"

#define FP8_MIN_ELEMENTS 4 /* outputs that share a thread */

/* An operand as lines of k. */
struct operand {
    const struct ash_mat *mat;
    size_t line_stride, k_stride, lines, K;
    const float *squares; /* the largest |value| of each [group of lines, group of k]; NULL: lines have their own */
};

struct fp8_op {
    const struct ash_gemm_args *args;
    struct operand a, b;
    float *squares;
};

static float value_at(const struct operand *operand, size_t line, size_t k)
{
    return ash_bf16_round(
        ref_read(operand->mat->data, operand->mat->dtype, line * operand->line_stride + k * operand->k_stride));
}

static float line_amax(const struct operand *operand, size_t line, size_t group, float amax)
{
    size_t end = ash_min((group + 1) * ASH_FP8_GROUP_K, operand->K);

    for (size_t k = group * ASH_FP8_GROUP_K; k < end; k++)
        amax = ash_fp8_widen(amax, value_at(operand, line, k));
    return amax;
}

/* The codes of a group of a line, zeros after the last k. Returns their scale. */
static float read_group(const struct operand *operand, size_t line, size_t group, uint8_t codes[ASH_FP8_GROUP_K])
{
    size_t groups = ash_div_up(operand->K, ASH_FP8_GROUP_K);
    float amax = operand->squares != NULL ? operand->squares[line / ASH_FP8_GROUP_K * groups + group]
                                          : line_amax(operand, line, group, 0.0f);
    struct ash_fp8_scale scale = ash_fp8_scale_of(amax);

    for (size_t i = 0; i < ASH_FP8_GROUP_K; i++) {
        size_t k = group * ASH_FP8_GROUP_K + i;

        codes[i] = k < operand->K ? ash_fp8_code(value_at(operand, line, k), scale) : 0;
    }
    return scale.scale;
}

static void fp8_elements(void *ctx, size_t begin, size_t end, int worker)
{
    const struct fp8_op *op = ctx;
    const struct ash_gemm_args *args = op->args;

    (void)worker;
    for (size_t unit = begin; unit < end; unit++) {
        size_t m = unit / args->N, n = unit % args->N;
        float acc = args->accumulate ? args->c[m * args->c_stride + n] : 0.0f;

        for (size_t group = 0; group * ASH_FP8_GROUP_K < args->K; group++) {
            uint8_t a[ASH_FP8_GROUP_K], b[ASH_FP8_GROUP_K];
            float scale_a = read_group(&op->a, m, group, a), scale_b = read_group(&op->b, n, group, b), chain = 0.0f;

            for (size_t i = 0; i < ASH_FP8_GROUP_K; i += ASH_FP8_GROUP)
                chain = ash_fp8_step(chain, a + i, b + i);
            acc = fmaf(chain, scale_a * scale_b, acc);
        }
        ash_ref_gemm_put(args, m, n, acc);
    }
}

/* A unit is a square. */
static void find_squares(void *ctx, size_t begin, size_t end, int worker)
{
    const struct fp8_op *op = ctx;
    size_t groups = ash_div_up(op->b.K, ASH_FP8_GROUP_K);

    (void)worker;
    for (size_t unit = begin; unit < end; unit++) {
        size_t first = unit / groups * ASH_FP8_GROUP_K;
        float amax = 0.0f;

        for (size_t line = first; line < ash_min(first + ASH_FP8_GROUP_K, op->b.lines); line++)
            amax = line_amax(&op->b, line, unit % groups, amax);
        op->squares[unit] = amax;
    }
}

void ash_ref_gemm_fp8(struct ash_exec *exec, const struct ash_gemm_args *args)
{
    struct fp8_op op = {.args = args,
                        .a = {&args->a, args->a.row_stride, args->a.col_stride, args->M, args->K, NULL},
                        .b = {&args->b, args->b.col_stride, args->b.row_stride, args->N, args->K, NULL}};
    size_t squares = ash_div_up(args->N, ASH_FP8_GROUP_K) * ash_div_up(args->K, ASH_FP8_GROUP_K);

    ash_gemm_check(args);
    ash_assert(args->round_bf16 && !args->cut_anywhere);
    if (args->fp8 == ASH_FP8_WEIGHT) {
        op.squares = ash_exec_shared(exec, squares * sizeof(*op.squares));
        ash_workers_run(exec->workers, squares, 1, find_squares, &op);
        op.b.squares = op.squares;
    }
    ash_workers_run(exec->workers, args->M * args->N, FP8_MIN_ELEMENTS, fp8_elements, &op);
}
