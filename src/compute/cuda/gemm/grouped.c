/* Products of rows in groups: one launch, whatever rows each group has. */
#include "compute/cuda/gemm/grouped.h"

#include "base/assert.h"
#include "base/math.h"
#include "compute/cuda/host/backend_priv.h"

void ash_cuda_grouped(struct ash_exec *exec, const struct ash_grouped_args *args)
{
    const void *w[ASH_ROUTE_EXPERTS_MAX];
    const struct ash_mat *mat = &args->w[0].mat;
    struct ash_cuda_grouped_args op = {.groups = args->groups,
                                       .N = args->N,
                                       .K = args->K,
                                       .starts = args->starts,
                                       .dtype = mat->dtype,
                                       .k_stride = mat->row_stride,
                                       .n_stride = mat->col_stride,
                                       .x = args->x,
                                       .x_stride = args->x_stride,
                                       .y = args->y,
                                       .y_stride = args->y_stride,
                                       .accumulate = args->accumulate};

    ash_assert(args->groups > 0 && args->groups <= ASH_ROUTE_EXPERTS_MAX);
    if (args->rows == 0 || args->N == 0) return;
    for (size_t g = 0; g < args->groups; g++) {
        ash_assert(!args->w[g].packed && args->w[g].mat.row_stride == mat->row_stride);
        w[g] = args->w[g].mat.data;
    }
    op.w = ash_cuda_upload(exec->cuda->cuda, w, args->groups * sizeof(w[0]));
    ash_cuda_run(exec, args->round_bf16 ? ASH_KERNEL_grouped_bf16 : ASH_KERNEL_grouped_f32,
                 (struct ash_cuda_grid){.x = args->rows / ASH_CUDA_GROUPED_TILE + args->groups,
                                        .y = ash_div_up(args->N, ASH_CUDA_GROUPED_TILE),
                                        .threads = ASH_CUDA_GROUPED_THREADS},
                 &op);
}

void ash_cuda_grouped_grad(struct ash_exec *exec, const struct ash_grouped_grad_args *args)
{
    struct ash_cuda_grouped_grad_args op = {.M = args->M,
                                            .N = args->N,
                                            .starts = args->starts,
                                            .dy = args->dy,
                                            .x = args->x,
                                            .dy_stride = args->dy_stride,
                                            .x_stride = args->x_stride,
                                            .accumulate = args->accumulate,
                                            .round_bf16 = args->round_bf16};

    ash_assert(args->groups > 0 && args->groups <= ASH_ROUTE_EXPERTS_MAX);
    op.dw = ash_cuda_upload(exec->cuda->cuda, args->dw, args->groups * sizeof(args->dw[0]));
    ash_cuda_run(exec, ASH_KERNEL_grouped_grad,
                 (struct ash_cuda_grid){.x = ash_div_up(args->N, ASH_CUDA_GROUPED_TILE),
                                        .y = ash_div_up(args->M, ASH_CUDA_GROUPED_TILE),
                                        .z = args->groups,
                                        .threads = ASH_CUDA_GROUPED_THREADS},
                 &op);
}
