/* quant_body - ash_matrix_ops.project for packed quantised weights of one instruction set. */
#ifndef ASH_COMPUTE_QUANT_BODY_H
#define ASH_COMPUTE_QUANT_BODY_H

#include "compute/cpu/quant/quant_units_body.h"
#include "compute/cpu/quant/quant_small_m_body.h"
#include "compute/cpu/quant/quant_large_m_body.h"

/* A table of kernels keeps to the limits that the arrays above are sized by. */
static void quant_check_kernels(const struct ash_quant_panels *kernels)
{
    ash_assert(kernels->micro_rows > 0 && kernels->micro_rows <= ASH_QUANT_MICRO_ROWS_MAX);
    ash_assert(kernels->tile_micros > 0 && kernels->tile_micros * kernels->micro_rows <= ASH_QUANT_TILE_ROWS_MAX);
    ash_assert(ash_quant_panel_rows(kernels->layout) <= ASH_QUANT_PANEL_ROWS_MAX);
    ash_assert(kernels->small_m_max <= ASH_QUANT_SMALL_M_MAX);
    ash_assert(kernels->k_groups > 0 && kernels->expanded_panels > 0);
    ash_assert(kernels->expand == NULL || kernels->expanded_bytes > 0);
    ash_assert(kernels->quantise != NULL && kernels->untile != NULL);
}

static void quant_check_args(const struct ash_project_args *args)
{
    ash_assert(args->out_count >= 1 && args->out_count <= ASH_PROJECT_OUTS_MAX && args->K % ASH_QUANT_BLOCK == 0);
    ash_assert(!args->swiglu || (args->out_count == 2 && !args->residual && args->outs[0].w.N == args->outs[1].w.N));
    for (size_t i = 0; i < args->out_count; i++)
        ash_assert(args->outs[i].w.packed && args->outs[i].w.mat.dtype == args->outs[0].w.mat.dtype);
}

static void quant_project(struct ash_exec *exec, const struct ash_project_args *args)
{
    enum ash_dtype dtype = args->outs[0].w.mat.dtype;
    const struct ash_quant_panels *kernels = VEC_QUANT_PANELS(exec->ops, dtype);
    struct quant_op op = {.exec = exec, .args = args};
    bool is_small;

    quant_check_args(args);
    ash_assert(kernels != NULL);
    is_small = args->M <= kernels->small_m_max;
    if (is_small && kernels->small_m != NULL) {
        ash_assert(kernels->small_m->layout == kernels->layout && args->M <= kernels->small_m->small_m_max);
        kernels = kernels->small_m;
    }
    quant_check_kernels(kernels);
    if (args->M == 0) return;
    op.kernels = kernels;
    op.w = (struct quant_weights){.dtype = dtype,
                                  .groups = ash_quant_groups(dtype, args->K),
                                  .panel_rows = ash_quant_panel_rows(kernels->layout),
                                  .panel_bytes = ash_quant_panel_bytes(kernels->layout, dtype, args->K)};
    if (is_small) {
        ash_assert(kernels->tile != NULL && kernels->gemv != NULL && kernels->quantise_gemv != NULL);
        quant_project_small_m(&op);
    } else {
        ash_assert(kernels->tile != NULL || kernels->large_m != NULL);
        quant_project_large_m(&op);
    }
}

#endif
