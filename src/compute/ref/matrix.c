/* Matrix products in plain C: one fused multiply-add chain per output element, k ascending. */
#include "compute/ref/ref_priv.h"

#include <math.h>
#include "compute/gemm_parts.h"

/* A unit is one output element; neighbours share a thread. */
#define GEMM_MIN_ELEMENTS 64
#define SUM_MIN_COLS 16

static float element(const struct ash_mat *mat, size_t row, size_t col, bool round_bf16)
{
    float value = ref_read(mat->data, mat->dtype, row * mat->row_stride + col * mat->col_stride);

    return round_bf16 ? ash_bf16_round(value) : value;
}

static void gemm_elements(void *ctx, size_t begin, size_t end, int worker)
{
    const struct ash_gemm_args *args = ctx;

    (void)worker;
    for (size_t unit = begin; unit < end; unit++) {
        size_t m = unit / args->N, n = unit % args->N;
        float acc = args->accumulate ? args->c[m * args->c_stride + n] : 0.0f;

        for (size_t k = 0; k < args->K; k++)
            acc = fmaf(element(&args->a, m, k, args->round_bf16), element(&args->b, k, n, args->round_bf16), acc);
        ash_ref_gemm_put(args, m, n, acc);
    }
}

void ash_ref_gemm(struct ash_exec *exec, const struct ash_gemm_args *args)
{
    if (args->fp8 != ASH_FP8_OFF) {
        ash_ref_gemm_fp8(exec, args);
        return;
    }
    ash_gemm_check(args);
    ash_workers_run(exec->workers, args->M * args->N, GEMM_MIN_ELEMENTS, gemm_elements, (void *)args);
}

static void column_sum_cols(void *ctx, size_t begin, size_t end, int worker)
{
    const struct ash_column_sum_args *args = ctx;

    (void)worker;
    for (size_t c = begin; c < end; c++)
        for (size_t r = 0; r < args->rows; r++)
            args->sum[c] = args->sum[c] + args->x[r * args->stride + c];
}

void ash_ref_column_sum(struct ash_exec *exec, const struct ash_column_sum_args *args)
{
    ash_workers_run(exec->workers, args->cols, SUM_MIN_COLS, column_sum_cols, (void *)args);
}

const struct ash_matrix_ops ash_ref_matrix = {.gemm = ash_ref_gemm,
                                              .quant_gemm = ash_ref_quant_gemm,
                                              .project = ash_ref_project,
                                              .column_sum = ash_ref_column_sum};
