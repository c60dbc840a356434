/* Sums of columns: by blocks of rows (norm_bf16.cu), or as one chain. */
#include "compute/cuda/rows/column_sum.h"

#include "base/math.h"
#include "compute/blocks.h"

void ash_cuda_run_add_blocks(struct ash_exec *exec, const struct ash_cuda_add_blocks *op)
{
    ash_cuda_run(exec, ASH_KERNEL_add_blocks,
                 (struct ash_cuda_grid){.x = ash_div_up(op->cols, 32),
                                        .y = op->second != NULL ? 2 : 1,
                                        .threads = ASH_CUDA_ADD_BLOCKS_THREADS},
                 op);
}

void ash_cuda_column_sum(struct ash_exec *exec, const struct ash_column_sum_args *args)
{
    struct ash_cuda_rows op = {
        .a = args->x, .count = args->stride, .rows = args->rows, .cols = args->cols, .out = args->sum};
    struct ash_seq_rows rows = {args->rows, args->seq_rows, 0};
    struct ash_cuda_column_blocks blocks = {.args = *args};

    if (args->rows == 0 || args->cols == 0) return;
    if (args->seq_rows == 0) {
        ash_cuda_run(exec, ASH_KERNEL_column_sum, ash_cuda_grid_chains(args->cols), &op);
        return;
    }
    blocks.parts = ash_cuda_scratch(exec, ash_row_blocks(&rows) * args->cols * sizeof(*blocks.parts));
    ash_cuda_run(exec, ASH_KERNEL_column_blocks,
                 (struct ash_cuda_grid){.x = ash_row_blocks(&rows),
                                        .y = ash_div_up(args->cols, ASH_CUDA_COLUMN_THREADS),
                                        .threads = ASH_CUDA_COLUMN_THREADS},
                 &blocks);
    ash_cuda_run_add_blocks(
        exec, &(struct ash_cuda_add_blocks){
                  .parts = blocks.parts, .count = ash_row_blocks(&rows), .cols = args->cols, .first = args->sum});
}
