/* reduction: operands that are matrix products, and the bias at the end of a sum. */
#include "model/pass/reduction.h"

#include "base/assert.h"

void ash_reduction_add_bias(const struct ash_pass_step *step, const struct ash_reduction *reduction, size_t rows,
                            float *sums)
{
    struct ash_copy_args add = {.rows = rows,
                                .blocks = 1,
                                .cols = reduction->cols,
                                .src = reduction->bias,
                                .dst = sums,
                                .dst_dtype = ASH_F32,
                                .dst_row = reduction->cols,
                                .add = true};

    if (reduction->bias != NULL) step->exec->ops->row->copy(step->exec, &add);
}

struct ash_operand ash_operand_product(const struct ash_pass_step *step, const struct ash_linear_chunk *chunk)
{
    struct ash_gemm_args gemm = ash_linear_chunk_gemm(step->model, chunk);
    struct ash_operand operand = {
        .rank = step->axes->tp.rank, .x = gemm.a.data, .x_stride = gemm.a.row_stride, .product = gemm};

    if (ash_linear_is_quantised(step->model, chunk->weight)) operand.chunk = *chunk;
    return operand;
}

void ash_reduction_add_outputs(const struct ash_pass_step *step, struct ash_reduction *reduction, int32_t weight,
                               const float *dy, size_t dy_stride)
{
    const struct ash_param *param = &step->model->params[weight];
    size_t done = 0;

    for (size_t i = 0; i < param->run_count; i++) {
        struct ash_linear_chunk chunk = {
            .weight = weight, .backward = true, .outs = {done, param->runs[i].count}, .x = dy, .x_stride = dy_stride};

        ash_assert(reduction->chunk_count < ASH_PROJECT_OUTS_MAX);
        reduction->chunks[reduction->chunk_count++] = ash_operand_product(step, &chunk);
        done += param->runs[i].count;
    }
}

void ash_operand_accumulate(const struct ash_pass_step *step, void *ctx, const struct ash_operand *operand,
                            struct ash_range rows, bool overwrite, float *sums)
{
    struct ash_gemm_args args = operand->product;
    struct ash_linear_chunk chunk = operand->chunk;

    (void)ctx;
    ash_assert(operand->x != NULL && args.N > 0);
    if (chunk.x != NULL) {
        chunk.x = operand->x - (chunk.backward ? chunk.outs.first : 0);
        ash_linear_chunk_add(step->model, step->exec, &chunk, rows.count, overwrite, sums);
        return;
    }
    args.M = rows.count;
    args.a.data = operand->x;
    args.c = sums;
    args.accumulate = !overwrite;
    step->exec->ops->matrix->gemm(step->exec, &args);
}
