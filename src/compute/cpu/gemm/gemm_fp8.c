/* See gemm_fp8.h. Both operands become lines of codes with a scale for each group. A unit is a tile of outputs: for
 * each group of k its codes become floats and exponents, then each output adds four steps. A step in floats: products
 * of e4m3 are exact, so is their scaling by a power of two, and the conversion to an integer cuts off what a step cuts
 * off (ref/fp8.h). */
#include "compute/cpu/gemm/gemm_fp8.h"

#include <string.h>
#include "base/assert.h"
#include "base/bf16.h"
#include "base/math.h"
#include "compute/fp8_scale.h"
#include "compute/gemm_parts.h"
#include "compute/ref/fp8.h"
#include "compute/ref/ref_priv.h"

#define GROUP ASH_FP8_GROUP_K
#define STEP ASH_FP8_GROUP
#define TILE 16               /* lines of either operand in a tile of outputs */
#define ZERO_EXPONENT (-1000) /* of a zero: below that of any product */
#define KEPT_BITS (~(uint32_t)((1 << (23 - ASH_FP8_FRACTION)) - 1))

/* An operand: lines of k, strided, and what they become. */
struct operand {
    const struct ash_mat *mat;
    size_t line_stride, k_stride, lines, K, groups;
    bool has_squares;
    uint8_t *codes; /* [lines, groups, GROUP], zeros after the last k */
    float *scales;  /* [lines, groups] */
};

struct fp8_op {
    const struct ash_gemm_args *args;
    struct operand a, b;
};

/* ---- lines of codes ---------------------------------------------------------------------------------------------- */

/* A group of a line, rounded to bf16; zeros after the last k. */
static void read_values(const struct operand *operand, size_t line, size_t group, float values[GROUP])
{
    size_t first = group * GROUP, count = ash_min(operand->K - first, GROUP);
    size_t at = line * operand->line_stride + first * operand->k_stride;

    for (size_t i = 0; i < count; i++, at += operand->k_stride) {
        if (operand->mat->dtype == ASH_F32)
            values[i] = ash_bf16_round(((const float *)operand->mat->data)[at]);
        else if (operand->mat->dtype == ASH_BF16)
            values[i] = ash_bf16_to_f32(((const uint16_t *)operand->mat->data)[at]);
        else
            values[i] = ash_bf16_round(ash_f16_to_f32(((const uint16_t *)operand->mat->data)[at]));
    }
    for (size_t i = count; i < GROUP; i++)
        values[i] = 0.0f;
}

static float widest(const float values[GROUP], float amax)
{
    for (size_t i = 0; i < GROUP; i++)
        amax = ash_fp8_widen(amax, values[i]);
    return amax;
}

/* Lines first ... first + count - 1 of a group have one scale. */
static void quantise(const struct operand *operand, size_t first, size_t count, size_t group)
{
    struct ash_fp8_scale scale;
    float values[GROUP], amax = 0.0f;

    for (size_t line = first; line < first + count; line++) {
        read_values(operand, line, group, values);
        amax = widest(values, amax);
    }
    scale = ash_fp8_scale_of(amax);
    for (size_t line = first; line < first + count; line++) {
        uint8_t *codes = operand->codes + (line * operand->groups + group) * GROUP;

        if (count > 1) read_values(operand, line, group, values);
        for (size_t i = 0; i < GROUP; i++)
            codes[i] = ash_fp8_code(values[i], scale);
        operand->scales[line * operand->groups + group] = scale.scale;
    }
}

/* A unit is a group of what shares scales. */
static void quantise_units(void *ctx, size_t begin, size_t end, int worker)
{
    const struct operand *operand = ctx;
    size_t each = operand->has_squares ? GROUP : 1;

    (void)worker;
    for (size_t unit = begin; unit < end; unit++) {
        size_t first = unit / operand->groups * each;

        quantise(operand, first, ash_min(each, operand->lines - first), unit % operand->groups);
    }
}

/* ---- tiles of outputs -------------------------------------------------------------------------------------------- */

/* A group of some lines. */
struct lines {
    float values[TILE][GROUP];
    int16_t exponents[TILE][GROUP];
    float scales[TILE];
};

static void decode(const struct operand *operand, size_t first, size_t count, size_t group, struct lines *out)
{
    for (size_t i = 0; i < count; i++) {
        size_t at = (first + i) * operand->groups + group;
        const uint8_t *codes = operand->codes + at * GROUP;

        out->scales[i] = operand->scales[at];
        for (size_t k = 0; k < GROUP; k++) {
            out->values[i][k] = ash_e4m3_to_f32(codes[k]);
            out->exponents[i][k] = (int16_t)((codes[k] & 0x7f) != 0 ? ash_fp8_exponent(codes[k]) : ZERO_EXPONENT);
        }
    }
}

