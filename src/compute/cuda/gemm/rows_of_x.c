/* See rows_of_x.h. */
#include "compute/cuda/gemm/rows_of_x.h"

#define CHUNK 8 /* values of 16 bytes */

static void round_rows(struct ash_exec *exec, const struct ash_cuda_rows_of_x *rows, size_t M, size_t K, uint16_t *out)
{
    struct ash_cuda_to_lines copy = {.data = rows->x,
                                     .dtype = ASH_F32,
                                     .line_stride = rows->stride,
                                     .k_stride = 1,
                                     .count = M,
                                     .k = K,
                                     .stride = K,
                                     .out = out};

    ash_cuda_run(exec, ASH_KERNEL_round_lines, ash_cuda_grid_elements(M * K / CHUNK), &copy);
}

static void norm_rows(struct ash_exec *exec, const struct ash_cuda_rows_of_x *rows, size_t M, size_t K, uint16_t *out)
{
    struct ash_norm_args norm = {.rows = M,
                                 .groups = 1,
                                 .cols = K,
                                 .x_stride = rows->stride,
                                 .y_stride = K,
                                 .x = rows->x,
                                 .weight = rows->norm,
                                 .eps = rows->norm_eps,
                                 .y_bf16 = out,
                                 .round_bf16 = true};

    exec->ops->norm->rms_forward(exec, &norm);
}

const uint16_t *ash_cuda_bf16_rows_of(struct ash_exec *exec, const struct ash_cuda_rows_of_x *rows, size_t M, size_t K,
                                      size_t *stride_out)
{
    uint16_t *out;

    *stride_out = rows->x_bf16 != NULL ? rows->stride : K;
    if (rows->x_bf16 != NULL) return rows->x_bf16;
    out = ash_cuda_scratch(exec, M * K * sizeof(*out));
    if (rows->norm != NULL)
        norm_rows(exec, rows, M, K, out);
    else
        round_rows(exec, rows, M, K, out);
    return out;
}
