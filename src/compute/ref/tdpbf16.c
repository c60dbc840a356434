/* The reference of backends that multiply bf16 with TDPBF16PS: the reference backend but for those products. It runs
 * everywhere, so any machine can check, slowly, what an x86-64 one with AMX computed. */
#include "compute/ref/tdpbf16.h"

#include "compute/ref/ref_priv.h"

static float step(float sum, const float *a, const float *b)
{
    return tdpbf16_step(sum, a, b);
}

static void gemm(struct ash_exec *exec, const struct ash_gemm_args *args)
{
    ash_ref_gemm_steps(exec, args, TDPBF16_GROUP, step);
}

static const struct ash_matrix_ops tdpbf16_matrix = {
    .gemm = gemm, .quant_gemm = ash_ref_quant_gemm, .project = ash_ref_project, .column_sum = ash_ref_column_sum};

const struct ash_ops ash_ops_ref_tdpbf16 = {
    .name = "ref-tdpbf16",
    .reference = &ash_ops_ref_tdpbf16,
    .matrix = &tdpbf16_matrix,
    .embed = &ash_ref_embed,
    .norm = &ash_ref_norm,
    .rope = &ash_ref_rope,
    .attn = &ash_ref_attn,
    .act = &ash_ref_act,
    .row = &ash_ref_row,
    .loss = &ash_ref_loss,
    .route = &ash_ref_route,
    .optim = &ash_ref_optim,
};
