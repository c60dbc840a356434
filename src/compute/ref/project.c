/* Products that share their input, composed of the separate ops a few rows at a time: the specification of the fused
 * ones. */
#include "compute/ref/ref_priv.h"

#include <string.h>

#include "base/math.h"
#include "base/assert.h"

#define PROJECT_ROWS 32 /* at a time: bounds the memory for what a fused kernel keeps in registers */

/* One out of the product for `rows` rows of x. */
static void product(struct ash_exec *exec, const struct ash_project_args *args, const struct ash_project_out *out,
                    const void *x, size_t x_stride, size_t rows, float *y, uint16_t *y_bf16, size_t y_stride)
{
    const struct ash_mat *w = &out->w.mat;
    struct ash_quant_args quant = {.M = rows,
                                   .N = out->w.N,
                                   .K = args->K,
                                   .x = x,
                                   .x_stride = x_stride,
                                   .w = w->data,
                                   .dtype = w->dtype,
                                   .y = y,
                                   .y_stride = y_stride,
                                   .bias = out->bias};
    struct ash_gemm_args plain = {.M = rows,
                                  .N = out->w.N,
                                  .K = args->K,
                                  .a = {x, args->x_bf16 != NULL ? ASH_BF16 : ASH_F32, x_stride, 1},
                                  .b = *w,
                                  .c = y,
                                  .c_bf16 = y_bf16,
                                  .c_stride = y_stride,
                                  .bias = out->bias,
                                  .round_bf16 = args->round_bf16};

    ash_assert(!out->w.packed && (y_bf16 == NULL || ash_dtype_block(w->dtype) == 1));
    if (ash_dtype_block(w->dtype) > 1)
        exec->ops->matrix->quant_gemm(exec, &quant);
    else
        exec->ops->matrix->gemm(exec, &plain);
}

/* All outs for the rows from first on; x is normed already. sums has room for two outs of these rows. */
static void project_rows(struct ash_exec *exec, const struct ash_project_args *args, const void *x, size_t x_stride,
                         size_t first, size_t rows, float *sums)
{
    const struct ash_project_out *outs = args->outs;
    size_t wide = outs[0].w.N;

    if (args->swiglu) {
        float *y = outs[0].y + first * outs[0].y_stride;

        product(exec, args, &outs[0], x, x_stride, rows, sums, NULL, wide);
        product(exec, args, &outs[1], x, x_stride, rows, sums + rows * wide, NULL, wide);
        for (size_t r = 0; r < rows; r++)
            exec->ops->act->swiglu_forward(exec, &(struct ash_swiglu_args){.count = wide,
                                                                           .gate = sums + r * wide,
                                                                           .up = sums + (rows + r) * wide,
                                                                           .round_bf16 = args->round_bf16,
                                                                           .out = y + r * outs[0].y_stride});
        return;
    }
    for (size_t i = 0; i < args->out_count; i++) {
        size_t skip = first * outs[i].y_stride;
        uint16_t *y_bf16 = outs[i].y_bf16 != NULL ? outs[i].y_bf16 + skip : NULL;
        float *y = y_bf16 == NULL ? outs[i].y + skip : NULL;

        if (!args->residual) {
            product(exec, args, &outs[i], x, x_stride, rows, y, y_bf16, outs[i].y_stride);
            continue;
        }
        product(exec, args, &outs[i], x, x_stride, rows, sums, NULL, outs[i].w.N);
        for (size_t r = 0; r < rows; r++)
            exec->ops->row->add(exec, y + r * outs[i].y_stride, sums + r * outs[i].w.N, outs[i].w.N,
                                y + r * outs[i].y_stride);
    }
}

void ash_ref_project(struct ash_exec *exec, const struct ash_project_args *args)
{
    size_t wide = 0, rows_max = ash_min(args->M, PROJECT_ROWS);
    float *normed, *sums;

    ash_assert(args->out_count >= 1 && args->out_count <= ASH_PROJECT_OUTS_MAX);
    ash_assert(!args->swiglu || (args->out_count == 2 && !args->residual && args->outs[0].w.N == args->outs[1].w.N));
    ash_assert(args->x_bf16 == NULL || args->norm == NULL);
    if (args->M == 0) return;
    for (size_t i = 0; i < args->out_count; i++)
        if (args->outs[i].w.N > wide) wide = args->outs[i].w.N;
    normed = ash_exec_shared(exec, rows_max * (args->K + 2 * wide) * sizeof(float));
    sums = normed + rows_max * args->K;
    for (size_t first = 0; first < args->M; first += rows_max) {
        size_t rows = ash_min(args->M - first, rows_max);
        const void *x = args->x_bf16 != NULL ? (const void *)(args->x_bf16 + first * args->x_stride)
                                             : args->x + first * args->x_stride;
        struct ash_norm_args norm = {.rows = rows,
                                     .groups = 1,
                                     .cols = args->K,
                                     .x_stride = args->x_stride,
                                     .y_stride = args->K,
                                     .x = x,
                                     .weight = args->norm,
                                     .eps = args->norm_eps,
                                     .y = normed,
                                     .round_bf16 = args->round_bf16};

        if (args->norm != NULL) exec->ops->norm->rms_forward(exec, &norm);
        project_rows(exec, args, args->norm != NULL ? normed : x, args->norm != NULL ? args->K : args->x_stride, first,
                     rows, sums);
    }
}