static float power_of_two(int exponent)
{
    return ash_f32_from_bits((uint32_t)(exponent + 127) << 23);
}

/* ash_fp8_step. */
static float add_step(float sum, const float a[STEP], const float b[STEP], const int16_t a_exponents[STEP],
                      const int16_t b_exponents[STEP])
{
    int16_t top = (int16_t)(sum != 0.0f ? (int)(ash_f32_bits(sum) >> 23 & 255) - 127 : 2 * ZERO_EXPONENT);
    int32_t units;
    float per_unit, all;

    for (size_t k = 0; k < STEP; k++) {
        int16_t exponent = (int16_t)(a_exponents[k] + b_exponents[k]);

        top = exponent > top ? exponent : top;
    }
    if (top < ZERO_EXPONENT / 2) return 0.0f;
    per_unit = power_of_two(ASH_FP8_FRACTION - top);
    units = (int32_t)(sum * per_unit);
    for (size_t k = 0; k < STEP; k++)
        units += (int32_t)(a[k] * b[k] * per_unit);
    all = (float)units * power_of_two(top - ASH_FP8_FRACTION);
    return ash_f32_from_bits(ash_f32_bits(all) & KEPT_BITS);
}

static float add_group(const struct lines *a, size_t i, const struct lines *b, size_t j, float acc)
{
    float chain = 0.0f;

    for (size_t k = 0; k < GROUP; k += STEP)
        chain = add_step(chain, a->values[i] + k, b->values[j] + k, a->exponents[i] + k, b->exponents[j] + k);
    return fmaf(chain, a->scales[i] * b->scales[j], acc);
}

static void multiply_tile(const struct fp8_op *op, size_t m, size_t n)
{
    const struct ash_gemm_args *args = op->args;
    size_t rows = ash_min(TILE, args->M - m), cols = ash_min(TILE, args->N - n);
    float acc[TILE][TILE] = {0};
    struct lines a, b;

    for (size_t i = 0; args->accumulate && i < rows; i++)
        memcpy(acc[i], args->c + (m + i) * args->c_stride + n, cols * sizeof(float));
    for (size_t group = 0; group < op->a.groups; group++) {
        decode(&op->a, m, rows, group, &a);
        decode(&op->b, n, cols, group, &b);
        for (size_t i = 0; i < rows; i++)
            for (size_t j = 0; j < cols; j++)
                acc[i][j] = add_group(&a, i, &b, j, acc[i][j]);
    }
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < cols; j++)
            ash_ref_gemm_put(args, m + i, n + j, acc[i][j]);
}

static void multiply_tiles(void *ctx, size_t begin, size_t end, int worker)
{
    const struct fp8_op *op = ctx;
    size_t wide = ash_div_up(op->args->N, TILE);

    (void)worker;
    for (size_t unit = begin; unit < end; unit++)
        multiply_tile(op, unit / wide * TILE, unit % wide * TILE);
}

/* ---- the product ------------------------------------------------------------------------------------------------- */

static size_t operand_bytes(const struct operand *operand)
{
    return ash_round_up(operand->lines * operand->groups * (GROUP + sizeof(float)), sizeof(float));
}

/* Lines of codes from `at` on. */
static void make_lines(struct ash_exec *exec, struct operand *operand, char *at)
{
    size_t units = ash_div_up(operand->lines, operand->has_squares ? GROUP : 1) * operand->groups;

    operand->scales = (float *)at;
    operand->codes = (uint8_t *)(operand->scales + operand->lines * operand->groups);
    ash_workers_run(exec->workers, units, operand->has_squares ? 1 : TILE, quantise_units, operand);
}

void ash_cpu_gemm_fp8(struct ash_exec *exec, const struct ash_gemm_args *args)
{
    size_t groups = ash_div_up(args->K, GROUP);
    struct fp8_op op = {.args = args,
                        .a = {.mat = &args->a,
                              .line_stride = args->a.row_stride,
                              .k_stride = args->a.col_stride,
                              .lines = args->M,
                              .K = args->K,
                              .groups = groups},
                        .b = {.mat = &args->b,
                              .line_stride = args->b.col_stride,
                              .k_stride = args->b.row_stride,
                              .lines = args->N,
                              .K = args->K,
                              .groups = groups,
                              .has_squares = args->fp8 == ASH_FP8_WEIGHT}};
    char *memory;

    ash_gemm_check(args);
    ash_assert(args->round_bf16 && !args->cut_anywhere && args->fp8 != ASH_FP8_OFF);
    memory = ash_exec_shared(exec, operand_bytes(&op.a) + operand_bytes(&op.b));
    make_lines(exec, &op.a, memory);
    make_lines(exec, &op.b, memory + operand_bytes(&op.a));
    ash_workers_run(exec->workers, ash_div_up(args->M, TILE) * ash_div_up(args->N, TILE), 1, multiply_tiles, &op);
}
